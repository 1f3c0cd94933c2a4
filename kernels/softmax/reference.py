"""Float64 references of the softmax ops: what each op means, corner cases included.

Infinities and NaN follow jax.nn.softmax(scale * x): a NaN or a +inf in a row makes the row NaN, so
does a row of -inf; a -inf beside finite logits becomes 0. Arrays arrive as float64 (masks as
integers); a float scale is used as its float32 value, as the kernels receive it.
"""

import numpy as np

_DROPPED = -10000.0

# Every row is by itself: large problems may be computed in parts along this axis, counted from the end.
INDEPENDENT_AXIS = {"scaled_masked_forward": -2, "scaled_masked_backward": -2, "scaled_causal_forward": -2,
                    "scaled_causal_backward": -2}


def _scale(scale):
    return np.float64(np.float32(scale))


def _softmax(logits):
    with np.errstate(invalid="ignore", over="ignore", under="ignore", divide="ignore"):
        shifted = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
        return shifted / np.sum(shifted, axis=-1, keepdims=True)


def _gradient(dy, y, scale):
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return _scale(scale) * y * (dy - np.sum(dy * y, axis=-1, keepdims=True))


def _kept(x, first=0):
    """True on and below the diagonal of the last two axes, whose row 0 is row `first` of the whole."""
    return np.tril(np.ones(x.shape[-2:], dtype=bool), first)


def scaled_forward(x, *, scale=1.0):
    """softmax(scale * x) over the last axis."""
    with np.errstate(invalid="ignore", over="ignore"):
        return _softmax(_scale(scale) * x)


def scaled_backward(dy, y, *, scale=1.0):
    """scale * y * (dy - sum(dy * y)) over the last axis."""
    return _gradient(dy, y, scale)


def scaled_masked_forward(x, mask, *, scale=1.0):
    """softmax over logits that are -10000 where the mask is not 0.

    A row whose largest logit is exactly -10000 is 0.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        logits = np.where(np.asarray(mask) != 0, _DROPPED, _scale(scale) * x)
    # The rule is on float32 logits: that is what a kernel compares.
    with np.errstate(over="ignore", invalid="ignore"):
        largest = np.max(logits, axis=-1, keepdims=True)
        dead = largest.astype(np.float32) == np.float32(_DROPPED)
    return np.where(dead, 0.0, _softmax(logits))


def scaled_masked_backward(dy, y, *, scale=1.0):
    """The same gradient: y of a dropped element is 0 or negligible, and of a dead row 0."""
    return _gradient(dy, y, scale)


def scaled_causal_forward(x, *, scale=1.0, first=0):
    """softmax over the keys k <= q of query q; 0 above the diagonal, where x is not looked at."""
    kept = _kept(x, first)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(kept, _softmax(np.where(kept, _scale(scale) * x, -np.inf)), 0.0)


def scaled_causal_backward(dy, y, *, scale=1.0, first=0):
    """The gradient over the kept part; 0 above the diagonal, where dy and y are not looked at."""
    kept = _kept(y, first)
    return np.where(kept, _gradient(np.where(kept, dy, 0.0), np.where(kept, y, 0.0), scale), 0.0)


def make_inputs(op, problem, seed, first=0):
    """Backward ops get a y that is a softmax; masks drop a third, and some whole rows."""
    rng = np.random.default_rng(seed)
    made = {}
    if op.endswith("_backward"):
        logits = 2.0 * rng.standard_normal(problem["y"])
        if op == "scaled_causal_backward":
            logits = np.where(_kept(logits, first), logits, -np.inf)
        made["y"] = _softmax(logits)
        made["dy"] = rng.standard_normal(problem["y"])
    elif op == "scaled_masked_forward":
        mask = rng.random(problem["mask"]) < 0.3
        mask[..., ::7, :] |= rng.random(mask[..., ::7, :1].shape) < 0.5
        made["mask"] = mask
    return made
