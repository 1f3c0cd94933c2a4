"""The grouped ops in float64: what every variant must compute, within the tolerances of grouped.toml.

README.md says the same in words.
"""

import numpy as np


def places(sizes, rows):
    """offsets[G + 1] of any sizes: a negative one is 0, and rows end with the last one there is."""
    summed = np.cumsum(np.maximum(np.asarray(sizes, np.int64), 0))
    return np.concatenate([[0], np.minimum(summed, rows)]).astype(np.int64)


def matmul(x, w, sizes, bias=None, *, trans_w=False, **_):
    w = np.swapaxes(w, -1, -2) if trans_w else w
    y = np.zeros((x.shape[0], w.shape[-1]))
    for group, rows in enumerate(parts(sizes, x.shape[0])):
        y[rows] = x[rows] @ w[group] + (0 if bias is None else bias[group])
    return y


def parts(sizes, rows):
    offsets = places(sizes, rows)
    return [slice(first, last) for first, last in zip(offsets, offsets[1:])]


def scaled_matmul(x, w, x_scale_inv, w_scale_inv, sizes, bias=None, *, scales="rows", **_):
    """Codes times their scales, then as matmul: of rows one for each 128, of matrices one for each 128 x 128, or one for all."""
    of_rows = x_scale_inv.T[:x.shape[0]] if scales == "columns" else x_scale_inv
    wide = lambda of, size, axis: of if scales == "tensor" else np.repeat(of, 128, axis)[(slice(None),) * axis + (slice(size),)]
    x = x * wide(of_rows, x.shape[1], 1)
    w = w * wide(wide(w_scale_inv, w.shape[1], 1), w.shape[2], 2)
    return matmul(x, w, sizes, bias, trans_w=True)


def weight_gradient(x, dy, sizes, **_):
    return np.stack([x[rows].T @ dy[rows] for rows in parts(sizes, x.shape[0])])


def sum_rows(dy, sizes):
    return np.stack([dy[rows].sum(0) for rows in parts(sizes, dy.shape[0])])


def work(op, problem):
    rows, groups = problem["dy" if "dy" in problem else "x"][0], problem["sizes"][0]
    if op == "sum_rows":
        return rows * problem["dy"][1]
    turned = op == "scaled_matmul" or problem.get("trans_w")
    width = problem["dy"][1] if op == "weight_gradient" else problem["w"][1 if turned else 2]
    return (rows + groups) * problem["x"][1] * width // 1024


def make_inputs(op, problem, seed):
    """Sizes of random shares of all rows or of most; some groups are empty. Small integers, whose products and sums are exact,
    where few results make a row, whose largest may be a sum that cancels, or few terms a sum."""
    rng = np.random.default_rng(seed)
    rows, groups = problem["dy" if "dy" in problem else "x"][0], problem["sizes"][0]
    used = rows if seed % 2 == 0 else rng.integers(rows - rows // 8, rows + 1)
    shares = rng.exponential(size=groups) * (rng.random(groups) > 0.2)
    cuts = np.floor(np.cumsum(shares) / max(shares.sum(), 1e-9) * used + 0.5).astype(np.int64)
    made = {"sizes": np.diff(cuts, prepend=0).astype(np.int32)}
    if op == "scaled_matmul":
        made |= {name: 2.0 ** rng.integers(-4, 5, problem[name]) for name in ("x_scale_inv", "w_scale_inv")}
        made |= {name: rng.integers(-8, 9, problem[name]) for name in ("x", "w")}
    elif op != "matmul" or min(problem["w"][1:]) < 64:
        made |= {name: rng.integers(-2, 3, problem[name]) for name in ("x", "w", "dy", "bias") if name in problem}
    return made
