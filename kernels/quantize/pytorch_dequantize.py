"""What the codes of blocks, of MXFP8 and of groups of rows stand for, as functions of PyTorch: kbt.dequantize_blocks, kbt.dequantize_mxfp8 and
kbt.grouped_dequantize, where kbt is kbundle.torch. They mean what they mean for JAX. They are formulas and no ops: under torch.compile one kernel.
"""

import torch

from kbundle_kernels.pytorch.quantize import fp8_dtype
from kbundle_kernels.pytorch.quantize_blocks import check_block, check_sizes

__all__ = ["dequantize_blocks", "dequantize_mxfp8", "grouped_dequantize"]
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def dequantize_blocks(data, scale_inv, dtype=torch.float32, block=(1, 128), *, scales="rows"):
    """Codes data[..., N] (float8_e4m3fn or float8_e5m2) times the scale_inv (float32) of their block, in float32, float16 or bfloat16, computed in
    float32. block, scales and the shape of scale_inv are those of quantize_blocks; what quantize_block_transpose made in groups has
    scales="columns"."""
    where = "dequantize_blocks"
    check_block(where, block)
    if scales not in (("rows", "columns") if tuple(block) == (1, 128) else ("rows",)):
        raise ValueError("%s: scales is %r; it must be 'rows', or of groups 'columns'" % (where, scales))
    rows, columns = _matrix(where, data, dtype)
    down, across = -(-rows // block[0]), -(-columns // 128)
    _check_shape(where, "scale_inv", scale_inv, (across, _up(rows, 4)) if scales == "columns" else (down, across))
    if scales == "columns":
        scale_inv = scale_inv.t()[:rows]
    return (data.float() * _spread(scale_inv.float(), block[0], 128, rows, columns).reshape(data.shape)).to(dtype)


def dequantize_mxfp8(data, scales, dtype=torch.float32, *, columnwise=False):
    """Codes data[..., N] (float8_e4m3fn or float8_e5m2; leading axes are joined to M rows) times the power of two of their 32 elements of a row, of
    a column with `columnwise`, in float32, float16 or bfloat16, rounded once. scales (float8_e8m0fnu) are those of quantize_mxfp8, of its shapes:
    [M rounded up to 128, ceil(N / 32) rounded up to 4], of columns [ceil(M / 32) rounded up to 4, N rounded up to 128]. Where one is NaN its block
    is."""
    where = "dequantize_mxfp8"
    if scales.dtype != torch.float8_e8m0fnu:
        raise ValueError("%s: the dtype of scales is %s; it must be torch.float8_e8m0fnu" % (where, scales.dtype))
    rows, columns = _matrix(where, data, dtype)
    of_rows, of_columns = (_up(rows, 128), _up(-(-columns // 32), 4)), (_up(-(-rows // 32), 4), _up(columns, 128))
    _check_shape(where, "scales", scales, of_columns if columnwise else of_rows)
    block = (32, 1) if columnwise else (1, 32)
    bits = _spread(scales.contiguous().view(torch.uint8), *block, rows, columns).reshape(data.shape).to(torch.int32)
    # In two steps: 2^-127 is no normal number, and 2^127 times a code may be too large a one on the way to what is not.
    half = (bits - 127) >> 1
    value = data.float() * _power(half) * _power(bits - 127 - half)
    return torch.where(bits == 255, torch.nan, value).to(dtype)


def grouped_dequantize(data, group_sizes, scale_inv, dtype=torch.float32):
    """Codes data[M, N] (float8_e4m3fn or float8_e5m2) times scale_inv[G] (float32) of the group of their row, in float32, float16 or bfloat16,
    computed in float32: what grouped_quantize made of rows. group_sizes[G] lies where data does and may be wrong as there: a negative one counts as
    0, rows end with M, and those of no group are 0."""
    where = "grouped_dequantize"
    if data.dim() != 2:
        raise ValueError("%s: data has shape %s; it needs to be [M, N]" % (where, tuple(data.shape)))
    rows, _ = _matrix(where, data, dtype)
    check_sizes(where, group_sizes)
    _check_shape(where, "scale_inv", scale_inv, tuple(group_sizes.shape))
    groups = group_sizes.shape[0]
    if groups == 0:
        return torch.zeros(data.shape, dtype=dtype, device=data.device)
    ends = group_sizes.long().clamp(0, rows).cumsum(0)
    group = torch.searchsorted(ends, torch.arange(rows, device=data.device), right=True)[:, None]
    return torch.where(group < groups, data.float() * scale_inv.float()[group.clamp(max=groups - 1)], 0.0).to(dtype)


def _matrix(where, data, dtype):
    """Rows, which are all axes but the last, and columns of codes."""
    fp8_dtype(where, data.dtype)
    if dtype not in FLOATS:
        raise ValueError("%s: dtype is %s; it must be torch.float32, torch.float16 or torch.bfloat16" % (where, dtype))
    if data.dim() < 1:
        raise ValueError("%s: data has shape (); it needs at least one axis" % where)
    return data.shape[:-1].numel(), data.shape[-1]


def _up(size, to):
    return -(-size // to) * to


def _check_shape(where, name, tensor, shape):
    if tuple(tensor.shape) != shape:
        raise ValueError("%s: %s has shape %s; of these codes it needs to be %s" % (where, name, tuple(tensor.shape), shape))


def _spread(scales, down, across, rows, columns):
    """Of [.., ..] a number for each code of a matrix: each for a block of down x across."""
    wide = scales[:, None, :, None].expand(-1, down, -1, across)
    return wide.reshape(scales.shape[0] * down, scales.shape[1] * across)[:rows, :columns]


def _power(exponent):
    """2^exponent, of -126 to 127."""
    return ((exponent + 127) << 23).view(torch.float32)
