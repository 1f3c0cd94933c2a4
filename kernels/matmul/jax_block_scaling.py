"""How the products of a layer are computed in FP8 by blocks of 128: kbj.BlockScaling, where kbj is kbundle.jax. It goes to kbj.dense,
kbj.mlp or kbj.moe as `recipe`; README.md beside this file says what a layer then computes.

The op grouped.scaled_matmul, here with a single group, takes scales for each 128 of a row of its first operand and for each 128 x 128
of its second. So of every product one operand is in tiles. Tiles of a matrix are those of its transpose, whose codes are the same ones
turned; groups of 128 along the other dim are other numbers. Whatever is wanted both ways is read once: quantize.per_block_transpose
and its siblings make x by groups and its transpose by tiles, w and its transpose by tiles, dz and its transpose by groups.

    y    = x    w      x by groups along K      w by tiles
    dx   = dz   w^T    dz by groups along N     w by the same tiles
    dw^T = dz^T x      dz by groups along M     x by tiles

Tokens have gradients of very unequal sizes, and so have features: were dz in tiles, in dw the small would lose their bits to the large,
as DeepSeek-V3 found in training. x mostly comes out of a norm. So x has the tiles there, and dw is turned at the end.
"""

import dataclasses

import jax.numpy as jnp

from kbundle_kernels.matmul_activations import GATED
from kbundle_kernels.matmul_recipes import Fp8Codes, Recipe, Want
from kbundle_kernels.quantize import E4M3, fp8_dtype
from kbundle_kernels.quantize_blocks import quantize_block_activation, quantize_block_activation_gradient, quantize_block_transpose
from kbundle.jax import _arguments, call

__all__ = ["BlockScaling"]

_BLOCK = 128


@dataclasses.dataclass(frozen=True)
class BlockScaling(Recipe):
    """A scale for each 128 elements of x and of the gradients that arrive, along what a product sums over, and for each tile of 128 x 128
    of weights: DeepSeek-V3's recipe. A large number costs those of its block bits and no others, and nothing is carried from step to
    step. In the gradient by w, which sums over rows, gradients have the groups and x has tiles.

    power_of_two: scales are rounded up to powers of two, so that scaling itself rounds nothing. gradient_dtype: of the gradients that
    arrive at a layer; x and w are e4m3fn.
    """
    power_of_two: bool = False
    gradient_dtype: jnp.dtype = E4M3

    def __post_init__(self):
        object.__setattr__(self, "power_of_two", _arguments.flag("BlockScaling", "power_of_two", self.power_of_two))
        object.__setattr__(self, "gradient_dtype", fp8_dtype("BlockScaling", self.gradient_dtype))

    def x_codes(self, x, state, want=Want()):
        """x[M, K] by groups, and its transpose by tiles."""
        return self._codes(quantize_block_transpose, x, want=want)

    def activation_codes(self, z, activation, state, want=Want()):
        """The same of activation(z), which never lies in memory."""
        return self._codes(quantize_block_activation, _halves(z, activation), activation, want=want)

    def weights(self, w, state, want=Want()):
        """w[K, N] by tiles, and its transpose by the same ones."""
        if not want.data and not want.transposed:
            return Fp8Codes(None, None, None, None)
        return self._codes(quantize_block_transpose, w, want=want, rowwise="tiles")

    def gradient_codes(self, dy, state, want=Want()):
        """dy[M, N] by groups, and its transpose by groups."""
        return self._codes(quantize_block_transpose, dy, want=want, transposed="groups", dtype=self.gradient_dtype, dbias=want.dbias)

    def activation_gradient_codes(self, dy, z, activation, state, want=Want()):
        if activation is None or (activation in GATED and z.shape[1] % (2 * _BLOCK)):  # no block may be of both halves
            return super().activation_gradient_codes(dy, z, activation, state, want)
        made = self._codes(quantize_block_activation_gradient, dy, _halves(z, activation), activation, want=want, transposed="groups",
                           dtype=self.gradient_dtype, dbias=want.dbias)
        flat = lambda array: None if array is None else array.reshape(*array.shape[:-2], -1) if activation in GATED else array
        return made._replace(data=flat(made.data), dbias=flat(made.dbias))

    def scale_shapes(self, shape):
        parts = tuple(-(-size // _BLOCK) for size in shape)
        return parts, parts[::-1]

    def product(self, a, a_scale, b, b_scale, out_dtype, which, bias=None):
        """a[M, K] b[N, K]^T + bias, a by groups and b by tiles. which: as everywhere, and of no use here."""
        made = jnp.bfloat16 if out_dtype == jnp.bfloat16 else jnp.float32
        bias = None if bias is None else bias[None].astype(made)
        operands = a, b[None], a_scale, b_scale[None], jnp.full(1, a.shape[0], jnp.int32), bias
        return call(None, "grouped.scaled_matmul", *operands, out_dtype=made, scales="columns").astype(out_dtype)

    def weight_gradient(self, x, dy, dtype):
        return self.product(dy.transposed, dy.transposed_scale, x.transposed, x.transposed_scale, dtype, 2).T

    def _codes(self, quantize, *operands, want, rowwise="groups", transposed="tiles", dtype=E4M3, **more):
        made = quantize(*operands, dtype=dtype, rowwise=rowwise if want.data else None, transposed=transposed if want.transposed else None,
                        power_of_two=self.power_of_two, **more)
        return Fp8Codes(made.data, made.scale_inv, made.transposed, made.transposed_scale_inv, dbias=made.dbias)


def _halves(z, activation):
    """z[M, N] as ops of activations take it."""
    return z.reshape(z.shape[0], 2, -1) if activation in GATED else z
