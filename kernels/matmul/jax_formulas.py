"""Products that XLA computes in less time than a call of them takes, as formulas for it (kbundle.jax._formula): those of few operations; those of
short sums, which are over when operands and result have been moved, and XLA joins with what is around them; those of rows that are not aligned,
of an operand or of a result whose columns are b's rows, which it copies or reads as they are; one row by the rows of b, which is a sum for each;
many rows of few float32 columns, for which it tries more than what cuBLASLt names first. Sums, alpha and epilogues are float32; rounded once.
Where nothing stands behind a product, the program is the one that plain JAX has for it, gradients too.
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
MOST_TRAINED = 1 << 25  # of M * N * K with what a layer's gradients need, which small.cu never gives
MANY_ROWS, SMALL_B = 100, 1 << 20  # of op(a), elements of b: fewer rows by a larger b are over when it has been read, which calls do as it lies
MOST_DOTS = 6 << 20  # elements of b whose rows are multiplied by one
TALL, NARROW = 256, 512  # rows and columns of a float32 result
MOST_TILED, MOST_TILED_WORK = 90_000, 42_000_000  # elements of it, and M * N * K: where small.cu ends


def _tall(m, n, k, dtype, precision):
    beyond = m * n > MOST_TILED or m * n * k > MOST_TILED_WORK
    return dtype == jnp.float32 and precision == "tf32" and m >= TALL and n <= NARROW and beyond


def _extents(a, b, trans_a, trans_b):
    """(M, N, K)"""
    m, k = a.shape[-2:][::-1] if trans_a else a.shape[-2:]
    return m, b.shape[-2 if trans_b else -1], k


def _left(a, b, c=None, bias=None, aux=None, mask=None, a_scale=None, b_scale=None, *, out_dtype="bf16", trans_a=False, trans_b=False,
          epilogue="none", with_aux=False, bias_gradient="none", precision="tf32", **_):
    if c is not None or a.dtype.itemsize == 1:  # FP8
        return False
    m, n, k = _extents(a, b, trans_a, trans_b)
    work = math.prod(a.shape[:-2]) * m * n * k
    if trans_b and n * jnp.dtype(LONG_NAMES[out_dtype]).itemsize % 16:  # rows of d
        return True
    if any(array.shape[-1] * array.dtype.itemsize % 16 for array in (a, b)):
        return work < MOST_WORK or m >= MANY_ROWS or b.size <= SMALL_B
    trained = epilogue == "gelu" and with_aux or bias_gradient in ("a", "b")
    alone = bias is None and epilogue == "none" and bias_gradient == "none"
    few = work < MOST_TRAINED if trained else work < MOST_WORK and k < FEW
    dots = m == 1 and trans_b and b.size <= MOST_DOTS
    return few or dots or alone and k < SHORT or _tall(m, n, k, a.dtype, precision)


def _bits(positive):
    """u8[.., ceil(N / 128) * 16], least significant bit first."""
    columns = positive.shape[-1]
    room = [(0, 0)] * (positive.ndim - 1) + [(0, -columns % 128)]
    return jnp.packbits(jnp.pad(positive, room), axis=-1, bitorder="little")


def _sum(x, axis, dtype):
    return x.astype(jnp.float32).sum(axis).astype(dtype)


def _turned(x, turned=True):
    return jnp.swapaxes(x, -1, -2) if turned else x


def _along(a, b, trans_a, trans_b, **how):
    """op(a) op(b) as one dot_general."""
    batch = tuple(range(a.ndim - 2))
    over = (a.ndim - 2 if trans_a else a.ndim - 1,), (b.ndim - 1 if trans_b else b.ndim - 2,)
    return jax.lax.dot_general(a, b, (over, (batch, batch)), **how)


def _as_written(a, b, trans_a, trans_b, **how):
    """As the users of plain JAX write x @ w.T."""
    return _along(_turned(a, trans_a), _turned(b, trans_b), False, False, **how)


def _as_derived(a, b, trans_a, trans_b, **how):
    """As JAX derives x @ w by w from b, the gradient of the product."""
    return _turned(_along(b, a, not trans_b, not trans_a, **how))


def _results(multiplied, a, b, c=None, bias=None, aux=None, mask=None, a_scale=None, b_scale=None, *, out_dtype="bf16", trans_a=False, trans_b=False,
             alpha=1.0, epilogue="none", with_aux=False, bias_gradient="none", precision="tf32", **_):
    out_dtype = jnp.dtype(LONG_NAMES[out_dtype])
    rounded = bias is None and epilogue == "none" and alpha == 1
    exact = jax.lax.Precision.HIGHEST if precision == "ieee" and a.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    x = multiplied(a, b, trans_a, trans_b, precision=exact, preferred_element_type=out_dtype if rounded else jnp.float32)
    x = x if alpha == 1 else x * np.float32(alpha)
    x = x if bias is None else x + bias.astype(jnp.float32)
    if epilogue == "drelu":
        d = jnp.where(positive(mask, x.shape[-1]), x, 0)
    elif epilogue == "dgelu":
        d = through_activation(x, aux.astype(jnp.float32), "gelu")
    else:
        d = activated(x, None if epilogue == "none" else epilogue)
    gradients = {"none": lambda: None, "d": lambda: _sum(d, -2, out_dtype), "a": lambda: _sum(a, -2 if trans_a else -1, out_dtype),
                 "b": lambda: _sum(b, -1 if trans_b else -2, out_dtype)}
    return (d.astype(out_dtype), x.astype(out_dtype) if with_aux and epilogue == "gelu" else None,
            _bits(x > 0) if with_aux and epilogue == "relu" else None, gradients[bias_gradient]())


@formula(_left)
def product(*operands, **attributes):
    return _results(_as_written, *operands, **attributes)


@formula(_left)
def gradient(*operands, **attributes):
    """Of a product by one of its factors."""
    return _results(_along, *operands, **attributes)


@formula(_left)
def gradient_of_b(*operands, **attributes):
    """Of x @ w by w, called as op(x)^T dy."""
    return _results(_as_derived, *operands, **attributes)
