"""FlashAttention-4's forward out of the bundle, by kernels of CuTe DSL whose launches were learned without a GPU: its result beside a
float64 reference's for four shapes of one cubin, as the first use of a capture, and microseconds of a launch in captured graphs,
in turns with our own kernel and cuDNN's execution plan where the bundle has one.
"""

import pathlib
import statistics

import numpy as np
from conformance import capi, devices
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "build/kernels.kb"
ROUNDS, LAUNCHES, ROWS = 15, 20, 64
SHAPES = [(4, 2048, 16, 128), (3, 1280, 12, 128), (1, 3000, 24, 128), (7, 333, 5, 128)]
# By who made the kernel; of several, the one that takes the shape: blocks stay for tile after tile where there are many.
VARIANTS = {"fa4": ["fa4", "fa4_persistent"], "flash": ["flash"], "cudnn": ["cudnn"]}


def bits(values):
    """float32 to bf16, to the nearest even."""
    whole = values.astype(np.float32).view(np.uint32)
    return ((whole + 0x7FFF + (whole >> 16 & 1)) >> 16).astype(np.uint16)


def floats(halves):
    return (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def expected(q, k, v, batch, head, rows, scale):
    """Some causal rows of one head, in float64."""
    scores = scale * q[batch, rows, head] @ k[batch, :, head].T
    scores[np.arange(k.shape[1])[None, :] > rows[:, None]] = -np.inf
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True) @ v[batch, :, head]


class Case:
    def __init__(self, cuda, bundle, shape):
        self.cuda, self.bundle, self.shape, self.scale = cuda, bundle, shape, shape[3] ** -0.5
        chance = np.random.default_rng(sum(shape))
        self.given = [bits(chance.standard_normal(shape)) for _ in range(3)]
        self.problem = capi.Problem("attention.sdpa_forward", [("bf16", shape)] * 3 + [None] * 6,
                                    {"scale": self.scale, "mask": "causal", "with_stats": True})
        size = 2 * int(np.prod(shape))
        self.operands = [cuda.allocate(size) for _ in range(3)]
        self.results = [cuda.allocate(size), cuda.allocate(4 * shape[0] * shape[1] * shape[2])]
        for address, values in zip(self.operands, self.given):
            cuda.upload(address, values)

    def plan(self, who):
        """KbError where no kernel of theirs takes the shape."""
        refused = None
        for name in VARIANTS[who]:
            self.bundle.force(f"attention.sdpa_forward/{name}")
            try:
                return capi.Plan(self.bundle, self.problem, capi.CUDA, alignment=16)
            except capi.KbError as error:
                refused = error
            finally:
                self.bundle.clear_policy()
        raise refused

    def graph(self, plan, launches=LAUNCHES):
        workspace = self.cuda.allocate(max(1, plan.workspace_bytes))
        given = [*self.operands, *[0] * 6]
        return self.cuda.capture(lambda: [plan.launch(given, self.results, workspace, self.cuda.stream) for _ in range(launches)])

    def error(self):
        batches, length, heads, _ = self.shape
        found = floats(np.frombuffer(self.cuda.download(self.results[0], 2 * int(np.prod(self.shape))), np.uint16)).reshape(self.shape)
        q, k, v = (floats(values) for values in self.given)
        worst, chance = 0.0, np.random.default_rng(1)
        for _ in range(8):
            batch, head = chance.integers(batches), chance.integers(heads)
            rows = np.unique(np.concatenate([chance.integers(0, length, ROWS), [0, length - 1]]))
            worst = max(worst, np.abs(found[batch, rows, head] - expected(q, k, v, batch, head, rows, self.scale)).max())
        return worst


def main():
    report = Report("cute_ops")
    if not BUNDLE.exists():
        report.hold(f"{BUNDLE.name} is there", False, "build it and bring it along")
        return report.finish()
    cuda, bundle, rows = devices.Cuda(), capi.Bundle(BUNDLE), []
    for shape in SHAPES:
        case = Case(cuda, bundle, shape)
        first = case.graph(case.plan("fa4"), 1)  # captured before it was ever launched
        cuda.launch_graph(first)
        cuda.synchronize()
        error = case.error()
        report.hold(f"fa4 {shape} within 0.02 of float64", error < 0.02, f"{error:.4f}")
        graphs = {}
        for who in VARIANTS:
            try:
                graphs[who] = case.graph(case.plan(who))
            except capi.KbError as refused:  # no execution plan for this shape
                print(who, shape, refused)
        times = {who: [] for who in graphs}
        for graph in graphs.values():
            cuda.graph_us(graph, 2)
        for _ in range(ROUNDS):
            for who, graph in graphs.items():
                times[who].append(cuda.graph_us(graph, 1)[0] / LAUNCHES)
        rows.append([str(shape), *(f"{statistics.median(times[who]):.1f}" if who in times else "-" for who in VARIANTS), f"{error:.4f}"])
    report.table("Microseconds of causal attention, bf16", ["(B, S, H, D)", *VARIANTS, "largest error"], rows)
    return report.finish()


if __name__ == "__main__":
    main()
