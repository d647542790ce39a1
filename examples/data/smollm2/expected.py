"""The layer's step in f64: y = rmsnorm(x, w, 1e-5), z = y @ ffn_up^T. Needs numpy."""
import pathlib

import numpy as np

here = pathlib.Path(__file__).parent
x, w, up = (
    np.load(here / f).astype(np.float64)
    for f in ("embeddings_64x576_f16.npy", "ffn_norm_576_f32.npy", "ffn_up_1536x576_f16.npy")
)
y = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * w
np.save(here / "ffn_up_expected_64x1536_f32.npy", (y @ up.T).astype(np.float32))
