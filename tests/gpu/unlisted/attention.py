"""Attention at shapes drawn anew in every run, forward and with gradients, beside jax.nn's cuDNN path: inside jax.jit, in one process, in
turns (chain.py). Right first: a few rows of some heads against float64, and gradients against those of jax.nn in float32.
"""

import math
import os
import pathlib
import statistics
import sys

import jax
import jax.numpy as jnp
import numpy as np

import kbundle
import kbundle.jax as kbj
from report import Report
from unlisted import chain, drawn

ROOT = pathlib.Path(__file__).resolve().parents[3]
COUNT, SECONDS = 24, 400
FORWARD_WITHIN, GRADIENT_WITHIN = 2e-2, 4e-2


def options(mask):
    causal = mask != "full"
    return {"is_causal": causal} | ({"local_window_size": (mask, 0)} if isinstance(mask, int) else {})


def ours(mask):
    return lambda q, k, v: kbj.dot_product_attention(q, k, v, **options(mask))


def theirs(mask):
    """It wants values as wide as keys: narrower ones are padded, as its users must."""
    def run(q, k, v):
        padded = jnp.pad(v, [(0, 0)] * 3 + [(0, k.shape[-1] - v.shape[-1])])
        return jax.nn.dot_product_attention(q, k, padded, implementation="cudnn", **options(mask))[..., :v.shape[-1]]
    return run


def gradients(function):
    def run(q, k, v, dout):
        out, pull = jax.vjp(function, q, k, v)
        return out, pull(dout)
    return run


def arrays_of(problem, number):
    batch, length, heads, kv_heads, depth, value_depth, dtype, _ = problem
    shapes = [(heads, depth), (kv_heads, depth), (kv_heads, value_depth), (heads, value_depth)]
    return [jax.random.normal(jax.random.PRNGKey(4 * number + i), (batch, length, *shape), dtype) for i, shape in enumerate(shapes)]


def forward_error(problem, arrays, out):
    """The largest difference from float64 in some rows of some heads."""
    batch, length, heads, kv_heads, depth, _, _, mask = problem
    chance, worst = np.random.default_rng(length), 0.0
    rows = np.unique(np.concatenate([chance.integers(0, length, 32), [0, length - 1]]))
    for _ in range(4):
        b, h = int(chance.integers(batch)), int(chance.integers(heads))
        q, k, v = (np.asarray(a[b, :, n].astype(jnp.float32), np.float64)
                   for a, n in zip(arrays, (h, h * kv_heads // heads, h * kv_heads // heads)))
        scores = q[rows] @ k.T / math.sqrt(depth)
        keys = np.arange(length)
        if mask != "full":
            scores[keys > rows[:, None]] = -np.inf
        if isinstance(mask, int):
            scores[keys < rows[:, None] - mask] = -np.inf
        shares = np.exp(scores - scores.max(1, keepdims=True))
        wanted = shares / shares.sum(1, keepdims=True) @ v
        found = np.asarray(out[b, rows, h].astype(jnp.float32), np.float64)
        worst = max(worst, float(np.abs(found - wanted).max()))
    return worst if math.isfinite(worst) else math.inf


def relative(found, wanted):
    """Largest, over the gradients, of the norm of the difference by the norm of what is wanted."""
    def one(a, b):
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
        return jnp.linalg.norm((a - b).ravel()) / jnp.linalg.norm(b.ravel())
    return max(float(jax.jit(one)(a, b)) for a, b in zip(found, wanted))


def measured(report, problem, number):
    """A row of the table, and the two ratios (None where jax.nn has no gradient)."""
    mask, name = problem[-1], str(problem)
    arrays = arrays_of(problem, number)
    q, k, v, dout = arrays
    own, peer = ours(mask), theirs(mask)
    report.hold(f"{name} forward within {FORWARD_WITHIN} of float64",
                (error := forward_error(problem, arrays, jax.jit(own)(q, k, v))) <= FORWARD_WITHIN, f"{error:.4f}")
    times = chain.in_turns({"ours": chain.chained(own), "jax": chain.chained(peer)}, (q, k, v))
    row, forward, backward = [name, f"{times['ours']:.1f}", f"{times['jax']:.1f}", f"{times['jax'] / times['ours']:.2f}"], times, None
    own_all, peer_all = gradients(own), gradients(peer)
    try:
        wanted = jax.jit(peer_all)(*arrays)[1]
    except Exception as refused:  # cuDNN has no gradient for it: nothing to be compared with
        print(name, "jax.nn:", str(refused).split("\n")[0][:120])
        return [*row, "-", "-", "-", f"{error:.4f}"], forward["jax"] / forward["ours"], None
    difference = relative(jax.jit(own_all)(*arrays)[1], wanted)
    report.hold(f"{name} gradients within {GRADIENT_WITHIN} of jax.nn's", difference <= GRADIENT_WITHIN, f"{difference:.4f}")
    times = chain.in_turns({"ours": chain.chained(own_all), "jax": chain.chained(peer_all)}, arrays)
    both = times["jax"] / times["ours"]
    backward = (times["jax"] - forward["jax"]) / max(times["ours"] - forward["ours"], 1e-3)
    return [*row, f"{times['ours']:.1f}", f"{times['jax']:.1f}", f"{both:.2f}", f"{backward:.2f}"], forward["jax"] / forward["ours"], backward


def main():
    report = Report("unlisted_attention")
    kbundle.use(str(ROOT / "build/kernels.kb"))
    seed = drawn.seed()
    report.fact("seed", seed)
    rows, forward, backward = [], [], []
    for number, problem in drawn.in_time(report, drawn.attention(int(os.environ.get("KB_COUNT", COUNT)), seed), SECONDS):
        row, ahead, ahead_back = measured(report, problem, number)
        rows.append(row)
        print(*row, flush=True)
        forward.append(ahead)
        backward += [ahead_back] if ahead_back else []
    report.table("Microseconds of a call in jax.jit, (batch, length, heads, heads of keys, depth, value depth, dtype, mask)",
                 ["problem", "forward", "jax.nn", "ahead", "with gradients", "jax.nn", "ahead", "backward ahead"], rows)
    report.bar("forward: geometric mean of jax.nn's time by ours", statistics.geometric_mean(forward), 1.15, at_least=True)
    report.bar("forward: least", min(forward), 0.97, at_least=True)
    if backward:
        report.bar("backward: geometric mean", statistics.geometric_mean(backward), 1.05, at_least=True)
        report.bar("backward: least", min(backward), 0.97, at_least=True)
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
