"""FP8 of rows in groups, by one scale for each group, as a JAX function: kbj.grouped_quantize.

It runs the op of the first bundle that has it (kbundle.bundles). What it means, for any values in its sizes, is in README.md beside
this file. All but arrays is part of the compiled program.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from kbundle_kernels.quantize import fp8_dtype, no_gradient
from kbundle.jax import _arguments, call
from kbundle.jax._primitive import placed

__all__ = ["GroupedQuantized", "grouped_quantize"]


class GroupedQuantized(NamedTuple):
    """What `grouped_quantize` made. The number that a code of group g stands for is code * scale_inv[g]."""
    data: jax.Array | None  # [M, N] FP8; rows of no group are 0
    transposed: jax.Array | None  # [N, M] FP8: what is row m of x is column m
    scale_inv: jax.Array  # f32[G]: 1 / scale
    amax: jax.Array  # f32[G]: the largest magnitude of each group's rows, not scaled; 0 of none, NaN where there is one


def grouped_quantize(x, group_sizes, scale=None, dtype=jnp.float8_e4m3fn, *, rowwise=True, transposed=False):
    """x[M, N] (float32, float16, bfloat16) in float8_e4m3fn or float8_e5m2 by one scale for each group of rows, as a GroupedQuantized.

    The first group_sizes[0] rows are group 0, and so on, as in jax.lax.ragged_dot; group_sizes[G] lies on the device: it may be computed.
    Sizes that are wrong do no harm: a negative one counts as 0, and rows end with M; codes of rows past the last group are 0. scale is
    f32[G]; without one each group has that which brings its own largest magnitude to the largest FP8 number, found and used on the
    device. `transposed` also gives the codes of the transpose of x, as a gradient by the groups' matrices wants them, rowwise=False that
    alone: all in one pass over x, of the same launches whatever the sizes are. There is no gradient: asking for one is an error.
    """
    where = "grouped_quantize"
    x, dtype = jnp.asarray(x), fp8_dtype(where, dtype)
    how = dict(out_dtype=dtype, rowwise=_arguments.flag(where, "rowwise", rowwise), transposed=_arguments.flag(where, "transposed", transposed))
    if x.ndim != 2:
        raise ValueError("%s: x has shape %s; it needs to be [M, N]" % (where, x.shape))
    sizes = sizes_of(where, group_sizes)
    if not how["rowwise"] and not how["transposed"]:
        raise ValueError("%s: rowwise and transposed are both False; one of them must be True" % where)
    if scale is not None:
        scale = jnp.asarray(scale, jnp.float32)
        if scale.shape != sizes.shape:
            raise ValueError("%s: scale has shape %s; for %d groups it needs to be (%d,)" % (where, scale.shape, len(sizes), len(sizes)))
    q, q_t, amax, scale_inv = no_gradient(where, _call, tuple(sorted(how.items())), x, sizes, scale)
    return GroupedQuantized(q, q_t, scale_inv, amax)


def sizes_of(where, group_sizes):
    """int32[G], of the integers that a caller gave."""
    sizes = jnp.asarray(group_sizes)
    if sizes.ndim != 1 or not jnp.issubdtype(sizes.dtype, jnp.integer):
        raise ValueError("%s: group_sizes is %s%s; it needs to be int32[G]" % (where, sizes.dtype, list(sizes.shape)))
    return _arguments.int32(sizes)


def _call(how, *operands):
    how = dict(how)
    op = "quantize.per_tensor_grouped"
    return call(None, op, *placed(None, op, *operands, **how), **how)
