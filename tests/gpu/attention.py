"""The attention ops on this GPU: execution plans of cuDNN and our own kernels on the listed problems, against float64.

Results are poisoned first; of each problem some heads are compared with the reference, whole, since heads do not depend on
each other. Times are of launches inside a captured graph, and a first launch inside a capture, straight after its plan.
"""

import dataclasses
import itertools
import sys
import time

import numpy as np

import launch_cost
from conformance import capi, devices, runner
from report import Report

ROOT = capi.ROOT
BUNDLE = ROOT / "build/kernels.kb"
FORWARD, BACKWARD = "attention.sdpa_forward", "attention.sdpa_backward"
LAUNCHES, REPEATS = 10, 9
LIMITS = {"bf16": 4e-2, "f16": 1e-2}  # of a row's largest magnitude; the manifest's own tolerances
NAMES = {t: n for n, t in devices.NUMPY.items()}


def listed(bundle, op, cuda):
    """The listed problems that anything on this GPU takes: (capi.Problem, operands, attributes)."""
    for problem in bundle.listed(op):
        if problem.attributes.get("generator") != "cudnn":  # there is no reference of what it drops
            yield problem, problem.operands, problem.attributes


def flops(operands, attributes, backward):
    (_, (b, q1, q2, d)), (_, (_, k1, k2, _)), (_, (_, _, _, dv)) = operands[:3]
    bshd = attributes.get("layout", "bshd") == "bshd"
    sq, h, skv = (q1, q2, k1) if bshd else (q2, q1, k2)
    mask, left, right = (attributes.get(name, other) for name, other in (("mask", "none"), ("window", -1), ("window_right", -1)))
    diagonal = np.arange(sq) + (skv - sq if mask.endswith("bottom_right") else 0)
    right = 0 if mask.startswith("causal") else right
    last = np.minimum(diagonal + right, skv - 1) if right >= 0 else np.full(sq, skv - 1)
    first = np.maximum(diagonal - left, 0) if left >= 0 else np.zeros(sq, int)
    pairs = int(np.clip(last - first + 1, 0, None).sum())
    return b * h * pairs * (2 * d + 2 * dv) * (2.5 if backward else 1)


class Tensors:
    """Random operands of a problem in device buffers, and the NumPy values of chosen heads."""

    def __init__(self, cuda, seed):
        self.cuda, self.rng, self.buffers = cuda, np.random.default_rng(seed), []

    def random(self, dtype, dims):
        made = self.rng.standard_normal(dims, np.float32).astype(devices.NUMPY[dtype])
        return self.put(dtype, made), made

    def put(self, dtype, array):
        self.buffers.append(devices.Buffer(self.cuda, dtype, array.shape).put(array))
        return self.buffers[-1]

    def empty(self, dtype, dims):
        self.buffers.append(devices.Buffer(self.cuda, dtype, dims).poison())
        return self.buffers[-1]

    def free(self):
        for buffer in self.buffers:
            buffer.free()


def heads_first(array, attributes):
    return array if attributes.get("layout", "bshd") == "bhsd" else np.swapaxes(array, 1, 2)


def error_of(found, wanted):
    """Largest error of a row relative to its largest magnitude; inf where not finite."""
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    if not np.array_equal(np.isneginf(found), np.isneginf(wanted)):
        return np.inf
    finite = np.isfinite(wanted)
    found, wanted = np.where(finite, found, 0), np.where(finite, wanted, 0)
    if not np.isfinite(found).all():
        return np.inf
    scale = np.maximum(np.abs(wanted).max(axis=-1, keepdims=True), 1e-2 * max(np.abs(wanted).max(), 1e-30))
    return float((np.abs(found - wanted) / scale).max())


class Case:
    """One forward problem with its backward: inputs, and the float64 results of the first and last kv-head."""

    def __init__(self, cuda, reference, operands, attributes, seed=1):
        self.cuda, self.reference, self.attributes = cuda, reference, dict(attributes)
        self.tensors = Tensors(cuda, seed)
        self.device, self.host, self.forward, self.backward = [], [], None, None
        for number, operand in enumerate(operands):
            if operand is None:
                self.device.append(None), self.host.append(None)
            elif number in (4, 5):
                lengths = self.lengths(number, operands)
                self.device.append(self.tensors.put("i32", lengths)), self.host.append(lengths)
            else:
                buffer, made = self.tensors.random(*operand)
                self.device.append(buffer), self.host.append(made)

    def lengths(self, number, operands):
        bshd = self.attributes.get("layout", "bshd") == "bshd"
        dims = operands[0 if number == 4 else 1][1]
        return self.tensors.rng.integers(1, dims[1 if bshd else 2] + 1, dims[0]).astype(np.int32)

    def part(self, b, kv):
        """Operands of one batch and one kv-head with its group of query heads, as float64 in the op's layout."""
        cut = lambda x, heads: heads_first(x, self.attributes)[b:b + 1, heads]
        group = heads_first(self.host[0], self.attributes).shape[1] // heads_first(self.host[1], self.attributes).shape[1]
        q_heads, kv_heads = slice(kv * group, (kv + 1) * group), slice(kv, kv + 1)
        bias = self.host[3]
        if bias is not None:
            bias = bias[b if bias.shape[0] > 1 else 0:][:1, q_heads if bias.shape[1] > 1 else slice(0, 1)]
        lengths = [x if x is None else x[b:b + 1] for x in self.host[4:6]]
        wide = lambda x: x if x is None else x.astype(np.float64)
        return [wide(cut(self.host[0], q_heads)), wide(cut(self.host[1], kv_heads)), wide(cut(self.host[2], kv_heads)), wide(bias),
                *lengths, None, *map(wide, self.score_tensors(b, q_heads))], q_heads, kv_heads

    def score_tensors(self, b, q_heads):
        """Of the score modifier, those of one batch and some heads."""
        modifier = self.reference.modifiers().get(self.attributes.get("score_mod"))
        if not modifier:
            return
        q, k = (heads_first(x, self.attributes) for x in self.host[:2])
        lengths = dict(zip("bhqk", (*q.shape[:3], k.shape[2])))
        for name, tensor in zip(modifier.tensors, self.host[7:]):
            cut = {"b": slice(b, b + 1), "h": q_heads}
            dims = modifier.dims[name]
            yield tensor.reshape([lengths[dim] for dim in dims])[tuple(cut.get(dim, slice(None)) for dim in dims)].reshape(-1)

    def chosen(self):
        q, k = heads_first(self.host[0], self.attributes), heads_first(self.host[1], self.attributes)
        yield 0, 0
        if q.shape[0] * k.shape[1] > 1:
            yield q.shape[0] - 1, k.shape[1] - 1

    def forward_errors(self, o, stats):
        found_o, found_stats = heads_first(o.get(), self.attributes), stats and stats.get()
        worst = {"o": 0.0, "stats": 0.0}
        if self.forward is None:
            parts = [(b, *self.part(b, kv)) for b, kv in self.chosen()]
            self.forward = [(b, q_heads, *self.reference.sdpa_forward(*part, **self.numbers(), layout="bhsd", with_stats=True)[:2])
                            for b, part, q_heads, _ in parts]
        for b, q_heads, wanted, wanted_stats in self.forward:
            worst["o"] = max(worst["o"], error_of(found_o[b:b + 1, q_heads], wanted))
            if stats:
                worst["stats"] = max(worst["stats"], error_of(found_stats[b:b + 1, q_heads], wanted_stats))
        return worst

    def backward_errors(self, o, stats, dout, results):
        worst = dict.fromkeys(("dq", "dk", "dv"), 0.0)
        given = [heads_first(x, self.attributes) for x in (o.get(), dout)]
        grads = [heads_first(r.get(), self.attributes) for r in results[:3]]
        if self.backward is None:  # o and stats are the same for all variants
            all_stats, self.backward = stats.get(), []
            for b, kv in self.chosen():
                part, q_heads, kv_heads = self.part(b, kv)
                wide = [x[b:b + 1, q_heads].astype(np.float64) for x in given]
                wanted = self.reference.sdpa_backward(*part[:3], *wide, all_stats[b:b + 1, q_heads].astype(np.float64), *part[3:],
                                                      **self.numbers(), layout="bhsd")
                self.backward.append((b, q_heads, kv_heads, wanted))
        for b, q_heads, kv_heads, wanted in self.backward:
            for name, found, want, heads in zip(worst, grads, wanted, (q_heads, kv_heads, kv_heads)):
                worst[name] = max(worst[name], error_of(found[b:b + 1, heads], want))
        return worst

    def numbers(self):
        return {k: v for k, v in self.attributes.items() if k in ("scale", "mask", "window", "window_right", "score_mod", "score_scalars")}


class Runs:
    """Launches of one bundle's variants on this GPU."""

    def __init__(self, cuda, bundle):
        self.cuda, self.bundle = cuda, bundle

    def variants(self, problem):
        self.bundle.clear_policy()
        return self.bundle.legal(problem, capi.CUDA)

    def time(self, launch):
        return self.cuda.device_us(launch, LAUNCHES, REPEATS)

    def launch(self, problem, variant, operands, results):
        """(device us, error text or None): the first launch is in a capture, straight after the plan."""
        self.bundle.clear_policy()
        self.bundle.force(variant)
        try:
            plan = capi.Plan(self.bundle, problem, capi.CUDA)
        except capi.KbError as error:
            return None, str(error)
        if plan.variant != variant:
            return None, f"{plan.variant} was planned"
        workspace = self.cuda.allocate(max(256, plan.workspace_bytes))
        self.cuda.fill(workspace, 0xff, max(256, plan.workspace_bytes))
        arguments = [capi.Plan.pointers([b and b.address for b in side]) for side in (operands, results)]
        once = self.cuda.capture(lambda: plan.launch(*arguments, workspace, self.cuda.stream))
        self.cuda.launch_graph(once)
        self.cuda.synchronize()
        us = self.time(lambda: plan.launch(*arguments, workspace, self.cuda.stream))
        self.cuda.free(workspace)
        return us, None


def short(variant, operands):
    name = variant.split("/")[1].split("[")[0]
    return name + " " + str(list(operands[0][1])) + "x" + str(operands[1][1][2])


@dataclasses.dataclass
class Run:
    """One variant on one problem; why: what kept it from running, in place of time and errors."""
    way: str
    variant: str
    operands: list
    attributes: dict
    us: float | None = None
    errors: dict | None = None
    why: str | None = None

    def right(self):
        limits = {"stats": 1e-3}
        return self.why is None and all(e <= limits.get(n, LIMITS[self.operands[0][0]]) for n, e in self.errors.items())

    def worst(self):
        return self.why or ", ".join(f"{n} {e:.2g}" for n, e in self.errors.items())

    def what(self):
        return ", ".join(f"{k}={v}" for k, v in self.attributes.items() if k in ("mask", "window", "window_right", "score_mod", "layout"))

    def __str__(self):
        return f"{self.way} {short(self.variant, self.operands)} {self.what()}"


def forward_runs(runs, reference, case_of=Case):
    """A Run of each legal variant on each listed problem of the forward op."""
    for problem, operands, attributes in listed(runs.bundle, FORWARD, runs.cuda):
        variants = runs.variants(problem)
        if not variants:
            continue
        case = case_of(runs.cuda, reference, operands, attributes)
        inferred = runs.bundle.infer(problem, capi.CUDA)["results"]
        for variant in variants:
            results = [case.tensors.empty(r["dtype"], r["dims"]) if r["present"] else None for r in inferred]
            us, why = runs.launch(problem, variant, case.device, results)
            yield Run("forward", variant, operands, attributes, us, why or case.forward_errors(*results), why)
        case.tensors.free()


def forward_of(operands, attributes):
    """The forward problem that gives a backward one its o and stats: (capi.Problem, operands)."""
    allowed = ("scale", "layout", "mask", "window", "window_right", "dropout", "score_mod", "score_scalars")
    own = operands[:3] + operands[6:]
    return capi.Problem(FORWARD, own, {k: v for k, v in attributes.items() if k in allowed} | {"with_stats": True}), own


def backward_runs(runs, reference, case_of=Case):
    """The same of the backward op, on the o and stats of the forward op's first variant."""
    for problem, operands, attributes in listed(runs.bundle, BACKWARD, runs.cuda):
        variants = runs.variants(problem)
        forward, forward_operands = forward_of(operands, attributes)
        first = runs.variants(forward)
        if not variants or not first:
            continue
        case = case_of(runs.cuda, reference, forward_operands, attributes)
        o, stats = [case.tensors.empty(r["dtype"], r["dims"]) for r in runs.bundle.infer(forward, capi.CUDA)["results"]]
        _, why = runs.launch(forward, first[0], case.device, [o, stats])
        if why:
            yield Run("forward for backward", first[0], operands, attributes, why=why)
            continue
        dout, dout_host = case.tensors.random(NAMES[o.dtype], o.dims)
        given = case.device[:3] + [o, dout, stats] + case.device[3:]
        inferred = runs.bundle.infer(problem, capi.CUDA)["results"]
        for variant in variants:
            results = [case.tensors.empty(r["dtype"], r["dims"]) if r["present"] else None for r in inferred]
            us, why = runs.launch(problem, variant, given, results)
            yield Run("backward", variant, operands, attributes, us, why or case.backward_errors(o, stats, dout_host, results), why)
        case.tensors.free()


def main():
    report, cuda = Report("attention"), devices.Cuda()
    launch_cost.frameworks_libraries()
    bundle = capi.Bundle(sys.argv[1] if len(sys.argv) > 1 else BUNDLE)
    reference = runner.load_reference("attention", [ROOT / "kernels"])
    runs, rows = Runs(cuda, bundle), []
    start = time.time()
    for run in itertools.chain(forward_runs(runs, reference), backward_runs(runs, reference)):
        report.hold(str(run), run.right(), run.worst())
        if run.why is None:
            rate = flops(run.operands, run.attributes, run.way == "backward") / run.us / 1e6
            rows.append([run.way, run.variant.split("/")[1].split("[")[0], run.operands[0][0], "x".join(map(str, run.operands[0][1])),
                         run.what(), f"{run.us:.1f}", f"{rate:.0f}", run.worst()])
    report.fact("seconds", round(time.time() - start, 1))
    report.table("Launches in a captured graph", ["way", "variant", "dtype", "q", "problem", "us", "TFLOP/s", "largest error of a row"],
                 rows)
    report.finish()


if __name__ == "__main__":
    main()
