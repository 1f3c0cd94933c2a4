"""How the products of a layer are computed in FP8: kbj.CurrentScaling and kbj.DelayedScaling, where kbj is kbundle.jax, and what any
recipe is (kbj.BlockScaling is in jax_block_scaling.py). A recipe goes to kbj.dense or kbj.mlp as `recipe`; README.md beside this
file says what a layer then computes.

Weights and gradients keep their dtype: only operands of products are FP8. A recipe is part of the compiled program: a frozen
value without arrays. What one step leaves for the next is a ScalingState, a pytree that the caller carries.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kbundle_kernels.matmul_activations import GATED, through_activation, wide_activated
from kbundle_kernels.quantize import E4M3, E5M2, fp8_dtype, quantize, update_fp8_scale
from kbundle_kernels.quantize_activation import quantize_activation
from kbundle.jax import _arguments, call
from kbundle.jax._primitive import varying

__all__ = ["CurrentScaling", "DelayedScaling", "Fp8Codes", "ScalingState"]

_LARGEST = {E4M3: 448.0, E5M2: 57344.0}


class Fp8Codes(NamedTuple):
    """A matrix [M, N] in FP8, both ways, as products on a GPU want it: each operand with the dim innermost over which is summed.
    The number that a code stands for is code * its scale. None of what a pass does not need."""
    data: jax.Array | None  # [M, N]
    scale: jax.Array | None  # f32[], or of blocks
    transposed: jax.Array | None  # [N, M]
    transposed_scale: jax.Array | None
    amax: jax.Array | None = None  # f32[]: the largest magnitude of the matrix; NaN where it has one; None with scales of blocks
    dbias: jax.Array | None = None  # [N]: the sums of its columns, in its dtype


class ScalingState(NamedTuple):
    """What delayed scaling remembers of one layer: of x and w, in this order, and of the gradient that comes back to it. A history is a
    ring as in kbj.update_fp8_scale. The derivative of a loss by a state is no gradient but the state of the next step."""
    history: jax.Array  # f32[2, L]
    scale: jax.Array  # f32[2]
    gradient_history: jax.Array  # f32[L]
    gradient_scale: jax.Array  # f32[]


class Want(NamedTuple):
    """What of a matrix the product before it needs."""
    data: bool = True
    transposed: bool = True
    dbias: bool = False


class Recipe:
    """What layers ask of any recipe: codes of x, of weights, of what an activation makes and of gradients (`x_codes`, `weights`,
    `activation_codes`, `gradient_codes`, `activation_gradient_codes`), the `product` of codes, and the codes of the gradient between
    two layers (`hidden_codes`)."""

    def weight_codes(self, w, state=None):
        """w[K, N] in FP8, as a layer quantizes it: what `codes` of kbj.dense takes, so that several microbatches of a step quantize
        weights once. state: the layer's, of recipes that have one."""
        self.check_state("weight_codes", state)
        return self.weights(jnp.asarray(w), state)

    def check_state(self, where, state):
        if state is not None:
            raise _arguments.refuse(where, "state", type(state).__name__, "None with %s, which has none" % type(self).__name__)

    def next_state(self, state, x_amax, w_amax, gradient_amax):
        return None

    def scale_shapes(self, shape):
        """Those of the scales of a weight of this shape, and of its transpose."""
        return (), ()

    def activation_gradient_codes(self, dy, z, activation, state, want=Want()):
        """The gradient in front of an activation of z, of the gradient dy behind it, in FP8."""
        return self.gradient_codes(through_activation(dy, z, activation), state, want)

    def hidden_codes(self, dy, w2, z, activation, state, want=Want()):
        """The same, of a layer with w2 behind it, at which dy arrives."""
        behind = self.product(dy.data, dy.scale, w2.data, w2.scale, z.dtype, 1)
        return self.activation_gradient_codes(behind, z, activation, state, want)

    def weight_gradient(self, x, dy, dtype):
        """x^T dy."""
        return self.product(x.transposed, x.transposed_scale, dy.transposed, dy.transposed_scale, dtype, 2)


@dataclasses.dataclass(frozen=True)
class _TensorScaling(Recipe):
    """One scale for each tensor: what the recipes below share.

    gradient_dtype: of the gradients that arrive at a layer; x and w are e4m3fn. fast_accumulation: whether sums may be kept with fewer
    bits, of the forward product, of the gradient by x, of that by w.
    """
    gradient_dtype: jnp.dtype = E5M2
    fast_accumulation: tuple[bool, bool, bool] = (True, False, False)

    def __post_init__(self):
        name = type(self).__name__
        object.__setattr__(self, "gradient_dtype", fp8_dtype(name, self.gradient_dtype))
        fast = self.fast_accumulation
        if not isinstance(fast, (tuple, list)) or len(fast) != 3:
            raise _arguments.refuse(name, "fast_accumulation", fast, "three flags: forward, gradient by x, gradient by w")
        object.__setattr__(self, "fast_accumulation", tuple(_arguments.flag(name, "fast_accumulation", one) for one in fast))

    def scale_of(self, tensor, state):
        """The scale of "x", "w" or "gradient"; None where it follows from the tensor."""
        return None

    def x_codes(self, x, state, want=Want()):
        return self._codes(x, self.scale_of("x", state), E4M3, want)

    def weights(self, w, state, want=Want()):
        return self._codes(w, self.scale_of("w", state), E4M3, want)

    def gradient_codes(self, dy, state, want=Want()):
        return self._codes(dy, self.scale_of("gradient", state), self.gradient_dtype, want)

    def _codes(self, x, scale, dtype, want):
        """x[M, N] in FP8 by a scale, None: that of its largest magnitude."""
        made = quantize(x, dtype, scale, rowwise=want.data, transposed=want.transposed, dbias=want.dbias)
        return Fp8Codes(made.data, made.scale_inv, made.transposed, made.scale_inv, made.amax, made.dbias)

    def activation_codes(self, z, activation, state, want=Want()):
        """activation(z) in FP8 without its lying in memory."""
        scale = self.scale_of("x", state)
        if scale is None:
            scale = current_scale(jnp.max(jnp.abs(wide_activated(z, activation))), E4M3)
        halves = z.reshape(z.shape[0], 2, -1) if activation in GATED else z
        made = quantize_activation(halves, activation, scale, rowwise=want.data, transposed=want.transposed)
        return Fp8Codes(made.data, made.scale_inv, made.transposed, made.scale_inv, made.amax)

    def product(self, a, a_scale, b, b_scale, out_dtype, which, bias=None, aux=None, epilogue="none"):
        """a[M, K] b[N, K]^T and its epilogue. which: 0 forward, 1 the gradient by x, 2 that by w."""
        inside = None if out_dtype == jnp.float32 else bias  # cuBLASLt adds one to 16-bit results alone
        operands = [a, b, None, inside, aux, None, a_scale, b_scale]
        d = call(None, "matmul.matmul", *operands, trans_b=True, out_dtype=out_dtype, fast_accumulation=self.fast_accumulation[which],
                 epilogue=epilogue)[0]
        return d if bias is None or inside is not None else d + bias

    def hidden_codes(self, dy, w2, z, activation, state, want=Want()):
        if activation == "gelu":  # made where the product lies
            made = self.product(dy.data, dy.scale, w2.data, w2.scale, z.dtype, 1, aux=z, epilogue="dgelu")
            return self.gradient_codes(made, state, want)
        return super().hidden_codes(dy, w2, z, activation, state, want)


@dataclasses.dataclass(frozen=True)
class CurrentScaling(_TensorScaling):
    """Each tensor by the scale that brings its own largest magnitude to the largest FP8 number: one read of it more than with
    DelayedScaling, and nothing to carry from step to step."""


@dataclasses.dataclass(frozen=True)
class DelayedScaling(_TensorScaling):
    """Each tensor by a scale from the largest magnitudes of the last steps, so that it is read once. That of the next step is
    largest FP8 number / a / 2^margin, where a is the largest of `history` steps, this one too (algorithm="max"), or of this one
    ("most_recent"); where a is 0 or not finite it stays. It begins at 1.

    A layer's state goes in as an argument, and comes back, a step older, as the derivative by it:

        (gradients, states) = jax.grad(loss, argnums=(0, 1))(parameters, states)

    One state belongs to one layer, used once in what is differentiated: derivatives of two uses would be added.
    """
    margin: int = 0
    history: int = 1024
    algorithm: str = "max"

    def __post_init__(self):
        super().__post_init__()
        name = "DelayedScaling"
        object.__setattr__(self, "margin", _arguments.integer(name, "margin", self.margin, -100, 100))
        object.__setattr__(self, "history", _arguments.integer(name, "history", self.history, 1, 1 << 20))
        _arguments.choice(name, "algorithm", self.algorithm, ("max", "most_recent"))

    def init(self):
        """The ScalingState of one layer before its first step."""
        zeros = jnp.zeros((3, self.history), jnp.float32)
        return ScalingState(zeros[:2], jnp.ones(2, jnp.float32), zeros[2], jnp.ones((), jnp.float32))

    def scale_of(self, tensor, state):
        return state.gradient_scale if tensor == "gradient" else state.scale["xw".index(tensor)]

    def check_state(self, where, state):
        wanted = [(2, self.history), (2,), (self.history,), ()]
        found = [jnp.shape(array) for array in state] if isinstance(state, ScalingState) else None
        if found != wanted:
            raise ValueError("%s: state is %s; with this DelayedScaling it must be a ScalingState, float32 of shapes %s: recipe.init() "
                             "makes the first" % (where, type(state).__name__ if found is None else "one of shapes %s" % found, wanted))
        if any(jnp.result_type(array) != jnp.float32 for array in state):
            raise TypeError("%s: the state's arrays are %s; they must be float32" % (where, [str(jnp.result_type(a)) for a in state]))

    def next_state(self, state, x_amax, w_amax, gradient_amax):
        x_amax, w_amax, gradient_amax = (_over_devices(one, state.scale) for one in (x_amax, w_amax, gradient_amax))
        how = dict(margin=self.margin, algorithm=self.algorithm)
        history, scale, _ = update_fp8_scale(state.history, jnp.stack([x_amax, w_amax]), state.scale, E4M3, **how)
        gradient_history, gradient_scale, _ = update_fp8_scale(state.gradient_history, gradient_amax, state.gradient_scale,
                                                               self.gradient_dtype, **how)
        return ScalingState(history, scale, gradient_history, gradient_scale)


def current_scale(largest, dtype):
    """The rule of the op quantize.per_tensor without a scale."""
    usable = jnp.isfinite(largest) & (largest > 0)
    return jnp.where(usable, jnp.minimum(_LARGEST[dtype] / jnp.where(usable, largest, 1), 2.0 ** 126), 1.0)


def _over_devices(largest, like):
    """The largest of all devices of a shard_map that share a state."""
    axes = tuple(sorted(varying(largest) - varying(like), key=str))
    return jax.lax.pmax(largest, axes) if axes else largest
