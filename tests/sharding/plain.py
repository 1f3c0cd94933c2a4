"""Norms and losses of plain JAX, in float32, for programs whose shards are compared with it."""

import jax
import jax.numpy as jnp


def plain_norm(x, gamma, beta=0.0, residual=None, layer=False, epsilon=1e-6):
    """With a residual: the norm's result and the sum that it was taken of, added."""
    x, gamma = x.astype(jnp.float32), gamma.astype(jnp.float32)
    x = x if residual is None else x + residual
    centered = x - x.mean(-1, keepdims=True) if layer else x
    y = centered * jax.lax.rsqrt((centered * centered).mean(-1, keepdims=True) + epsilon) * gamma + beta
    return y if residual is None else y + x


def plain_loss(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0].mean()
