"""The softmax ops as differentiable JAX functions: kbj.scaled_softmax, kbj.scaled_masked_softmax,
kbj.scaled_causal_softmax, where kbj is kbundle.jax.

They run the ops of the first bundle that has them (kbundle.bundles). What each op means, corner cases included, is in
README.md beside this file. `scale` is part of the compiled program: a Python number, never a traced one.
"""

import functools
import math

import jax
import jax.numpy as jnp

from kbundle.jax import _arguments, call
from kbundle.jax._primitive import placed
from kbundle_kernels import softmax_formulas

__all__ = ["scaled_causal_softmax", "scaled_masked_softmax", "scaled_softmax"]


def scaled_softmax(x, scale=1.0):
    """softmax(scale * x) over the last axis, computed in float32."""
    scale = _arguments.number("scaled_softmax", "scale", scale)
    return _plain(*placed(None, "softmax.scaled_forward", _arguments.floats("scaled_softmax", "x", x), scale=scale), scale)


def scaled_causal_softmax(x, scale=1.0):
    """softmax(scale * x) of x[..., Q, K] over the keys k <= q of each query q, 0 above the diagonal. Q must
    equal K."""
    scale = _arguments.number("scaled_causal_softmax", "scale", scale)
    return _causal(*placed(None, "softmax.scaled_causal_forward", _arguments.floats("scaled_causal_softmax", "x", x), scale=scale), scale)


def scaled_masked_softmax(x, mask, scale=1.0):
    """softmax(scale * x) over the last axis of x[..., Q, K], with logits of -10000 where mask is not 0; a row
    that is masked throughout becomes 0. mask broadcasts against x as NumPy's rules say."""
    x, mask = _arguments.floats("scaled_masked_softmax", "x", x), _arguments.real("scaled_masked_softmax", "mask", mask)
    scale = _arguments.number("scaled_masked_softmax", "scale", scale)
    if x.ndim < 2:
        raise ValueError("scaled_masked_softmax: x has shape %s; it needs at least the axes Q and K"
                         % (x.shape,))
    if mask.dtype not in (jnp.bool_, jnp.uint8):
        mask = mask != 0
    lead, tail = x.shape[:-2], x.shape[-2:]
    operands = x.reshape(_two(lead) + tail), _four_axes(mask, lead, tail)
    y = _masked(*placed(None, "softmax.scaled_masked_forward", *operands, scale=scale), scale)
    return y.reshape(x.shape)


def _two(lead):
    """Any number of leading dims as two: all but the last one joined."""
    lead = (1,) * (2 - len(lead)) + tuple(lead)
    return (math.prod(lead[:-1]), lead[-1])


def _four_axes(mask, lead, tail):
    """mask[B or 1, H or 1, Q, K], repeated only where the op cannot take a 1."""
    dims = (1,) * (len(lead) + 2 - mask.ndim) + mask.shape
    batch, heads = dims[:-2][:-1], dims[:-2][-1:]
    if any(dim != 1 for dim in batch):  # dims that are joined are all there or all 1
        batch = lead[:-1]
    return jnp.broadcast_to(mask, batch + heads + tail).reshape(_two(batch + heads) + tail)


def _call(op, *operands, scale):
    return call(None, "softmax." + op, *operands, formula=getattr(softmax_formulas, op), scale=scale)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _plain(x, scale):
    return _call("scaled_forward", x, scale=scale)


def _plain_forward(x, scale):
    y = _plain(x, scale)
    return y, y


def _plain_backward(scale, y, dy):
    return (_call("scaled_backward", dy, y, scale=scale),)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _causal(x, scale):
    return _call("scaled_causal_forward", x, scale=scale)


def _causal_forward(x, scale):
    y = _causal(x, scale)
    return y, y


def _causal_backward(scale, y, dy):
    return (_call("scaled_causal_backward", dy, y, scale=scale),)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _masked(x, mask, scale):
    return _call("scaled_masked_forward", x, mask, scale=scale)


def _masked_forward(x, mask, scale):
    y = _masked(x, mask, scale)
    return y, y


def _masked_backward(scale, y, dy):
    return _call("scaled_masked_backward", dy, y, scale=scale), None


_plain.defvjp(_plain_forward, _plain_backward)
_causal.defvjp(_causal_forward, _causal_backward)
_masked.defvjp(_masked_forward, _masked_backward)
