"""The grouped ops on any sizes: groups that are empty, that leave rows over, that are negative or say more than there are rows;
matrices of odd sizes and of whole tiles. The same on every device, every variant forced."""

import numpy as np

from conformance import family

# rows, groups, K, N: less than a tile, tiles and one more, several; rows of whole vectors and odd ones.
SHAPES = [(1, 1, 1, 1), (5, 3, 8, 16), (13, 2, 7, 5), (129, 4, 64, 136), (200, 5, 40, 264), (97, 3, 33, 65), (260, 7, 136, 128),
          (64, 40, 24, 72), (300, 2, 257, 31)]
# The same for FP8, whose depth has scales for each 128: parts of them, several, whole vectors of 16 and odd ones.
SCALED_SHAPES = [(129, 4, 64, 136), (300, 3, 272, 264), (13, 2, 7, 5), (97, 3, 133, 65), (260, 7, 400, 520), (64, 40, 128, 8)]
HUGE = 2 ** 31 - 1


def sizes_of(rng, rows, groups):
    """(what they are, sizes)"""
    cuts = np.sort(rng.integers(0, rows + 1, groups - 1))
    shares = np.diff(cuts, prepend=0, append=rows)
    yield "all", shares
    yield "some", shares // 2
    yield "none", np.zeros(groups, np.int64)
    yield "last", np.eye(groups, dtype=np.int64)[-1] * rows
    yield "too many", shares + rows // 2 + 1
    yield "overflowing", np.full(groups, HUGE)
    yield "negative", np.where(np.arange(groups) % 2 == 0, -shares - 1, shares)
    yield "least", np.full(groups, -HUGE - 1)


def cases(_):
    for number, (rows, groups, k, n) in enumerate(SHAPES):
        rng = np.random.default_rng(number)
        for what, sizes in sizes_of(rng, rows, groups):
            sizes = sizes.astype(np.int32)
            x, dy = rng.integers(-3, 4, (rows, k)), rng.integers(-3, 4, (rows, n))
            w, bias = rng.integers(-3, 4, (groups, k, n)), rng.integers(-9, 10, (groups, n))
            name = f"{what}: {rows} rows, {groups} groups, {k} x {n}"
            yield name, "matmul", {"x": x, "w": w, "sizes": sizes}, {"trans_w": False}
            yield f"{name}, bias", "matmul", {"x": x, "w": w, "sizes": sizes, "bias": bias}, {"trans_w": False}
            turned = np.swapaxes(w, 1, 2)
            yield f"{name}, transposed", "matmul", {"x": x, "w": turned, "sizes": sizes}, {"trans_w": True}
            yield f"{name}, transposed, bias", "matmul", {"x": x, "w": turned, "sizes": sizes, "bias": bias}, {"trans_w": True}
            yield name, "weight_gradient", {"x": x, "dy": dy, "sizes": sizes}, {}
            yield name, "sum_rows", {"dy": dy, "sizes": sizes}, {}
    yield from scaled_cases()


def scaled(rng, rows, groups, k, n, scales):
    """Codes with scales from 2^-3 to 2^3, so that all sums are exact; what no row of x goes with is NaN."""
    parts, power = -(-k // 128), lambda *dims: 2.0 ** rng.integers(-3, 4, dims)
    of_x = {"rows": (rows, parts), "columns": (parts, -(-rows // 4) * 4), "tensor": (1, 1)}[scales]
    x_scale_inv = power(*of_x)
    if scales == "columns":
        x_scale_inv[:, rows:] = np.nan
    return {"x": rng.integers(-3, 4, (rows, k)), "w": rng.integers(-3, 4, (groups, n, k)), "x_scale_inv": x_scale_inv,
            "w_scale_inv": power(groups, *((1, 1) if scales == "tensor" else (-(-n // 128), parts)))}


def scaled_cases():
    for number, (rows, groups, k, n) in enumerate(SCALED_SHAPES):
        rng = np.random.default_rng(100 + number)
        for turn, (what, sizes) in enumerate(sizes_of(rng, rows, groups)):
            scales = ("rows", "columns", "tensor")[(turn + number) % 3]
            given = scaled(rng, rows, groups, k, n, scales) | {"sizes": sizes.astype(np.int32)}
            if turn % 2:
                given["bias"] = rng.integers(-9, 10, (groups, n))
            yield f"{what}: {rows} rows, {groups} groups, {k} x {n}, scales by {scales}", "scaled_matmul", given, {"scales": scales}


class Cases(family.Cases):
    def __init__(self, bundle_path, device, roots):
        super().__init__("grouped", cases, bundle_path, device, roots)
