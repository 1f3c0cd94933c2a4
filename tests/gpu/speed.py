"""kbundle against jax.jit of the plain formula on 20 shapes, and against torch.compile on three.

Each side is one jitted program of N equal calls on distinct buffers, chained by optimization barriers
so that XLA neither merges nor overlaps them; XLA runs either program as a CUDA graph. Time of a call:
the host clock over back-to-back runs of the program, ended by one wait, divided by the calls; the
median of interleaved rounds. kbundle's own captured graph is in the table too, and torch.compile's.

The bar is what a user under jax.jit has: both columns of the same clock, with XLA's price of a custom call, a
child graph each, which shows on small shapes, so the smallest are left to XLA. That the kernels themselves are
no slower is a bar of its own: kbundle's own captured graph (device events) beside the formula's. The bar
against torch.compile compares two captured graphs over the very same tensors.
"""

import itertools
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp

import kbundle
import kbundle.jax as kbj
from formulas import OPS, SCALE, inputs
from kbundle_kernels import softmax_formulas
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGE = (4, 16, 2048, 2048)
# (op, dtype, shape); the first three are also given to torch.compile
SHAPES = [
    ("scaled_forward", "bfloat16", LARGE),
    ("scaled_causal_forward", "bfloat16", (4, 16, 1024, 1024)),
    ("scaled_backward", "bfloat16", (8, 16, 512, 512)),
    ("scaled_masked_forward", "bfloat16", LARGE),
    ("scaled_causal_forward", "bfloat16", LARGE),
    ("scaled_backward", "bfloat16", LARGE),
    ("scaled_causal_backward", "bfloat16", (2, 16, 2048, 2048)),
    ("scaled_masked_backward", "float16", (4, 16, 1024, 1024)),
    ("scaled_forward", "float32", (1, 1, 4096, 4096)),
    ("scaled_forward", "bfloat16", (1, 1, 8, 64)),
    ("scaled_forward", "float32", (1, 1, 1, 32)),
    ("scaled_forward", "bfloat16", (1, 1, 1, 4096)),
    ("scaled_forward", "float32", (1, 1, 128, 128)),
    ("scaled_forward", "bfloat16", (1, 1, 128, 2048)),
    ("scaled_forward", "bfloat16", (1, 1, 8, 65536)),
    ("scaled_forward", "bfloat16", (1, 1, 8192, 1001)),
    ("scaled_forward", "bfloat16", (1, 1, 131072, 64)),
    ("scaled_masked_forward", "float16", (8, 16, 256, 256)),
    ("scaled_causal_forward", "float16", (8, 16, 128, 128)),
    ("scaled_backward", "float32", (1, 1, 1024, 1024)),
]
ROUNDS = 7
SECONDS_PER_ROUND = 0.02


def chained(function, calls):
    def program(*sets):
        results, last = [], None
        for i in range(calls):
            operands = sets[i % len(sets)]
            if last is not None:
                operands, last = jax.lax.optimization_barrier((operands, last))
                results[-1] = last
            last = function(*operands)
            results.append(last)
        # Every result is used, or XLA would drop it from the barriers; one small kernel does that.
        return jnp.stack([jnp.ravel(r)[0] for r in jax.lax.optimization_barrier(results)])
    return jax.jit(program)


def as_wrappers_do(bundle, op):
    """What kbj.scaled_softmax and the like call, small ones left to XLA."""
    return lambda *a: kbj.call(bundle, f"softmax.{op}", *a, formula=getattr(softmax_formulas, op), scale=SCALE)


def per_call_us(programs, sets, calls):
    """Medians over interleaved rounds."""
    repeats = []
    for program in programs:
        jax.block_until_ready([program(*sets) for _ in range(3)])
        start = time.perf_counter()
        jax.block_until_ready([program(*sets) for _ in range(5)])
        repeats.append(max(5, int(SECONDS_PER_ROUND / (time.perf_counter() - start) * 5)))
    times = [[] for _ in programs]
    for _ in range(ROUNDS):
        for program, count, samples in zip(programs, repeats, times):
            start = time.perf_counter()
            jax.block_until_ready([program(*sets) for _ in range(count)])
            samples.append((time.perf_counter() - start) / count / calls * 1e6)
    return [statistics.median(samples) for samples in times]


def against_torch_us(op, dtype, shape, set_count):
    """kbundle and torch.compile (max-autotune) of the same formula: device times of a call in captured graphs of 20
    calls, graph after graph. Both read and write the very same tensors: where tensors lie in memory moves a call that
    is bound by memory by up to 4 %."""
    import torch
    from conformance import capi, devices
    t = getattr(torch, dtype)

    def scaled(x):
        return torch.softmax(x.float() * SCALE, -1).to(x.dtype)

    def causal(x):
        keep = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril()
        return torch.softmax((x.float() * SCALE).masked_fill(~keep, -torch.inf), -1).to(x.dtype)

    def backward(dy, y):
        dy, y = dy.float(), y.float()
        return (SCALE * y * (dy - (dy * y).sum(-1, keepdim=True))).to(t)

    function = {"scaled_forward": scaled, "scaled_causal_forward": causal, "scaled_backward": backward}[op]
    sets = [[torch.randn(shape, device="cuda", dtype=t) for _ in range(2 if "backward" in op else 1)]
            for _ in range(set_count)]
    compiled = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
    for _ in range(3):
        compiled(*sets[0])
    operands = [sets[i % set_count] for i in range(20)]
    theirs = torch.cuda.CUDAGraph()
    with torch.cuda.graph(theirs):
        results = [compiled(*o) for o in operands]
    cuda = devices.Cuda()
    plan = capi.Plan(capi.Bundle(ROOT / "build/kernels.kb"),
                     capi.Problem(f"softmax.{op}", [({"bfloat16": "bf16"}[dtype], shape)] * len(sets[0]),
                                  {"scale": SCALE}), capi.CUDA)
    mine = cuda.capture(lambda: [plan.launch([x.data_ptr() for x in o], [r.data_ptr()], None, cuda.stream)
                                 for o, r in zip(operands, results)])
    times = [], []
    for _ in range(15):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        theirs.replay()
        end.record()
        torch.cuda.synchronize()
        times[1].append(begin.elapsed_time(end) * 1e3 / len(operands))
        times[0].append(cuda.graph_us(mine, 1)[0] / len(operands))
    del theirs, sets, operands, results
    torch.cuda.empty_cache()
    return tuple(map(statistics.median, times))


def own_graph_us(op, dtype, sets):
    """kbundle's launches alone in a captured graph, one after another over the same sets of data."""
    from bandwidth import LAUNCHES, REPEATS
    from conformance import capi, devices
    cuda = devices.Cuda()
    names = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "uint8": "u8"}
    problem = capi.Problem(f"softmax.{op}", [(names[str(o.dtype)], o.shape) for o in sets[0]], {"scale": SCALE})
    plan = capi.Plan(capi.Bundle(ROOT / "build/kernels.kb"), problem, capi.CUDA)
    results = [devices.Buffer(cuda, names[dtype], sets[0][0].shape) for _ in sets]
    workspace = cuda.allocate(max(1, plan.workspace_bytes))
    pointers = itertools.cycle([(capi.Plan.pointers([o.unsafe_buffer_pointer() for o in operands]),
                                 capi.Plan.pointers([result.address])) for operands, result in zip(sets, results)])
    us = cuda.device_us(lambda: plan.launch(*next(pointers), workspace, cuda.stream), LAUNCHES, REPEATS)
    for result in results:
        result.free()
    cuda.free(workspace)
    return us, plan.variant.split("/")[1]


def main():
    report = Report("speed")
    bundle = kbundle.open(str(ROOT / "build/kernels.kb"))
    rows, behind, kernels_behind = [], [], []
    for number, (op, dtype, shape) in enumerate(SHAPES):
        formula, kind = OPS[f"softmax.{op}"]
        elements = 1
        for d in shape:
            elements *= d
        set_count = 2 if elements > 1 << 25 else 4
        calls = 12 if elements > 1 << 25 else 48
        sets = [inputs(kind, dtype, shape, seed) for seed in range(set_count)]
        ours = chained(as_wrappers_do(bundle, op), calls)
        mine, theirs = per_call_us([ours, chained(formula, calls)], sets, calls)
        graph, variant = own_graph_us(op, dtype, sets)
        same, compiled = against_torch_us(op, dtype, shape, set_count) if number < 3 else (None, None)
        allowed = max(theirs * 1.02, theirs + 0.3)
        label = f"{op} {dtype}{list(shape)}"
        if mine > allowed:
            behind.append(f"{label}: {mine:.2f} against {theirs:.2f} us")
        if graph > allowed:
            kernels_behind.append(f"{label}: {graph:.2f} against {theirs:.2f} us")
        rows.append([label, variant, f"{graph:.2f}", f"{mine:.2f}", f"{theirs:.2f}", f"{theirs / mine:.2f}",
                     *("" if us is None else f"{us:.2f}" for us in (same, compiled))])
        print("    ", *rows[-1], flush=True)
        if compiled is not None:
            report.bar(f"{label} against torch.compile", same, max(compiled * 1.02, compiled + 0.3), "us")
    report.table("Microseconds per call", ["op and shape", "variant", "kbundle, own graph", "kbundle in jax.jit",
                                          "jax.jit formula", "ratio", "kbundle, torch's tensors",
                                          "torch.compile"], rows)
    allowed = f"never slower than the formula by more than 2 % or 0.3 us on {len(SHAPES)} shapes"
    report.hold(f"under jax.jit {allowed}", not behind, ", ".join(behind))
    report.hold(f"the kernels alone {allowed}", not kernels_behind, ", ".join(kernels_behind))
    report.finish()


if __name__ == "__main__":
    main()
