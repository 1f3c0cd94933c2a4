"""Attention on this GPU in the forms that have no reference of their own: dropout by cuDNN, judged by the mask that it is found to
draw; queries, keys and values in one tensor, against the same apart; FP8, of some heads, against float64."""

import sys
import time

import numpy as np

import launch_cost
from conformance import capi, devices, dropout, runner
from report import Report

ROOT = capi.ROOT
BUNDLE = ROOT / "build/kernels.kb"
LIMITS = {"bf16": 4e-2, "f16": 1e-2}  # of the largest magnitude


def listed(bundle, op):
    for problem in bundle.listed(op):
        yield problem.operands, problem.attributes


def short(operands, attributes):
    what = [f"{k}={attributes[k]}" for k in ("kv_heads", "mask", "window", "window_right", "dropout") if k in attributes]
    return f"{operands[0][0]} {'x'.join(map(str, operands[0][1]))} {' '.join(what)}"


def check_dropout(report, bundle, cuda):
    for operands, attributes in listed(bundle, "attention.sdpa_forward"):
        if attributes.get("generator") != "cudnn":
            continue
        start, case = time.time(), dropout.Dropout(bundle, cuda, operands, attributes)
        states = [np.array(state, np.uint32) for state in ([1, 2, 3, 4], [1, 2, 4099, 4], [7, 2, 3, 4])]
        heads = [(0, 0), (case.batch - 1, case.heads - 1)]
        for name, holds, found in dropout.judge(case, states, LIMITS[case.dtype], heads):
            report.hold(f"dropout {short(operands, attributes)}: {name}", holds, found)
            report.fact(name, found)
        report.fact("seconds", round(time.time() - start, 1))


class Op:
    """Launches of one op's problem, every legal variant by force."""

    def __init__(self, bundle, cuda, op, operands, attributes):
        self.bundle, self.cuda, self.operands = bundle, cuda, operands
        self.op = next(row for row in bundle.describe()["ops"] if row["name"] == op)
        self.problem = capi.Problem(op, operands, attributes)
        bundle.clear_policy()
        self.variants = bundle.legal(self.problem, cuda.kind)
        self.inferred = bundle.infer(self.problem, cuda.kind)

    def run(self, arrays, variant=None):
        self.bundle.clear_policy()
        if variant:
            self.bundle.force(variant)
        try:
            plan = capi.Plan(self.bundle, self.problem, self.cuda.kind)
            assert variant in (None, plan.variant), f"{plan.variant} was planned"
            given = [None if o is None else np.asarray(a).astype(devices.NUMPY[o[0]]) for o, a in zip(self.operands, arrays)]
            launch = runner.Launch(self.cuda, self.op, self.problem, self.inferred, given, 0)
            found = launch.run(plan)
            launch.free()
            return [x if x is None else x.astype(np.float64) for x in found]
        finally:
            self.bundle.clear_policy()


def compare(report, name, found, wanted, limit):
    finite = np.isfinite(wanted)
    same = np.array_equal(finite, np.isfinite(found))
    found, wanted = (np.where(finite, x, 0) for x in (found, wanted))
    error = np.abs(found - wanted).max() / np.abs(wanted).max() if same else np.inf
    report.hold(name, error <= limit, f"{error:.2g} of {limit:.2g}")


def check_packed(report, bundle, cuda):
    rng = np.random.default_rng(1)
    for operands, attributes in listed(bundle, "attention.sdpa_packed_backward"):
        (dtype, (batch, tokens, width, depth)), kv = operands[0], attributes["kv_heads"]
        if dtype == "f32":
            continue  # of the CPU
        heads, limit = width - 2 * kv, LIMITS[dtype]
        q, k, v = [(dtype, (batch, tokens, n, depth)) for n in (heads, kv, kv)]
        rest = {n: a for n, a in attributes.items() if n != "kv_heads"}
        qkv, dout = rng.standard_normal(operands[0][1], np.float32), rng.standard_normal(q[1], np.float32)
        lengths = rng.integers(1, tokens + 1, batch)
        extra = [None, operands[5] and ("i32", (batch,)), None, None, None]
        apart = [*np.split(qkv, [heads, heads + kv], axis=2)]
        other = Op(bundle, cuda, "attention.sdpa_forward", [q, k, v, None, extra[1], extra[1], None, None, None], rest | {"with_stats": True})
        o, stats = other.run([*apart, None, lengths, lengths, None, None, None])
        ours = Op(bundle, cuda, "attention.sdpa_packed_forward", [operands[0], *extra], attributes | {"with_stats": True})
        for variant in ours.variants:
            found = ours.run([qkv, None, lengths, None, None, None], variant)
            for name, x, want in zip(("o", "stats"), found, (o, stats)):
                compare(report, f"packed {short(operands, attributes)} {variant.split('/')[1].split('[')[0]} {name}", x, want, limit)
        other = Op(bundle, cuda, "attention.sdpa_backward", [q, k, v, q, q, ("f32", stats.shape), None, extra[1], extra[1], None, None, None],
                   rest)
        wanted = np.concatenate(other.run([*apart, o, dout, stats, None, lengths, lengths, None, None, None])[:3], axis=2)
        ours = Op(bundle, cuda, "attention.sdpa_packed_backward", operands, attributes)
        for variant in ours.variants:
            found = ours.run([qkv, o, dout, stats, None, lengths, None, None, None], variant)
            compare(report, f"packed {short(operands, attributes)} {variant.split('/')[1].split('[')[0]} dqkv", found[0], wanted, limit)


def check_fp8(report, bundle, cuda, reference):
    for operands, attributes in listed(bundle, "attention.sdpa_fp8_forward"):
        case = Op(bundle, cuda, "attention.sdpa_fp8_forward", operands, attributes)
        names = [o["name"] for o in case.op["operands"]]
        shapes = {n: o[1] for n, o in zip(names, operands) if o}
        made = reference.make_inputs("sdpa_fp8_forward", shapes | attributes, 1)
        arrays = [None if o is None else np.asarray(made[n]).astype(devices.NUMPY[o[0]]) for n, o in zip(names, operands)]
        wide = [None if a is None else a.astype(np.float64) for a in arrays]
        by_head = lambda x: x if attributes.get("layout") == "bhsd" else np.swapaxes(x, 1, 2)
        group = by_head(wide[0]).shape[1] // by_head(wide[1]).shape[1]
        for variant in case.variants:
            o, amax_s, amax_o, stats = case.run(arrays, variant)
            name = f"fp8 {short(operands, attributes)} {variant.split('/')[1].split('[')[0]}"
            for b, kv in ((0, 0), (o.shape[0] - 1, by_head(wide[1]).shape[1] - 1)):
                heads = slice(kv * group, (kv + 1) * group)
                part = [by_head(wide[0])[b:b + 1, heads], *(by_head(x)[b:b + 1, kv:kv + 1] for x in wide[1:3])]
                lengths = [x if x is None else x[b:b + 1] for x in wide[9:]]
                given = {k: a for k, a in attributes.items() if k not in ("layout", "with_stats")}
                want, _, _, want_stats = reference.sdpa_fp8_forward(*part, *wide[3:9], *lengths, layout="bhsd", with_stats=True, **given)
                limit = 0.13 if operands[0][0] == "e4m3" else 0.26
                compare(report, f"{name} o of head {b}, {heads.start}", by_head(o)[b:b + 1, heads], want, limit)
                if stats is not None:
                    compare(report, f"{name} stats of head {b}, {heads.start}", stats[b:b + 1, heads], want_stats, 1e-3)
            scale_o, rounding = made["scale_o"], 0.07 if operands[0][0] == "e4m3" else 0.13
            report.hold(f"{name} amax_o", abs(amax_o / (np.abs(o).max() / scale_o) - 1) <= rounding, f"{amax_o} of {np.abs(o).max() / scale_o}")
            report.hold(f"{name} amax_s", 0 < amax_s <= 1 + 1e-3, str(amax_s))


def main():
    report, cuda = Report("attention: dropout by cuDNN, packed tensors, FP8"), devices.Cuda()
    launch_cost.frameworks_libraries()
    bundle = capi.Bundle(sys.argv[1] if len(sys.argv) > 1 else BUNDLE)
    check_fp8(report, bundle, cuda, runner.load_reference("attention", [ROOT / "kernels"]))
    check_packed(report, bundle, cuda)
    check_dropout(report, bundle, cuda)
    report.finish()


if __name__ == "__main__":
    main()
