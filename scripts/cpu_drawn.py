"""The families of kernels on this CPU beside jax.jit, at shapes that nothing names: drawn anew, few and many rows, short and long ones.

    scripts/cpu_drawn.py [--seed N] [--count N] [FAMILY ...]        rms_norm layer_norm cross_entropy softmax quantize router grouped

Both sides in turns, the one that goes first changing; a row is the two least times, since chance only ever adds to one. malloc keeps its pages
(cpu_speed.py says why). Ends with 1 where a family's geometric mean or its least ratio misses the bar.
"""

import argparse
import math
import os
import random
import sys
import time

from cpu_speed import TUNED

MEAN_BAR, LEAST_BAR = 1.5, 0.95
MOST_ELEMENTS = 1 << 23
SECONDS, WARM_UPS, ROUNDS = 1.2, 3, 15
DTYPES = ("float32", "bfloat16", "float16")
QUANTIZED = ("cast", "amax", "current scaling", "and transposed", "dequantize", "by blocks")


class Draw:
    def __init__(self, seed):
        self.chance, self.number = random.Random(seed), 0

    def size(self, least, most):
        return int(least * (most / least) ** self.chance.random())

    def rows(self, least, most, most_rows=8192):
        """(rows, columns) of at most MOST_ELEMENTS."""
        while True:
            found = self.size(8, most_rows), self.size(least, most)
            if math.prod(found) <= MOST_ELEMENTS:
                return found

    def array(self, shape, dtype):
        import jax
        self.number += 1
        return jax.random.normal(jax.random.PRNGKey(self.number), shape, dtype)


def norm(draw, name):
    import formulas
    import kbundle.jax as kbj
    dtype, shape, trained = draw.chance.choice(DTYPES), draw.rows(16, 8192), draw.chance.random() < 0.5
    functions = [getattr(formulas, name), getattr(kbj, name)]
    if trained:
        functions = [formulas.gradients(function) for function in functions]
    return f"{shape} {dtype}{' and gradients' if trained else ''}", *functions, formulas.inputs("x gamma dy" if trained else "x gamma", dtype, shape)


def cross_entropy(draw, _):
    import jax
    import jax.numpy as jnp
    import kbundle.jax as kbj
    dtype, (rows, vocabulary), trained = draw.chance.choice(DTYPES), draw.rows(8, 65536, 32768), draw.chance.random() < 0.5

    def plain(logits, labels):
        wide = logits.astype(jnp.float32)
        return (jax.nn.logsumexp(wide, -1) - jnp.take_along_axis(wide, labels[:, None], -1)[:, 0]).mean()
    functions = [jax.value_and_grad(f) if trained else f for f in (plain, lambda logits, labels: kbj.cross_entropy(logits, labels))]
    labels = jax.random.randint(jax.random.PRNGKey(rows), (rows,), 0, vocabulary)
    return f"({rows}, {vocabulary}) {dtype}{' and gradients' if trained else ''}", *functions, [draw.array((rows, vocabulary), dtype), labels]


def softmax(draw, _):
    import jax
    import jax.numpy as jnp
    import kbundle.jax as kbj
    dtype, shape = draw.chance.choice(DTYPES), (1, 1, *draw.rows(8, 16384, 32768))
    return (f"{shape} {dtype}", lambda x: jax.nn.softmax(x.astype(jnp.float32) * 0.125, -1).astype(x.dtype), lambda x: kbj.scaled_softmax(x, 0.125),
            [draw.array(shape, dtype)])


def quantize(draw, _):
    import jax.numpy as jnp
    import kbundle.jax as kbj
    dtype, (rows, columns), kind = draw.chance.choice(DTYPES), draw.rows(16, 8192), draw.chance.choice(QUANTIZED)
    scale, x = jnp.float32(3), draw.array((rows, columns), dtype)
    codes = lambda wide, by: jnp.clip(wide * by, -448, 448).astype(jnp.float8_e4m3fn)
    wide, largest = lambda x: x.astype(jnp.float32), lambda x: jnp.abs(x.astype(jnp.float32)).max()

    def by_blocks(x):
        parts = jnp.pad(wide(x), ((0, 0), (0, -columns % 128))).reshape(rows, -1, 128)
        by = 448 / jnp.abs(parts).max(-1)
        return codes(parts, by[..., None]).reshape(rows, -1)[:, :columns], 1 / by
    plain, ours = {"cast": (lambda x: (codes(wide(x), scale), largest(x)), lambda x: kbj.quantize(x, scale=scale)),
                   "amax": (largest, kbj.amax),
                   "current scaling": (lambda x: (codes(wide(x), 448 / largest(x)), largest(x)), lambda x: kbj.quantize(x)),
                   "and transposed": (lambda x: (codes(wide(x), scale), codes(wide(x), scale).T, largest(x)),
                                      lambda x: kbj.quantize(x, scale=scale, transposed=True)),
                   "dequantize": (lambda q: wide(q) * jnp.float32(0.3), lambda q: kbj.dequantize(q, jnp.float32(0.3))),
                   "by blocks": (by_blocks, lambda x: kbj.quantize_blocks(x))}[kind]
    return f"({rows}, {columns}) {dtype} {kind}", plain, ours, [codes(wide(x), scale) if kind == "dequantize" else x]


def router(draw, _):
    import jax
    import jax.numpy as jnp
    import kbundle.jax as kbj
    dtype, (tokens, experts) = draw.chance.choice(DTYPES), draw.rows(8, 512, 16384)
    k = min(experts, draw.chance.choice([1, 2, 4, 8]))

    def plain(logits):
        scores = jax.nn.softmax(logits.astype(jnp.float32), -1)
        best, index = jax.lax.top_k(scores, k)
        return jnp.zeros_like(logits).at[jnp.arange(tokens)[:, None], index].set(best.astype(logits.dtype)), index
    ours = lambda x: kbj.router_topk(x, k, use_pre_softmax=True)
    return f"({tokens}, {experts}) k {k} {dtype}", plain, ours, [draw.array((tokens, experts), dtype)]


def grouped(draw, _):
    import jax
    import jax.numpy as jnp
    import kbundle.jax as kbj
    import numpy as np
    dtype, groups, rows = draw.chance.choice(DTYPES), draw.size(1, 64), draw.size(8, 4096)
    inner, columns = (draw.size(16, 1024) // 8 * 8 for _ in range(2))
    sizes = jnp.asarray(np.random.default_rng(rows).multinomial(rows, [1 / groups] * groups), jnp.int32)
    return (f"{rows} rows of {groups} x {inner} x {columns} {dtype}", jax.lax.ragged_dot, lambda x, w, sizes: kbj.grouped_matmul(x, w, sizes),
            [draw.array((rows, inner), dtype), draw.array((groups, inner, columns), dtype), sizes])


FAMILIES = {"rms_norm": norm, "layer_norm": norm, "cross_entropy": cross_entropy, "softmax": softmax, "quantize": quantize, "router": router,
            "grouped": grouped}


def least_times(functions, operands):
    """Microseconds of each."""
    import jax
    compiled, best = [jax.jit(function) for function in functions], [math.inf] * len(functions)
    for function in compiled * WARM_UPS:
        jax.block_until_ready(function(*operands))
    turn, deadline = 0, time.perf_counter() + SECONDS
    while turn < ROUNDS or time.perf_counter() < deadline:
        for i in (range(len(compiled)), reversed(range(len(compiled))))[turn % 2]:
            start = time.perf_counter()
            jax.block_until_ready(compiled[i](*operands))
            best[i] = min(best[i], 1e6 * (time.perf_counter() - start))
        turn += 1
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    parser.add_argument("--count", type=int, default=16, help="shapes of each family")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=" ".join(FAMILIES))
    asked = parser.parse_args()
    for name in asked.families:
        if name not in FAMILIES:
            parser.error(f"no family {name}; there are {' '.join(FAMILIES)}")
    if any(os.environ.get(name) != value for name, value in TUNED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], dict(os.environ, JAX_PLATFORMS="cpu", **TUNED))
    import kbundle
    from demo import ROOT
    kbundle.use(str(ROOT / "build/kernels.kb"))
    print(f"seed {asked.seed}", flush=True)
    missed = False
    for name in asked.families or FAMILIES:
        draw, ratios = Draw(asked.seed), []
        for _ in range(asked.count):
            title, plain, ours, operands = FAMILIES[name](draw, name)
            theirs, mine = least_times([plain, ours], operands)
            ratios.append(theirs / mine)
            print(f"{name} {title}: jax.jit {theirs:.0f} us, kbundle {mine:.0f}, {ratios[-1]:.2f}", flush=True)
        mean, least = math.exp(sum(map(math.log, ratios)) / len(ratios)), min(ratios)
        holds = mean >= MEAN_BAR and least >= LEAST_BAR
        missed |= not holds
        print(f"{name}: geometric mean {mean:.2f} (bar >= {MEAN_BAR}), least {least:.2f} (bar >= {LEAST_BAR}): {'ok' if holds else 'MISS'}",
              flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()
