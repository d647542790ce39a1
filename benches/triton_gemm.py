"""A product in Triton for benches/with_peers.py: C = A B^T, persistent over tiles that the copy engine brings, after
the scheme of Triton's tutorial on persistent products, in several tilings of which the harness takes the best."""
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# rows, columns, depth of a tile; stages; warps
LARGE = [(128, 256, 64, 3, 8), (128, 256, 64, 4, 8), (128, 128, 64, 4, 8), (128, 128, 64, 4, 4)]
SMALL = [(64, 128, 64, 6, 4), (64, 64, 128, 5, 4), (64, 256, 64, 4, 8), (128, 128, 64, 4, 8)]
GROUP = 8


@triton.jit
def product(a, b, c, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
            BLOCKS: tl.constexpr):
    down, across, steps = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS), tl.cdiv(k, DEPTH)
    for tile in tl.range(tl.program_id(0), down * across, BLOCKS, flatten=True):
        # bands of GROUP tile rows, column by column: what is in L2 is used again
        band = tile // (GROUP * across)
        height = min(down - band * GROUP, GROUP)
        inside = tile - band * GROUP * across
        i, j = band * GROUP + inside % height, inside // height
        total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for step in range(steps):
            left = a.load([i * ROWS, step * DEPTH])
            right = b.load([j * COLUMNS, step * DEPTH])
            total = tl.dot(left, right.T, total)
        c.store([i * ROWS, j * COLUMNS], total.to(c.dtype))


def call(blocks, maps, extents, tiling):
    rows, columns, depth, stages, warps = tiling
    return lambda: product[(blocks,)](*maps, *extents, ROWS=rows, COLUMNS=columns, DEPTH=depth, GROUP=GROUP,
                                      BLOCKS=blocks, num_warps=warps, num_stages=stages)


def variants(sets, m, n, k):
    """A list of calls, one for each of `sets` (a, b, c), in every tiling worth a try for m x n x k."""
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    for tiling in LARGE if m > 128 else SMALL:
        rows, columns, depth = tiling[:3]
        blocks = min(processors, triton.cdiv(m, rows) * triton.cdiv(n, columns))
        boxes = [rows, depth], [columns, depth], [rows, columns]
        yield [call(blocks, [TensorDescriptor.from_tensor(t, box) for t, box in zip(s, boxes)], (m, n, k), tiling)
               for s in sets]
