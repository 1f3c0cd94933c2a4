"""FP8 with a scale for each block, as JAX functions: kbj.quantize_blocks, kbj.quantize_mxfp8, and both ways in one pass
kbj.quantize_block_transpose, kbj.quantize_block_activation, kbj.quantize_block_activation_gradient.

They run the ops of the first bundle that has them (kbundle.bundles). What each op means, corner cases included, is in
README.md beside this file. All but arrays is part of the compiled program. There are no gradients: FP8 codes have none.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from kbundle_kernels.quantize import fp8_dtype, no_gradient
from kbundle_kernels.quantize_activation import activation_operand, gradient_operand
from kbundle.jax import _arguments, call
from kbundle.jax._primitive import placed

__all__ = ["BlockQuantized", "MxQuantized", "quantize_block_activation", "quantize_block_activation_gradient", "quantize_block_transpose",
           "quantize_blocks", "quantize_mxfp8"]
BLOCKS = (None, "groups", "tiles")


class BlockQuantized(NamedTuple):
    """A matrix [M, N] in FP8 both ways, by blocks; None of what was not asked for. A code stands for code * the scale_inv of its block.
    Scales of groups, 128 elements of a row of codes, are [part of a row, row], rows rounded up to 4, zeros beyond: scales="columns" of
    scaled_grouped_matmul, whose first operand they are for. Those of tiles are for its second one."""
    data: jax.Array | None  # [M, N] FP8
    scale_inv: jax.Array | None  # float32: groups [ceil(N / 128), M rounded up to 4], tiles [ceil(M / 128), ceil(N / 128)]
    transposed: jax.Array | None  # [N, M] FP8
    transposed_scale_inv: jax.Array | None  # float32: groups [ceil(M / 128), N rounded up to 4], tiles [ceil(N / 128), ceil(M / 128)]
    dbias: jax.Array | None  # [N]: the sums of the matrix's columns, in its dtype


class MxQuantized(NamedTuple):
    """What `quantize_mxfp8` made; None of what was not asked for. A code stands for code * 2^e, e the number in its scale."""
    data: jax.Array | None  # [M, N] FP8, a scale for each 32 elements of a row
    scales: jax.Array | None  # float8_e8m0fnu [M rounded up to 128, ceil(N / 32) rounded up to 4]; beyond the blocks bits of 0
    column_data: jax.Array | None  # [M, N] FP8, not transposed, a scale for each 32 elements of a column
    column_scales: jax.Array | None  # float8_e8m0fnu [ceil(M / 32) rounded up to 4, N rounded up to 128]


def quantize_blocks(x, dtype=jnp.float8_e4m3fn, block=(1, 128), *, scales="rows", power_of_two=False, amax_epsilon=0.0):
    """(data, scale_inv f32) of x[..., N] (float32, float16, bfloat16) in float8_e4m3fn or float8_e5m2, data of x's shape.

    block is (1, 128), a scale for each 128 elements of a row, or (128, 128), one for each tile of x[M, N], M all axes but the last;
    the last blocks of rows and columns may be smaller. scale_inv = amax / largest number of dtype, where amax counts as amax_epsilon
    at least (DeepGEMM: 1e-4), is 1 where amax is 0 or not finite, and is rounded up to a power of two with power_of_two. Codes are x *
    (1 / scale_inv). scale_inv is [M, ceil(N / 128)], with scales="columns" (of (1, 128) only) [ceil(N / 128), M rounded up to 4], zeros
    beyond M: what DeepGEMM's TMA loads; of tiles [ceil(M / 128), ceil(N / 128)].
    """
    where = "quantize_blocks"
    x, dtype = jnp.asarray(x), fp8_dtype(where, dtype)
    check_block(where, block, scales)
    how = dict(out_dtype=dtype, power_of_two=_arguments.flag(where, "power_of_two", power_of_two),
               amax_epsilon=_arguments.number(where, "amax_epsilon", amax_epsilon, 0.0, 3e38))
    op = "quantize.per_tile"
    if tuple(block) == (1, 128):
        op, how["scales"] = "quantize.per_group", scales
    q, scale_inv = no_gradient(where, _call, _matrix(where, x), op, tuple(sorted(how.items())))
    return q.reshape(x.shape), scale_inv


def quantize_block_transpose(x, dtype=jnp.float8_e4m3fn, *, rowwise="groups", transposed="groups", power_of_two=False, amax_epsilon=0.0,
                             dbias=False):
    """x[M, N] (float32, float16, bfloat16; leading axes are joined) and its transpose in float8_e4m3fn or float8_e5m2, in one pass over x,
    as a BlockQuantized: codes and scales are those of quantize_blocks of x and of x.T, bit for bit.

    rowwise, transposed: what shares a scale in each: "groups", 128 elements of a row, "tiles", 128 x 128, or None, which leaves it out.
    `dbias` also gives the sums of x's columns. power_of_two and amax_epsilon are those of quantize_blocks.
    """
    where = "quantize_block_transpose"
    x = jnp.asarray(x)
    how = _both_ways(where, dtype, rowwise, transposed, power_of_two, amax_epsilon, dbias=_arguments.flag(where, "dbias", dbias))
    made = no_gradient(where, _call, _matrix(where, x), "quantize.per_block_transpose", how)
    return _block_quantized(x.shape, made)


def quantize_block_activation(x, activation, dtype=jnp.float8_e4m3fn, *, rowwise="groups", transposed="groups", power_of_two=False,
                              amax_epsilon=0.0, limit=7.0, alpha=1.702, offset=1.0):
    """The activation of x, computed in float32, rounded to x's dtype and never written, as quantize_block_transpose makes it of a matrix
    [M, H]. x, activation and its numbers are those of quantize_activation. There is no gradient: the other half of a jax.custom_vjp is
    quantize_block_activation_gradient."""
    where = "quantize_block_activation"
    x, lead, function = activation_operand(where, x, activation)
    how = _both_ways(where, dtype, rowwise, transposed, power_of_two, amax_epsilon, function=function,
                     **_numbers(where, limit=limit, alpha=alpha, offset=offset))
    made = no_gradient(where, _call, x, "quantize.per_block_activation", how)
    return _block_quantized((*lead, x.shape[-1]), (*made, None))


def quantize_block_activation_gradient(dy, x, activation, dtype=jnp.float8_e4m3fn, *, rowwise="groups", transposed="groups",
                                       power_of_two=False, amax_epsilon=0.0, dbias=False, limit=7.0, alpha=1.702, offset=1.0):
    """The gradient by x of activation(x), of which dy[..., H] arrived, computed in float32, rounded to x's dtype and never written, as
    quantize_block_transpose makes it of the matrix x[M, H], of a gate x[M, 2 * H]; H is then a multiple of 128, so that no block is of
    both halves. `dbias`, [H] or [2, H], is what a bias in front of the activation gets. All in one pass over dy and x."""
    where, shape = "quantize_block_activation_gradient", jnp.shape(x)
    x, lead, function = activation_operand(where, x, activation)
    if x.shape[1] == 2 and x.shape[2] % 128:
        raise ValueError("%s: x has shape %s; of a gated activation H must be a multiple of 128, so that no block is of both halves: use "
                         "quantize_block_transpose of the gradient" % (where, shape))
    how = _both_ways(where, dtype, rowwise, transposed, power_of_two, amax_epsilon, function=function,
                     dbias=_arguments.flag(where, "dbias", dbias), **_numbers(where, limit=limit, alpha=alpha, offset=offset))
    flat = gradient_operand(where, dy, x, lead, shape)
    made = no_gradient(where, _call_both, flat, x, "quantize.per_block_activation_gradient", how)
    made = _block_quantized(shape, made)
    return made if made.dbias is None else made._replace(dbias=made.dbias.reshape(shape[len(lead):]))


def quantize_mxfp8(x, dtype=jnp.float8_e4m3fn, *, rowwise=True, columnwise=False):
    """x[M, N] (float32, float16, bfloat16; leading axes are joined) in MXFP8, as an MxQuantized: float8_e4m3fn or float8_e5m2 with a
    power of two for each 32 elements of a row, of a column, or of both, in one pass over x. Scales round up, as TransformerEngine's
    do, so that no number is cut off; a block with a NaN has the scale NaN."""
    where = "quantize_mxfp8"
    x, dtype = jnp.asarray(x), fp8_dtype(where, dtype)
    rowwise, columnwise = _arguments.flag(where, "rowwise", rowwise), _arguments.flag(where, "columnwise", columnwise)
    if not rowwise and not columnwise:
        raise ValueError("quantize_mxfp8: rowwise and columnwise are both False; one of them must be True")
    how = dict(out_dtype=dtype, rowwise=rowwise, columnwise=columnwise)
    q, scales, columns, column_scales = no_gradient(where, _call, _matrix(where, x), "quantize.mxfp8", tuple(sorted(how.items())))
    shaped = lambda codes: None if codes is None else codes.reshape(x.shape)
    return MxQuantized(shaped(q), scales, shaped(columns), column_scales)


def check_block(where, block, scales):
    """An error unless scales of such blocks can lie so."""
    if tuple(block) not in ((1, 128), (128, 128)):
        raise _arguments.refuse(where, "block", block, "(1, 128) or (128, 128)")
    _arguments.choice(where, "scales", scales, ("rows", "columns") if tuple(block) == (1, 128) else ("rows",))


def _matrix(where, x):
    if x.ndim < 1:
        raise ValueError("%s: x has shape (); it needs at least one axis" % where)
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    return x.reshape(rows, x.shape[-1])


def _both_ways(where, dtype, rowwise, transposed, power_of_two, amax_epsilon, **more):
    """What is part of the program."""
    for name, blocks in (("rowwise", rowwise), ("transposed", transposed)):
        _arguments.choice(where, name, blocks, BLOCKS)
    if rowwise is None and transposed is None:
        raise ValueError("%s: rowwise and transposed are both None; one of them must be 'groups' or 'tiles'" % where)
    how = dict(out_dtype=fp8_dtype(where, dtype), rowwise=rowwise or "none", transposed=transposed or "none",
               power_of_two=_arguments.flag(where, "power_of_two", power_of_two),
               amax_epsilon=_arguments.number(where, "amax_epsilon", amax_epsilon, 0.0, 3e38))
    return tuple(sorted({**how, **more}.items()))


def _numbers(where, **given):
    return {name: _arguments.number(where, name, value) for name, value in given.items()}


def _block_quantized(shape, made):
    q, *others = made
    return BlockQuantized(None if q is None else q.reshape(shape), *others)


def _call(x, op, how):
    how = dict(how)
    return call(None, op, *placed(None, op, x, **how), **how)


def _call_both(dy, x, op, how):
    how = dict(how)
    return call(None, op, *placed(None, op, dy, x, **how), **how)
