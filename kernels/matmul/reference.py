"""The op matmul in float64: what every variant must compute, within the tolerances of matmul.toml.

README.md says the same in words.
"""

import numpy as np


def gelu(x):
    """The approximation with tanh, which is the one of cuBLASLt and of jax.nn.gelu's default."""
    return 0.5 * x * (1 + np.tanh(_inner(x)))


def gelu_gradient(x):
    """Far out it is 0 and 1, as of infinities."""
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(x) >= 20, x > 0, _gelu_gradient(x))


def _gelu_gradient(x):
    t = np.tanh(_inner(x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x * x)


def _inner(x):
    return np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)


def bits_of(positive):
    """u8[.., ceil(N / 128) * 16] of bool[.., N], least significant bit first; bits past N are 0."""
    columns = positive.shape[-1]
    padded = np.zeros(positive.shape[:-1] + (-(-columns // 128) * 128,), bool)
    padded[..., :columns] = positive
    return np.packbits(padded, axis=-1, bitorder="little")


def matmul(a, b, c=None, bias=None, aux=None, mask=None, a_scale=None, b_scale=None, *, trans_a=False, trans_b=False,
           alpha=1.0, beta=0.0, epilogue="none", with_aux=False, bias_gradient="none", **_):
    a = np.swapaxes(a, -1, -2) if trans_a else a
    b = np.swapaxes(b, -1, -2) if trans_b else b
    x = a @ b
    for factor in (alpha, a_scale, b_scale):
        x = x if factor is None else x * factor
    if c is not None and beta != 0:
        x = x + beta * c
    if bias is not None:
        x = x + bias
    d = x
    if epilogue == "relu":
        d = np.maximum(x, 0)
    elif epilogue == "gelu":
        d = gelu(x)
    elif epilogue == "drelu":
        d = np.where(np.unpackbits(mask.astype(np.uint8), axis=-1, bitorder="little")[..., :x.shape[-1]], x, 0)
    elif epilogue == "dgelu":
        d = x * gelu_gradient(aux)
    dbias = {"none": None, "d": d.sum(-2), "a": a.sum(-1), "b": b.sum(-2)}[bias_gradient]
    return d, x if with_aux and epilogue == "gelu" else None, bits_of(x > 0) if with_aux and epilogue == "relu" else None, dbias


def repeats(op, attributes, result):
    return result != "dbias"  # cuBLASLt adds up some of them in any order


def make_inputs(op, problem, seed):
    """Small integers, whose products and sums are exact in every dtype, in three cases: where few results make a row, whose
    largest may be a sum that cancels, so that a tolerance relative to it would mean nothing; where a mask of the positive
    results is wanted, which has no tolerance; and where sums may be kept with fewer bits. Otherwise what is made by
    default, but masks of random bits and positive scales."""
    rng = np.random.default_rng(seed)
    made = {name: rng.uniform(0.5, 2.0, ()) for name in ("a_scale", "b_scale") if name in problem}
    if "mask" in problem:
        made["mask"] = rng.integers(0, 256, problem["mask"])
    wants_mask = problem.get("with_aux") and problem["epilogue"] == "relu"
    if min(problem["a"][-2:] + problem["b"][-2:]) < 64 or wants_mask or problem.get("fast_accumulation"):
        # gelu of what is negative is next to nothing, and so might be all of a row.
        least = 0 if problem.get("epilogue") == "gelu" else -2
        made |= {name: rng.integers(least, 3, problem[name]) for name in ("a", "b", "c", "bias") if name in problem}
        made |= {name: np.ones(()) for name in ("a_scale", "b_scale") if name in problem}
    if wants_mask and "bias" in problem:
        made["bias"] = made["bias"] + 0.5  # libraries differ about what is exactly 0
    return made
