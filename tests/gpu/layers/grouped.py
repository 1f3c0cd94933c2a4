"""The grouped ops on this GPU: every variant on sizes of all kinds, drawn anew; then 64 experts' 16384 rows, K = N = 4096 in bf16, where
every variant is right before it is timed: forward, gradients by x and by w; beside jax.lax.ragged_dot and torch._grouped_mm. FP8 and few
rows beside it.

Sizes: random shares, some experts without rows; what uniform routing makes; all alike. KB_PEERS=0 leaves the peers out.
"""

import os
import pathlib
import random
import subprocess
import sys
import time

import numpy as np

from bandwidth import random_bf16
from conformance import capi, devices, grouped
from layers import grouped_few, grouped_scaled
from layers.cases import check_cases
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))
ROWS, GROUPS, K, N = 16384, 64, 4096, 4096
FLOPS = 2 * ROWS * K * N
WANTED_MS = 0.78
LAUNCHES, REPEATS = 3, 7
CASES_PER_VARIANT, CASES_SECONDS = 8, 30
WITHIN = 1e-2  # of the largest number of what was looked at: bf16's own rounding is half of that


def sizes_of(kind):
    return grouped_scaled.sizes_of(kind, ROWS, GROUPS)


class Layer:
    """The tensors of one layer of experts on the device, and a look at parts of its results."""

    def __init__(self, cuda):
        self.cuda = cuda
        buffer = lambda seed, *dims: random_bf16(cuda, made := devices.Buffer(cuda, "bf16", dims), seed) or made
        self.x, self.w, self.dy = buffer(1, ROWS, K), buffer(2, GROUPS, K, N), buffer(3, ROWS, N)
        self.y, self.dw = devices.Buffer(cuda, "bf16", (ROWS, N)), devices.Buffer(cuda, "bf16", (GROUPS, K, N))
        self.sizes = devices.Buffer(cuda, "i32", (GROUPS,))

    def problems(self):
        """(name, op, operands, result, attributes)"""
        yield "forward", "matmul", [self.x, self.w, self.sizes, None], self.y, {}
        yield "gradient by x", "matmul", [self.dy, self.w, self.sizes, None], self.y, {"trans_w": True}
        yield "gradient by w", "weight_gradient", [self.x, self.dy, self.sizes], self.dw, {}

    def part(self, buffer, first, count):
        """`count` matrices or rows from number `first` on, in float64."""
        each = int(np.prod(buffer.dims[1:])) * 2
        raw = self.cuda.download(buffer.address + first * each, count * each)
        return raw.view(buffer.dtype).reshape(count, *buffer.dims[1:]).astype(np.float64)

    def error(self, name, sizes):
        """The largest error of some rows of some groups, by the largest number there."""
        offsets, worst = np.concatenate([[0], np.cumsum(sizes)]), 0.0
        rng = np.random.default_rng(len(name))
        for g in {int(np.argmax(sizes)), int(np.argmin(sizes)), GROUPS - 1}:
            first, count = int(offsets[g]), int(sizes[g])
            columns = rng.integers(0, N, 48)
            if name == "gradient by w":
                found = self.part(self.dw, g, 1)[0][:, columns]
                wanted = self.part(self.x, first, count).T @ self.part(self.dy, first, count)[:, columns] if count else 0 * found
            elif not count:
                continue
            else:
                turned = name == "gradient by x"
                w = self.part(self.w, g, 1)[0]
                w = (w.T if turned else w)[:, columns]
                found = self.part(self.y, first, count)[:, columns]
                wanted = self.part(self.dy if turned else self.x, first, count) @ w
            scale = max(np.abs(wanted).max(initial=0), 1e-30)
            worst = max(worst, float(np.abs(found - wanted).max() / scale) if np.isfinite(found).all() else np.inf)
        return worst


def large(report, cuda):
    bundle, layer, rows = capi.Bundle(BUNDLE), Layer(cuda), []
    names = {t: n for n, t in devices.NUMPY.items()}
    for kind in ("random shares", "uniform routing", "alike"):
        sizes = sizes_of(kind)
        layer.sizes.put(sizes)
        for name, op, operands, result, attributes in layer.problems():
            problem = capi.Problem("grouped." + op, [b and (names[b.dtype], b.dims) for b in operands], attributes | {"out_dtype": "bf16"})
            bundle.clear_policy()
            chosen, best = capi.Plan(bundle, problem, cuda.kind).variant, {}
            for variant in bundle.legal(problem, cuda.kind):
                bundle.clear_policy()
                bundle.force(variant)
                plan = capi.Plan(bundle, problem, cuda.kind)
                workspace = cuda.allocate(max(1, plan.workspace_bytes))
                arguments = [capi.Plan.pointers([b and b.address for b in buffers]) for buffers in (operands, [result])]
                launch = lambda: plan.launch(*arguments, workspace, cuda.stream)
                cuda.fill(result.address, devices.POISON_BYTE, result.size)
                cuda.run_captured(launch)
                error = layer.error(name, sizes)
                us = cuda.device_us(launch, LAUNCHES, REPEATS)
                cuda.free(workspace)
                best[variant] = us
                report.hold(f"{name}, {kind}, {variant}", error < WITHIN, f"off by {error:.3g}")
                rows.append([name, kind, variant.split("/")[1].split("@")[0], f"{us / 1e3:.3f}", f"{FLOPS / us / 1e6:.0f}", f"{error:.1e}",
                             "chosen" if variant == chosen else ""])
            report.bar(f"{name}, {kind}", best[chosen] / 1e3, WANTED_MS, "ms")
    report.table("64 experts, 16384 rows, K = N = 4096, bf16: launches in a captured graph",
                 ["", "sizes", "variant", "ms", "TFLOP/s", "error", ""], rows)


TORCH = """
import sys, torch
x, w = torch.randn(%d, %d, device="cuda", dtype=torch.bfloat16), torch.randn(%d, %d, %d, device="cuda", dtype=torch.bfloat16)
for kind, sizes in zip(sys.argv[1::2], sys.argv[2::2]):
    ends = torch.tensor([int(s) for s in sizes.split(",")], device="cuda").cumsum(0).to(torch.int32)
    graph = torch.cuda.CUDAGraph()
    torch._grouped_mm(x, w, offs=ends)
    with torch.cuda.graph(graph):
        for _ in range(3):
            torch._grouped_mm(x, w, offs=ends)
    times = []
    for _ in range(8):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(); graph.replay(); end.record(); torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 3)
    print("%%s: %%.3f ms" %% (kind, sorted(times)[4]))
""" % (ROWS, K, GROUPS, K, N)
JAX = """
import time, numpy as np, jax, jax.numpy as jnp
x, w = jax.random.normal(jax.random.key(0), (%d, %d), jnp.bfloat16), jax.random.normal(jax.random.key(1), (%d, %d, %d), jnp.bfloat16)
sizes, f = jnp.full(%d, %d, jnp.int32), jax.jit(jax.lax.ragged_dot)
f(x, w, sizes).block_until_ready()
start = time.perf_counter(); f(x, w, sizes); f(x, w, sizes).block_until_ready()
print("alike: %%.3f ms" %% ((time.perf_counter() - start) / 2e-3))
""" % (ROWS, K, GROUPS, K, N, GROUPS, ROWS // GROUPS)


def peers(report):
    kinds = [word for kind in ("random shares", "uniform routing", "alike") for word in (kind, ",".join(map(str, sizes_of(kind))))]
    for name, program, words, seconds in (("torch._grouped_mm, forward", TORCH, kinds, 60), ("jax.lax.ragged_dot, forward", JAX, [], 90)):
        try:
            ran = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=seconds)
            report.fact(name, ran.stdout.strip().replace("\n", "; ") or ran.stderr.strip().split("\n")[-1][:200])
        except subprocess.TimeoutExpired:
            report.fact(name, f"not done within {seconds} s")


def main():
    report, cuda = Report("grouped"), devices.Cuda()
    seed = int(os.environ.get("KB_SEED", time.time()))
    check_cases(report, grouped.Cases(BUNDLE, cuda, [ROOT / "kernels"]), seed, CASES_PER_VARIANT, CASES_SECONDS)
    grouped_few.check(report, cuda, BUNDLE, seed)
    large(report, cuda)
    grouped_scaled.check(report, cuda, BUNDLE)
    if os.environ.get("KB_PEERS", "1") != "0":
        peers(report)
        grouped_scaled.peers(report)
    report.finish()


if __name__ == "__main__":
    main()
