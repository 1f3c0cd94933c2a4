"""kbj.dot_product_attention against jax.nn.dot_product_attention on cuDNN, in one process: first calls, steady times, and the difference of
results, forward and with gradients, at (4, 2048, 16, 128) bf16.

Steady: median over seven runs of twenty calls each, host clock. Both sides run cuDNN's kernels: the one plans them while compiling, the
other finds them in the bundle.
"""

import pathlib
import statistics
import time

import jax
import jax.numpy as jnp

import kbundle
import kbundle.jax as kbj
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPE = (4, 2048, 16, 128)
RUNS, CALLS = 7, 20


def measure(function, arrays):
    """(first call in ms, steady us, result)."""
    compiled = jax.jit(function)
    start = time.perf_counter()
    result = jax.block_until_ready(compiled(*arrays))
    first = 1e3 * (time.perf_counter() - start)
    times = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        for _ in range(CALLS):
            result = compiled(*arrays)
        jax.block_until_ready(result)
        times.append(1e6 * (time.perf_counter() - start) / CALLS)
    return first, statistics.median(times[1:]), result


def gradients(function):
    return jax.grad(lambda q, k, v: function(q, k, v).astype(jnp.float32).sum(), argnums=(0, 1, 2))


def difference(found, wanted):
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted))
    wide = [(a.astype(jnp.float32), b.astype(jnp.float32)) for a, b in pairs]
    return max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in wide)


def main():
    report = Report("attention_jax")
    kbundle.use(str(ROOT / "build/kernels.kb"))
    arrays = [jax.random.normal(jax.random.PRNGKey(i), SHAPE, jnp.bfloat16) for i in range(3)]
    ours = lambda q, k, v: kbj.dot_product_attention(q, k, v, is_causal=True)
    theirs = lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
    rows = []
    for name, way in (("forward", lambda f: f), ("gradients", gradients)):
        first, steady, found = measure(way(ours), arrays)
        peer_first, peer_steady, wanted = measure(way(theirs), arrays)
        rows.append([name, f"{first:.1f}", f"{peer_first:.1f}", f"{steady:.1f}", f"{peer_steady:.1f}"])
        report.bar(f"{name}: steady time of jax.nn's", steady / peer_steady, 1.02)
        report.bar(f"{name}: first call of jax.nn's", first / peer_first, 1.0)
        report.bar(f"{name}: largest difference", difference(found, wanted), 2e-2)
    report.table("causal, bf16 " + str(list(SHAPE)), ["", "first ms", "jax.nn first ms", "us", "jax.nn us"], rows)
    report.finish()


if __name__ == "__main__":
    main()
