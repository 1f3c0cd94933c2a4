"""A whole layer of experts as one differentiable JAX function: kbj.moe, where kbj is kbundle.jax.

It is made of `route`, `permute`, `grouped_matmul` twice and `unpermute`, each with kernels and gradients of its own; what stands between
the two products is left to XLA, which makes one kernel of it. With a recipe the products are in FP8. How many experts a token has is part
of the compiled program; how many tokens an expert has is not, and no copy of a token is padded.
"""

import functools

import jax
import jax.numpy as jnp

from kbundle.jax import _arguments
from kbundle_kernels.grouped import grouped_matmul
from kbundle_kernels.grouped_scaled import layer_product
from kbundle_kernels.matmul_block_scaling import BlockScaling
from kbundle_kernels.permutation import permute, unpermute
from kbundle_kernels.router import moe_aux_loss, route, router_scores

__all__ = ["moe"]

_ACTIVATIONS = {"silu": jax.nn.silu, "gelu": jax.nn.gelu, "relu": jax.nn.relu}


def moe(x, router_logits, w_in, w_out, k, *, activation="silu", bias_in=None, bias_out=None, score_function="softmax",
        use_pre_softmax=False, expert_bias=None, num_groups=None, group_topk=None, scaling_factor=1.0, aux_loss_coefficient=None,
        axis_name=None, recipe=None):
    """Each token of x[..., D] through its k best of E experts, by router_logits[..., E], summed by what they weigh: y[..., D].

    An expert is w_out of activation of w_in. w_in is [E, D, F], or gated [E, D, 2 * F]: the activation of the first F columns times the
    others; w_out is [E, F, D]; bias_in and bias_out are theirs without the middle axis. activation: "silu" (gated: swiglu), "gelu" (by
    tanh) or "relu", or a function of an array, called in float32. The router is that of `route`, whose arguments go by the same names.

    With aux_loss_coefficient (y, loss): what `moe_aux_loss` says of `router_scores`. Gradients flow to x, router_logits, weights and
    biases. x, weights and biases are float32, float16 or bfloat16; sums are float32.

    axis_name: inside jax.shard_map, the axis along which experts are divided: w_in, w_out and biases are this device's, in the order of
    the axis, x and router_logits are whole on every device, and so is y, summed over the axis.

    recipe: None, or kbj.BlockScaling(), by which rows, what the activation makes, weights and the gradients of rows are rounded to FP8
    in front of the products, as fp8_grouped_matmul does it; the gradients by weights are products of what was not rounded. x and
    weights are then bfloat16 or float32; y has x's dtype, and weights may have another, such as the float32 of master weights.
    """
    x, w_in, w_out = (jnp.asarray(array) for array in (x, w_in, w_out))
    logits = _arguments.floats("moe", "router_logits", router_logits)
    if logits.dtype == jnp.float16:  # weights of rows are float32 or bfloat16
        logits = logits.astype(jnp.float32)
    devices = 1 if axis_name is None else jax.lax.axis_size(axis_name)
    gated = _check_shapes(x, logits, w_in, w_out, devices)
    apply, product = _activation(activation), _product(recipe, x, w_in, w_out)
    tokens, logits = _arguments.rows(x), _arguments.rows(logits)
    routing = route(logits, k, score_function=score_function, use_pre_softmax=use_pre_softmax, expert_bias=expert_bias,
                    num_groups=num_groups, group_topk=group_topk, scaling_factor=scaling_factor)
    if tokens.shape[0] == 1:  # every row is the token
        rows = jnp.broadcast_to(tokens, (k, tokens.shape[1]))
    else:
        rows = permute(tokens, None, tokens.shape[0] * k, row_id_map=routing.row_id_map)[0]
    sizes, first = routing.tokens_per_expert, None
    if axis_name is not None:  # this device's rows to the front; the others are of no group, and come out as 0
        begin = jax.lax.axis_index(axis_name) * w_in.shape[0]
        sizes = jax.lax.dynamic_slice_in_dim(sizes, begin, w_in.shape[0])
        first = routing.expert_offsets[begin]
        rows = jnp.roll(rows, -first, axis=0)
    hidden = product(rows, w_in, sizes, bias=bias_in)
    out = product(_between(hidden, apply, gated), w_out, sizes, bias=bias_out)
    if axis_name is not None:
        out = jnp.roll(out, first, axis=0)
    y = unpermute(out, routing.row_id_map, routing.weights).reshape(x.shape)
    if axis_name is not None:
        y = jax.lax.psum(y, axis_name)
    if aux_loss_coefficient is None:
        return y
    scores, _ = router_scores(logits, k, score_function=score_function, routing_map=None)
    return y, moe_aux_loss(scores, routing.tokens_per_expert, k, aux_loss_coefficient)


def _between(hidden, apply, gated):
    """What of the first product goes into the second, in its dtype."""
    wide = hidden.astype(jnp.float32)
    if gated:
        gate, value = jnp.split(wide, 2, axis=-1)
        return (apply(gate) * value).astype(hidden.dtype)
    return apply(wide).astype(hidden.dtype)


def _product(recipe, x, w_in, w_out):
    """grouped_matmul, or what it is with a recipe."""
    if recipe is None:
        return grouped_matmul
    if not isinstance(recipe, BlockScaling):
        raise _arguments.refuse("moe", "recipe", recipe, "None or a kbj.BlockScaling: one scale for a tensor is one for all experts' rows")
    for name, array in (("x", x), ("w_in", w_in), ("w_out", w_out)):
        if array.dtype not in (jnp.bfloat16, jnp.float32):
            raise TypeError("moe: %s is %s; with a recipe it must be bfloat16 or float32: convert it with astype" % (name, array.dtype))
    return functools.partial(layer_product, power_of_two=recipe.power_of_two, gradient_dtype=recipe.gradient_dtype)


def _activation(given):
    if callable(given):
        return given
    return _ACTIVATIONS[_arguments.choice("moe", "activation", given, tuple(_ACTIVATIONS))]


def _check_shapes(x, logits, w_in, w_out, devices):
    """Whether w_in is gated."""
    if x.ndim < 1 or w_in.ndim != 3 or w_out.ndim != 3 or w_in.shape[1] != x.shape[-1]:
        raise ValueError("moe: x has shape %s, w_in %s and w_out %s; they must be [..., D], [E, D, F or 2 * F] and [E, F, D]"
                         % (x.shape, w_in.shape, w_out.shape))
    experts, depth = w_in.shape[0], w_out.shape[1]
    if w_out.shape != (experts, depth, x.shape[-1]) or w_in.shape[2] not in (depth, 2 * depth):
        raise ValueError("moe: w_in has shape %s and w_out %s; for x of shape %s they must be [E, %d, F or 2 * F] and [E, F, %d]"
                         % (w_in.shape, w_out.shape, x.shape, x.shape[-1], x.shape[-1]))
    if logits.shape != (*x.shape[:-1], experts * devices):
        raise ValueError("moe: router_logits has shape %s; for x of shape %s and %d experts%s it must be %s"
                         % (logits.shape, x.shape, experts * devices, "" if devices == 1 else " on %d devices" % devices,
                            (*x.shape[:-1], experts * devices)))
    return w_in.shape[2] == 2 * depth
