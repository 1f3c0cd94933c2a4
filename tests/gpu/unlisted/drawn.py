"""Problems that no manifest, record or test names: drawn anew in every run from a seed that is printed, or given as KB_SEED."""

import os
import random
import time

HEAD_DIMS = [(64, 64), (96, 96), (128, 128), (128, 128), (192, 128), (256, 256)]
MOST_OPERATIONS = 1.5e12  # of one forward pass: about 3 ms at 500 TFLOP/s


def seed():
    return int(os.environ.get("KB_SEED", time.time_ns() % 1_000_000))


def in_time(report, problems, seconds):
    """(number, problem) of each until so many seconds have passed; of how many that is not, the report is told."""
    began = time.monotonic()
    for number, problem in enumerate(problems):
        if time.monotonic() - began > seconds:
            report.fact("not run for want of time", len(problems) - number)
            return
        yield number, problem


def _around(chance, least, most, steps=(1, 16, 64, 128)):
    """An integer between the two, its logarithm uniform; mostly a multiple of 16, of 64 or of 128."""
    size = least * (most / least) ** chance.random()
    step = chance.choice(steps)
    return max(least, min(most, round(size / step) * step))


def attention(count, given):
    """(batch, length, heads, heads of keys, depth, value depth, dtype, mask) of `count` problems that
    jax.nn's cuDNN path takes as well; mask is "causal", "full" or a window's left width."""
    chance, found = random.Random(given), []
    while len(found) < count:
        depth, value_depth = HEAD_DIMS[len(found) % len(HEAD_DIMS)]
        group, kv_heads = chance.choice([1, 1, 2, 3, 4, 8]), chance.choice([1, 2, 3, 4, 5, 8, 12, 16])
        batch, length = _around(chance, 1, 64, [1]), _around(chance, 64, 16384)
        mask = chance.choice(["causal", "causal", "full", "window"])
        heads = group * kv_heads
        operations = 2 * batch * heads * length * length * (depth + value_depth) / (1 if mask == "full" else 2)
        elements = batch * length * heads * depth
        if operations > MOST_OPERATIONS or elements > 1 << 29 or batch * length < 128:
            continue
        window = _around(chance, 32, length) if mask == "window" else None
        found.append((batch, length, heads, kv_heads, depth, value_depth, chance.choice(["bfloat16", "bfloat16", "float16"]),
                      window if window else mask))
    return found


def products(count, given):
    """(dtype, rows, K, N, epilogue) of `count` products: a quarter of at most 8 rows, the others up to 16384, K and N as models have them
    and odd multiples of 8; one in five in f32, which is TF32 here as in JAX."""
    chance, found = random.Random(given), []
    while len(found) < count:
        number = len(found)
        dtype = ("bf16", "bf16", "f16", "bf16", "f32")[number % 5]
        rows = chance.randint(1, 8) if number % 4 == 0 else _around(chance, 9, 16384, [1, 16, 128])
        inner, columns = (_around(chance, 64, 16384, [8, 64, 256]) // 8 * 8 for _ in range(2))
        if 2 * rows * inner * columns > MOST_OPERATIONS or inner * columns > 1 << 27:
            continue
        found.append((dtype, rows, inner, columns, "none" if dtype == "f32" else ("none", "none", "bias", "gelu")[chance.randrange(4)]))
    return found
