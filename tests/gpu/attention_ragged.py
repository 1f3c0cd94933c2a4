"""The ragged attention ops on this GPU: every variant on small odd batches, and execution plans of cuDNN and our own kernels on
the listed problems, against float64.

Of a listed problem the first and the last head of keys are compared, all rows of them. Results are poisoned first, so that
rows of no sequence are seen when nobody clears them; where sequences have lengths, such rows hold NaN and infinities. The first launch is
inside a capture, straight after the plan.
"""

import sys
import time

import numpy as np

import launch_cost
from attention import LIMITS, Runs, Tensors, error_of, listed
from conformance import attention as conformance, capi, devices, ragged, runner
from report import Report

ROOT = capi.ROOT
BUNDLE = ROOT / "build/kernels.kb"
FORWARD, BACKWARD = "attention.sdpa_ragged_forward", "attention.sdpa_ragged_backward"


def small_batches(report, cuda, path):
    """Offsets that make no sense, on cases of conformance_flash_forward and _backward: nothing outside the buffers is written."""
    cases = conformance.Cases(path, cuda, [ROOT / "kernels"], ragged.cases)
    rng = np.random.default_rng(0)
    for op, variant in cases.variants():
        if "_ragged_" not in op["name"] or variant["provider"] == "cudnn":  # whose problems are the listed ones
            continue
        wrong = None
        prepared = [p for p in cases.prepared(op, variant["types"]) if variant["id"] in p[5]]
        for _, problem, inferred, arrays, _, _ in prepared[:4] + prepared[-4:]:  # the last ones have lengths
            for _ in range(5):
                given = list(arrays)
                places = [i for i, o in enumerate(op["operands"]) if o["name"].endswith(("_offsets", "_lengths"))]
                for i in [i for i in places if arrays[i] is not None]:
                    given[i] = rng.choice([-2**31, -1, 0, 3, 17, 60, 119, 2**31 - 1], len(arrays[i])).astype(np.int32)
                cases.bundle.force(variant["id"])
                launch = runner.Launch(cuda, op, problem, inferred, given, 0)
                try:
                    launch.run(capi.Plan(cases.bundle, problem, cuda.kind))
                except (AssertionError, capi.KbError, devices.CudaError) as error:
                    wrong = str(error)
                launch.free()
                cases.bundle.clear_policy()
        report.hold(f"offsets without sense: {variant['id']}", wrong is None, wrong or "")


def batches(rng, sequences, rows, bound):
    """Offsets of the listed problems, by name."""
    even = np.arange(sequences + 1) * min(bound, rows // sequences)
    lengths = rng.integers(0, bound + 1, sequences)
    lengths[0] = bound
    some = np.minimum(np.concatenate([[0], np.cumsum(lengths)]), rows)
    lengths = lengths // 2
    lengths[1::2] = 0
    return {"even": even, "random": some, "empty ones and padding": np.concatenate([[0], np.cumsum(lengths)])}


class Case:
    """One listed forward problem on some offsets."""

    def __init__(self, cuda, reference, operands, attributes, offsets, seed=3):
        self.reference, self.offsets, self.lengths = reference, [of.astype(np.int32) for of in offsets], []
        names = ("scale", "mask", "window", "window_right", "score_mod", "score_scalars", "max_queries", "max_keys")
        self.attributes = {name: attributes[name] for name in names if name in attributes}
        self.tensors = Tensors(cuda, seed)
        self.device, self.host = zip(*(self.tensors.random(*operand) for operand in operands[:3]))
        if operands[5] is not None:
            self.leave_gaps(attributes["max_queries"], attributes["max_keys"])
        self.places = [self.tensors.put("i32", of) for of in (*self.offsets, *self.lengths)]
        self.parts = sorted({0, self.host[1].shape[1] - 1})

    def leave_gaps(self, *bounds):
        """Half of the sequences are shorter than their rows, and what is of none is no number."""
        rng = np.random.default_rng(7)
        for of in self.offsets:
            most = np.diff(of)
            self.lengths.append(np.where(rng.random(len(most)) < 0.5, most, rng.integers(0, most + 1)).astype(np.int32))
        self.owned = [ragged.rows_of_sequences(of, lengths, len(self.host[i]), bound)
                      for i, (of, lengths, bound) in enumerate(zip(self.offsets, self.lengths, bounds))]
        for buffer, host, owned in zip(self.device, self.host, (self.owned[0], self.owned[1], self.owned[1])):
            self.spoil(buffer, host, owned)

    def spoil(self, buffer, host, owned):
        host[~owned] = np.resize(np.array([np.nan, np.inf, -np.inf]), host[~owned].shape)
        buffer.put(host)

    def heads(self, kv):
        group = self.host[0].shape[1] // self.host[1].shape[1]
        return slice(kv * group, (kv + 1) * group), slice(kv, kv + 1)

    def part(self, kv):
        q_heads, kv_heads = self.heads(kv)
        return [x[:, of].astype(np.float64) for x, of in zip(self.host, (q_heads, kv_heads, kv_heads))]

    def forward_errors(self, o, stats):
        worst, found_o, found_stats = {"o": 0.0, "stats": 0.0}, o.get(), stats.get()
        for kv in self.parts:
            q_heads, _ = self.heads(kv)
            given = *self.part(kv), *self.offsets, *self.lengths
            wanted, wanted_stats = self.reference.sdpa_ragged_forward(*given, **self.attributes, with_stats=True)
            worst["o"] = max(worst["o"], error_of(found_o[:, q_heads], wanted))
            worst["stats"] = max(worst["stats"], error_of(found_stats[:, q_heads].T, wanted_stats.T))
        return worst

    def backward_errors(self, o, stats, dout, results):
        worst, found = dict.fromkeys(("dq", "dk", "dv"), 0.0), [r.get() for r in results if r]
        for kv in self.parts:
            q_heads, kv_heads = self.heads(kv)
            given = [x[:, q_heads].astype(np.float64) for x in (o.get(), dout, stats.get())]
            wanted = self.reference.sdpa_ragged_backward(*self.part(kv), *given, *self.offsets, *self.lengths, **self.attributes)
            for name, f, w, heads in zip(worst, found, wanted, (q_heads, kv_heads, kv_heads)):
                worst[name] = max(worst[name], error_of(f[:, heads], w))
        return worst


def record(report, rows, way, variant, operands, attributes, batch, us, errors):
    held = all(e <= (LIMITS[operands[0][0]] if name != "stats" else 1e-3) for name, e in errors.items())
    what = ", ".join(f"{k}={v}" for k, v in attributes.items() if k in ("mask", "window", "window_right", "score_mod")) + f", {batch}"
    what += ", gaps" * (operands[5] is not None)
    name = variant.split("/")[1].split("[")[0]
    worst = ", ".join(f"{n} {e:.2g}" for n, e in errors.items())
    report.hold(f"{way} {name} {list(operands[0][1])} {what}", held, worst)
    rows.append([way, name, operands[0][0], "x".join(map(str, operands[0][1])), what, f"{us:.1f}", worst])


def launched(report, runs, problem, variant, given, results, what):
    us, why = runs.launch(problem, variant, given, results)
    if why:
        report.hold(f"{what} {variant.split('/')[1].split('[')[0]}", False, why)
    return us


def listed_problems(report, runs, reference, rows):
    for problem, operands, attributes in listed(runs.bundle, FORWARD, runs.cuda):
        if operands[0][0] not in LIMITS:
            continue
        same = {k: v for k, v in attributes.items() if k != "with_stats"}
        (_, (total, _, _)), (_, (keys, _, _)) = operands[:2]
        sequences = operands[3][1][0] - 1
        rng = np.random.default_rng(sequences)
        of_keys = batches(rng, sequences, keys, attributes["max_keys"])
        for batch, q_offsets in batches(rng, sequences, total, attributes["max_queries"]).items():
            # The same on both sides where a causal query would otherwise see nothing.
            kv_offsets = of_keys[batch] if attributes.get("mask", "none") == "none" and batch != "random" else q_offsets
            case = Case(runs.cuda, reference, operands, attributes, (q_offsets, kv_offsets))
            o, stats = (case.tensors.empty(r["dtype"], r["dims"]) for r in runs.bundle.infer(problem, capi.CUDA)["results"])
            absent = [None] * (len(operands) - 3 - len(case.places))
            given = [*case.device, *case.places, *absent]
            for variant in runs.variants(problem):
                o.poison(), stats.poison()
                us = launched(report, runs, problem, variant, given, [o, stats], f"forward {batch}")
                if us:
                    record(report, rows, "forward", variant, operands, attributes, batch, us, case.forward_errors(o, stats))
            dout, dout_host = case.tensors.random(operands[0][0], o.dims)
            if case.lengths:
                case.spoil(dout, dout_host, case.owned[0])
            described = [*operands[:3], (operands[0][0], o.dims), (operands[0][0], o.dims), ("f32", stats.dims), *operands[3:]]
            backward = capi.Problem(BACKWARD, described, same)
            given = [*case.device, o, dout, stats, *case.places, *absent]
            for variant in runs.variants(backward):
                inferred = runs.bundle.infer(backward, capi.CUDA)["results"]
                results = [case.tensors.empty(r["dtype"], r["dims"]) if r["present"] else None for r in inferred]
                us = launched(report, runs, backward, variant, given, results, f"backward {batch}")
                if us:
                    record(report, rows, "backward", variant, operands, attributes, batch, us,
                           case.backward_errors(o, stats, dout_host, results))
            case.tensors.free()


def main():
    report, cuda = Report("ragged attention"), devices.Cuda()
    launch_cost.frameworks_libraries()
    path = sys.argv[1] if len(sys.argv) > 1 else BUNDLE
    runs, rows, start = Runs(cuda, capi.Bundle(path)), [], time.time()
    listed_problems(report, runs, runner.load_reference("attention", [ROOT / "kernels"]), rows)
    report.table("Launches in a captured graph", ["way", "variant", "dtype", "q", "problem", "us", "largest error of a row"], rows)
    small_batches(report, cuda, path)
    report.fact("seconds", round(time.time() - start, 1))
    report.finish()


if __name__ == "__main__":
    main()
