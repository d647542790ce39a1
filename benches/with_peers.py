#!/usr/bin/env python3
"""Times tilewright beside torch (cuBLAS, device copy) and the libraries that are installed (DeepGEMM, Triton, FlashMLA,
FlashInfer) in one run, and writes rows for benches/results.

    cargo build --release -p tilewright-bench-c
    python3 benches/with_peers.py target/release/libtilewright_bench_c.so --commit HASH --json benches/results/NAME.json

Every candidate is captured in a CUDA graph over buffer sets that together exceed three times the L2 cache, and replayed
in interleaved rounds; the figure is the median round. Data is random normal. Needs torch with CUDA. The environment's
PEERS_SITE may name folders of further Python packages, separated by colons.
"""
import argparse, ctypes, datetime, json, math, os, site, statistics, subprocess, tempfile

for folder in filter(None, os.environ.get("PEERS_SITE", "").split(":")):
    site.addsitedir(folder)
if "CUDA_HOME" not in os.environ and os.path.isdir("/usr/local/cuda"):
    os.environ["CUDA_HOME"] = "/usr/local/cuda"  # DeepGEMM compiles its kernels at first use
os.environ.setdefault("DG_JIT_CACHE_DIR", os.path.join(tempfile.gettempdir(), "deep_gemm_cache"))

import torch

DTYPES = {"bf16": (0, torch.bfloat16), "f16": (1, torch.float16), "f32": (2, torch.float32)}
P, Z, I, F = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_float


def library(path):
    lib = ctypes.CDLL(path)
    lib.tilewright_gemm.argtypes = [P, I, I, P, P, P, Z, Z, Z]
    lib.tilewright_gemm_e4m3.argtypes = [P, P, Z, Z, Z]
    lib.tilewright_rmsnorm.argtypes = [P, I, P, P, P, P, Z, Z, F]
    lib.tilewright_mla_sizes.argtypes = [Z, Z, Z, P, P]
    lib.tilewright_mla_plan.argtypes = [P, Z, Z, Z, P, Z, P]
    lib.tilewright_mla_decode.argtypes = [P, I, P, P, F]
    return lib


def stream():
    return torch.cuda.current_stream().cuda_stream


def done(code):
    if code:
        raise RuntimeError("tilewright refused; see above")


def sets_for(call_bytes):
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    return max(1, min(24, math.ceil(3 * l2 / call_bytes)))


class Candidate:
    def __init__(self, name, fns):
        self.name, self.times = name, []
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for f in fns:
                f()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        rounds = max(1, math.ceil(8 / len(fns)))
        with torch.cuda.graph(self.graph):
            for _ in range(rounds):
                for f in fns:
                    f()
        self.calls, self.replays = rounds * len(fns), 1

    def replay(self):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(self.replays):
            self.graph.replay()
        b.record()
        b.synchronize()
        return a.elapsed_time(b) * 1e3 / (self.replays * self.calls)


def measure(candidates, rounds, ms):
    for c in candidates:
        c.replay()
        c.replays = max(1, min(4000, math.ceil(ms * 1e3 / (c.replay() * c.calls))))
    for _ in range(rounds):
        for c in candidates:
            c.times.append(c.replay())
    return {c.name: statistics.median(c.times) for c in candidates}


ABSENT = set()


def absent(name, error):
    if name not in ABSENT:
        ABSENT.add(name)
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"{name} is not here: {reason}"[:160], flush=True)


def quickest(variants):
    """The variant (a list of calls) that a short run finds quickest; raises what the last one did if none runs."""
    best, last = None, RuntimeError("none given")
    for fns in variants:
        try:
            fns[0]()
            torch.cuda.synchronize()
            us = measure([Candidate("x", fns)], 2, 4)["x"]
        except Exception as e:  # a tiling may need more shared memory than there is
            last = e
            continue
        if best is None or us < best[0]:
            best = us, fns
    if best is None:
        raise last
    return best[1]


def gemm_peers(dtype, m, n, k, sets):
    """Calls of the libraries that are installed, by name: a list each, with a call for every set of buffers."""
    peers = {}
    if dtype == "bf16" and "DeepGEMM" not in ABSENT:
        try:
            import deep_gemm
            deep_gemm.bf16_gemm_nt(*sets[0])
            torch.cuda.synchronize()
            peers["DeepGEMM"] = [lambda s=s: deep_gemm.bf16_gemm_nt(*s) for s in sets]
        except BaseException as e:  # an assertion or an exit where it finds no toolkit
            if isinstance(e, KeyboardInterrupt):
                raise
            absent("DeepGEMM", e)
    if dtype != "f32" and "Triton" not in ABSENT:
        try:
            import triton_gemm
            peers["Triton"] = quickest(triton_gemm.variants(sets, m, n, k))
        except Exception as e:
            absent("Triton", e)
    return peers


def gemm(lib, dtype, m, n, k, args):
    code, dt = DTYPES[dtype]
    count = sets_for((m * k + n * k + m * n) * dt.itemsize)
    sets = [(torch.randn(m, k, device="cuda", dtype=dt), torch.randn(n, k, device="cuda", dtype=dt),
             torch.empty(m, n, device="cuda", dtype=dt)) for _ in range(count)]

    def ours(path):
        def call(a, b, c):
            done(lib.tilewright_gemm(stream(), code, path, a.data_ptr(), b.data_ptr(), c.data_ptr(), m, n, k))
        return call
    calls = {"gemm_hopper": ours(0), "cublas": lambda a, b, c: torch.mm(a, b.t(), out=c)}
    if m >= 1024:
        calls["gemm_portable"] = ours(1)
    calls = {name: [lambda s=s, f=f: f(*s) for s in sets] for name, f in calls.items()}
    peers = gemm_peers(dtype, m, n, k, sets)
    calls.update(peers)
    a, b, c = sets[0]
    want = a[:256].double() @ b.double().t()
    for name, fns in calls.items():
        c.fill_(float("nan"))
        fns[0]()
        torch.cuda.synchronize()
        error = ((c[:256].double() - want).norm() / want.norm()).item()
        if not error < 1e-2 or not torch.isfinite(c).all():
            raise RuntimeError(f"{name} is wrong at {m}x{n}x{k}: relative error {error:.2e}")
    t = measure([Candidate(name, fns) for name, fns in calls.items()], args.rounds, 25)
    size = (m * k + n * k + m * n) * dt.itemsize
    rate = lambda us: f"{2e-6 * m * n * k / us:.0f} TFLOP/s" if m > 128 else f"{size / us * 1e-3:.0f} GB/s"
    shape = f"{m}x{n}x{k}"
    yield "gemm_hopper", dtype, shape, t["gemm_hopper"], "cublas (torch.mm)", t["cublas"], rate
    for peer in peers:
        yield "gemm_hopper", dtype, shape, t["gemm_hopper"], peer, t[peer], rate
    if "gemm_portable" in t:
        yield "gemm_portable", dtype, shape, t["gemm_portable"], "cublas (torch.mm)", t["cublas"], rate
        yield "gemm_portable", dtype, shape, t["gemm_portable"], "gemm_hopper", t["gemm_hopper"], rate


def blocks(x, rows):
    """A matrix in e4m3, and its scales: one for each `rows` x 128, in f32."""
    m, k = x.shape
    padded = torch.nn.functional.pad(x.float(), (0, -k % 128, 0, -m % rows))
    tiles = padded.view(-1, rows, padded.shape[1] // 128, 128)
    scale = tiles.abs().amax((1, 3), keepdim=True).clamp(1e-4) / 448
    narrow = (tiles / scale).view_as(padded)[:m, :k].to(torch.float8_e4m3fn).contiguous()
    return narrow, scale[:, 0, :, 0].contiguous()


def wide(x, rows):
    narrow, scale = x
    whole = scale.double().repeat_interleave(rows, 0).repeat_interleave(128, 1)
    return narrow.double() * whole[:narrow.shape[0], :narrow.shape[1]]


def gemm_e4m3(lib, m, n, k, args):
    count = sets_for(m * k + n * k + 2 * m * n)
    sets = [(blocks(torch.randn(m, k, device="cuda"), 1), blocks(torch.randn(n, k, device="cuda"), 128),
             torch.empty(m, n, device="cuda", dtype=torch.bfloat16)) for _ in range(count)]

    def ours(a, b, c):
        tensors = (P * 5)(*[t.data_ptr() for t in (*a, *b, c)])
        done(lib.tilewright_gemm_e4m3(stream(), tensors, m, n, k))
    calls = {"gemm_e4m3": [lambda s=s: ours(*s) for s in sets]}
    try:
        import deep_gemm
        turned = [((a[0], deep_gemm.get_mn_major_tma_aligned_tensor(a[1])), b, c) for a, b, c in sets]
        deep_gemm.fp8_gemm_nt(*turned[0])
        torch.cuda.synchronize()
        calls["DeepGEMM"] = [lambda s=s: deep_gemm.fp8_gemm_nt(*s) for s in turned]
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt):
            raise
        absent("DeepGEMM", e)
    a, b, c = sets[0]
    want = wide((a[0][:256], a[1][:256]), 1) @ wide(b, 128).t()
    for name, fns in calls.items():
        c.fill_(float("nan"))
        fns[0]()
        torch.cuda.synchronize()
        error = ((c[:256].double() - want).norm() / want.norm()).item()
        if not error < 1e-2 or not torch.isfinite(c).all():
            raise RuntimeError(f"{name} is wrong at {m}x{n}x{k} of e4m3: relative error {error:.2e}")
    t = measure([Candidate(name, fns) for name, fns in calls.items()], args.rounds, 25)
    rate = lambda us: f"{2e-6 * m * n * k / us:.0f} TFLOP/s"
    for peer in calls:
        if peer != "gemm_e4m3":
            yield "gemm_e4m3", "e4m3", f"{m}x{n}x{k}", t["gemm_e4m3"], peer, t[peer], rate


def rmsnorm(lib, dtype, m, n, args):
    code, dt = DTYPES[dtype]
    count = sets_for(2 * m * n * dt.itemsize)
    w = torch.randn(n, device="cuda", dtype=dt)
    sets = [(torch.randn(m, n, device="cuda", dtype=dt), torch.randn(m, n, device="cuda", dtype=dt),
             torch.empty(m, n, device="cuda", dtype=dt)) for _ in range(count)]

    def ours(residual):
        def call(x, r, y):
            r = r.data_ptr() if residual else None
            done(lib.tilewright_rmsnorm(stream(), code, x.data_ptr(), r, w.data_ptr(), y.data_ptr(), m, n, 1e-5))
        return call
    calls = {"rmsnorm": ours(False), "rmsnorm_residual": ours(True), "copy": lambda x, r, y: y.copy_(x)}
    x, r, y = sets[0]
    calls["rmsnorm"](x, r, y)
    d = x[:256].double()
    want = d / (d.pow(2).mean(1, keepdim=True) + 1e-5).sqrt() * w.double()
    torch.cuda.synchronize()
    if not ((y[:256].double() - want).norm() / want.norm()).item() < 1e-2:
        raise RuntimeError(f"rmsnorm is wrong at {m}x{n}")
    t = measure([Candidate(name, [lambda s=s, f=f: f(*s) for s in sets]) for name, f in calls.items()], args.rounds, 15)
    size = 2 * m * n * dt.itemsize
    shape = f"{m}x{n}"
    yield "rmsnorm", dtype, shape, t["rmsnorm"], "copy (torch)", t["copy"], lambda us: f"{size / us * 1e-3:.0f} GB/s"
    # the residual form reads and writes twice as much as the copy does
    yield ("rmsnorm_residual", dtype, shape, t["rmsnorm_residual"], "2 copies (torch)", 2 * t["copy"],
           lambda us: f"{2 * size / us * 1e-3:.0f} GB/s")


def mla_peers(b, h, pages, columns, table, lengths, scale, dt):
    """Calls of the libraries that are installed, by name: each takes q, the cache and out."""
    peers = {}
    try:
        import flash_mla
        meta, _ = flash_mla.get_mla_metadata()
        peers["FlashMLA"] = lambda q, kv, out: flash_mla.flash_mla_with_kvcache(
            q, kv.view(pages, 64, 1, 576), table, lengths, 512, meta, None, scale, False)[0]
    except ImportError:
        pass
    try:
        import flashinfer
        wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(
            torch.empty(256 << 20, dtype=torch.int8, device="cuda"), backend="fa3")
        starts = torch.arange(b + 1, dtype=torch.int32, device="cuda")
        wrapper.plan(starts, starts * columns, table.reshape(-1), lengths, h, 512, 64, 64, False, scale, dt, dt)
        peers["FlashInfer"] = lambda q, kv, out: wrapper.run(
            q[:, 0, :, :512], q[:, 0, :, 512:], kv[:, :, :512], kv[:, :, 512:], out=out[:, 0])
    except Exception as e:  # it compiles itself at first use, which needs a toolkit
        print(f"FlashInfer is not here: {type(e).__name__}")
    return peers


def mla(lib, dtype, b, h, s, args):
    code, dt = DTYPES[dtype]
    columns, scale = math.ceil(s / 64), 576 ** -0.5
    pages = b * columns
    count = sets_for(pages * 64 * 576 * dt.itemsize)
    table = torch.randperm(pages, device="cuda").to(torch.int32).view(b, columns)
    lengths = torch.full((b,), s, device="cuda", dtype=torch.int32)
    sets = [(torch.randn(b, 1, h, 576, device="cuda", dtype=dt), torch.randn(pages, 64, 576, device="cuda", dtype=dt),
             torch.empty(b, 1, h, 512, device="cuda", dtype=dt)) for _ in range(count)]
    words, floats = Z(), Z()
    done(lib.tilewright_mla_sizes(b, h, 1, ctypes.byref(words), ctypes.byref(floats)))
    plan = torch.empty(words.value, device="cuda", dtype=torch.int32)
    workspace = torch.empty(floats.value, device="cuda")
    lse = torch.empty(b, 1, h, device="cuda")
    # made once for all layers of a step, as the peers' are
    done(lib.tilewright_mla_plan(stream(), b, h, 1, lengths.data_ptr(), columns * 64, plan.data_ptr()))

    def ours(q, kv, out):
        tensors = (P * 8)(*[t.data_ptr() for t in (q, kv, table, lengths, plan, workspace, out, lse)])
        done(lib.tilewright_mla_decode(stream(), code, tensors, (Z * 6)(b, h, 1, pages, 64, columns), scale))
        return out
    calls = {"mla": ours, **mla_peers(b, h, pages, columns, table, lengths, scale, dt)}
    q, kv, out = sets[0]
    rows = range(0, b, max(1, b // 4))
    k = [kv[table[r].long()].reshape(-1, 576)[:s].double() for r in rows]
    want = torch.stack([torch.softmax(q[r, 0].double() @ k.T * scale, -1) @ k[:, :512] for r, k in zip(rows, k)])
    del k
    for name, call in calls.items():
        out.fill_(float("nan"))
        got = call(q, kv, out)
        got = (out if name == "FlashInfer" else got).view(b, h, 512)[list(rows)].double()
        error = ((got - want).norm() / want.norm()).item()
        if not error < 1e-2:
            raise RuntimeError(f"{name} is wrong at {b}/{h}/{s}: relative error {error:.2e}")
    t = measure([Candidate(name, [lambda s=s, f=f: f(*s) for s in sets]) for name, f in calls.items()], args.rounds, 20)
    flop, size = 2 * b * h * s * 1088, b * s * 1152
    rate = (lambda us: f"{1e-6 * flop / us:.0f} TFLOP/s") if h > 64 else (lambda us: f"{1e-3 * size / us:.0f} GB/s")
    for peer in calls:
        if peer != "mla":
            yield "mla_decode", dtype, f"{b}/{h}/{s}", t["mla"], peer, t[peer], rate


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("library")
    p.add_argument("--only", default="", choices=["", "gemm", "e4m3", "rmsnorm", "mla"])
    p.add_argument("--quick", action="store_true")
    p.add_argument("--products", default="", help="MxNxK,...: these products in bf16 in place of the list")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--json", default="")
    p.add_argument("--commit", default="unknown")
    args = p.parse_args()
    lib, rows = library(args.library), []
    torch.manual_seed(0)
    products = [("bf16", 4096, 4096, 4096), ("bf16", 8192, 8192, 8192)]
    norms = [("bf16", 32768, 4096)]
    if not args.quick:
        products += [("f16", 4096, 4096, 4096), ("bf16", 4096, 7168, 2048), ("bf16", 4096, 4096, 7168),
                     ("bf16", 4096, 7168, 16384), ("bf16", 2048, 2048, 2048), ("bf16", 1024, 1024, 1024),
                     ("bf16", 256, 4096, 4096), ("bf16", 4096, 2112, 7168)]
        # decode steps: few tokens, many weights
        weights = [(4096, 4096), (7168, 2048), (2112, 7168), (32768, 512), (24576, 1536), (18432, 7168), (7168, 18432)]
        products += [("bf16", m, n, k) for n, k in weights for m in (1, 16, 32, 64, 128)]
        norms += [("bf16", 16384, 4096), ("bf16", 4096, 7168), ("bf16", 128, 7168), ("bf16", 1, 7168),
                  ("bf16", 99840, 128), ("bf16", 24960, 512), ("bf16", 4096, 32768), ("f16", 32768, 4096),
                  ("f32", 32768, 4096)]
    if args.products:
        products = [("bf16", *map(int, shape.split("x"))) for shape in args.products.split(",")]
    decodes = [("bf16", 128, 128, 4096), ("bf16", 1, 128, 1024)]
    if not args.quick:
        decodes = [("bf16", b, h, s) for h in (128, 16) for s in (1024, 4096, 8192) for b in (1, 16, 64, 128, 132)]
    wanted = lambda what: args.only in ("", what)
    work = [gemm(lib, *s, args) for s in products if wanted("gemm")]
    # scales as DeepSeek-V3 has them, and shapes of its layers
    narrow = [(4096, 7168, 2048), (4096, 2112, 7168)]
    if not args.quick:
        narrow += [(4096, 24576, 1536), (4096, 32768, 512), (4096, 7168, 16384), (4096, 4096, 7168), (128, 7168, 2048),
                   (128, 4096, 7168), (64, 24576, 1536)]
    work += [gemm_e4m3(lib, *s, args) for s in narrow if wanted("e4m3")]
    work += [rmsnorm(lib, *s, args) for s in norms if wanted("rmsnorm")]
    work += [mla(lib, *s, args) for s in decodes if wanted("mla")]
    for group in work:
        for op, dtype, shape, ours, peer, theirs, rate in group:
            rows.append(dict(op=op, dtype=dtype, shape=shape, ours_us=round(ours, 3), peer=peer,
                             peer_us=round(theirs, 3), ratio=round(theirs / ours, 4)))
            print(f"{op:17} {dtype:5} {shape:18} {ours:9.2f} us {rate(ours):>14}  {peer:18} {theirs:9.2f} us  "
                  f"{theirs / ours:.3f}", flush=True)
        torch.cuda.empty_cache()
    if args.json:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True).stdout.split()[0]
        head = dict(gpu=torch.cuda.get_device_name(0), driver=driver, date=datetime.date.today().isoformat(),
                    commit=args.commit)
        with open(args.json, "w") as f:
            rest = ",\n".join("  " + json.dumps(r) for r in rows)
            f.write(json.dumps(head)[:-1] + ', "rows": [\n' + rest + "\n]}\n")


if __name__ == "__main__":
    main()
