"""Quantization of few elements by one scale, largest magnitudes and numbers of codes as formulas for XLA (kbundle.jax._formula), bit for bit what
the ops give; with an activation in front, or its gradient, to a code as XLA's exponentials are not the kernels'. Codes stand behind a barrier:
XLA takes a number that is rounded and widened again for the number itself.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from kbundle._dtypes import LONG_NAMES
from kbundle.jax._formula import few_bytes, formula

__all__ = []
# Bytes of the first operand, by measurement on an H200.
MOST_AMAX, MOST_CODES, MOST_BACK = 32 << 20, 1 << 20, 8 << 20
MOST_SUMS = 1 << 18  # with sums of columns
MOST_ACTIVATION, MOST_ACTIVATION_SUMS = 3 << 20, 1 << 20


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


def _both_ways(q, rowwise, transposed):
    return jax.lax.optimization_barrier((q if rowwise else None, q.T if transposed else None))


@formula(few_bytes(MOST_AMAX))
def amax(x):
    return [_largest(x)]


@formula(_with_scale)
def per_tensor(x, scale, *, out_dtype):
    return jax.lax.optimization_barrier(_codes(x, scale, out_dtype)), _largest(x), 1 / scale


@formula(_with_scale)
def per_tensor_transpose(x, scale, *, out_dtype, rowwise=True, transposed=True, dbias=False):
    q, turned = _both_ways(_codes(x, scale, out_dtype), rowwise, transposed)
    return q, turned, _largest(x), 1 / scale, x.astype(jnp.float32).sum(0).astype(x.dtype) if dbias else None


@formula(few_bytes(MOST_BACK))
def dequantize(q, scale_inv, *, out_dtype):
    return [(q.astype(jnp.float32) * scale_inv[0]).astype(LONG_NAMES[out_dtype])]


def _of_sigmoid(x, exponent, speed):
    """x s and its slope, s being the sigmoid of an exponent that grows by `speed`; far out s is 0 or 1 and grows no more, however large x is."""
    s = 1 / (1 + jnp.exp(-exponent))
    growth = s - s * s
    return x * s, jnp.where(growth == 0, s, s + x * growth * speed)


def _tangent(x, function, limit, alpha):
    """An activation of x, and its slope there."""
    if function == "gelu":  # by tanh: 0.5 (1 + tanh u) is the sigmoid of 2 u
        rate, cubic = np.float32(2 * math.sqrt(2 / math.pi)), np.float32(0.044715)
        return _of_sigmoid(x, rate * x * (1 + cubic * x * x), rate * (1 + 3 * cubic * x * x))
    if function == "silu":
        return _of_sigmoid(x, x, np.float32(1))
    if function == "clamped_silu":
        limit, alpha = np.float32(limit), np.float32(alpha)
        y, slope = _of_sigmoid(jnp.minimum(x, limit), alpha * jnp.minimum(x, limit), alpha)
        return y, jnp.where(x > limit, np.float32(0), slope)
    positive = jnp.maximum(x, np.float32(0))
    # By no boolean that is converted: times that is a select to XLA, and 0 times infinity no longer NaN.
    return (positive, jnp.where(x > 0, np.float32(1), np.float32(0))) if function == "relu" else (positive * positive, 2 * positive)


def _gate(g, function, limit, offset):
    """What a gate multiplies by, and its slope."""
    if function != "clamped_silu":
        return g, None
    limit = np.float32(limit)
    return jnp.clip(g, -limit, limit) + np.float32(offset), jnp.where(jnp.abs(g) > limit, np.float32(0), np.float32(1))


def _activated(x, function, limit, alpha, offset):
    y, _ = _tangent(x[:, 0], function, limit, alpha)
    return y if x.shape[1] == 1 else y * _gate(x[:, 1], function, limit, offset)[0]


def _gradient(dy, x, function, limit, alpha, offset):
    """[M, A, H], as x."""
    y, slope = _tangent(x[:, 0], function, limit, alpha)
    if x.shape[1] == 1:
        return (dy * slope)[:, None]
    gate, gate_slope = _gate(x[:, 1], function, limit, offset)
    return jnp.stack([dy * slope * gate, dy * y if gate_slope is None else dy * y * gate_slope], 1)


@formula(few_bytes(MOST_ACTIVATION))
def per_tensor_activation(x, scale, *, out_dtype, function, rowwise=True, transposed=False, limit=7.0, alpha=1.702, offset=1.0):
    y = _activated(x.astype(jnp.float32), function, limit, alpha, offset)
    return *_both_ways(_codes(y, scale, out_dtype), rowwise, transposed), _largest(y), 1 / scale


@formula(lambda dy, x, scale, *, dbias=False, **_: few_bytes(MOST_ACTIVATION_SUMS if dbias else MOST_ACTIVATION)(x))
def per_tensor_activation_gradient(dy, x, scale, *, out_dtype, function, rowwise=True, transposed=False, dbias=False, limit=7.0, alpha=1.702,
                                   offset=1.0):
    dz = _gradient(dy.astype(jnp.float32), x.astype(jnp.float32), function, limit, alpha, offset)
    q, turned = _both_ways(_codes(dz.reshape(len(x), -1), scale, out_dtype), rowwise, transposed)
    return None if q is None else q.reshape(x.shape), turned, _largest(dz), 1 / scale, dz.sum(0).astype(x.dtype) if dbias else None
