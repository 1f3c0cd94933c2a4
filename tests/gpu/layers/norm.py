"""The norm ops on this GPU: every variant on rows that matter, drawn anew; device times at 16384 x 8192 bf16 against their bars, and of
few rows; then beside plain formulas under jax.jit, at that shape and at shapes drawn anew in every run (KB_SEED): right first, then in turns
(chain.py).

Bytes: each large tensor read or written once. KB_COUNT: how many shapes.
"""

import math
import os
import pathlib
import random
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

import kbundle
import kbundle.jax as kbj
from bandwidth import random_bf16
from conformance import capi, devices, norm
from layers.cases import check_cases
from report import Report
from unlisted import chain, drawn

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "build/kernels.kb"
SHAPE = (16384, 8192)
TBPS = {"forward": 3.9, "backward": 3.7, "quantize": 3.7, "quantize, transposed": 3.2}
LAUNCHES, REPEATS = 8, 9
CASES_PER_VARIANT, CASES_SECONDS = 6, 30
FEW = [("bf16", 1, 4096), ("bf16", 4, 1536), ("bf16", 40, 4096), ("bf16", 128, 1024), ("bf16", 300, 2048), ("f16", 3, 10001), ("f32", 8, 12288)]
COUNT, SECONDS, MOST_ELEMENTS = 12, 50, 1 << 27
ODD = [1000, 1023, 2049, 5120, 7168, 10001]


def forced_us(cuda, bundle, problem, variant, operands, results, launches=LAUNCHES):
    bundle.clear_policy()
    bundle.force(variant)
    plan = capi.Plan(bundle, problem, cuda.kind)
    workspace = cuda.allocate(max(1, plan.workspace_bytes))
    arguments = [capi.Plan.pointers([b and b.address for b in buffers]) for buffers in (operands, results)]
    us = cuda.device_us(lambda: plan.launch(*arguments, workspace, cuda.stream), launches, REPEATS)
    cuda.free(workspace)
    bundle.clear_policy()
    return us


def few_rows_times(report, cuda):
    """What is chosen for few rows, and the quickest of the other variants: launches in a captured graph, warm."""
    bundle, rows = capi.Bundle(BUNDLE), []
    for dtype, count, hidden in FEW:
        buffer = lambda kind, *dims: devices.Buffer(cuda, kind, dims).put(np.ones(dims))
        x, dy, y = (buffer(dtype, count, hidden) for _ in range(3))
        gamma, beta, dgamma, dbeta = (buffer(dtype, hidden) for _ in range(4))
        mu, rsigma = (buffer("f32", count) for _ in range(2))
        for op, operands, results in [("rmsnorm_forward", [x, gamma, None], [y, rsigma, None]),
                                      ("layernorm_forward", [x, gamma, beta, None], [y, mu, rsigma, None]),
                                      ("rmsnorm_backward", [dy, x, rsigma, gamma, None], [y, dgamma]),
                                      ("layernorm_backward", [dy, x, mu, rsigma, gamma, None], [y, dgamma, dbeta])]:
            problem = capi.Problem("norm." + op, [b and (dtype if b.dtype == x.dtype else "f32", b.dims) for b in operands], {})
            chosen = capi.Plan(bundle, problem, cuda.kind).variant
            legal = bundle.legal(problem, cuda.kind)
            us = {variant: forced_us(cuda, bundle, problem, variant, operands, results, 64) for variant in legal}
            other = min((v for v in us if v != chosen), key=us.get)
            names = [v.split("/")[1].split("@")[0] for v in (chosen, other)]
            rows.append([f"{op} {dtype} {count} x {hidden}", names[0], f"{us[chosen]:.2f}", names[1], f"{us[other]:.2f}"])
        for each in (x, dy, y, gamma, beta, dgamma, dbeta, mu, rsigma):
            each.free()
    report.table("Few rows, launches in a captured graph", ["op and shape", "chosen", "us", "quickest other", "us"], rows)


def device_times(report, cuda):
    """The bars: launches of every legal variant in a captured graph, the one that is chosen first."""
    bundle, rows = capi.Bundle(BUNDLE), []
    wide = [devices.Buffer(cuda, "bf16", SHAPE) for _ in range(5)]
    for seed, buffer in enumerate(wide):
        random_bf16(cuda, buffer, seed)
    ones = lambda dtype, *dims: devices.Buffer(cuda, dtype, dims).put(np.ones(dims))
    weight, moments = [ones("bf16", SHAPE[1]) for _ in range(4)], [ones("f32", SHAPE[0]) for _ in range(2)]
    x, dy, more, result, total = wide
    scale, amax, scale_inv = (ones("f32", 1) for _ in range(3))
    of_groups, e4m3 = ones("f32", SHAPE[0], SHAPE[1] // 128), {"out_dtype": "e4m3"}
    problems = [
        ("", "rmsnorm_forward", [x, weight[0], None], [result, moments[0], None], 2, {}),
        (" with a residual", "rmsnorm_forward", [x, weight[0], more], [result, moments[0], total], 4, {}),
        ("", "layernorm_forward", [x, weight[0], weight[1], None], [result, *moments, None], 2, {}),
        ("", "rmsnorm_backward", [dy, x, moments[0], weight[0], None], [result, weight[1]], 3, {}),
        ("", "layernorm_backward", [dy, x, *moments, weight[0], None], [result, *weight[1:3]], 3, {}),
        (" with dsum", "layernorm_backward", [dy, x, *moments, weight[0], more], [result, *weight[1:3]], 4, {}),
        ("", "rmsnorm_quantize", [x, weight[0], None, scale], [result, None, amax, scale_inv, None, moments[0], None], 1.5, e4m3),
        (", groups", "rmsnorm_quantize", [x, weight[0], None, None], [result, None, None, None, of_groups, moments[0], None], 1.5, e4m3),
        (", transposed", "rmsnorm_quantize", [x, weight[0], None, scale], [result, total, amax, scale_inv, None, moments[0], None], 2,
         e4m3 | {"transposed": True}),
        ("", "layernorm_quantize", [x, *weight[:2], None, scale], [result, None, amax, scale_inv, None, *moments, None], 1.5, e4m3)]
    names = {t: n for n, t in devices.NUMPY.items()}
    for more_of_it, op, operands, results, moved, how in problems:
        problem = capi.Problem("norm." + op, [b and (names[b.dtype], b.dims) for b in operands], how)
        tbps = {}
        for variant in bundle.legal(problem, cuda.kind):
            us = forced_us(cuda, bundle, problem, variant, operands, results)
            tbps[variant] = moved * math.prod(SHAPE) * 2 / us / 1e6
            rows.append([op + more_of_it, variant.split("/")[1].split("@")[0], f"{us:.1f}", f"{tbps[variant]:.2f}", ""])
        chosen = capi.Plan(bundle, problem, cuda.kind).variant
        rows[-len(tbps) + list(tbps).index(chosen)][-1] = "chosen"
        least = next(v for n, v in reversed(TBPS.items()) if (op + more_of_it).split("norm_")[1].startswith(n))
        report.bar(f"{op}{more_of_it} bf16 {list(SHAPE)}", tbps[chosen], least, "TB/s", at_least=True)
    report.table("Launches in a captured graph", ["op", "variant", "us", "TB/s", ""], rows)
    for buffer in [*wide, *weight, *moments, scale, amax, scale_inv, of_groups]:
        buffer.free()


def formula(kind):
    """As it is written where nothing else is at hand: in float32, back in the dtype of x."""
    def run(x, gamma):
        wide = x.astype(jnp.float32)
        wide = wide - wide.mean(-1, keepdims=True) if kind == "layer_norm" else wide
        return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * gamma.astype(jnp.float32)).astype(x.dtype)
    return run


def gradients(function):
    def run(x, gamma, dy):
        y, pull = jax.vjp(function, x, gamma)
        return y, *pull(dy)
    return run


def moments_of(kind, x):
    """The mean (of a layer norm) and 1 / sigma of every row in float64, some rows at a time."""
    for start in range(0, len(x), 1024):
        some = x[start:start + 1024].astype(np.float64)
        mean = some.mean(-1, keepdims=True) if kind == "layer_norm" else np.zeros((len(some), 1))
        some -= mean
        yield np.concatenate([mean, 1 / np.sqrt(np.einsum("ij,ij->i", some, some)[:, None] / x.shape[1] + 1e-6)], axis=1)


def errors(kind, arrays, found):
    """Of y, dx and dgamma against float64, over some rows and columns, by the largest number there."""
    x, gamma, dy = (np.asarray(a.astype(jnp.float32)) for a in arrays)
    chance = np.random.default_rng(len(x))
    rows, columns = (np.unique(chance.integers(0, n, 16)) for n in x.shape)
    mean, inverse = np.concatenate(list(moments_of(kind, x))).T[:, :, None]
    normal, g = (x[rows] - mean[rows]) * inverse[rows], dy[rows].astype(np.float64) * gamma
    dx = inverse[rows] * (g - (g.mean(-1, keepdims=True) if kind == "layer_norm" else 0) - normal * (g * normal).mean(-1, keepdims=True))
    dgamma = (dy[:, columns] * (x[:, columns] - mean) * inverse).sum(0)
    y, by_dx, by_dgamma = (np.asarray(a.astype(jnp.float32)) for a in found)
    pairs = (y[rows], normal * gamma), (by_dx[rows], dx), (by_dgamma[columns], dgamma)
    return [float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs]


def shapes(count, seed):
    """(tokens, hidden, kind, dtype): the bar's, one token, then drawn; a third of the hidden sizes odd ones."""
    chance, found = random.Random(seed), [(*SHAPE, "rms_norm", "bfloat16"), (*SHAPE, "layer_norm", "bfloat16"), (1, 4096, "rms_norm", "bfloat16")]
    while len(found) < count:
        hidden = chance.choice(ODD) if len(found) % 3 == 0 else chance.choice([1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384])
        tokens = int(2 ** chance.uniform(0, 16))
        if tokens * hidden <= MOST_ELEMENTS:
            found.append((tokens, hidden, ("rms_norm", "layer_norm")[len(found) % 2], ("bfloat16", "bfloat16", "float32", "float16")[len(found) % 4]))
    return found


def beside_jax(report, seed):
    kbundle.use(str(BUNDLE))
    rows, ahead, until = [], {"forward": [], "with gradients": []}, time.monotonic() + SECONDS
    wanted = shapes(int(os.environ.get("KB_COUNT", COUNT)), seed)
    for number, (tokens, hidden, kind, dtype) in enumerate(wanted):
        if time.monotonic() > until:
            report.fact("shapes not run for want of time", len(wanted) - number)
            break
        keys = jax.random.split(jax.random.PRNGKey(number), 3)
        arrays = [jax.random.normal(key, dims, dtype) + 0.5 for key, dims in zip(keys, ((tokens, hidden), (hidden,), (tokens, hidden)))]
        ours, plain, name = getattr(kbj, kind), formula(kind), f"{kind} {tokens} x {hidden} {dtype}"
        within = 1e-5 if dtype == "float32" else 1e-2
        found = errors(kind, arrays, jax.jit(gradients(ours))(*arrays))
        report.hold(f"{name} within {within} of float64", max(found) <= within, f"y, dx, dgamma: {found}")
        row = [name]
        for title, one, other, given in (("forward", ours, plain, arrays[:2]), ("with gradients", gradients(ours), gradients(plain), arrays)):
            times = chain.in_turns({"ours": chain.chained(one), "jax": chain.chained(other)}, given)
            ahead[title].append(times["jax"] / times["ours"])
            row += [f"{times['ours']:.1f}", f"{times['jax']:.1f}", f"{ahead[title][-1]:.2f}"]
        rows.append(row)
        print(*row, flush=True)
    report.table("Microseconds of a call in jax.jit", ["op and shape", "forward", "jax.jit", "ahead", "with gradients", "jax.jit", "ahead"], rows)
    for title, ratios in ahead.items():
        report.bar(f"{title}: geometric mean of jax.jit's time by ours", statistics.geometric_mean(ratios), 1.0, at_least=True)
        report.bar(f"{title}: least", min(ratios), 0.97, at_least=True)


def main():
    report, cuda, seed = Report("norm"), devices.Cuda(), drawn.seed()
    report.fact("seed", seed)
    check_cases(report, norm.Cases(BUNDLE, cuda, [ROOT / "kernels"]), seed, CASES_PER_VARIANT, CASES_SECONDS)
    device_times(report, cuda)
    few_rows_times(report, cuda)
    beside_jax(report, seed)
    report.finish()


if __name__ == "__main__":
    main()
