"""grouped.matmul where groups have few rows, as a layer of experts has when it writes text: problems drawn anew, from one token for eight of
128 experts on. Every legal variant, right before it is timed, on other experts in every launch; what is chosen is held to the fastest."""

import random

import numpy as np

from bandwidth import random_bf16
from conformance import capi, devices
from unlisted import drawn

COUNT, SECONDS = 24, 40
SIZES, LAUNCHES, REPEATS = 8, 16, 5
WITHIN = 1e-2  # of the largest number of what was looked at
CHOSEN_WITHIN, COPY_TBS = 1.25, 4.23  # what is as fast as that differs by shares of rows that nobody knows ahead
MOST_BYTES = 1 << 31  # of w


def problems(count, seed):
    """(tokens, experts of each, experts, K, N, w is [G, N, K])"""
    chance, found = random.Random(seed), []
    while len(found) < count:
        experts = chance.choice([4, 8, 16, 32, 64, 128, 256])
        each = chance.choice([1, 2, 4, 6, 8])
        tokens = chance.choice([1, 1, 1, 2, 3, 4, 8, 16, 32, 64])
        depth, width = (8 * round(8 * 2 ** (8 * chance.random())) for _ in range(2))
        if each <= experts and 2 * experts * depth * width <= MOST_BYTES:
            found.append((tokens, each, experts, depth, width, chance.random() < 0.3))
    return found


class Routed:
    """Tensors of one problem, and sizes of several batches of tokens, whose experts are drawn without bias."""

    def __init__(self, cuda, tokens, each, experts, depth, width, turned, seed):
        self.cuda, self.turned, rng = cuda, turned, np.random.default_rng(seed)
        buffer = lambda number, *dims: random_bf16(cuda, made := devices.Buffer(cuda, "bf16", dims), number) or made
        self.x = buffer(1, tokens * each, depth)
        self.w = buffer(2, experts, *((width, depth) if turned else (depth, width)))
        self.y = devices.Buffer(cuda, "bf16", (tokens * each, width))
        routed = [np.argsort(rng.random((tokens, experts)), axis=1)[:, :each] for _ in range(SIZES)]
        self.sizes = [np.bincount(of.ravel(), minlength=experts).astype(np.int32) for of in routed]
        self.on_device = [devices.Buffer(cuda, "i32", (experts,)).put(sizes) for sizes in self.sizes]
        self.columns = rng.integers(0, width, 48)
        self.bytes = 2 * depth * width * np.mean([np.count_nonzero(sizes) for sizes in self.sizes]) + self.x.size + self.y.size

    def problem(self):
        return capi.Problem("grouped.matmul", [("bf16", self.x.dims), ("bf16", self.w.dims), ("i32", self.on_device[0].dims), None],
                            {"out_dtype": "bf16", "trans_w": self.turned})

    def measured(self, plan):
        """(the largest error by the largest number of what is looked at, microseconds)"""
        workspace, number = self.cuda.allocate(max(1, plan.workspace_bytes)), 0
        results = capi.Plan.pointers([self.y.address])

        def launch():
            nonlocal number
            operands = (self.x.address, self.w.address, self.on_device[number % SIZES].address, None)
            plan.launch(capi.Plan.pointers(operands), results, workspace, self.cuda.stream)
            number += 1
        worst = 0.0
        for _ in range(2):
            sizes = self.sizes[number % SIZES]
            self.y.poison()
            self.cuda.run_captured(launch)
            worst = max(worst, self.error(sizes))
        us = self.cuda.device_us(launch, LAUNCHES, REPEATS)
        self.cuda.free(workspace)
        return worst, us

    def error(self, sizes):
        found, x, worst = self.y.get().astype(np.float64), self.x.get().astype(np.float64), 0.0
        if not np.isfinite(found).all():
            return np.inf
        each = self.w.size // len(sizes)
        for group in np.flatnonzero(sizes)[[0, -1]]:
            rows = slice(int(sizes[:group].sum()), int(sizes[:group + 1].sum()))
            w = self.cuda.download(self.w.address + int(group) * each, each).view(self.w.dtype).reshape(self.w.dims[1:])
            wanted = x[rows] @ (w.T if self.turned else w)[:, self.columns].astype(np.float64)
            worst = max(worst, float(np.abs(found[rows][:, self.columns] - wanted).max() / np.abs(wanted).max()))
        return worst

    def free(self):
        for buffer in (self.x, self.w, self.y, *self.on_device):
            buffer.free()


def check(report, cuda, path, seed):
    bundle, rows, behind = capi.Bundle(path), [], []
    for number, drew in drawn.in_time(report, problems(COUNT, seed), SECONDS):
        routed = Routed(cuda, *drew, seed + number)
        problem = routed.problem()
        bundle.clear_policy()
        chosen, us = capi.Plan(bundle, problem, cuda.kind).variant, {}
        for variant in bundle.legal(problem, cuda.kind):
            bundle.clear_policy()
            bundle.force(variant)
            error, us[variant] = routed.measured(capi.Plan(bundle, problem, cuda.kind))
            report.hold(f"{drew}, {variant}", error < WITHIN, f"off by {error:.3g}")
        routed.free()
        best = min(us, key=us.get)
        behind.append(us[chosen] / us[best])
        name = lambda variant: variant.split("/")[1].split("[")[0]
        rows.append([*map(str, drew), name(chosen), f"{us[chosen]:.1f}", name(best), f"{us[best]:.1f}", f"{routed.bytes / COPY_TBS / 1e6:.1f}"])
    report.table("few rows of each group, bf16: launches in a captured graph",
                 ["tokens", "each to", "experts", "K", "N", "w^T", "chosen", "us", "fastest", "us", "reading what is needed at 4.23 TB/s, us"], rows)
    report.bar("few rows: what is chosen by the fastest, geometric mean", float(np.exp(np.mean(np.log(behind)))), 1.05)
    report.bar("few rows: what is chosen by the fastest, at most", max(behind), CHOSEN_WITHIN)
