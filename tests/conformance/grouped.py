"""The grouped ops on any sizes: groups that are empty, that leave rows over, that are negative or say more than there are rows;
matrices of odd sizes and of whole tiles. The same on every device, every variant forced."""

import numpy as np

from conformance import family

# rows, groups, K, N: less than a tile, tiles and one more, several; rows of whole vectors and odd ones.
SHAPES = [(1, 1, 1, 1), (5, 3, 8, 16), (13, 2, 7, 5), (129, 4, 64, 136), (200, 5, 40, 264), (97, 3, 33, 65), (260, 7, 136, 128),
          (64, 40, 24, 72), (300, 2, 257, 31)]
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


class Cases(family.Cases):
    def __init__(self, bundle_path, device, roots):
        super().__init__("grouped", cases, bundle_path, device, roots)
