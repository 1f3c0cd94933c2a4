"""Products of groups of rows as a differentiable JAX function: kbj.grouped_matmul, where kbj is kbundle.jax.

It runs the ops of the first bundle that has them (kbundle.bundles). What each op means, for any values in its sizes, is in README.md
beside this file. Flags and dtypes are part of the compiled program: Python values, never traced ones.

Gradients are grouped products as well. One that arrives in a wider dtype than the operands have is rounded to theirs first.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kbundle.jax import _arguments, call
from kbundle.jax._primitive import like, placed

__all__ = ["grouped_matmul"]

_DTYPES = (jnp.bfloat16, jnp.float16, jnp.float32)


def grouped_matmul(lhs, rhs, group_sizes, precision=None, preferred_element_type=None, group_offset=None, *, bias=None,
                   transpose_rhs=False):
    """Rows of lhs[M, K] times the matrix of their group in rhs[G, K, N]: of the first group_sizes[0] rows that is rhs[0], and so
    on. What jax.lax.ragged_dot means, by its arguments. Returns [M, N].

    group_sizes[G] lies on the device: it may be computed. Rows past their sum are 0 and have no gradient. Sizes that are wrong do
    no harm: a negative one counts as 0, and rows end with M. lhs and rhs are bfloat16, float16 or float32, of one dtype after JAX's
    promotion; sums are float32. preferred_element_type is the result's dtype: by default that of the operands, or float32. precision
    is there for ragged_dot's sake: float32 is multiplied as such with any. group_offset must be None, as in ragged_dot.

    bias[G, N], if given, is added to its group's rows. transpose_rhs: rhs is [G, N, K], and is read as it lies. Gradients flow to
    lhs, rhs and bias.
    """
    if group_offset is not None:
        raise NotImplementedError("[kbundle:UNIMPLEMENTED] grouped_matmul: group_offset is given; pass a part of rhs and of group_sizes")
    lhs, rhs, sizes = jnp.asarray(lhs), jnp.asarray(rhs), jnp.asarray(group_sizes)
    dtype = jnp.promote_types(lhs.dtype, rhs.dtype)
    if dtype not in _DTYPES:
        raise TypeError("grouped_matmul: lhs is %s and rhs %s; both must be bfloat16, float16 or float32; convert them with astype"
                        % (lhs.dtype, rhs.dtype))
    transpose = _arguments.flag("grouped_matmul", "transpose_rhs", transpose_rhs)
    _check_shapes(lhs, rhs, sizes, transpose)
    width = rhs.shape[1 if transpose else 2]
    out_dtype = _out_dtype(preferred_element_type, dtype)
    if bias is not None:
        bias = _arguments.real("grouped_matmul", "bias", bias)
        if bias.shape != (rhs.shape[0], width):
            raise ValueError("grouped_matmul: bias has shape %s; for rhs of shape %s it must be %s"
                             % (bias.shape, rhs.shape, (rhs.shape[0], width)))
        bias = bias.astype(out_dtype)
    lhs, rhs, sizes = lhs.astype(dtype), rhs.astype(dtype), _arguments.int32(sizes)
    if 0 in (*lhs.shape, *rhs.shape):
        return _empty(lhs, rhs, sizes, bias, width, out_dtype)
    how = _How(out_dtype, transpose)
    return _product(*placed(None, "grouped.matmul", lhs, rhs, sizes, bias, **how._asdict()), how)


class _How(NamedTuple):
    """What of a product is part of the program."""
    out_dtype: jnp.dtype
    trans_w: bool


def _check_shapes(lhs, rhs, sizes, transpose, where="grouped_matmul"):
    if lhs.ndim != 2 or rhs.ndim != 3 or lhs.shape[1] != rhs.shape[2 if transpose else 1]:
        raise ValueError("%s: lhs has shape %s and rhs %s; they must be [M, K] and %s"
                         % (where, lhs.shape, rhs.shape, "[G, N, K]" if transpose else "[G, K, N]"))
    if sizes.shape != rhs.shape[:1] or not jnp.issubdtype(sizes.dtype, jnp.integer):
        raise ValueError("%s: group_sizes is %s%s; for rhs of shape %s it needs to be int32[%d]"
                         % (where, sizes.dtype, list(sizes.shape), rhs.shape, rhs.shape[0]))


def _out_dtype(given, dtype):
    try:
        out = jnp.dtype(dtype if given is None else given)
    except TypeError:
        out = None
    if out not in (dtype, jnp.float32):
        raise _arguments.refuse("grouped_matmul", "preferred_element_type", given, "None, the operands' %s, or float32" % dtype)
    return out


def _empty(lhs, rhs, sizes, bias, width, out_dtype):
    """A product without rows, without columns, or over nothing: then only the bias of each row's group is left of it."""
    y = jnp.zeros((lhs.shape[0], width), out_dtype)
    if bias is None or 0 in (*y.shape, rhs.shape[0]):
        return y
    rows = lhs.shape[0]
    ends = jax.lax.associative_scan(lambda a, b: jnp.minimum(a + b, rows), jnp.clip(sizes, 0, rows))  # no sum overflows
    group = jnp.searchsorted(ends, jnp.arange(rows), side="right")
    return jnp.where((group < rhs.shape[0])[:, None], bias[jnp.minimum(group, rhs.shape[0] - 1)], y)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _product(lhs, rhs, sizes, bias, how):
    return call(None, "grouped.matmul", lhs, rhs, sizes, bias, **how._asdict())


def _product_forward(lhs, rhs, sizes, bias, how):
    return _product(lhs, rhs, sizes, bias, how), (lhs, rhs, sizes, bias)


def _product_backward(how, saved, dy):
    lhs, rhs, sizes, bias = saved
    narrow = dy.astype(lhs.dtype)
    dlhs = call(None, "grouped.matmul", narrow, rhs, sizes, None, out_dtype=lhs.dtype, trans_w=not how.trans_w)
    drhs = call(None, "grouped.weight_gradient", *((narrow, lhs) if how.trans_w else (lhs, narrow)), sizes, out_dtype=rhs.dtype)
    dbias = None if bias is None else like(call(None, "grouped.sum_rows", dy, sizes), bias)
    return like(dlhs, lhs), like(drhs, rhs), np.zeros(sizes.shape, jax.dtypes.float0), dbias


_product.defvjp(_product_forward, _product_backward)
