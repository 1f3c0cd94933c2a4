"""FP8 with a scale for each block, or for each group of rows, as functions of PyTorch: kbt.quantize_blocks, kbt.quantize_mxfp8,
kbt.grouped_quantize, and both ways in one pass kbt.quantize_block_transpose, kbt.quantize_block_activation,
kbt.quantize_block_activation_gradient, where kbt is kbundle.torch. They mean what they mean for JAX; README.md beside this file says it,
corner cases included. There are no gradients: FP8 codes have none.
"""

import typing

import torch

from kbundle.torch import call
from kbundle.torch._dtypes import int32
from kbundle_kernels.pytorch.quantize import fp8_dtype, matrix
from kbundle_kernels.pytorch.quantize_activation import gradient_operand, operand

__all__ = ["BlockQuantized", "GroupedQuantized", "MxQuantized", "grouped_quantize", "quantize_block_activation",
           "quantize_block_activation_gradient", "quantize_block_transpose", "quantize_blocks", "quantize_mxfp8"]


class BlockQuantized(typing.NamedTuple):
    """A matrix [M, N] in FP8 both ways, by blocks; None of what was not asked for. A code stands for code * the scale_inv of its block.
    Scales of groups, 128 elements of a row of codes, are [part of a row, row], rows rounded up to 4, zeros beyond: scales="columns" of
    scaled_grouped_matmul, whose first operand they are for. Those of tiles are for its second one."""
    data: torch.Tensor | None  # [M, N] FP8
    scale_inv: torch.Tensor | None  # float32: groups [ceil(N / 128), M rounded up to 4], tiles [ceil(M / 128), ceil(N / 128)]
    transposed: torch.Tensor | None  # [N, M] FP8
    transposed_scale_inv: torch.Tensor | None  # float32: groups [ceil(M / 128), N rounded up to 4], tiles [ceil(N / 128), ceil(M / 128)]
    dbias: torch.Tensor | None  # [N]: the sums of the matrix's columns, in its dtype


class MxQuantized(typing.NamedTuple):
    """What `quantize_mxfp8` made; None of what was not asked for. A code stands for code * 2^e, e the number in its scale."""
    data: torch.Tensor | None  # [M, N] FP8, a scale for each 32 elements of a row
    scales: torch.Tensor | None  # float8_e8m0fnu [M rounded up to 128, ceil(N / 32) rounded up to 4]; beyond the blocks bits of 0
    column_data: torch.Tensor | None  # [M, N] FP8, not transposed, a scale for each 32 elements of a column
    column_scales: torch.Tensor | None  # float8_e8m0fnu [ceil(M / 32) rounded up to 4, N rounded up to 128]


class GroupedQuantized(typing.NamedTuple):
    """What `grouped_quantize` made. The number that a code of group g stands for is code * scale_inv[g]."""
    data: torch.Tensor | None  # [M, N] FP8; rows of no group are 0
    transposed: torch.Tensor | None  # [N, M] FP8: what is row m of x is column m
    scale_inv: torch.Tensor  # f32[G]: 1 / scale
    amax: torch.Tensor  # f32[G]: the largest magnitude of each group's rows, not scaled; 0 of none, NaN where there is one


def quantize_blocks(x, dtype=torch.float8_e4m3fn, block=(1, 128), *, scales="rows", power_of_two=False, amax_epsilon=0.0):
    """(data, scale_inv f32) of x[..., N] (float32, float16, bfloat16) in float8_e4m3fn or float8_e5m2, data of x's shape.

    block is (1, 128), a scale for each 128 elements of a row, or (128, 128), one for each tile of x[M, N], M all axes but the last; the last
    blocks of rows and columns may be smaller. scale_inv = amax / largest number of dtype, where amax counts as amax_epsilon at least
    (DeepGEMM: 1e-4), is 1 where amax is 0 or not finite, and is rounded up to a power of two with power_of_two. Codes are x *
    (1 / scale_inv). scale_inv is [M, ceil(N / 128)], with scales="columns" (of (1, 128) only) [ceil(N / 128), M rounded up to 4], zeros
    beyond M: what DeepGEMM's TMA loads; of tiles [ceil(M / 128), ceil(N / 128)]."""
    where, how = "quantize_blocks", {"power_of_two": power_of_two, "amax_epsilon": amax_epsilon}
    check_block(where, block)
    if tuple(block) == (1, 128):
        op, how["scales"] = "quantize.per_group", scales
    elif scales != "rows":
        raise ValueError("%s: scales is %r; of tiles it must be 'rows'" % (where, scales))
    else:
        op = "quantize.per_tile"
    q, scale_inv = call(None, op, matrix(where, x), out_dtype=fp8_dtype(where, dtype), **how)
    return q.reshape(x.shape), scale_inv


def quantize_block_transpose(x, dtype=torch.float8_e4m3fn, *, rowwise="groups", transposed="groups", power_of_two=False, amax_epsilon=0.0,
                             dbias=False):
    """x[M, N] (float32, float16, bfloat16; leading axes are joined) and its transpose in float8_e4m3fn or float8_e5m2, in one pass over x, as
    a BlockQuantized: codes and scales are those of quantize_blocks of x and of its transpose, bit for bit.

    rowwise, transposed: what shares a scale in each: "groups", 128 elements of a row, "tiles", 128 x 128, or None, which leaves it out.
    `dbias` also gives the sums of x's columns. power_of_two and amax_epsilon are those of quantize_blocks."""
    where = "quantize_block_transpose"
    if rowwise is None and transposed is None:
        raise ValueError("%s: rowwise and transposed are both None; one of them must be 'groups' or 'tiles'" % where)
    made = call(None, "quantize.per_block_transpose", matrix(where, x), out_dtype=fp8_dtype(where, dtype), rowwise=rowwise or "none",
                transposed=transposed or "none", power_of_two=power_of_two, amax_epsilon=amax_epsilon, dbias=dbias)
    return _block_quantized(x.shape, *made)


def quantize_block_activation(x, activation, dtype=torch.float8_e4m3fn, *, rowwise="groups", transposed="groups", power_of_two=False,
                              amax_epsilon=0.0, limit=7.0, alpha=1.702, offset=1.0):
    """The activation of x, computed in float32, rounded to x's dtype and never written, as quantize_block_transpose makes it of a matrix
    [M, H]. x, activation and its numbers are those of quantize_activation."""
    flat, lead, how = operand("quantize_block_activation", x, activation, dtype, rowwise, transposed, limit=limit, alpha=alpha, offset=offset,
                              power_of_two=power_of_two, amax_epsilon=amax_epsilon)
    return _block_quantized((*lead, x.shape[-1]), *call(None, "quantize.per_block_activation", flat, **_named(how)), None)


def quantize_block_activation_gradient(dy, x, activation, dtype=torch.float8_e4m3fn, *, rowwise="groups", transposed="groups",
                                       power_of_two=False, amax_epsilon=0.0, dbias=False, limit=7.0, alpha=1.702, offset=1.0):
    """The gradient by x of activation(x), of which dy[..., H] arrived, computed in float32, rounded to x's dtype and never written, as
    quantize_block_transpose makes it of the matrix x[M, H], of a gate x[M, 2 * H]; H is then a multiple of 128, so that no block is of both
    halves. `dbias`, [H] or [2, H], is what a bias in front of the activation gets. All in one pass over dy and x."""
    where = "quantize_block_activation_gradient"
    flat, lead, how = operand(where, x, activation, dtype, rowwise, transposed, limit=limit, alpha=alpha, offset=offset, dbias=dbias,
                              power_of_two=power_of_two, amax_epsilon=amax_epsilon)
    if flat.shape[1] == 2 and flat.shape[2] % 128:
        raise ValueError("%s: x has shape %s; of a gated activation H must be a multiple of 128, so that no block is of both halves: use "
                         "quantize_block_transpose of the gradient" % (where, tuple(x.shape)))
    made = call(None, "quantize.per_block_activation_gradient", gradient_operand(where, dy, x, lead), flat, **_named(how))
    made = _block_quantized(x.shape, *made)
    return made if made.dbias is None else made._replace(dbias=made.dbias.reshape(x.shape[len(lead):]))


def quantize_mxfp8(x, dtype=torch.float8_e4m3fn, *, rowwise=True, columnwise=False):
    """x[M, N] (float32, float16, bfloat16; leading axes are joined) in MXFP8, as an MxQuantized: float8_e4m3fn or float8_e5m2 with a power
    of two for each 32 elements of a row, of a column, or of both, in one pass over x. Scales round up, as TransformerEngine's do, so that no
    number is cut off; a block with a NaN has the scale NaN."""
    where = "quantize_mxfp8"
    if not rowwise and not columnwise:
        raise ValueError("%s: rowwise and columnwise are both False; one of them must be True" % where)
    q, scales, columns, column_scales = call(None, "quantize.mxfp8", matrix(where, x), out_dtype=fp8_dtype(where, dtype), rowwise=rowwise,
                                             columnwise=columnwise)
    return MxQuantized(None if q is None else q.reshape(x.shape), scales, None if columns is None else columns.reshape(x.shape), column_scales)


def grouped_quantize(x, group_sizes, scale=None, dtype=torch.float8_e4m3fn, *, rowwise=True, transposed=False):
    """x[M, N] (float32, float16, bfloat16) in float8_e4m3fn or float8_e5m2 by one scale for each group of rows, as a GroupedQuantized.

    The first group_sizes[0] rows are group 0, and so on; group_sizes[G], integers, lie on the device: they may be computed. Sizes that are
    wrong do no harm: a negative one counts as 0, and rows end with M; codes of rows past the last group are 0. scale is f32[G]; without one
    each group has that which brings its own largest magnitude to the largest FP8 number, found and used on the device. `transposed` also
    gives the codes of the transpose of x, as a gradient by the groups' matrices wants them, rowwise=False that alone: all in one pass over x,
    of the same launches whatever the sizes are."""
    where = "grouped_quantize"
    check_sizes(where, group_sizes)
    if not rowwise and not transposed:
        raise ValueError("%s: rowwise and transposed are both False; one of them must be True" % where)
    q, q_t, amax, scale_inv = call(None, "quantize.per_tensor_grouped", x, int32(group_sizes), None if scale is None else scale.float(),
                                   out_dtype=fp8_dtype(where, dtype), rowwise=rowwise, transposed=transposed)
    return GroupedQuantized(q, q_t, scale_inv, amax)


def _named(how):
    """None is "none" to the ops."""
    return {**how, "rowwise": how["rowwise"] or "none", "transposed": how["transposed"] or "none"}


def _block_quantized(shape, q, *others):
    return BlockQuantized(None if q is None else q.reshape(shape), *others)


def check_block(where, block):
    if tuple(block) not in ((1, 128), (128, 128)):
        raise ValueError("%s: block is %r; it must be (1, 128) or (128, 128)" % (where, block))


def check_sizes(where, group_sizes):
    if group_sizes.dim() != 1 or group_sizes.dtype not in (torch.int32, torch.int64):
        raise ValueError("%s: group_sizes is %s%s; it needs to be int32[G]" % (where, group_sizes.dtype, list(group_sizes.shape)))
