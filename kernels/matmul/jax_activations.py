"""What stands between two products: an activation, or a gated one, which takes both halves of what the first product makes. For kbj.mlp and
for the recipes, as formulas that XLA makes one kernel of; where an epilogue or an op does the same, that is used in their place.
"""

import functools

import jax
import jax.numpy as jnp

__all__ = []

PLAIN = {"relu": jax.nn.relu, "gelu": jax.nn.gelu}
GATED = {"swiglu": jax.nn.silu, "geglu": jax.nn.gelu, "reglu": jax.nn.relu}  # of the first half, times the second


def width(activation, features):
    """How many columns are left of `features` columns."""
    return features // 2 if activation in GATED else features


def wide_activated(z, activation):
    """The activation of z[.., N], N columns or half as many, in float32."""
    z = z.astype(jnp.float32)
    if activation in GATED:
        first, second = jnp.split(z, 2, -1)
        return GATED[activation](first) * second
    return PLAIN[activation](z)


def activated(z, activation):
    """The same, rounded to z's dtype; None leaves z as it is."""
    return z if activation is None else wide_activated(z, activation).astype(z.dtype)


def through_activation(dy, z, activation):
    """The gradient in front of an activation of z."""
    if activation is None:
        return dy
    wide, dy = z.astype(jnp.float32), dy.astype(jnp.float32)
    if activation in GATED:
        _, pull = jax.vjp(lambda first, second: GATED[activation](first) * second, *jnp.split(wide, 2, -1))
        return jnp.concatenate(pull(dy), -1).astype(z.dtype)
    return jax.vjp(PLAIN[activation], wide)[1](dy)[0].astype(z.dtype)


def positive(mask, columns):
    """What a mask of bits of the op matmul says of so many columns, as booleans."""
    bits = (mask[..., None] >> jnp.arange(8, dtype=jnp.uint8)) & 1
    return bits.reshape(mask.shape[:-1] + (-1,))[..., :columns] != 0


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def gate(z, activation):
    """A gated activation of z that leaves z alone to its backward pass, in z's dtype, and no float32 beside it."""
    return activated(z, activation)


gate.defvjp(lambda z, activation: (activated(z, activation), z), lambda activation, z, dy: (through_activation(dy, z, activation),))
