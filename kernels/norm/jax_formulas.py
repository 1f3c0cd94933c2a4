"""Norms of few elements as formulas for XLA (kbundle.jax._formula). Sums are of float64 (of float16 float32): no square overflows or vanishes
there, and a row may lie as far from zero as it likes; in the one kernel that XLA makes of it for a GPU, they take what sums of float32 take.

A norm that is differentiated is another formula: there XLA makes several kernels, and one more of a root of float64. Both passes are left to
it or none, since one alone is slower than both as either.
"""

import jax
import jax.numpy as jnp
import numpy as np

from kbundle.jax._formula import few_bytes, formula

__all__ = []
# By measurement on an H200: bytes of x of a forward pass, and elements where they are widened to float64, or both passes are made.
MOST, MOST_WIDE, MOST_OF_GRADIENT = 16 << 20, 2 << 20, 3 << 19
FEW, MOST_OF_FEW = 384, 1 << 22  # rows, and elements of theirs where both passes are made
MOST_FLOATS, LONG = 1 << 20, 8192  # of layer norms that are differentiated: elements of float32, columns of 16-bit types
MANY_ROWS = 4096  # whose sums would lose digits in float32


def _has_room(epsilon=1e-6, **_):
    """1 / sigma in float32, whatever the row is."""
    return epsilon >= 2.0 ** -70


def _of_layer(x):
    """Of one row XLA makes no kernel that reads it once."""
    return -1 if x.size == x.shape[-1] else MOST if x.dtype == jnp.float16 else MOST_WIDE * x.dtype.itemsize


def _of_gradient(x):
    few = x.size <= FEW * x.shape[-1]
    return (MOST_OF_FEW if few else MOST_OF_GRADIENT) * x.dtype.itemsize


def _of_layer_gradient(x):
    """Of rows that begin anywhere, for which kernels do more, but where these read them from shared memory or few at once."""
    size, columns = x.dtype.itemsize, x.shape[-1]
    if columns * size % 16 == 0 or size == 2 and columns > LONG:
        return -1
    return (MOST_FLOATS if size == 4 else MOST_OF_GRADIENT) * size


def _weight(gamma, zero_centered_gamma):
    return gamma.astype(jnp.float32) + np.float32(zero_centered_gamma)


def _sums_of(x):
    """Squares of float16 are none that float32 has no room for."""
    return jnp.float32 if x.dtype == jnp.float16 else jnp.float64


def _sum(x, residual, dtype):
    """x + residual in dtype, and that in x's dtype where there is a residual."""
    wide = x.astype(dtype)
    if residual is None:
        return wide, None
    wide = wide + residual.astype(dtype)
    return wide, wide.astype(x.dtype)


def _rsigma(centered, epsilon):
    return jax.lax.rsqrt((centered * centered).mean(-1) + centered.dtype.type(np.float32(epsilon))).astype(jnp.float32)


def _scaled(centered, rsigma, gamma, zero_centered_gamma):
    return centered.astype(jnp.float32) * rsigma[..., None] * _weight(gamma, zero_centered_gamma)


@formula(few_bytes(MOST, when=_has_room))
def rmsnorm_forward(x, gamma, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    wide, total = _sum(x, residual, _sums_of(x))
    rsigma = _rsigma(wide, epsilon)
    return _scaled(wide, rsigma, gamma, zero_centered_gamma).astype(x.dtype), rsigma, total


def _rsigma_of_gradient(centered, epsilon, dtype):
    """Squares are summed in float32, and those of 2 ** -80 of each number: of a row for which the first have no room these have it."""
    def square(by):
        return ((centered * by) * (centered * by)).mean(-1)

    small, epsilon, usual = np.float32(2.0 ** -80), np.float32(epsilon), square(np.float32(1))
    if dtype == jnp.float16:
        return jax.lax.rsqrt(usual + epsilon)
    large = usual > np.float32(2.0 ** 60)
    return jax.lax.rsqrt(jnp.where(large, square(small) + epsilon * small * small, usual + epsilon)) * jnp.where(large, small, np.float32(1))


@formula(few_bytes(_of_gradient, when=_has_room))
def rmsnorm_forward_of_gradient(x, gamma, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    wide, total = _sum(x, residual, jnp.float32)
    rsigma = _rsigma_of_gradient(wide, epsilon, x.dtype)
    return _scaled(wide, rsigma, gamma, zero_centered_gamma).astype(x.dtype), rsigma, total


def _shifted(y, beta, dtype):
    return (y if beta is None else y + beta.astype(jnp.float32)).astype(dtype)


@formula(few_bytes(_of_layer, when=_has_room))
def layernorm_forward(x, gamma, beta=None, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    wide, total = _sum(x, residual, _sums_of(x))
    mu = wide.mean(-1)
    centered = wide - mu[..., None]
    rsigma = _rsigma(centered, epsilon)
    return _shifted(_scaled(centered, rsigma, gamma, zero_centered_gamma), beta, x.dtype), mu.astype(jnp.float32), rsigma, total


@formula(few_bytes(_of_layer_gradient, when=_has_room))
def layernorm_forward_of_gradient(x, gamma, beta=None, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
    wide, total = _sum(x, residual, _sums_of(x))
    mu = wide.mean(-1)
    centered = (wide - mu[..., None]).astype(jnp.float32)
    rsigma = _rsigma_of_gradient(centered, epsilon, x.dtype)
    return _shifted(_scaled(centered, rsigma, gamma, zero_centered_gamma), beta, x.dtype), mu.astype(jnp.float32), rsigma, total


def _with(dsum, dx, dtype):
    return (dx if dsum is None else dx + dsum.astype(jnp.float32)).astype(dtype)


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
    return _with(dsum, dx, x.dtype), _column_sums(dy * normal, gamma)


@formula(few_bytes(_of_layer_gradient))
def layernorm_backward(dy, x, mu, rsigma, gamma, dsum=None, *, zero_centered_gamma=False):
    wide, dy, by = x.astype(jnp.float32), dy.astype(jnp.float32), rsigma[..., None]
    g, normal = dy * _weight(gamma, zero_centered_gamma), (wide - mu[..., None]) * by
    dx = by * (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True))
    return _with(dsum, dx, x.dtype), _column_sums(dy * normal, gamma), _column_sums(dy, gamma)
