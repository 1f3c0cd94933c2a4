"""Cross entropy as differentiable JAX functions: kbj.cross_entropy and kbj.cross_entropy_with_gradient, where kbj is kbundle.jax.

They run the ops of the first bundle that has them (kbundle.bundles). What each op means, corner cases included, is in
README.md beside this file. Numbers other than arrays are part of the compiled program: Python values, never traced ones.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from kbundle.jax import _arguments, call
from kbundle.jax._primitive import like, placed
from kbundle_kernels import cross_entropy_formulas as formulas

__all__ = ["cross_entropy", "cross_entropy_with_gradient"]

_REDUCTIONS = ("mean", "sum", "none")


def cross_entropy(logits, labels, *, label_smoothing=0.0, ignore_index=-100, z_loss=0.0, reduction="mean"):
    """The cross entropy of logits[.., V] (float32, float16 or bfloat16) against integer labels[..], in float32:

        (1 - label_smoothing) * (lse - logits[label]) + label_smoothing * (lse - mean(logits)) + z_loss * lse ** 2

    with lse = log(sum(exp(logits))). Where a label is ignore_index the loss and the gradient are 0; any other label that is not
    in [0, V) makes them NaN. reduction: "mean" over the rows that are not ignored (0 if all are), "sum", or "none": a loss for
    every row. Names, defaults and meaning are those of torch.nn.functional.cross_entropy, but that all rows may be ignored;
    with reduction="none" and no label to ignore it is optax.softmax_cross_entropy_with_integer_labels.
    """
    logits, labels, how = checked("cross_entropy", logits, labels, label_smoothing, ignore_index, z_loss)
    reduction = _arguments.choice("cross_entropy", "reduction", reduction, _REDUCTIONS)
    logits, labels = placed(None, "cross_entropy.loss_forward", logits, labels, **how)
    loss = _loss(logits, labels, tuple(how.items()))
    return reduced(loss, labels, how["ignore_index"], reduction)


def cross_entropy_with_gradient(logits, labels, dloss=None, *, label_smoothing=0.0, ignore_index=-100, z_loss=0.0,
                                reduction="mean", in_place=False):
    """(loss, dlogits): what cross_entropy gives, and dloss times its gradient with respect to the logits, in one read of the
    logits and one write. For who knows that gradient beforehand: where the loss is the end of the computation, dloss is 1, the
    default. With reduction="none" it may also have a number for every row. in_place: the gradient takes the memory of the
    logits, which a caller who has no other use for them should ask for. Has no derivative itself.
    """
    where = "cross_entropy_with_gradient"
    logits, labels, how = checked(where, logits, labels, label_smoothing, ignore_index, z_loss)
    reduction = _arguments.choice(where, "reduction", reduction, _REDUCTIONS)
    in_place = _arguments.flag(where, "in_place", in_place)
    logits, labels = placed(None, "cross_entropy.loss_forward", logits, labels, **how)
    dloss = jnp.asarray(1.0 if dloss is None else dloss, jnp.float32)
    if dloss.shape != () and (reduction != "none" or dloss.shape != labels.shape):
        raise ValueError("%s: dloss has shape %s; it must be a number%s" % (where, dloss.shape, "" if reduction != "none" else
                         ", or have the labels' shape %s" % (labels.shape,)))
    each = jnp.broadcast_to(dloss * share(labels, how["ignore_index"], reduction), labels.shape)
    op = "cross_entropy.loss_and_gradient_in_place" if in_place else "cross_entropy.loss_and_gradient"
    loss, _, dlogits = call(None, op, logits, labels, each, formula=formulas.loss_and_gradient, **how)
    return reduced(loss, labels, how["ignore_index"], reduction), dlogits


def checked(where, logits, labels, label_smoothing, ignore_index, z_loss):
    """Arrays as the ops take them, and their attributes."""
    logits, labels = _arguments.floats(where, "logits", logits), jnp.asarray(labels)
    if logits.ndim < 1 or logits.shape[-1] < 1 or labels.shape != logits.shape[:-1]:
        raise ValueError("%s: labels have shape %s; for logits of shape %s, whose last axis is the vocabulary and not empty, they "
                         "must have the shape of the other axes" % (where, labels.shape, logits.shape))
    return logits, *checked_labels(where, labels, label_smoothing, ignore_index, z_loss)


def checked_labels(where, labels, label_smoothing, ignore_index, z_loss):
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise TypeError("%s: labels are %s; they must be integers; for a distribution over the vocabulary use a formula"
                        % (where, labels.dtype))
    how = {"label_smoothing": _arguments.number(where, "label_smoothing", label_smoothing, least=0.0, most=1.0),
           "z_loss": _arguments.number(where, "z_loss", z_loss, least=0.0),
           "ignore_index": _arguments.integer(where, "ignore_index", ignore_index, least=-2**31, most=2**31 - 1)}
    return _labels(labels), how


def _labels(labels):
    """Labels as the ops take them. Those of uint32 and uint64 that int32 has no room for become one that is wrong everywhere."""
    if labels.dtype in (jnp.int32, jnp.int64):
        return labels
    limits = np.iinfo(labels.dtype)
    if limits.max >= 2**31:
        labels = jnp.minimum(labels, np.asarray(2**31 - 1, labels.dtype))
    return labels.astype(jnp.int32)


def share(labels, ignore_index, reduction):
    """What every row's loss is multiplied by in the reduced one."""
    if reduction != "mean":
        return jnp.float32(1.0)
    return 1.0 / jnp.maximum(jnp.sum(labels != ignore_index, dtype=jnp.float32), 1.0)


def reduced(loss, labels, ignore_index, reduction):
    """By jnp, not by the ops that give one loss: XLA makes one kernel of it and of what comes behind, rows may lie on several devices, and
    under vmap it is no loop."""
    if reduction != "mean":
        return loss if reduction == "none" else jnp.sum(loss)
    both = jnp.stack([loss, (labels != ignore_index).astype(loss.dtype)])  # one sum, not two
    total, count = jnp.sum(both, axis=tuple(range(1, both.ndim)))
    return total / jnp.maximum(count, 1.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _loss(logits, labels, how):
    return call(None, "cross_entropy.loss_forward", logits, labels, formula=formulas.loss_forward, **dict(how))[0]


def _loss_forward(logits, labels, how):
    loss, lse = call(None, "cross_entropy.loss_forward", logits, labels, formula=formulas.loss_forward, **dict(how))
    return loss, (logits, labels, lse)


def _loss_backward(how, saved, dloss):
    logits, labels, lse = saved
    dlogits = call(None, "cross_entropy.loss_backward", logits, labels, lse, dloss, formula=formulas.loss_backward, **dict(how))
    return like(dlogits, logits), None


_loss.defvjp(_loss_forward, _loss_backward)
