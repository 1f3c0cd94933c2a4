"""Losses of few logits, and their gradients, as formulas for XLA (kbundle.jax._formula). A gradient by itself is a function of each logit
alone once log-sum-exp is there, which XLA makes a kernel of as good as any, together with what is around it.
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


def _sums(logits):
    """Of each row the largest logit, 0 where that is no number, and log-sum-exp without it."""
    wide = logits.astype(jnp.float32)
    top = wide.max(-1)
    top = jnp.where(jnp.isfinite(top), top, np.float32(0))
    return top, jnp.log(jnp.exp(wide - top[..., None]).sum(-1))


def _losses(logits, labels, top, rest, smoothing, z, ignore_index):
    """The loss of each row, and log-sum-exp."""
    ignored, wrong, column = _label(labels, logits.shape[-1], ignore_index)
    wide, none = logits.astype(jnp.float32), np.float32(0)
    own = jnp.take_along_axis(wide, column[..., None], -1)[..., 0]
    loss = (1 - smoothing) * (rest + (top - own))
    if smoothing:
        loss = loss + smoothing * (rest + (top[..., None] - wide).mean(-1))
    lse = rest + top
    if z:
        loss = loss + z * lse * lse
    return jnp.where(ignored, none, jnp.where(wrong, np.float32(np.nan), loss)), jnp.where(ignored, none, lse)


def _gradient(logits, labels, share, lse, dloss, smoothing, z, ignore_index):
    """share: of each logit in its row's sum of exponentials."""
    V = logits.shape[-1]
    ignored, wrong, column = (array[..., None] for array in _label(labels, V, ignore_index))
    d = share
    if z:
        d = d * (1 + 2 * z * lse[..., None])
    if smoothing:
        d = d - smoothing / np.float32(V)
    at = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) == column
    d = (d - jnp.where(at, 1 - smoothing, np.float32(0))) * dloss[..., None]
    return jnp.where(ignored, np.float32(0), jnp.where(wrong, np.float32(np.nan), d)).astype(logits.dtype)


@formula(few_bytes(MOST_FORWARD))
def loss_forward(logits, labels, *, label_smoothing=0.0, z_loss=0.0, ignore_index=-100):
    return _losses(logits, labels, *_sums(logits), np.float32(label_smoothing), np.float32(z_loss), ignore_index)


@formula(few_bytes(MOST_BACKWARD))
def loss_backward(logits, labels, lse, dloss, *, label_smoothing=0.0, z_loss=0.0, ignore_index=-100):
    share = jnp.exp(logits.astype(jnp.float32) - lse[..., None])
    return [_gradient(logits, labels, share, lse, dloss, np.float32(label_smoothing), np.float32(z_loss), ignore_index)]


@formula(few_bytes(MOST_FORWARD))
def loss_and_gradient(logits, labels, dloss, *, label_smoothing=0.0, z_loss=0.0, ignore_index=-100):
    smoothing, z = np.float32(label_smoothing), np.float32(z_loss)
    top, rest = _sums(logits)
    loss, lse = _losses(logits, labels, top, rest, smoothing, z, ignore_index)
    share = jnp.exp(logits.astype(jnp.float32) - top[..., None] - rest[..., None])  # of large logits more digits than lse has
    return loss, lse, _gradient(logits, labels, share, lse, dloss, smoothing, z, ignore_index)
