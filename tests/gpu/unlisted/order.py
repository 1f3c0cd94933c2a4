"""Which of our variants of attention should come first: each forced on the same shapes that no manifest lists, forward and backward, in
captured graphs by turns, beside jax.nn's cuDNN path forward. The one that a user gets must not be behind another of ours.

Right first: forward against float64 in some rows, gradients against those of the variant that a user gets. Results are poisoned.
"""

import statistics
import sys

import jax
import jax.numpy as jnp
import numpy as np

import peers
from conformance import capi, devices
from report import Report
from unlisted import attention

BUNDLE = attention.ROOT / "build/kernels.kb"
FORWARD, BACKWARD = "attention.sdpa_forward", "attention.sdpa_backward"
VARIANTS = {FORWARD: ("fa4", "flash"), BACKWARD: ("fa4", "fa4_grouped", "flash", "flash_split")}
COLUMNS = ("fa4", "fa4_grouped", "cudnn", "flash", "flash_split", "jax")
BEHIND, FORWARD_WITHIN, GRADIENTS_WITHIN = 1.03, 2e-2, 2e-2
TYPES = {"bfloat16": "bf16", "float16": "f16"}
# (batch, length, heads, heads of keys, depth, value depth, dtype, mask); few blocks and odd lengths among them
SHAPES = [
    (4, 2048, 16, 16, 128, 128, "bfloat16", "causal"), (1, 3000, 24, 24, 128, 128, "bfloat16", "causal"),
    (2, 4096, 32, 8, 128, 128, "bfloat16", "causal"), (1, 8192, 32, 4, 128, 128, "bfloat16", "causal"),
    (2, 3333, 14, 2, 128, 128, "float16", "causal"), (7, 333, 5, 5, 128, 128, "float16", "causal"), (1, 16384, 1, 1, 128, 128, "bfloat16", "causal"),
    (1, 1024, 8, 8, 128, 128, "bfloat16", "causal"), (64, 64, 8, 1, 128, 128, "bfloat16", "causal"),
    (4, 4096, 16, 16, 128, 128, "bfloat16", "full"), (4, 1023, 20, 4, 128, 128, "bfloat16", "full"), (32, 128, 16, 16, 128, 128, "float16", "full"),
    (1, 4096, 2, 2, 128, 128, "bfloat16", "full"), (1, 8192, 16, 16, 128, 128, "bfloat16", 1024), (64, 64, 12, 12, 64, 64, "bfloat16", "full"),
    (16, 512, 16, 16, 64, 64, "bfloat16", "full"), (16, 197, 12, 12, 64, 64, "float16", "full"), (8, 1000, 12, 12, 64, 64, "bfloat16", "causal"),
    (2, 4096, 16, 16, 64, 64, "bfloat16", "causal"), (8, 256, 12, 2, 64, 64, "bfloat16", "causal"), (2, 5000, 8, 8, 64, 64, "bfloat16", 512),
    (4, 2048, 16, 16, 96, 96, "bfloat16", "causal"), (6, 900, 12, 4, 96, 96, "float16", "full"), (3, 700, 6, 6, 96, 96, "bfloat16", 100),
    (2, 4096, 16, 16, 192, 128, "bfloat16", "causal"), (3, 1500, 16, 2, 192, 128, "bfloat16", "full"), (2, 2000, 9, 9, 192, 128, "float16", 300),
    (2, 2048, 16, 16, 256, 256, "bfloat16", "causal"), (4, 777, 8, 4, 256, 256, "bfloat16", "full"), (1, 2048, 8, 8, 256, 256, "float16", 256),
]


class Variant:
    """Launches of one variant, forced, or of what is chosen (None), on two sets of arrays by turns."""

    def __init__(self, cuda, bundle, problem, name, sets):
        if name:
            bundle.force(f"{problem.op}/{name}")
        try:
            self.plan = capi.Plan(bundle, problem, capi.CUDA, alignment=16)
        finally:
            bundle.clear_policy()
        self.name, self.cuda = self.plan.variant.split("/")[1].split("[")[0], cuda
        inferred = bundle.infer(problem, capi.CUDA)["results"]
        self.results = [[devices.Buffer(cuda, r["dtype"], r["dims"]).poison() if r["present"] else None for r in inferred] for _ in sets]
        self.workspace = devices.Buffer(cuda, "u8", [max(256, self.plan.workspace_bytes)]).poison()
        self.pointers = [(capi.Plan.pointers(given), capi.Plan.pointers([r and r.address for r in results]))
                         for given, results in zip(sets, self.results)]
        cuda.run_captured(lambda: self.launch(0))
        self.launch(1)
        cuda.synchronize()

    def launch(self, number):
        self.plan.launch(*self.pointers[number], self.workspace.address, self.cuda.stream)

    def free(self):
        for buffer in [self.workspace, *(b for results in self.results for b in results if b)]:
            buffer.free()


def made(cuda, bundle, problem, sets):
    """What is chosen, then the others that take it."""
    first = Variant(cuda, bundle, problem, None, sets)
    others = []
    for name in VARIANTS[problem.op]:
        if name != first.name:
            try:
                others.append(Variant(cuda, bundle, problem, name, sets))
            except capi.KbError as refused:
                print(name, "does not take it:", str(refused)[-160:])
    return [first, *others]


def compared(problem, variants, more, calls, rows):
    """Microseconds by name; whether another variant is ahead of the first."""
    sides = [peers.GraphSide(variants[0].cuda, one.launch, 2, calls) for one in variants]
    times = dict(zip([one.name for one in variants] + list(more), peers.by_turns([*sides, *more.values()])))
    first, fastest = times[variants[0].name], min(times[one.name] for one in variants)
    columns = (f"{times[name]:.1f}" if name in times else "-" for name in COLUMNS)
    rows.append([str(problem), variants[0].name, *columns])
    print(*rows[-1], flush=True)
    return first / fastest


def measured(report, cuda, bundle, problem, number, rows):
    batch, length, heads, kv_heads, depth, value_depth, dtype, mask = problem
    sets = [attention.arrays_of(problem, 2 * number + i) for i in range(2)]
    jax.block_until_ready(sets)
    pointers = [[array.unsafe_buffer_pointer() for array in arrays] for arrays in sets]
    kind, like = TYPES[dtype], lambda array: (TYPES[dtype], array.shape)
    attributes = {"scale": depth ** -0.5, "mask": "none" if mask == "full" else "causal", "window": mask if isinstance(mask, int) else -1}
    operands = [like(array) for array in sets[0][:3]]
    calls = max(4, min(24, int(1500 / max(8.0, 4e-9 * batch * heads * length * length * depth))))
    absent = [None] * 6
    forward = made(cuda, bundle, capi.Problem(FORWARD, operands + absent, attributes | {"with_stats": True}), [p[:3] + absent for p in pointers])
    for one in forward:
        error = attention.forward_error(problem, sets[0], one.results[0][0].get())
        report.hold(f"{problem} forward by {one.name} within {FORWARD_WITHIN} of float64", error <= FORWARD_WITHIN, f"{error:.4f}")
    side = peers.attempt("jax.nn", lambda: peers.JaxSide(attention.theirs(mask), [arrays[:3] for arrays in sets], calls), {})
    behind = [compared(("forward", *problem), forward, {"jax": side} if side else {}, calls, rows)]
    o, stats = zip(*[results[:2] for results in forward[0].results])
    given = [p[:3] + [a.address, p[3], s.address] + absent for p, a, s in zip(pointers, o, stats)]
    described = [*operands, (kind, o[0].dims), (kind, o[0].dims), ("f32", stats[0].dims), *absent]
    backward = made(cuda, bundle, capi.Problem(BACKWARD, described, attributes), given)
    wanted = [b.get().astype(np.float32) for b in backward[0].results[0][:3]]
    for one in backward[1:]:
        found = [b.get().astype(np.float32) for b in one.results[0][:3]]
        far = max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(found, wanted))
        report.hold(f"{problem} gradients by {one.name} within {GRADIENTS_WITHIN} of {backward[0].name}'s", far <= GRADIENTS_WITHIN, f"{far:.4f}")
    behind.append(compared(("backward", *problem), backward, {}, max(2, calls // 2), rows))
    for one in forward + backward:
        one.free()
    return behind


def main():
    report, rows, behind = Report("unlisted_order"), [], []
    cuda, bundle = devices.Cuda(), capi.Bundle(BUNDLE)
    jnp.zeros(1).block_until_ready()  # XLA's context is the one that is current
    peers.ROUNDS, peers.BURST_SECONDS = 5, 0.01
    for number, problem in enumerate(SHAPES):
        behind += measured(report, cuda, bundle, problem, number, rows)
    report.table("Microseconds of a launch", ["problem", "chosen", *COLUMNS], rows)
    report.fact("median of the chosen variant's time by the fastest's", round(statistics.median(behind), 3))
    late = [row[0] for row, ratio in zip(rows, behind) if ratio > BEHIND]
    report.hold(f"what is chosen is nowhere more than {BEHIND - 1:.0%} behind another of our variants", not late, "; ".join(late))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
