"""The router ops on this GPU: every variant on rows that matter; device times at 65536 tokens of 256 experts, k 8, bf16, against their
bars; then beside plain JAX with lax.top_k under jax.jit, from one token to 65536, in turns (chain.py).

With --hostile only some cases, for compute-sanitizer. KB_COUNT: how many shapes.
"""

import os
import pathlib
import random
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import kbundle
import kbundle.jax as kbj
from bandwidth import random_bf16
from conformance import capi, devices, router
from layers.cases import check_cases
from report import Report
from unlisted import chain, drawn

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "build/kernels.kb"
TOKENS, EXPERTS, K = 65536, 256, 8
LAUNCHES, REPEATS = 8, 9
CASES_PER_VARIANT, CASES_SECONDS = 40, 45
COUNT, SECONDS = 12, 60
DEEPSEEK = dict(score_function="sigmoid", num_groups=8, group_topk=4, scaling_factor=2.5)


def problems(cuda):
    """(title, op, operands, attributes, the bar in us or None)."""
    put = lambda dtype, array: devices.Buffer(cuda, dtype, array.shape).put(array)
    rng = np.random.default_rng(1)
    logits, dprobs = (devices.Buffer(cuda, "bf16", (TOKENS, EXPERTS)) for _ in range(2))
    for seed, buffer in enumerate((logits, dprobs)):
        random_bf16(cuda, buffer, seed)
    wide = put("f32", rng.standard_normal((TOKENS, EXPERTS)))
    bias, busy = put("f32", rng.random(EXPERTS)), put("i32", rng.integers(0, 4000, EXPERTS))
    indices = put("i32", np.argsort(rng.random((TOKENS, EXPERTS)), axis=1)[:, :K])
    dweights, k = put("bf16", rng.standard_normal((TOKENS, K))), {"k": K}
    yield "topk, probs and a byte map", "topk", [logits, None], k | {"map": "bytes"}, None
    yield "topk, probs", "topk", [logits, None], k, 60.0
    yield "topk, compact", "topk", [logits, None], k | {"dense": False}, None
    yield "topk, softmax first", "topk", [logits, None], k | {"use_pre_softmax": True}, None
    yield "topk, sigmoid, bias, 4 of 8 groups", "topk", [logits, bias], k | DEEPSEEK, None
    yield "topk, f32", "topk", [wide, None], k, None
    yield "topk and rows, probs", "topk_rows", [logits, None], k | {"dense": True, "align_size": 16}, 70.0
    yield "topk and rows, compact", "topk_rows", [logits, None], k, None
    yield "scores", "scores", [logits], k, None
    yield "topk backward, dprobs", "topk_backward", [logits, indices, dprobs, None], {}, None
    yield "topk backward, dweights", "topk_backward", [logits, indices, None, dweights], {}, None
    yield "topk backward, softmax first", "topk_backward", [logits, indices, dprobs, None], {"use_pre_softmax": True}, None
    yield "scores backward", "scores_backward", [wide, logits], {}, None
    yield "aux loss", "aux_loss", [wide, busy], {"k": K, "coefficient": 0.01, "total_num_tokens": TOKENS}, None


def device_times(report, cuda):
    """Launches of every legal variant in a captured graph, and the bars of the one that is chosen first."""
    bundle, rows = capi.Bundle(BUNDLE), []
    names = {t: n for n, t in devices.NUMPY.items()}
    for title, op, operands, attributes, bar in problems(cuda):
        problem = capi.Problem("router." + op, [b and (names[b.dtype], b.dims) for b in operands], attributes)
        results = [devices.Buffer(cuda, r["dtype"], r["dims"]) if r["present"] else None for r in bundle.infer(problem, cuda.kind)["results"]]
        moved, times = sum(b.size for b in [*operands, *results] if b), {}
        for variant in bundle.legal(problem, cuda.kind):
            bundle.clear_policy()
            bundle.force(variant)
            plan = capi.Plan(bundle, problem, cuda.kind)
            workspace = cuda.allocate(max(1, plan.workspace_bytes))
            arguments = [capi.Plan.pointers([b and b.address for b in buffers]) for buffers in (operands, results)]
            times[variant] = us = cuda.device_us(lambda: plan.launch(*arguments, workspace, cuda.stream), LAUNCHES, REPEATS)
            cuda.free(workspace)
            rows.append([title, variant.split("/")[1].split("@")[0], f"{us:.1f}", f"{moved / us / 1e6:.2f}", ""])
        bundle.clear_policy()
        chosen = capi.Plan(bundle, problem, cuda.kind).variant
        rows[-len(times) + list(times).index(chosen)][-1] = "chosen"
        if bar:
            report.bar(f"{title}, bf16 {TOKENS} x {EXPERTS}, k {K}", times[chosen], bar, "us")
        for buffer in filter(None, results):
            buffer.free()
    report.table("Launches in a captured graph", ["op", "variant", "us", "TB/s", ""], rows)
    for row in rows:
        print(*row, flush=True)


def plain(k, pre_softmax):
    """As it is written where nothing else is at hand."""
    def run(logits):
        x = logits.astype(jnp.float32)
        x = jax.nn.softmax(x, axis=-1) if pre_softmax else x
        weights, indices = jax.lax.top_k(x, k)
        weights = weights if pre_softmax else jax.nn.softmax(weights, axis=-1)
        tokens = jnp.arange(len(x))[:, None]
        return jnp.zeros_like(logits).at[tokens, indices].set(weights.astype(logits.dtype)), jnp.zeros(x.shape, bool).at[tokens, indices].set(True)
    return run


def probs_only(function):
    """(probs, dlogits) at the gradient of probs."""
    def run(logits, dprobs):
        probs, pull = jax.vjp(lambda x: function(x)[0], logits)
        return probs, *pull(dprobs)
    return run


def beside_jax(report, seed):
    kbundle.use(str(BUNDLE))
    chance, rows, ahead, until = random.Random(seed), [], {"forward": [], "with gradients": []}, time.monotonic() + SECONDS
    shapes = [(TOKENS, EXPERTS, K, "bfloat16"), (1, EXPERTS, K, "bfloat16"), (TOKENS, 128, 8, "float32")]
    while len(shapes) < int(os.environ.get("KB_COUNT", COUNT)):
        experts = chance.choice([8, 16, 60, 64, 96, 128, 160, 256, 384, 512])
        shapes.append((int(2 ** chance.uniform(0, 16)), experts, chance.choice([1, 2, 4, 6, 8]), chance.choice(["bfloat16", "float32", "float16"])))
    for number, (tokens, experts, k, dtype) in enumerate(shapes):
        if time.monotonic() > until:
            report.fact("shapes not run for want of time", len(shapes) - number)
            break
        logits, dprobs = (jax.random.normal(key, (tokens, experts), dtype) for key in jax.random.split(jax.random.PRNGKey(number)))
        pre = number % 2 == 1
        ours, theirs, name = (lambda x: kbj.router_topk(x, k, use_pre_softmax=pre)), plain(k, pre), f"{tokens} x {experts}, k {k}, {dtype}"
        within = 1e-5 if dtype == "float32" else 1e-2
        pairs = zip(jax.jit(probs_only(ours))(logits, dprobs), jax.jit(probs_only(theirs))(*(a.astype(jnp.float32) for a in (logits, dprobs))))
        worst = max(float(jnp.abs(a.astype(jnp.float32) - b).max() / jnp.abs(b).max()) for a, b in pairs)
        report.hold(f"{name} within {within} of float32", worst <= within, f"probs, dlogits: {worst}")
        row = [name]
        for title, one, other, given in (("forward", ours, theirs, [logits]),
                                         ("with gradients", probs_only(ours), probs_only(theirs), [logits, dprobs])):
            times = chain.in_turns({"ours": chain.chained(one), "jax": chain.chained(other)}, given)
            ahead[title].append(times["jax"] / times["ours"])
            row += [f"{times['ours']:.1f}", f"{times['jax']:.1f}", f"{ahead[title][-1]:.2f}"]
        rows.append(row)
        print(*row, flush=True)
    report.table("Microseconds of a call in jax.jit", ["tokens, experts", "forward", "jax.jit", "ahead", "with gradients", "jax.jit", "ahead"], rows)
    for title, ratios in ahead.items():
        report.bar(f"{title}: geometric mean of jax.jit's time by ours", statistics.geometric_mean(ratios), 1.0, at_least=True)
        report.bar(f"{title}: least", min(ratios), 0.97, at_least=True)


def main():
    report, cuda, seed = Report("router"), devices.Cuda(), drawn.seed()
    report.fact("seed", seed)
    if "--hostile" in sys.argv:
        check_cases(report, router.Cases(BUNDLE, cuda, [ROOT / "kernels"]), seed, 4, 120)
    else:
        check_cases(report, router.Cases(BUNDLE, cuda, [ROOT / "kernels"]), seed, CASES_PER_VARIANT, CASES_SECONDS)
        device_times(report, cuda)
        beside_jax(report, seed)
    report.finish()


if __name__ == "__main__":
    main()
