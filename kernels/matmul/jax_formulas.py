"""Products that XLA computes in less time than a call of them takes, as formulas for it (kbundle.jax._formula): those of few operations; those of
short sums, which are over when operands and result have been moved, and XLA joins with what is around them; those of rows that are not aligned,
of an operand or of a result whose columns are b's rows, which it copies or reads as they are. Sums, alpha and epilogues are float32; rounded once.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from kbundle._dtypes import LONG_NAMES
from kbundle.jax._formula import formula
from kbundle_kernels.matmul_activations import activated, positive, through_activation

__all__ = []
MOST_WORK, SHORT, FEW = 1 << 22, 128, 512  # of M * N * K and of K, by measurement on an H200
MANY_ROWS = 100  # of op(a): of fewer, all that counts is to read b once, which calls do whatever its alignment


def _extents(a, b, trans_a, trans_b):
    """(M, N, K)"""
    m, k = a.shape[-2:][::-1] if trans_a else a.shape[-2:]
    return m, b.shape[-2 if trans_b else -1], k


def _left(a, b, c=None, bias=None, aux=None, mask=None, a_scale=None, b_scale=None, *, out_dtype="bf16", trans_a=False, trans_b=False,
          epilogue="none", bias_gradient="none", **_):
    if c is not None or a.dtype.itemsize == 1:  # FP8
        return False
    m, n, k = _extents(a, b, trans_a, trans_b)
    small = math.prod(a.shape[:-2]) * m * n * k < MOST_WORK
    if trans_b and n * jnp.dtype(LONG_NAMES[out_dtype]).itemsize % 16:  # rows of d
        return True
    if any(array.shape[-1] * array.dtype.itemsize % 16 for array in (a, b)):
        return small or m >= MANY_ROWS
    alone = bias is None and epilogue == "none" and bias_gradient == "none"
    return small and k < FEW or alone and k < SHORT


def _bits(positive):
    """u8[.., ceil(N / 128) * 16], least significant bit first."""
    columns = positive.shape[-1]
    room = [(0, 0)] * (positive.ndim - 1) + [(0, -columns % 128)]
    return jnp.packbits(jnp.pad(positive, room), axis=-1, bitorder="little")


def _sum(x, axis, dtype):
    return x.astype(jnp.float32).sum(axis).astype(dtype)


@formula(_left)
def product(a, b, c=None, bias=None, aux=None, mask=None, a_scale=None, b_scale=None, *, out_dtype="bf16", trans_a=False, trans_b=False, alpha=1.0,
            epilogue="none", with_aux=False, bias_gradient="none", precision="tf32", **_):
    out_dtype = jnp.dtype(LONG_NAMES[out_dtype])
    batch, rounded = tuple(range(a.ndim - 2)), bias is None and epilogue == "none" and alpha == 1
    over = (a.ndim - 2 if trans_a else a.ndim - 1,), (b.ndim - 1 if trans_b else b.ndim - 2,)
    exact = jax.lax.Precision.HIGHEST if precision == "ieee" and a.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    x = jax.lax.dot_general(a, b, (over, (batch, batch)), precision=exact, preferred_element_type=out_dtype if rounded else jnp.float32)
    x = x if alpha == 1 else x * np.float32(alpha)
    x = x if bias is None else x + bias.astype(jnp.float32)
    if epilogue == "drelu":
        d = jnp.where(positive(mask, x.shape[-1]), x, 0)
    elif epilogue == "dgelu":
        d = through_activation(x, aux.astype(jnp.float32), "gelu")
    else:
        d = activated(x, None if epilogue == "none" else epilogue)
    gradients = {"none": lambda: None, "d": lambda: _sum(d, -2, out_dtype), "a": lambda: _sum(a, over[0][0], out_dtype),
                 "b": lambda: _sum(b, over[1][0], out_dtype)}
    return (d.astype(out_dtype), x.astype(out_dtype) if with_aux and epilogue == "gelu" else None,
            _bits(x > 0) if with_aux and epilogue == "relu" else None, gradients[bias_gradient]())
