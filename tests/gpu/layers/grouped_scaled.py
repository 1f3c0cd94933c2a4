"""The grouped products of FP8 codes with scales on this GPU, at the size of section grouped and at two that no manifest lists: right before
they are timed, by blocks of 128; beside torch._scaled_grouped_mm, which scales by rows and columns.
"""

import subprocess
import sys

import numpy as np

from conformance import capi, devices

WANTED_TFLOPS = 1100
LAUNCHES, REPEATS = 3, 7
WITHIN = 1e-2  # of the largest number of what was looked at: bf16's own rounding is half of that
SHAPES = [(16384, 64, 4096, 4096), (10240, 24, 5120, 2688), (8192, 128, 2048, 1408)]  # rows, experts, K, N; the first is the bars'
KINDS = ("random shares", "uniform routing", "alike")


def sizes_of(kind, rows, groups):
    rng = np.random.default_rng(3)
    if kind == "alike":
        return np.full(groups, rows // groups, np.int32)
    if kind == "uniform routing":
        return rng.multinomial(rows, np.full(groups, 1 / groups)).astype(np.int32)
    shares = rng.exponential(size=groups) * (rng.random(groups) > 0.1)
    cuts = np.floor(np.cumsum(shares) / shares.sum() * rows + 0.5).astype(np.int64)
    return np.diff(cuts, prepend=0).astype(np.int32)


def random_codes(cuda, buffer, seed):
    """Codes of random numbers: 4 M of them, repeated, each stretch at another offset."""
    block = (np.random.default_rng(seed).standard_normal(1 << 22) * 8).astype(buffer.dtype)
    for start in range(0, buffer.size, block.nbytes):
        cuda.upload(buffer.address + start, np.roll(block, start // block.nbytes * 37)[:buffer.size - start])
    return buffer


class Layer:
    """The tensors of one layer of experts on the device, and a look at parts of its result."""

    def __init__(self, cuda, rows, groups, k, n):
        self.cuda, self.groups, self.shape = cuda, groups, (rows, groups, k, n)
        parts, rng = -(-k // 128), np.random.default_rng(4)
        self.scales = rng.uniform(0.5, 2, (parts, rows)).astype(np.float32), rng.uniform(0.5, 2, (groups, -(-n // 128), parts)).astype(np.float32)
        self.x = random_codes(cuda, devices.Buffer(cuda, "e4m3", (rows, k)), 1)
        self.w = random_codes(cuda, devices.Buffer(cuda, "e4m3", (groups, n, k)), 2)
        self.of_x, self.of_w = (devices.Buffer(cuda, "f32", s.shape).put(s) for s in self.scales)
        self.sizes, self.y = devices.Buffer(cuda, "i32", (groups,)), devices.Buffer(cuda, "bf16", (rows, n))
        self.operands = [self.x, self.w, self.of_x, self.of_w, self.sizes]

    def problem(self):
        names = {t: n for n, t in devices.NUMPY.items()}
        return capi.Problem("grouped.scaled_matmul", [*[(names[b.dtype], b.dims) for b in self.operands], None],
                            {"out_dtype": "bf16", "scales": "columns"})

    def part(self, buffer, first, count):
        each = int(np.prod(buffer.dims[1:])) * np.dtype(buffer.dtype).itemsize
        return self.cuda.download(buffer.address + first * each, count * each).view(buffer.dtype).reshape(count, *buffer.dims[1:]).astype(np.float64)

    def error(self, sizes):
        """The largest error of some columns of some groups, by the largest number there."""
        offsets, worst = np.concatenate([[0], np.cumsum(sizes)]), 0.0
        _, _, k, n = self.shape
        columns = np.random.default_rng(k).integers(0, n, 48)
        for g in {int(np.argmax(sizes)), int(np.argmin(sizes)), self.groups - 1}:
            first, count = int(offsets[g]), int(sizes[g])
            if not count:
                continue
            x = self.part(self.x, first, count) * np.repeat(self.scales[0][:, first:first + count].T, 128, 1)[:, :k]
            w = (self.part(self.w, g, 1)[0] * np.repeat(np.repeat(self.scales[1][g], 128, 0)[:n], 128, 1)[:, :k])[columns]
            found, wanted = self.part(self.y, first, count)[:, columns], x @ w.T
            scale = max(np.abs(wanted).max(initial=0), 1e-30)
            worst = max(worst, float(np.abs(found - wanted).max() / scale) if np.isfinite(found).all() else np.inf)
        return worst

    def free(self):
        for buffer in (*self.operands, self.y):
            buffer.free()


def measure(report, cuda, bundle, layer, kind, rows):
    sizes, problem = sizes_of(kind, *layer.shape[:2]), layer.problem()
    layer.sizes.put(sizes)
    bundle.clear_policy()
    chosen, best = capi.Plan(bundle, problem, cuda.kind).variant, {}
    flops = 2 * layer.shape[0] * layer.shape[2] * layer.shape[3]
    for variant in bundle.legal(problem, cuda.kind):
        bundle.clear_policy()
        bundle.force(variant)
        plan = capi.Plan(bundle, problem, cuda.kind)
        workspace = cuda.allocate(max(1, plan.workspace_bytes))
        arguments = [capi.Plan.pointers([b and b.address for b in buffers]) for buffers in ([*layer.operands, None], [layer.y])]
        launch = lambda: plan.launch(*arguments, workspace, cuda.stream)
        cuda.fill(layer.y.address, devices.POISON_BYTE, layer.y.size)
        cuda.run_captured(launch)
        error = layer.error(sizes)
        us = best[variant] = cuda.device_us(launch, LAUNCHES, REPEATS)
        cuda.free(workspace)
        report.hold(f"FP8, {layer.shape}, {kind}, {variant}", error < WITHIN, f"off by {error:.3g}")
        rows.append([str(layer.shape), kind, variant.split("/")[1].split("@")[0], f"{us / 1e3:.3f}", f"{flops / us / 1e6:.0f}", f"{error:.1e}",
                     "chosen" if variant == chosen else ""])
    return flops / best[chosen] / 1e6


def check(report, cuda, path):
    bundle, rows = capi.Bundle(path), []
    for number, shape in enumerate(SHAPES):
        layer = Layer(cuda, *shape)
        for kind in KINDS:
            found = measure(report, cuda, bundle, layer, kind, rows)
            if number == 0 and kind == "alike":
                report.bar("FP8 by blocks, alike", found, WANTED_TFLOPS, "TFLOP/s", at_least=True)
        layer.free()
    report.table("FP8 codes with scales by blocks of 128 to bf16: launches in a captured graph",
                 ["rows, experts, K, N", "sizes", "variant", "ms", "TFLOP/s", "error", ""], rows)


TORCH = """
import torch
for rows, groups, k, n in %r:
    x = torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn)
    w = torch.randn(groups, n, k, device="cuda", dtype=torch.bfloat16).to(torch.float8_e4m3fn)
    of_x, of_w = torch.ones(rows, device="cuda"), torch.ones(groups, n, device="cuda")
    ends = torch.full((groups,), rows // groups, device="cuda").cumsum(0).to(torch.int32)
    call = lambda: torch._scaled_grouped_mm(x, w.transpose(-2, -1), of_x, of_w, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True)
    call()
    times = []
    for _ in range(8):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(); call(); call(); call(); end.record(); torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 3)
    print("%%s: %%.3f ms" %% ((rows, groups, k, n), sorted(times)[4]))
"""


def peers(report):
    try:
        ran = subprocess.run([sys.executable, "-c", TORCH % (SHAPES[:1],)], capture_output=True, text=True, timeout=60)
        found = ran.stdout.strip().replace("\n", "; ") or ran.stderr.strip().split("\n")[-1][:200]
    except subprocess.TimeoutExpired:
        found = "not done within 60 s"
    report.fact("torch._scaled_grouped_mm, scales by rows and columns, alike", found)
