"""Softmax of few elements as formulas for XLA (kbundle.jax._formula). Differences of large logits, and what is left beside a sum, keep their
digits: a difference is taken before the scale or of float64, and sums of a backward pass are of float64.
"""

import jax
import jax.numpy as jnp
import numpy as np

from kbundle.jax._formula import few_bytes, formula

__all__ = []
MOST = 1 << 17  # bytes of an operand, by measurement on an H200
MOST_SHORT = ((128, 8 << 20), (256, 1 << 20))  # of rows of so many elements, without a mask
DROPPED = -10000.0


def _most(x):
    return next((most for columns, most in MOST_SHORT if x.shape[-1] <= columns), MOST)


def _share(shifted):
    return shifted / shifted.sum(-1, keepdims=True)


def _logits(x, scale):
    return x.astype(jnp.float64) * np.float64(np.float32(scale))


def _softmax(logits, largest):
    return _share(jnp.exp((logits - largest).astype(jnp.float32)))


def _kept(x):
    rows, columns = (jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - axis) for axis in (2, 1))
    return columns <= rows


def _gradient(dy, y, scale):
    dy, y = dy.astype(jnp.float64), y.astype(jnp.float64)
    return np.float64(np.float32(scale)) * y * (dy - (dy * y).sum(-1, keepdims=True))


@formula(few_bytes(_most))
def scaled_forward(x, *, scale=1.0):
    wide = x.astype(jnp.float32)
    largest = (wide.max if scale >= 0 else wide.min)(-1, keepdims=True)  # once it is scaled
    half = wide * np.float32(0.5) - largest * np.float32(0.5)  # finite, where a row is wider than a float
    return [_share(jnp.exp(half * np.float32(scale) * np.float32(2))).astype(x.dtype)]


@formula(few_bytes(MOST))
def scaled_masked_forward(x, mask, *, scale=1.0):
    logits = jnp.where(mask != 0, np.float64(DROPPED), _logits(x, scale))
    largest = logits.max(-1, keepdims=True)
    y = jnp.where(largest.astype(jnp.float32) == np.float32(DROPPED), np.float32(0), _softmax(logits, largest))
    return [y.astype(x.dtype)]


@formula(few_bytes(MOST))
def scaled_causal_forward(x, *, scale=1.0):
    kept = _kept(x)
    logits = jnp.where(kept, _logits(x, scale), -jnp.inf)
    return [jnp.where(kept, _softmax(logits, logits.max(-1, keepdims=True)), np.float32(0)).astype(x.dtype)]


@formula(few_bytes(MOST))
def scaled_backward(dy, y, *, scale=1.0):
    return [_gradient(dy, y, scale).astype(y.dtype)]


scaled_masked_backward = scaled_backward


@formula(few_bytes(MOST))
def scaled_causal_backward(dy, y, *, scale=1.0):
    kept = _kept(y)
    none = jnp.zeros((), y.dtype)
    return [jnp.where(kept, _gradient(jnp.where(kept, dy, none), jnp.where(kept, y, none), scale), 0).astype(y.dtype)]
