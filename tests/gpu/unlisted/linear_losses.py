"""The loss of a linear layer as users call it, with its gradients, of rows, widths and vocabularies drawn anew, most of them odd, as tokenizers
have them: right against float32 with exact products, then beside the plain formula under jax.jit, in turns (chain.py).

kbj.linear_cross_entropy never holds all logits of what is large; plain JAX holds them here, so that what is drawn has room for it.
"""

import os
import random
import statistics
import sys

import jax
import jax.numpy as jnp

import kbundle
import kbundle.jax as kbj
from conformance import capi
from report import Report
from unlisted import chain, drawn

COUNT, SECONDS, CALLS = 20, 150, 4
MOST_LOGITS, MOST_OPERATIONS = 1 << 30, 1 << 41
WITHIN = {"bfloat16": 1e-2, "float16": 3e-3, "float32": 3e-3}


def problems(count, seed):
    """(dtype, rows, width, vocabulary)"""
    chance, found = random.Random(seed), [("bfloat16", 8192, 2048, 50257), ("bfloat16", 1024, 4096, 128256)]
    while len(found) < count:
        rows, width, vocabulary = (int(least * (most / least) ** chance.random()) for least, most in ((32, 16384), (2, 64), (300, 200000)))
        if rows * vocabulary <= MOST_LOGITS and 6 * rows * 64 * width * vocabulary <= MOST_OPERATIONS:
            found.append((("bfloat16", "bfloat16", "float16", "float32")[len(found) % 4], rows, 64 * width, vocabulary))
    return found


def plain(hidden, weight, labels):
    logits = (hidden @ weight.T).astype(jnp.float32)
    return (jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]).mean()


def step(loss):
    return lambda *arrays: jax.tree.leaves(jax.value_and_grad(loss, (0, 1))(*arrays))


def relative_error(found, wanted):
    """Where they lie: gradients of a vocabulary are gigabytes."""
    return float(jnp.linalg.norm((found.astype(jnp.float32) - wanted).ravel()) / jnp.linalg.norm(wanted.ravel()))


def measured(report, problem, number):
    """Microseconds by each side."""
    dtype, rows, width, vocabulary = problem
    keys = jax.random.split(jax.random.PRNGKey(number), 3)
    arrays = (jax.random.normal(keys[0], (rows, width), dtype), jax.random.normal(keys[1], (vocabulary, width), dtype) / width ** 0.5,
              jax.random.randint(keys[2], (rows,), 0, vocabulary))
    found = jax.jit(step(kbj.linear_cross_entropy))(*arrays)
    with jax.default_matmul_precision("highest"):
        exact = jax.jit(step(plain))(*(array.astype(jnp.float32) for array in arrays[:2]), arrays[2])
    off = max(relative_error(*pair) for pair in zip(found, exact, strict=True))
    report.hold(f"{problem} within {WITHIN[dtype]} of float32", off <= WITHIN[dtype], f"{off:.2g}")
    del found, exact
    chains = {"jax.jit": chain.chained(step(plain), CALLS), "kbj": chain.chained(step(kbj.linear_cross_entropy), CALLS)}
    return chain.in_turns(chains, arrays, rounds=5, calls=CALLS)


def main():
    report, seed = Report("unlisted_losses"), drawn.seed()
    report.fact("seed", seed)
    kbundle.use(str(capi.ROOT / "build/kernels.kb"))
    rows, ahead, wanted = [], [], problems(int(os.environ.get("KB_COUNT", COUNT)), seed)
    for number, problem in drawn.in_time(report, wanted, SECONDS):
        us = measured(report, problem, number)
        ahead.append(us["jax.jit"] / us["kbj"])
        rows.append([str(problem), *(f"{us[side]:.1f}" for side in ("jax.jit", "kbj")), f"{ahead[-1]:.2f}"])
        print(*rows[-1], flush=True)
        jax.clear_caches()
    report.table("Microseconds of a loss with its gradients in jax.jit, (dtype, rows, width, vocabulary), and jax.jit's time by ours",
                 ["problem", "jax.jit", "kbj", "ahead"], rows)
    report.bar("losses of layers: geometric mean of jax.jit's time by ours", statistics.geometric_mean(ahead), 1.0, at_least=True)
    report.bar("losses of layers: least", min(ahead), 0.97, at_least=True)
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
