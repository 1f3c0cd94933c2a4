"""FP8 quantization as JAX functions: kbj.quantize, kbj.dequantize, kbj.fake_quantize, kbj.amax, kbj.update_fp8_scale, where
kbj is kbundle.jax.

They run the ops of the first bundle that has them (kbundle.bundles). What each op means, corner cases included, is in
README.md beside this file. dtypes and flags are part of the compiled program; scales are numbers on the device.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kbundle import Error
from kbundle.jax import _arguments, call
from kbundle.jax._primitive import like, placed
from kbundle_kernels import quantize_formulas as formulas

__all__ = ["Quantized", "amax", "dequantize", "fake_quantize", "quantize", "update_fp8_scale"]
E4M3, E5M2 = np.dtype(jnp.float8_e4m3fn), np.dtype(jnp.float8_e5m2)
FORMATS = {E4M3: "e4m3", E5M2: "e5m2"}


class Quantized(NamedTuple):
    """What `quantize` made. The number that a code stands for is code * scale_inv."""
    data: jax.Array | None  # x's shape, FP8
    transposed: jax.Array | None  # [N, M] of the [M, N] view of x, FP8
    scale_inv: jax.Array  # f32[]: 1 / scale
    amax: jax.Array  # f32[]: the largest magnitude of x, not scaled; NaN where x has one
    dbias: jax.Array | None  # x's last axis, x's dtype: sums over all others, added in float32


def quantize(x, dtype=jnp.float8_e4m3fn, scale=None, *, rowwise=True, transposed=False, dbias=False):
    """x[..., N] (float32, float16, bfloat16) times scale (f32 scalar) in float8_e4m3fn or float8_e5m2, as a Quantized.

    Without a scale it is the one that brings the largest magnitude of x to the largest FP8 number (current scaling), found
    and used on the device. Magnitudes past that number, infinities too, become it; NaN stays NaN. `transposed` also gives the
    codes of the transpose of the matrix x[M, N], M all axes but the last; rowwise=False that one alone; `dbias` the sums of
    its columns: all in one pass over x.

    There is no gradient: asking for one is an error. Quantize inside a jax.custom_vjp, or train through `fake_quantize`.
    """
    x = jnp.asarray(x)
    dtype = fp8_dtype("quantize", dtype)
    flags = {name: _arguments.flag("quantize", name, value)
             for name, value in (("rowwise", rowwise), ("transposed", transposed), ("dbias", dbias))}
    if x.ndim < 1:
        raise ValueError("quantize: x has shape (); it needs at least one axis")
    if not rowwise and not transposed:
        raise ValueError("quantize: rowwise and transposed are both False; one of them must be True")
    if scale is not None:
        scale = one_number("quantize", "scale", scale)
    return no_gradient("quantize", _quantize, x, scale, dtype, tuple(flags.items()))


def dequantize(data, scale_inv, dtype=jnp.float32):
    """data (float8_e4m3fn or float8_e5m2, any shape) times scale_inv (f32 scalar) in float32, float16 or bfloat16, computed in
    float32. The gradient by data is an error: FP8 codes have none."""
    data, out_dtype = jnp.asarray(data), float_dtype("dequantize", dtype)
    if data.dtype not in FORMATS:
        raise _arguments.refuse("dequantize", "the dtype of data", str(data.dtype), "float8_e4m3fn or float8_e5m2")
    flat = data if data.ndim else data.reshape(1)
    operands = placed(None, "quantize.dequantize", flat, one_number("dequantize", "scale_inv", scale_inv), out_dtype=out_dtype)
    return call(None, "quantize.dequantize", *operands, formula=formulas.dequantize, out_dtype=out_dtype).reshape(data.shape)


def fake_quantize(x, dtype=jnp.float8_e4m3fn, scale=None):
    """What is left of x in FP8: dequantize(quantize(x)), in x's dtype. Its gradient is the identity (straight through), so that
    what is trained sees the rounding and is not stopped by it. The scale gets no gradient."""
    x, dtype = jnp.asarray(x), fp8_dtype("fake_quantize", dtype)
    return _fake_quantize(x, None if scale is None else one_number("fake_quantize", "scale", scale), dtype)


def amax(x):
    """The largest magnitude of x (float32, float16, bfloat16; any shape), f32[]; NaN where x has one."""
    x = jnp.asarray(x)
    return call(None, "quantize.amax", x if x.ndim else x.reshape(1), formula=formulas.amax).reshape(())


def update_fp8_scale(history, amax, scale, dtype=jnp.float8_e4m3fn, *, margin=0, algorithm="max"):
    """Delayed scaling: (history, scale, scale_inv) for the next step, of each tensor [...].

    history f32[..., L] is a ring: slot 0 waits for this step's amax f32[...], slot 1 is the oldest step. The next scale brings
    the largest of the history (algorithm="max") or amax alone ("most_recent") to the largest number of dtype / 2^margin; where
    that largest is 0 or not finite the scale stays.
    """
    where = "update_fp8_scale"
    margin = _arguments.integer(where, "margin", margin, -100, 100)
    _arguments.choice(where, "algorithm", algorithm, ("max", "most_recent"))
    operands = [jnp.asarray(array, jnp.float32) for array in (history, amax, scale)]
    if operands[0].ndim < 1 or any(array.shape != operands[0].shape[:-1] for array in operands[1:]):
        raise ValueError("%s: history has shape %s, amax %s, scale %s; history has one axis more than the others, its last"
                         % (where, *(array.shape for array in operands)))
    return tuple(call(None, "quantize.update_scale", *operands, format=FORMATS[fp8_dtype(where, dtype)], margin=margin, algorithm=algorithm))


def fp8_dtype(where, dtype):
    """One of the two FP8 dtypes."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found not in FORMATS:
        raise _arguments.refuse(where, "dtype", dtype, "float8_e4m3fn or float8_e5m2")
    return found


def float_dtype(where, dtype):
    """One of the three that kernels compute with."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found not in (jnp.float32, jnp.float16, jnp.bfloat16):
        raise _arguments.refuse(where, "dtype", dtype, "float32, float16 or bfloat16")
    return found


def one_number(where, name, value):
    """f32[1]."""
    if value is None:
        raise _arguments.refuse(where, name, value, "one number, of float32")
    value = jnp.asarray(value, jnp.float32)
    if value.size != 1:
        raise ValueError("%s: %s has shape %s; it is one number" % (where, name, value.shape))
    return value.reshape(1)


def no_gradient(where, function, *operands):
    """function(*operands), whose derivative by arrays among the operands is an error that says so."""
    arrays = [operand for operand in operands if isinstance(operand, jax.Array)]
    plain = tuple(None if isinstance(operand, jax.Array) else (operand,) for operand in operands)
    return _undifferentiated(where, function, plain, *arrays)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _undifferentiated(where, function, plain, *arrays):
    arrays = iter(arrays)
    return function(*(next(arrays) if operand is None else operand[0] for operand in plain))


@_undifferentiated.defjvp
def _undifferentiated_jvp(where, function, plain, arrays, tangents):
    raise Error("UNIMPLEMENTED", "differentiating %s: FP8 codes have no gradient; quantize inside a jax.custom_vjp, use fake_quantize, "
                "whose gradient is the identity, or jax.lax.stop_gradient" % where)


def _quantize(x, scale, dtype, flags):
    flags = dict(flags)
    if flags["transposed"] or flags["dbias"]:
        matrix = _arguments.rows(x)
        made = call(None, "quantize.per_tensor_transpose", matrix, scale, formula=formulas.per_tensor_transpose, out_dtype=dtype, **flags)
        q, q_t, largest, scale_inv, dbias = made
        return Quantized(None if q is None else q.reshape(x.shape), q_t, scale_inv.reshape(()), largest.reshape(()), dbias)
    q, largest, scale_inv = call(None, "quantize.per_tensor", x, scale, formula=formulas.per_tensor, out_dtype=dtype)
    return Quantized(q, None, scale_inv.reshape(()), largest.reshape(()), None)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _fake_quantize(x, scale, dtype):
    made = quantize(x if x.ndim else x.reshape(1), dtype, scale)
    return like(dequantize(made.data, made.scale_inv, x.dtype).reshape(x.shape), x)


def _fake_quantize_forward(x, scale, dtype):
    return _fake_quantize(x, scale, dtype), scale


def _fake_quantize_backward(dtype, scale, dy):
    return dy, None if scale is None else jnp.zeros_like(scale)


_fake_quantize.defvjp(_fake_quantize_forward, _fake_quantize_backward)
