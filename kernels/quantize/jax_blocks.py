"""FP8 with a scale for each block, as JAX functions: kbj.quantize_blocks, kbj.quantize_mxfp8.

They run the ops of the first bundle that has them (kbundle.bundles). What each op means, corner cases included, is in
README.md beside this file. All but arrays is part of the compiled program. There are no gradients: FP8 codes have none.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from kbundle_kernels.quantize import fp8_dtype, no_gradient
from kbundle.jax import _arguments, call
from kbundle.jax._primitive import placed

__all__ = ["MxQuantized", "quantize_blocks", "quantize_mxfp8"]


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
    if tuple(block) not in ((1, 128), (128, 128)):
        raise _arguments.refuse(where, "block", block, "(1, 128) or (128, 128)")
    how = dict(out_dtype=dtype, power_of_two=_arguments.flag(where, "power_of_two", power_of_two),
               amax_epsilon=_arguments.number(where, "amax_epsilon", amax_epsilon, 0.0, 3e38))
    _arguments.choice(where, "scales", scales, ("rows", "columns") if tuple(block) == (1, 128) else ("rows",))
    op = "quantize.per_tile"
    if tuple(block) == (1, 128):
        op, how["scales"] = "quantize.per_group", scales
    q, scale_inv = no_gradient(where, _call, _matrix(where, x), op, tuple(sorted(how.items())))
    return q.reshape(x.shape), scale_inv


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


def _matrix(where, x):
    if x.ndim < 1:
        raise ValueError("%s: x has shape (); it needs at least one axis" % where)
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    return x.reshape(rows, x.shape[-1])


def _call(x, op, how):
    how = dict(how)
    return call(None, op, *placed(None, op, x, **how), **how)
