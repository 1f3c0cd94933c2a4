"""Attention within windows that look ahead, at shapes drawn anew in every run, forward and with gradients: right first, rows of some heads against
float64 and gradients against jax.nn in float32; then beside the same without a window, which costs what its length costs, and jax.nn by XLA,
whose cuDNN path refuses such windows. Inside jax.jit, in one process, in turns (chain.py).
"""

import math
import os
import random
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import kbundle
import kbundle.jax as kbj
from report import Report
from unlisted import chain, drawn
from unlisted.attention import FORWARD_WITHIN, GRADIENT_WITHIN, ROOT, gradients, relative

COUNT, SECONDS = 14, 300
SHORT = 512  # keys of a window whose time is to be a fraction of what the whole sequence takes


def problems(count, seed):
    """(batch, queries, keys, heads, heads of keys, depth, value depth, dtype, (left, right), bottom right) of `count` problems."""
    chance, found = random.Random(seed), []
    while len(found) < count:
        depth, value_depth = drawn.HEAD_DIMS[len(found) % len(drawn.HEAD_DIMS)]
        group, kv_heads = 1 if depth == 192 else chance.choice([1, 1, 2, 4]), chance.choice([1, 2, 4, 8])  # 192 columns: no head is shared
        queries = chance.choice([17, 130, 1000, 2048, 4096, 4096, 5000])
        keys = queries + chance.choice([0, 0, 0, 70, 1500])
        window = chance.choice([(128, 128), (64, 300), (0, 200), (500, 1), (1000, 1000), (None, 100), (300, None), (2, 3)])
        batch = max(1, 16384 // (queries * group * kv_heads))
        bottom_right = chance.random() < 0.5 or window[0] is not None and queries - window[0] > keys
        dtype = chance.choice(["bfloat16", "bfloat16", "float16"])
        found.append((batch, queries, keys, group * kv_heads, kv_heads, depth, value_depth, dtype, window, bottom_right))
    return found


def seen_by(problem):
    """[queries, keys]"""
    _, queries, keys, *_, (left, right), bottom_right = problem
    far = np.arange(keys)[None, :] - np.arange(queries)[:, None] - (keys - queries if bottom_right else 0)
    return (far >= -(keys + queries if left is None else left)) & (far <= (keys + queries if right is None else right))


def arrays_of(problem, number):
    batch, queries, keys, heads, kv_heads, depth, value_depth, dtype, *_ = problem
    shapes = [(queries, heads, depth), (keys, kv_heads, depth), (keys, kv_heads, value_depth), (queries, heads, value_depth)]
    return [jax.random.normal(jax.random.PRNGKey(4 * number + i), (batch, *shape), dtype) for i, shape in enumerate(shapes)]


def forward_error(problem, arrays, out, seen):
    """The largest difference from float64 in some rows of some heads."""
    chance, worst = np.random.default_rng(problem[1]), 0.0
    rows = np.unique(np.concatenate([chance.integers(0, problem[1], 48), [0, problem[1] - 1]]))
    for _ in range(4):
        b, h = int(chance.integers(problem[0])), int(chance.integers(problem[3]))
        kv = h * problem[4] // problem[3]
        q, k, v = (np.asarray(a[b, :, n].astype(jnp.float32), np.float64) for a, n in zip(arrays, (h, kv, kv)))
        scores = np.where(seen[rows], q[rows] @ k.T / math.sqrt(problem[5]), -np.inf)
        shares = np.exp(scores - scores.max(1, keepdims=True))
        wanted = shares / shares.sum(1, keepdims=True) @ v
        worst = max(worst, float(np.abs(np.asarray(out[b, rows, h].astype(jnp.float32), np.float64) - wanted).max()))
    return worst if math.isfinite(worst) else math.inf


def masked(problem):
    """jax.nn of the same by a mask: of its arrays in whatever dtype, one batch after another, for its scores are large."""
    seen = jnp.asarray(seen_by(problem))[None, None]
    one = lambda q, k, v: jax.nn.dot_product_attention(q[None], k[None], v[None], mask=seen, implementation="xla")[0]

    def run(q, k, v):
        padded = jnp.pad(v, [(0, 0)] * 3 + [(0, k.shape[-1] - v.shape[-1])])
        return jax.lax.map(lambda x: one(*x), (q, k, padded))[..., :v.shape[-1]]
    return run


def measured(report, problem, number):
    """(a row of the table, the times without a window by those with it: forward, with gradients)"""
    *_, window, bottom_right = problem
    arrays, seen, name = arrays_of(problem, number), seen_by(problem), str(problem)
    windowed = lambda q, k, v: kbj.dot_product_attention(q, k, v, local_window_size=window, bottom_right_diagonal=bottom_right)
    q, k, v, dout = arrays
    error = forward_error(problem, arrays, jax.jit(windowed)(q, k, v), seen)
    report.hold(f"{name} forward within {FORWARD_WITHIN} of float64", error <= FORWARD_WITHIN, f"{error:.4f}")
    wide = [a.astype(jnp.float32) for a in arrays]
    with jax.default_matmul_precision("highest"):
        wanted = jax.jit(gradients(masked(problem)))(*wide)[1]
    difference = relative(jax.jit(gradients(windowed))(*arrays)[1], wanted)
    report.hold(f"{name} gradients within {GRADIENT_WITHIN} of jax.nn's", difference <= GRADIENT_WITHIN, f"{difference:.4f}")
    ways = {"ours": windowed, "whole": kbj.dot_product_attention, "jax": masked(problem)}
    forward = chain.in_turns({way: chain.chained(function) for way, function in ways.items()}, (q, k, v))
    both = chain.in_turns({way: chain.chained(gradients(function)) for way, function in ways.items()}, arrays)
    row = [name, *(f"{times[way]:.1f}" for times in (forward, both) for way in ways), f"{error:.4f}", f"{difference:.4f}"]
    return row, forward["whole"] / forward["ours"], both["whole"] / both["ours"]


def main():
    report = Report("unlisted_ahead")
    kbundle.use(str(ROOT / "build/kernels.kb"))
    started, seed = time.monotonic(), drawn.seed()
    report.fact("seed", seed)
    rows, ratios = [], []
    for number, problem in enumerate(problems(int(os.environ.get("KB_COUNT", COUNT)), seed)):
        if time.monotonic() - started > SECONDS:
            report.fact("not run for want of time, from number", number)
            break
        row, *gains = measured(report, problem, number)
        rows.append(row)
        print(*row, flush=True)
        if problem[1] >= 4096 and None not in problem[-2] and sum(problem[-2]) <= SHORT:
            ratios.append(gains)
    report.table("Microseconds of a call in jax.jit, (batch, queries, keys, heads, heads of keys, depth, value depth, dtype, window, bottom right)",
                 ["problem", "forward", "no window", "jax.nn", "with gradients", "no window", "jax.nn", "error", "of gradients"], rows)
    for way, found in zip(("forward", "with gradients"), zip(*ratios)):
        report.bar(f"{way}: of {len(found)} narrow windows on 4096 keys and more, time without a window by ours, geometric mean",
                   statistics.geometric_mean(found), 2.0, at_least=True)
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
