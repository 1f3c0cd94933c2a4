"""The cross-entropy ops on this GPU: every variant on rows that matter, drawn anew; device times of every variant; then beside plain formulas
under jax.jit, right first, then in turns (chain.py); and the loss of a linear layer without its logits, its time and its memory.

Bytes: each large tensor read or written once. KB_LINEAR: tokens of the linear layer, 32768 by default.
"""

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
from conformance import capi, cross_entropy, devices
from layers.cases import check_cases
from report import Report
from unlisted import chain, drawn

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "build/kernels.kb"
TIMED = [(8192, 32000), (4096, 128256), (4096, 50257), (1024, 262144), (16384, 1024), (65536, 128), (32, 32000), (1, 128256)]
BARS = {"loss_forward": 3.5, "loss_backward": 3.7, "loss_and_gradient": 3.5}  # TB/s at the first of them
LAUNCHES, REPEATS = 4, 7
CASES_PER_VARIANT, CASES_SECONDS = 10, 160
SHAPES = [(1, 32000, "bfloat16"), (1, 128256, "bfloat16"), (33, 50257, "bfloat16"), (512, 32000, "float32"), (2048, 128256, "bfloat16"),
          (4096, 50257, "bfloat16"), (8192, 32000, "bfloat16"), (1024, 262144, "bfloat16"), (30000, 1000, "float32"), (65536, 64, "bfloat16"),
          (3000, 100277, "float16"), (777, 7777, "bfloat16")]
HIDDEN, VOCABULARY = 2560, 128256
MOST_BYTES, LINEAR_BAR = 1.5e9, 1.1


def device_times(report, cuda):
    """Launches of every legal variant in a captured graph, the one that is chosen marked."""
    bundle, rows, names = capi.Bundle(BUNDLE), [], {t: n for n, t in devices.NUMPY.items()}
    for count, V in TIMED:
        logits, dlogits = (devices.Buffer(cuda, "bf16", (count, V)) for _ in range(2))
        random_bf16(cuda, logits, 0)
        labels = devices.Buffer(cuda, "i32", (count,)).put(np.random.default_rng(1).integers(0, V, count))
        ones, loss, lse = (devices.Buffer(cuda, "f32", (count,)).put(np.ones(count)) for _ in range(3))
        total, share, dtotal = (devices.Buffer(cuda, "f32", ()).put(np.ones(())) for _ in range(3))
        for op, operands, results, moved in (("loss_forward", [logits, labels], [loss, lse], 1),
                                             ("loss_backward", [logits, labels, lse, ones], [dlogits], 2),
                                             ("loss_and_gradient", [logits, labels, ones], [loss, lse, dlogits], 2),
                                             ("reduced_forward", [logits, labels], [total, lse, share], 1),
                                             ("reduced_backward", [logits, labels, lse, dtotal, share], [dlogits], 2),
                                             ("reduced_and_gradient", [logits, labels, dtotal], [total, lse, share, dlogits], 2)):
            problem = capi.Problem("cross_entropy." + op, [(names[b.dtype], b.dims) for b in operands], {})
            found = {}
            for variant in [one for one in bundle.legal(problem, cuda.kind) if "/single" not in one]:
                bundle.clear_policy()
                bundle.force(variant)
                plan = capi.Plan(bundle, problem, cuda.kind)
                arguments = [capi.Plan.pointers([b.address for b in buffers]) for buffers in (operands, results)]
                workspace = cuda.allocate(max(1, plan.workspace_bytes))
                found[variant] = cuda.device_us(lambda: plan.launch(*arguments, workspace, cuda.stream), LAUNCHES, REPEATS)
                cuda.free(workspace)
            bundle.clear_policy()
            chosen = capi.Plan(bundle, problem, cuda.kind).variant
            best = min(found, key=found.get)
            for variant in (chosen, best) if best != chosen else (chosen,):
                rows.append([f"{op} {count} x {V}", variant.split("/")[1].split("@")[0], f"{found[variant]:.1f}",
                             f"{moved * count * V * 2 / found[variant] / 1e6:.2f}", "chosen" if variant == chosen else "best"])
            if (count, V) == TIMED[0] and op in BARS:
                report.bar(f"{op} bf16 {[count, V]}", moved * count * V * 2 / found[chosen] / 1e6, BARS[op], "TB/s", at_least=True)
        for buffer in (logits, dlogits, labels, ones, loss, lse, total, share, dtotal):
            buffer.free()
    report.table("Launches in a captured graph", ["op", "variant", "us", "TB/s", ""], rows)


def formula(logits, labels):
    """As it is written where nothing else is at hand, in float32."""
    logits = logits.astype(jnp.float32)
    return (jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]).mean()


def beside_jax(report):
    rows, ahead = [], {"forward": [], "with gradients": []}
    for number, (count, V, dtype) in enumerate(SHAPES):
        key = jax.random.PRNGKey(number)
        arrays = 3 * jax.random.normal(key, (count, V), dtype), jax.random.randint(key, (count,), 0, V)
        row, name = [f"{count} x {V} {dtype}"], f"{count} x {V} {dtype}"
        loss, gradient = jax.jit(jax.value_and_grad(kbj.cross_entropy))(*arrays)
        some = np.asarray(arrays[0][:4].astype(jnp.float32), np.float64)
        p = np.exp(some - some.max(-1, keepdims=True))
        wanted = (p / p.sum(-1, keepdims=True) - (np.arange(V) == np.asarray(arrays[1][:4])[:, None])) / count
        off = float(np.abs(np.asarray(gradient[:4].astype(jnp.float32)) - wanted).max() / np.abs(wanted).max())
        same = abs(float(loss) - float(jax.jit(formula)(*arrays))) / float(loss)
        report.hold(f"{name} right", off <= (1e-5 if dtype == "float32" else 5e-3) and same < 1e-5, f"gradient {off}, loss {same}")
        for title, one, other in (("forward", kbj.cross_entropy, formula),
                                  ("with gradients", jax.value_and_grad(kbj.cross_entropy), jax.value_and_grad(formula))):
            times = chain.in_turns({"ours": chain.chained(one), "jax": chain.chained(other)}, arrays, rounds=5)
            ahead[title].append(times["jax"] / times["ours"])
            row += [f"{times['ours']:.1f}", f"{times['jax']:.1f}", f"{ahead[title][-1]:.2f}"]
        both = chain.in_turns({"both": chain.chained(kbj.cross_entropy_with_gradient)}, arrays, rounds=5)["both"]
        rows.append([*row, f"{both:.1f}"])
        print(*rows[-1], flush=True)
    report.table("Microseconds of a call in jax.jit", ["shape", "forward", "jax.jit", "ahead", "with gradients", "jax.jit", "ahead", "fused"], rows)
    for title, ratios in ahead.items():
        report.bar(f"{title}: geometric mean of jax.jit's time by ours", statistics.geometric_mean(ratios), 1.0, at_least=True)
        report.bar(f"{title}: least", min(ratios), 0.97, at_least=True)


def linear(report):
    """Time and temporary memory of a step, for several ways to cut it."""
    tokens, key = int(os.environ.get("KB_LINEAR", 32768)), jax.random.PRNGKey(0)
    keys = jax.random.split(key)
    hidden, weight = (jax.random.normal(k, (rows, HIDDEN), "bfloat16") for k, rows in zip(keys, (tokens, VOCABULARY)))
    weight = weight * 0.04
    labels = jax.random.randint(key, (tokens,), 0, VOCABULARY)
    wide = lambda h, w, l: formula(jnp.matmul(h, w.T), l)
    ways = {"jax.jit": wide}
    for name, how in (("chunks of 512 MiB", {}), ("1 GiB", dict(chunk_rows=4096)), ("128 MiB", dict(chunk_rows=512)),
                      ("1 GiB, bf16 sums", dict(chunk_rows=4096, accumulate=jnp.bfloat16))):
        ways[name] = lambda h, w, l, how=how: kbj.linear_cross_entropy(h, w, l, **how)
    rows, times, results = [], {}, {}
    for name, function in ways.items():
        step = jax.jit(jax.value_and_grad(function, (0, 1))).lower(hidden, weight, labels).compile()
        temporary = step.memory_analysis().temp_size_in_bytes
        results[name] = jax.block_until_ready(step(hidden, weight, labels))
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            jax.block_until_ready(step(hidden, weight, labels))
            best = min(best, time.perf_counter() - start)
        times[name] = best
        loss, (dhidden, dweight) = results[name]
        right = results["jax.jit"]
        off = [float(jnp.abs(a.astype(jnp.float32) - b.astype(jnp.float32)).max() / jnp.abs(b.astype(jnp.float32)).max())
               for a, b in ((dhidden, right[1][0]), (dweight, right[1][1]))]
        rows.append([name, f"{1e3 * best:.1f}", f"{times['jax.jit'] / best:.2f}", f"{temporary / 1e9:.2f}", f"{float(loss):.6f}",
                     " ".join(f"{one:.1e}" for one in off)])
        print(*rows[-1], flush=True)
        results[name] = results["jax.jit"] if name == "jax.jit" else None
    report.table(f"Loss of a linear layer, {tokens} x {HIDDEN} and {VOCABULARY} columns, with gradients",
                 ["way", "ms", "ahead", "GB beside", "loss", "off jax.jit's gradients"], rows)
    fits = {row[0]: row for row in rows[1:] if float(row[3]) * 1e9 <= MOST_BYTES}
    report.hold("some way stays below 1.5 GB", bool(fits), str(rows))
    report.bar("the fastest of those below 1.5 GB, ahead of jax.jit", max((float(row[2]) for row in fits.values()), default=0.0), LINEAR_BAR,
               at_least=True)


def main():
    report, cuda, seed = Report("cross_entropy"), devices.Cuda(), drawn.seed()
    report.fact("seed", seed)
    check_cases(report, cross_entropy.Cases(BUNDLE, cuda, [ROOT / "kernels"]), seed, CASES_PER_VARIANT, CASES_SECONDS)
    device_times(report, cuda)
    kbundle.use(str(BUNDLE))
    beside_jax(report)
    linear(report)
    report.finish()


if __name__ == "__main__":
    main()
