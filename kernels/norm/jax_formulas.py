"""Norms of few elements as formulas for XLA (kbundle.jax._formula). Sums are of float64 (of float16 float32): no square overflows or vanishes
there, and a row may lie as far from zero as it likes; in the one kernel that XLA makes of it for a GPU, they take what sums of float32 take.
"""

import jax
import jax.numpy as jnp
import numpy as np

from kbundle.jax._formula import few_bytes, formula

__all__ = []
MOST_RMS, MOST_LAYER = 16 << 20, 2 << 20  # bytes of x, by measurement on an H200
MOST_RMS_BACKWARD, MOST_LAYER_BACKWARD = 4 << 20, 2 << 20  # and of dy


def _has_room(epsilon=1e-6, **_):
    """1 / sigma in float32, whatever the row is."""
    return epsilon >= 2.0 ** -70


def _weight(gamma, zero_centered_gamma):
    return gamma.astype(jnp.float32) + np.float32(zero_centered_gamma)


def _sums_of(x):
    """Squares of float16 are none that float32 has no room for."""
    return jnp.float32 if x.dtype == jnp.float16 else jnp.float64


def _sum(x, residual):
    """x + residual in the dtype of sums, and that in x's dtype where there is a residual."""
    wide = x.astype(_sums_of(x))
    if residual is None:
        return wide, None
    wide = wide + residual.astype(wide.dtype)
    return wide, wide.astype(x.dtype)


def _rsigma(centered, epsilon):
    return jax.lax.rsqrt((centered * centered).mean(-1) + centered.dtype.type(np.float32(epsilon))).astype(jnp.float32)


def _scaled(centered, rsigma, gamma, zero_centered_gamma):
    return centered.astype(jnp.float32) * rsigma[..., None] * _weight(gamma, zero_centered_gamma)


@formula(few_bytes(MOST_RMS, when=_has_room))
def rmsnorm_forward(x, gamma, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    wide, total = _sum(x, residual)
    rsigma = _rsigma(wide, epsilon)
    return _scaled(wide, rsigma, gamma, zero_centered_gamma).astype(x.dtype), rsigma, total


@formula(few_bytes(MOST_LAYER, when=_has_room))
def layernorm_forward(x, gamma, beta=None, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    wide, total = _sum(x, residual)
    mu = wide.mean(-1)
    centered = wide - mu[..., None]
    rsigma = _rsigma(centered, epsilon)
    y = _scaled(centered, rsigma, gamma, zero_centered_gamma)
    y = y if beta is None else y + beta.astype(jnp.float32)
    return y.astype(x.dtype), mu.astype(jnp.float32), rsigma, total


def _column_sums(terms, gamma):
    return terms.astype(jnp.float64).sum(tuple(range(terms.ndim - 1))).astype(gamma.dtype)


def _with(dsum, dx, dtype):
    return (dx if dsum is None else dx + dsum.astype(jnp.float32)).astype(dtype)


@formula(few_bytes(MOST_RMS_BACKWARD))
def rmsnorm_backward(dy, x, rsigma, gamma, dsum=None, *, zero_centered_gamma=False):
    """The sum along a row is of x as it is, so that it needs nothing that the forward pass has made: XLA takes both at once where it can."""
    wide, dy, by = x.astype(jnp.float32), dy.astype(jnp.float32), rsigma[..., None]
    g = dy * _weight(gamma, zero_centered_gamma)
    mean = (g.astype(jnp.float64) * x.astype(jnp.float64)).mean(-1, keepdims=True) * by.astype(jnp.float64)
    normal = wide * by
    dx = by * (g - normal * mean.astype(jnp.float32))
    return _with(dsum, dx, x.dtype), _column_sums(dy * normal, gamma)


@formula(few_bytes(MOST_LAYER_BACKWARD))
def layernorm_backward(dy, x, mu, rsigma, gamma, dsum=None, *, zero_centered_gamma=False):
    wide, dy, by = x.astype(jnp.float32), dy.astype(jnp.float32), rsigma[..., None]
    g, normal = dy * _weight(gamma, zero_centered_gamma), (wide - mu[..., None]) * by
    means = [terms.astype(jnp.float64).mean(-1, keepdims=True).astype(jnp.float32) for terms in (g, g * normal)]
    dx = by * (g - means[0] - normal * means[1])
    return _with(dsum, dx, x.dtype), _column_sums(dy * normal, gamma), _column_sums(dy, gamma)
