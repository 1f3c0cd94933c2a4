"""Quantization of few elements by one scale, largest magnitudes and numbers of codes as formulas for XLA (kbundle.jax._formula), bit for bit what
the ops give. Codes stand behind a barrier: XLA takes a number that is rounded and widened again for the number itself.
"""

import jax
import jax.numpy as jnp
import numpy as np

from kbundle._dtypes import LONG_NAMES
from kbundle.jax._formula import few_bytes, formula

__all__ = []
# Bytes of the first operand, by measurement on an H200.
MOST_AMAX, MOST_CODES, MOST_BACK = 32 << 20, 1 << 20, 8 << 20
MOST_SUMS = 1 << 18  # with sums of columns


def _with_scale(x, scale=None, *, dbias=False, **_):
    return scale is not None and few_bytes(MOST_SUMS if dbias else MOST_CODES)(x)


def _largest(x):
    """Of the bits of magnitudes, of which NaN has the largest."""
    bits = jax.lax.bitcast_convert_type(x, {2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize])
    most = jnp.max(bits & np.array(np.iinfo(bits.dtype).max >> 1, bits.dtype), initial=0)
    return jax.lax.bitcast_convert_type(most, x.dtype).astype(jnp.float32).reshape(1)


def _codes(x, scale, out_dtype):
    dtype = jnp.dtype(LONG_NAMES[out_dtype])
    most = np.float32(jnp.finfo(dtype).max)
    return jnp.clip(x.astype(jnp.float32) * scale[0], -most, most).astype(dtype)


@formula(few_bytes(MOST_AMAX))
def amax(x):
    return [_largest(x)]


@formula(_with_scale)
def per_tensor(x, scale, *, out_dtype):
    return jax.lax.optimization_barrier(_codes(x, scale, out_dtype)), _largest(x), 1 / scale


@formula(_with_scale)
def per_tensor_transpose(x, scale, *, out_dtype, rowwise=True, transposed=True, dbias=False):
    q = _codes(x, scale, out_dtype)
    q, turned = jax.lax.optimization_barrier((q if rowwise else None, q.T if transposed else None))
    return q, turned, _largest(x), 1 / scale, x.astype(jnp.float32).sum(0).astype(x.dtype) if dbias else None


@formula(few_bytes(MOST_BACK))
def dequantize(q, scale_inv, *, out_dtype):
    return [(q.astype(jnp.float32) * scale_inv[0]).astype(LONG_NAMES[out_dtype])]
