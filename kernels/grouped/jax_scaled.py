"""Grouped products in FP8 as JAX functions: kbj.scaled_grouped_matmul of codes and scales that are there, kbj.fp8_grouped_matmul of
plain arrays, which it quantizes by blocks, with gradients.

They run the ops of the first bundle that has them (kbundle.bundles). What the op means is in README.md beside this file. All but
arrays is part of the compiled program.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from kbundle.jax import _arguments, call
from kbundle.jax._primitive import like, placed, same_axes
from kbundle_kernels.grouped import _How, _check_shapes, _empty
from kbundle_kernels.quantize import fp8_dtype, no_gradient
from kbundle_kernels.quantize_blocks import quantize_blocks

__all__ = ["fp8_grouped_matmul", "scaled_grouped_matmul"]

_OUT = (jnp.bfloat16, jnp.float32)
_BLOCK = 128


def scaled_grouped_matmul(lhs, rhs, group_sizes, lhs_scale_inv, rhs_scale_inv, *, scales="rows", preferred_element_type=jnp.bfloat16,
                          bias=None):
    """Rows of lhs[M, K] times the matrix of their group, rhs[g] being [N, K], both codes of FP8 that stand for code * scale_inv.
    Returns [M, N], bfloat16 or float32.

    lhs is float8_e4m3fn or float8_e5m2, rhs float8_e4m3fn. Scales are float32. Those of lhs, by `scales`: "rows", [M, ceil(K / 128)],
    as quantize_blocks gives them; "columns", [ceil(K / 128), M rounded up to 4], as it does with scales="columns". Those of rhs are then
    [G, ceil(N / 128), ceil(K / 128)], of tiles of 128 x 128. "tensor": one number for lhs, and one, or one for each group, for rhs.

    group_sizes and bias[G, N] are those of grouped_matmul. There is no gradient: codes have none.
    """
    where = "scaled_grouped_matmul"
    lhs, rhs, sizes = jnp.asarray(lhs), jnp.asarray(rhs), jnp.asarray(group_sizes)
    if rhs.dtype != jnp.float8_e4m3fn or lhs.dtype not in (jnp.float8_e4m3fn, jnp.float8_e5m2):
        raise TypeError("%s: lhs is %s and rhs %s; lhs must be float8_e4m3fn or float8_e5m2, and rhs float8_e4m3fn: quantize_blocks "
                        "makes them" % (where, lhs.dtype, rhs.dtype))
    _check_shapes(lhs, rhs, sizes, True, where)
    scales = _arguments.choice(where, "scales", scales, ("rows", "columns", "tensor"))
    (rows, depth), (groups, width) = lhs.shape, rhs.shape[:2]
    lhs_scale_inv, rhs_scale_inv = jnp.asarray(lhs_scale_inv, jnp.float32), jnp.asarray(rhs_scale_inv, jnp.float32)
    parts = -(-depth // _BLOCK)
    if scales == "tensor":
        lhs_scale_inv = _shaped(where, "lhs_scale_inv", lhs_scale_inv.reshape(-1), (1,)).reshape(1, 1)
        rhs_scale_inv = rhs_scale_inv.reshape(-1)
        if rhs_scale_inv.size != 1:
            _shaped(where, "rhs_scale_inv", rhs_scale_inv, (groups,))
        rhs_scale_inv = jnp.broadcast_to(rhs_scale_inv, (groups,)).reshape(groups, 1, 1)
    else:
        _shaped(where, "lhs_scale_inv", lhs_scale_inv, (rows, parts) if scales == "rows" else (parts, -(-rows // 4) * 4))
        _shaped(where, "rhs_scale_inv", rhs_scale_inv, (groups, -(-width // _BLOCK), parts))
    out_dtype = _out_dtype(where, preferred_element_type)
    if bias is not None:
        bias = _shaped(where, "bias", jnp.asarray(bias), (groups, width)).astype(out_dtype)
    sizes = _arguments.int32(sizes)
    if 0 in (*lhs.shape, *rhs.shape):
        return _empty(lhs, rhs, sizes, bias, width, out_dtype)
    how = (("out_dtype", out_dtype), ("scales", scales))
    return no_gradient(where, _call, lhs, rhs, lhs_scale_inv, rhs_scale_inv, sizes, bias, how)


def fp8_grouped_matmul(lhs, rhs, group_sizes, preferred_element_type=None, *, bias=None, transpose_rhs=False, power_of_two=False,
                       gradient_dtype=jnp.float8_e4m3fn):
    """What grouped_matmul computes, multiplied in FP8: lhs[M, K] is quantized by 128 elements of a row, rhs[G, K, N] (transpose_rhs:
    [G, N, K]) by tiles of 128 x 128, both to float8_e4m3fn, as DeepGEMM takes them. Sums are float32.

    lhs and rhs are bfloat16 or float32, of one dtype after JAX's promotion, which is the result's as well, unless
    preferred_element_type is float32. Gradients flow to lhs, rhs and bias. That of lhs is the same product of the gradient that arrives,
    quantized by 128 elements of a row to gradient_dtype (float8_e4m3fn or float8_e5m2), and the codes of rhs. That of rhs is computed in
    the operands' dtype, of what they were before they were quantized. power_of_two: scales are rounded up to powers of two.

    Weights that stay as they are for several calls are better quantized once, for scaled_grouped_matmul.
    """
    where = "fp8_grouped_matmul"
    lhs, rhs, sizes = jnp.asarray(lhs), jnp.asarray(rhs), jnp.asarray(group_sizes)
    dtype = jnp.promote_types(lhs.dtype, rhs.dtype)
    if dtype not in _OUT:
        raise TypeError("%s: lhs is %s and rhs %s; both must be bfloat16 or float32; convert them with astype" % (where, lhs.dtype, rhs.dtype))
    transpose = _arguments.flag(where, "transpose_rhs", transpose_rhs)
    _check_shapes(lhs, rhs, sizes, transpose, where)
    width = rhs.shape[1 if transpose else 2]
    out_dtype = _out_dtype(where, dtype if preferred_element_type is None else preferred_element_type)
    if out_dtype not in (dtype, jnp.float32):
        raise _arguments.refuse(where, "preferred_element_type", preferred_element_type, "None, the operands' %s, or float32" % dtype)
    if bias is not None:
        bias = _shaped(where, "bias", jnp.asarray(bias), (rhs.shape[0], width)).astype(out_dtype)
    lhs, rhs, sizes = lhs.astype(dtype), rhs.astype(dtype), _arguments.int32(sizes)
    if 0 in (*lhs.shape, *rhs.shape):
        return _empty(lhs, rhs, sizes, bias, width, out_dtype)
    return quantized_product(lhs, rhs, sizes, bias, _How(out_dtype, transpose), _arguments.flag(where, "power_of_two", power_of_two),
                             fp8_dtype(where, gradient_dtype))


def quantized_product(lhs, rhs, sizes, bias, how, power_of_two, gradient_dtype):
    """fp8_grouped_matmul of arguments that are checked and not empty. rhs may have another dtype than lhs, as master weights have:
    each is quantized from its own, and has its gradient in it."""
    lhs, there, sizes, bias = placed(None, "grouped.matmul", lhs, rhs.astype(lhs.dtype), sizes, bias, **how._asdict())
    rhs = there if rhs.dtype == lhs.dtype else like(same_axes([lhs, rhs])[1], there)
    return _product(lhs, rhs, sizes, bias, how, power_of_two, gradient_dtype)


def layer_product(lhs, rhs, sizes, *, bias, power_of_two, gradient_dtype):
    """That of a layer of experts, lhs[M, K] and rhs[G, K, N]: the result has lhs's dtype."""
    if bias is not None:
        bias = _shaped("moe", "a bias", jnp.asarray(bias), (rhs.shape[0], rhs.shape[2])).astype(lhs.dtype)
    if 0 in (*lhs.shape, *rhs.shape):
        return _empty(lhs, rhs, sizes, bias, rhs.shape[2], lhs.dtype)
    return quantized_product(lhs, rhs, sizes, bias, _How(lhs.dtype, False), power_of_two, gradient_dtype)


def _shaped(where, name, array, shape):
    if array.shape != shape:
        raise ValueError("%s: %s has shape %s; it must be %s" % (where, name, array.shape, shape))
    return array


def _out_dtype(where, given):
    try:
        out = jnp.dtype(given)
    except TypeError:
        out = None
    if out not in _OUT:
        raise _arguments.refuse(where, "preferred_element_type", given, "bfloat16 or float32")
    return out


def _call(lhs, rhs, lhs_scale_inv, rhs_scale_inv, sizes, bias, how):
    how, op = dict(how), "grouped.scaled_matmul"
    return call(None, op, *placed(None, op, lhs, rhs, lhs_scale_inv, rhs_scale_inv, sizes, bias, **how), **how)


def _of_rows(x, codes, scales, sizes, bias, out_dtype, dtype, power_of_two):
    """x, quantized by rows, times the codes of their group, which lie along what is summed over."""
    x, x_scales = quantize_blocks(x, dtype, scales="columns", power_of_two=power_of_two)
    return _call(x, codes, x_scales, scales, sizes, bias, (("out_dtype", out_dtype), ("scales", "columns")))


def _tiles(w, power_of_two):
    """(codes, scales) of matrices w[G, A, B] by tiles, none of which has parts of two matrices."""
    groups, rows, columns = w.shape
    padded = jnp.pad(w, ((0, 0), (0, -rows % _BLOCK), (0, 0))) if rows % _BLOCK else w
    codes, scales = quantize_blocks(padded.reshape(-1, columns), block=(_BLOCK, _BLOCK), power_of_two=power_of_two)
    return codes.reshape(padded.shape)[:, :rows], scales.reshape(groups, -1, scales.shape[1])


def _turned(codes, scales, turn):
    return (jnp.swapaxes(codes, 1, 2), jnp.swapaxes(scales, 1, 2)) if turn else (codes, scales)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _product(lhs, rhs, sizes, bias, how, power_of_two, gradient_dtype):
    return _product_forward(lhs, rhs, sizes, bias, how, power_of_two, gradient_dtype)[0]


def _product_forward(lhs, rhs, sizes, bias, how, power_of_two, gradient_dtype):
    codes, scales = _tiles(rhs, power_of_two)
    y = _of_rows(lhs, *_turned(codes, scales, not how.trans_w), sizes, bias, how.out_dtype, jnp.float8_e4m3fn, power_of_two)
    return y, (lhs, rhs, codes, scales, sizes, bias)


def _product_backward(how, power_of_two, gradient_dtype, saved, dy):
    lhs, rhs, codes, scales, sizes, bias = saved
    narrow = dy.astype(lhs.dtype)
    dlhs = _of_rows(narrow, *_turned(codes, scales, how.trans_w), sizes, None, lhs.dtype, gradient_dtype, power_of_two)
    operands = (narrow, lhs) if how.trans_w else (lhs, narrow)
    wide = jnp.float32 if rhs.dtype == jnp.float32 else lhs.dtype
    drhs = call(None, "grouped.weight_gradient", *operands, sizes, out_dtype=wide).astype(rhs.dtype)
    dbias = None if bias is None else like(call(None, "grouped.sum_rows", dy, sizes), bias)
    return like(dlhs, lhs), like(drhs, rhs), np.zeros(sizes.shape, jax.dtypes.float0), dbias


_product.defvjp(_product_forward, _product_backward)
