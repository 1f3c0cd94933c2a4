"""Losses of few logits, and their gradients, as formulas for XLA (kbundle.jax._formula). The gradient is a function of each logit alone once
log-sum-exp is there, which XLA makes a kernel of as good as any, together with what is around it.
"""

import jax
import jax.numpy as jnp
import numpy as np

from kbundle.jax._formula import few_bytes, formula

__all__ = []
MOST_FORWARD, MOST_BACKWARD = 4 << 20, 16 << 20  # bytes of the logits, by measurement on an H200


def _label(labels, V, ignore_index):
    """Whether each row is ignored, whether its label is wrong, and a column that is there."""
    ignored = labels == ignore_index
    wrong = ~ignored & ((labels < 0) | (labels >= V))
    return ignored, wrong, jnp.clip(labels, 0, V - 1).astype(jnp.int32)


@formula(few_bytes(MOST_FORWARD))
def loss_forward(logits, labels, *, label_smoothing=0.0, z_loss=0.0, ignore_index=-100):
    smoothing, z = np.float32(label_smoothing), np.float32(z_loss)
    ignored, wrong, column = _label(labels, logits.shape[-1], ignore_index)
    wide = logits.astype(jnp.float32)
    top = wide.max(-1)
    top = jnp.where(jnp.isfinite(top), top, np.float32(0))
    rest = jnp.log(jnp.exp(wide - top[..., None]).sum(-1))  # log-sum-exp without the largest logit
    lse = rest + top
    own = jnp.take_along_axis(wide, column[..., None], -1)[..., 0]
    loss = (1 - smoothing) * (rest + (top - own))
    if smoothing:
        loss = loss + smoothing * (rest + (top[..., None] - wide).mean(-1))
    if z:
        loss = loss + z * lse * lse
    none = np.float32(0)
    return jnp.where(ignored, none, jnp.where(wrong, np.float32(np.nan), loss)), jnp.where(ignored, none, lse)


@formula(few_bytes(MOST_BACKWARD))
def loss_backward(logits, labels, lse, dloss, *, label_smoothing=0.0, z_loss=0.0, ignore_index=-100):
    V, smoothing, z = logits.shape[-1], np.float32(label_smoothing), np.float32(z_loss)
    ignored, wrong, column = (array[..., None] for array in _label(labels, V, ignore_index))
    lse = lse[..., None]
    d = jnp.exp(logits.astype(jnp.float32) - lse)
    if z:
        d = d * (1 + 2 * z * lse)
    if smoothing:
        d = d - smoothing / np.float32(V)
    at = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) == column
    d = (d - jnp.where(at, 1 - smoothing, np.float32(0))) * dloss[..., None]
    return [jnp.where(ignored, np.float32(0), jnp.where(wrong, np.float32(np.nan), d)).astype(logits.dtype)]
