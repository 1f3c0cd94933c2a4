"""Norms of few elements as formulas for XLA (kbundle.jax._formula). Sums are of float64 (of float16 float32): no square overflows or vanishes
there, and a row may lie as far from zero as it likes; in the one kernel that XLA makes of it for a GPU, they take what sums of float32 take.

An RMS norm that is differentiated is another formula: there XLA makes several kernels, and one more of a root of float64. A layer norm's
gradients are left to kernels, and then its forward pass too: one of the two alone is slower than both or none.
"""

import jax
import jax.numpy as jnp
import numpy as np

from kbundle.jax._formula import few_bytes, formula

__all__ = []
# By measurement on an H200: bytes of x of a forward pass, and elements where they are widened to float64, or both passes are made.
MOST, MOST_WIDE, MOST_OF_GRADIENT = 16 << 20, 2 << 20, 3 << 19
MANY_ROWS = 4096  # whose sums would lose digits in float32


def _has_room(epsilon=1e-6, **_):
    """1 / sigma in float32, whatever the row is."""
    return epsilon >= 2.0 ** -70


def _of_layer(x):
    return MOST if x.dtype == jnp.float16 else MOST_WIDE * x.dtype.itemsize


def _of_gradient(x):
    return MOST_OF_GRADIENT * x.dtype.itemsize


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


@formula(few_bytes(MOST, when=_has_room))
def rmsnorm_forward(x, gamma, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    wide, total = _sum(x, residual)
    rsigma = _rsigma(wide, epsilon)
    return _scaled(wide, rsigma, gamma, zero_centered_gamma).astype(x.dtype), rsigma, total


@formula(few_bytes(_of_gradient, when=_has_room))
def rmsnorm_forward_of_gradient(x, gamma, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    """Squares are summed in float32, and those of 2 ** -80 of each number: of a row for which the first have no room these have it."""
    small, wide = np.float32(2.0 ** -80), x.astype(jnp.float32)
    wide = wide if residual is None else wide + residual.astype(jnp.float32)
    square, epsilon = (wide * wide).mean(-1), np.float32(epsilon)
    rsigma = jax.lax.rsqrt(square + epsilon)
    if x.dtype != jnp.float16:
        smaller = ((wide * small) * (wide * small)).mean(-1)
        rsigma = jnp.where(square > np.float32(2.0 ** 60), jax.lax.rsqrt(smaller + epsilon * small * small) * small, rsigma)
    return _scaled(wide, rsigma, gamma, zero_centered_gamma).astype(x.dtype), rsigma, None if residual is None else wide.astype(x.dtype)


@formula(few_bytes(_of_layer, when=_has_room))
def layernorm_forward(x, gamma, beta=None, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    wide, total = _sum(x, residual)
    mu = wide.mean(-1)
    centered = wide - mu[..., None]
    rsigma = _rsigma(centered, epsilon)
    y = _scaled(centered, rsigma, gamma, zero_centered_gamma)
    y = y if beta is None else y + beta.astype(jnp.float32)
    return y.astype(x.dtype), mu.astype(jnp.float32), rsigma, total


def _column_sums(terms, gamma):
    rows = terms.size // max(1, gamma.size)
    return terms.astype(jnp.float64 if rows > MANY_ROWS else jnp.float32).sum(tuple(range(terms.ndim - 1))).astype(gamma.dtype)


@formula(few_bytes(_of_gradient))
def rmsnorm_backward(dy, x, rsigma, gamma, dsum=None, *, zero_centered_gamma=False):
    """The sum along a row is of x as it is, so that it needs nothing that the forward pass has made: XLA takes both at once where it can."""
    dtype = _sums_of(x) if gamma.dtype == x.dtype else jnp.float64
    wide, dy, by = x.astype(jnp.float32), dy.astype(jnp.float32), rsigma[..., None]
    g = dy * _weight(gamma, zero_centered_gamma)
    mean = (g.astype(dtype) * x.astype(dtype)).mean(-1, keepdims=True) * by.astype(dtype)
    normal = wide * by
    dx = by * (g - normal * mean.astype(jnp.float32))
    dx = dx if dsum is None else dx + dsum.astype(jnp.float32)
    return dx.astype(x.dtype), _column_sums(dy * normal, gamma)
