"""What the codes of blocks, of MXFP8 and of groups of rows stand for, as JAX functions: kbj.dequantize_blocks, kbj.dequantize_mxfp8 and
kbj.grouped_dequantize.

They are formulas of jax.numpy and no ops: XLA makes one kernel of each, which reads every code once, and of what comes behind it too.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from kbundle.jax import _arguments
from kbundle_kernels.quantize import FORMATS, float_dtype, no_gradient
from kbundle_kernels.quantize_blocks import check_block
from kbundle_kernels.quantize_grouped import sizes_of

__all__ = ["dequantize_blocks", "dequantize_mxfp8", "grouped_dequantize"]


def dequantize_blocks(data, scale_inv, dtype=jnp.float32, block=(1, 128), *, scales="rows"):
    """Codes data[..., N] (float8_e4m3fn or float8_e5m2) times the scale_inv (float32) of their block, in float32, float16 or bfloat16,
    computed in float32. block, scales and the shape of scale_inv are those of quantize_blocks; what quantize_block_transpose made in groups
    has scales="columns". The gradient by data is an error: FP8 codes have none."""
    where = "dequantize_blocks"
    check_block(where, block, scales)
    data, dtype = _codes(where, data), float_dtype(where, dtype)
    rows, columns = _matrix(data.shape)
    down, across = -(-rows // block[0]), -(-columns // 128)
    scale_inv = _sized(where, "scale_inv", jnp.asarray(scale_inv, jnp.float32), (across, _up(rows, 4)) if scales == "columns" else (down, across))
    if scales == "columns":
        scale_inv = scale_inv.T[:rows]
    spread = _spread(scale_inv, block[0], 128, rows, columns)
    return (_wide(where, data) * spread.reshape(data.shape)).astype(dtype)


def dequantize_mxfp8(data, scales, dtype=jnp.float32, *, columnwise=False):
    """Codes data[..., N] (float8_e4m3fn or float8_e5m2; leading axes are joined to M rows) times the power of two of their 32 elements of a
    row, of a column with `columnwise`, in float32, float16 or bfloat16, rounded once. scales (float8_e8m0fnu) are those of quantize_mxfp8, of
    its shapes: [M rounded up to 128, ceil(N / 32) rounded up to 4], of columns [ceil(M / 32) rounded up to 4, N rounded up to 128]. Where one
    is NaN its block is. The gradient by data is an error: FP8 codes have none."""
    where = "dequantize_mxfp8"
    columnwise = _arguments.flag(where, "columnwise", columnwise)
    data, dtype, scales = _codes(where, data), float_dtype(where, dtype), jnp.asarray(scales)
    if scales.dtype != jnp.float8_e8m0fnu:
        raise _arguments.refuse(where, "the dtype of scales", str(scales.dtype), "float8_e8m0fnu")
    rows, columns = _matrix(data.shape)
    of_rows, of_columns = (_up(rows, 128), _up(-(-columns // 32), 4)), (_up(-(-rows // 32), 4), _up(columns, 128))
    _sized(where, "scales", scales, of_columns if columnwise else of_rows)
    block = (32, 1) if columnwise else (1, 32)
    bits = _spread(jax.lax.bitcast_convert_type(scales, jnp.uint8), *block, rows, columns).reshape(data.shape).astype(jnp.int32)
    # In two steps: 2^-127 is no normal number, and 2^127 times a code may be too large a one on the way to what is not.
    half = (bits - 127) >> 1
    value = _wide(where, data) * _power(half) * _power(bits - 127 - half)
    return jnp.where(bits == 255, jnp.nan, value).astype(dtype)


def grouped_dequantize(data, group_sizes, scale_inv, dtype=jnp.float32):
    """Codes data[M, N] (float8_e4m3fn or float8_e5m2) times scale_inv[G] (float32) of the group of their row, in float32, float16 or bfloat16,
    computed in float32: what grouped_quantize made of rows. group_sizes[G] lies on the device and may be wrong as there: a negative one counts
    as 0, rows end with M, and those of no group are 0. The gradient by data is an error: FP8 codes have none."""
    where = "grouped_dequantize"
    data, dtype = _codes(where, data), float_dtype(where, dtype)
    if data.ndim != 2:
        raise ValueError("%s: data has shape %s; it needs to be [M, N]" % (where, data.shape))
    sizes = sizes_of(where, group_sizes)
    scale_inv = _sized(where, "scale_inv", jnp.asarray(scale_inv, jnp.float32), sizes.shape)
    rows, groups = data.shape[0], sizes.shape[0]
    if groups == 0:
        return jnp.zeros(data.shape, dtype)
    until = functools.partial(jnp.minimum, rows)  # a sum beyond all rows would be a small one again
    ends = jax.lax.associative_scan(lambda a, b: until(a + b), jnp.clip(sizes, 0, rows))
    group = jnp.searchsorted(ends, jnp.arange(rows, dtype=ends.dtype), side="right")[:, None]
    return jnp.where(group < groups, _wide(where, data) * scale_inv[jnp.minimum(group, groups - 1)], 0).astype(dtype)


def _codes(where, data):
    data = jnp.asarray(data)
    if data.dtype not in FORMATS:
        raise _arguments.refuse(where, "the dtype of data", str(data.dtype), "float8_e4m3fn or float8_e5m2")
    if data.ndim < 1:
        raise ValueError("%s: data has shape (); it needs at least one axis" % where)
    return data


def _wide(where, data):
    return no_gradient(where, lambda codes: codes.astype(jnp.float32), data)


def _matrix(shape):
    """Rows, which are all axes but the last, and columns."""
    return int(np.prod(shape[:-1], dtype=np.int64)), shape[-1]


def _up(size, to):
    return -(-size // to) * to


def _sized(where, name, array, shape):
    if array.shape != shape:
        raise ValueError("%s: %s has shape %s; of these codes it needs to be %s" % (where, name, array.shape, shape))
    return array


def _spread(scales, down, across, rows, columns):
    """Of [.., ..] a number for each code of a matrix: each for a block of down x across."""
    wide = jnp.broadcast_to(scales[:, None, :, None], (scales.shape[0], down, scales.shape[1], across))
    return wide.reshape(scales.shape[0] * down, scales.shape[1] * across)[:rows, :columns]


def _power(exponent):
    """2^exponent, of -126 to 127."""
    return jax.lax.bitcast_convert_type((exponent + 127) << 23, jnp.float32)
