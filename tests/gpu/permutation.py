"""The permutation ops on this GPU: every variant on odd sizes and on maps of any bytes, and device times at 16384 tokens
of 4096 bf16, 8 of 64 experts each, against what a device copy reaches.

Bytes: a token's row is read once and written k times, or read k times and written once; maps are not counted.
With --hostile only some maps of any bytes, for compute-sanitizer.
"""

import pathlib
import sys

import numpy as np

from bandwidth import random_bf16
from conformance import capi, devices, permutation, runner
from device_copy import reference_tbps
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "build/kernels.kb"
TOKENS, HIDDEN, EXPERTS, K, CHUNKS = 16384, 4096, 64, 8, 64
LEAST_OF_COPY = 0.85
LAUNCHES, REPEATS = 8, 9


def check_cases(report, cuda, hostile):
    """Every variant on every case; with hostile, one variant of each kind on two sizes and three kinds of map."""
    cases = permutation.Cases(BUNDLE, cuda, [ROOT / "kernels"])
    if hostile:
        maps = tuple(permutation.MAPS[-3:])
        cases.cases = [c for c in cases.cases if c[0].endswith(maps) and c[0].startswith(("40 x 7", "9 x 4096", "7 tok", "1000 tok"))]
    outcomes, seen = [], set()
    for op, variant in cases.variants():
        flags = [flag for flag in ("PROBS=1", "WEIGHTED=1") if flag in variant["id"]]
        kind = variant["id"].split("[")[0], *sorted(variant["types"].values())[:1], *flags
        if hostile and kind in seen:
            continue
        outcomes.append(cases.run(op, variant))
        if outcomes[-1].launches:
            seen.add(kind)
    for outcome in outcomes:
        if outcome.failures:
            report.hold(outcome.variant, False, outcome.reason())
    launched = [o for o in outcomes if o.launches]
    report.bar("variants right on every case", sum(o.passed for o in launched), max(1, len(launched)), "variants", at_least=True)
    report.fact("variants that no case is for", len(outcomes) - len(launched))
    report.fact("launches", sum(2 * o.launches for o in outcomes))


class Data:
    """Buffers of the large problem, made once: operands and results of all ops by name."""

    def __init__(self, cuda, reference):
        self.cuda = cuda
        rng = np.random.default_rng(1)
        order = np.argsort(rng.random((TOKENS, EXPERTS)), axis=1)[:, :K]
        routing = np.zeros((TOKENS, EXPERTS), bool)
        np.put_along_axis(routing, order, True, axis=1)
        sizes = np.full(CHUNKS, TOKENS * K // CHUNKS)
        self.few = devices.Buffer(cuda, "bf16", (TOKENS, HIDDEN))
        self.many = devices.Buffer(cuda, "bf16", (TOKENS * K, HIDDEN))
        self.target = devices.Buffer(cuda, "bf16", (TOKENS * K, HIDDEN))
        for seed, buffer in enumerate((self.few, self.many)):
            random_bf16(cuda, buffer, seed)
        self.map = self.put("i32", reference.row_id_map(routing))
        self.routing = self.put("bool", routing)
        self.probs = self.put("f32", rng.random((TOKENS, EXPERTS)) + 0.5)
        self.row_probs = self.put("f32", rng.random(TOKENS * K) + 0.5)
        self.sizes, self.order = self.put("i32", sizes), self.put("i32", rng.permutation(CHUNKS))
        self.rows = self.put("i32", reference.make_chunk_sort_map(sizes, rng.permutation(CHUNKS), num_tokens=TOKENS * K))

    def put(self, dtype, array):
        return devices.Buffer(self.cuda, dtype, array.shape).put(array)

    def problems(self):
        """(title, op, operands, attributes, result that is large or None, rows moved per token)."""
        out, attributes = self.target, {"num_out_tokens": TOKENS * K}
        yield "permute", "permute_with_mask_map", [self.few, self.map, None], attributes, out, 1 + K
        yield "permute with probs", "permute_with_mask_map", [self.few, self.map, self.probs], attributes, out, 1 + K
        yield "unpermute", "unpermute_with_mask_map", [self.many, self.map, None, None], {}, out, 1 + K
        yield "unpermute with merging", "unpermute_with_mask_map", [self.many, self.map, self.probs, None], {}, out, 1 + K
        yield "unpermute with both", "unpermute_with_mask_map", [self.many, self.map, self.probs, self.row_probs], {}, out, 1 + K
        yield ("unpermute backward", "unpermute_backward_with_merging_probs", [self.few, self.map, self.many, self.probs],
               {}, out, 1 + 2 * K)
        yield "sort chunks", "sort_chunks_by_map", [self.many, self.rows, None], {}, out, 2 * K
        yield "sort chunks back", "sort_chunks_by_map", [self.many, self.rows, None], {"is_forward": False}, out, 2 * K
        yield "row_id_map", "row_id_map", [self.routing], {}, None, 0
        yield "make_chunk_sort_map", "make_chunk_sort_map", [self.sizes, self.order], {"num_tokens": TOKENS * K}, None, 0


def measure(cuda, bundle, op, operands, attributes, large):
    """{variant: device us}, the one that is chosen first."""
    names = {t: n for n, t in devices.NUMPY.items()}
    problem = capi.Problem("permutation." + op, [b and (names[b.dtype], b.dims) for b in operands], attributes)
    bundle.clear_policy()
    first = capi.Plan(bundle, problem, cuda.kind).variant
    legal = bundle.legal(problem, cuda.kind)
    inferred = bundle.infer(problem, cuda.kind)["results"]
    results = [large if large and i == 0 else r["present"] and devices.Buffer(cuda, r["dtype"], r["dims"])
               for i, r in enumerate(inferred)]
    found = {}
    for variant in sorted(legal, key=lambda v: v != first):
        bundle.clear_policy()
        bundle.force(variant)
        plan = capi.Plan(bundle, problem, cuda.kind)
        assert plan.variant == variant
        workspace = cuda.allocate(max(1, plan.workspace_bytes))
        arguments = (capi.Plan.pointers([b and b.address for b in operands]), capi.Plan.pointers([b and b.address for b in results]))
        found[variant] = cuda.device_us(lambda: plan.launch(*arguments, workspace, cuda.stream), LAUNCHES, REPEATS)
        cuda.free(workspace)
    bundle.clear_policy()
    for buffer in results:
        if buffer and buffer is not large:
            buffer.free()
    return found


def times(report, cuda):
    bundle = capi.Bundle(BUNDLE)
    data = Data(cuda, runner.load_reference("permutation", [ROOT / "kernels"]))
    copy, rows = reference_tbps(report, cuda), []
    for title, op, operands, attributes, large, moved in data.problems():
        found = measure(cuda, bundle, op, operands, attributes, large)
        tbps = lambda us: moved * TOKENS * HIDDEN * 2 / us / 1e6
        for number, (variant, us) in enumerate(found.items()):
            rows.append([title, variant.split("/")[1].split("@")[0], f"{us:.1f}", f"{tbps(us):.2f}" if moved else "",
                         f"{100 * tbps(us) / copy:.0f}" if moved else "", "chosen" if number == 0 else ""])
        if title.startswith("permute"):
            report.bar(f"{title}, share of a device copy", tbps(next(iter(found.values()))) / copy, LEAST_OF_COPY, at_least=True)
    report.table(f"{TOKENS} tokens x {HIDDEN} bf16, {K} of {EXPERTS} experts", ["op", "variant", "us", "TB/s", "% of copy", ""], rows)


def main():
    report, cuda, hostile = Report("permutation"), devices.Cuda(), "--hostile" in sys.argv
    if "--times" not in sys.argv:
        check_cases(report, cuda, hostile)
    if not hostile:
        times(report, cuda)
    report.finish()


if __name__ == "__main__":
    main()
