"""Cross entropy as functions of PyTorch, with gradients: kbt.cross_entropy and kbt.cross_entropy_with_gradient, where kbt is kbundle.torch.
They mean what they mean for JAX; README.md beside this file says it, corner cases included.
"""

import torch

from kbundle.torch import Derivative, call, shortcut

__all__ = ["cross_entropy", "cross_entropy_with_gradient"]

DERIVATIVES = {"cross_entropy.%s_forward" % kind: Derivative("cross_entropy.%s_backward" % kind) for kind in ("loss", "reduced")}
REDUCTIONS = ("mean", "sum", "none")


@shortcut()
def cross_entropy(logits, labels, *, label_smoothing=0.0, ignore_index=-100, z_loss=0.0, reduction="mean"):
    """The cross entropy of logits[.., V] (float32, float16 or bfloat16) against integer labels[..], in float32:

        (1 - label_smoothing) * (lse - logits[label]) + label_smoothing * (lse - mean(logits)) + z_loss * lse ** 2

    with lse = log(sum(exp(logits))). Where a label is ignore_index the loss and the gradient are 0; any other label that is not in [0, V)
    makes them NaN. reduction: "mean" over the rows that are not ignored (0 if all are), "sum", or "none": a loss for every row. Names,
    defaults and meaning are those of torch.nn.functional.cross_entropy, but that classes are the last axis, that all rows may be ignored,
    and that the loss is float32. Gradients flow to logits."""
    labels = _checked("cross_entropy", logits, labels, reduction, label_smoothing, z_loss)
    how = {"label_smoothing": label_smoothing, "z_loss": z_loss, "ignore_index": ignore_index}
    if reduction == "none":
        return call(None, "cross_entropy.loss_forward", logits, labels, **how)[0]
    return call(None, "cross_entropy.reduced_forward", logits, labels, reduction=reduction, **how)[0]


@shortcut()
def cross_entropy_with_gradient(logits, labels, dloss=None, *, label_smoothing=0.0, ignore_index=-100, z_loss=0.0, reduction="mean"):
    """(loss, dlogits): what cross_entropy gives, and dloss times its gradient with respect to the logits, in one read of the logits and one
    write. For who knows that gradient beforehand: where the loss is the end of the computation, dloss is 1, the default. With
    reduction="none" it may also have a number for every row. Has no derivative itself."""
    where = "cross_entropy_with_gradient"
    labels = _checked(where, logits, labels, reduction, label_smoothing, z_loss)
    how = {"label_smoothing": label_smoothing, "z_loss": z_loss, "ignore_index": ignore_index}
    if dloss is not None:
        dloss = torch.as_tensor(dloss, dtype=torch.float32, device=logits.device)
        if dloss.dim() != 0 and (reduction != "none" or dloss.shape != labels.shape):
            raise ValueError("%s: dloss has shape %s; it must be a number%s" % (
                where, tuple(dloss.shape), "" if reduction != "none" else ", or have the labels' shape %s" % (tuple(labels.shape),)))
    if reduction != "none":
        loss, _, _, dlogits = call(None, "cross_entropy.reduced_and_gradient", logits, labels, dloss, reduction=reduction, **how)
    else:
        each = dloss if dloss is None or dloss.shape == labels.shape else dloss.expand(labels.shape)
        loss, _, dlogits = call(None, "cross_entropy.loss_and_gradient", logits, labels, each, **how)
    return loss, dlogits


def _checked(where, logits, labels, reduction, label_smoothing, z_loss):
    """The labels as the ops take them."""
    check_labels(where, labels, reduction, label_smoothing, z_loss)
    if logits.dim() < 1 or labels.shape != logits.shape[:-1]:
        raise ValueError("%s: labels have shape %s; for logits of shape %s, whose last axis is the vocabulary, they must have the shape of "
                         "the other axes" % (where, tuple(labels.shape), tuple(logits.shape)))
    return labels_of(labels)


def check_labels(where, labels, reduction, label_smoothing, z_loss):
    if not (0 <= label_smoothing <= 1 and 0 <= z_loss < float("inf")):
        raise ValueError("%s: label_smoothing is %r and z_loss %r; the first must be a number from 0 to 1, the second one from 0"
                         % (where, label_smoothing, z_loss))
    if reduction not in REDUCTIONS:
        raise ValueError("%s: reduction is %r; it must be 'mean', 'sum' or 'none'" % (where, reduction))
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise TypeError("%s: labels are %s; they must be integers; for a distribution over the vocabulary use a formula" % (where, labels.dtype))


def labels_of(labels):
    """Labels as the ops take them: int32 or int64. One of uint64 that int64 has no room for is wrong everywhere, not another one."""
    if labels.dtype in (torch.int32, torch.int64):
        return labels
    if labels.dtype != torch.uint64:
        return labels.to(torch.int64)
    wide = labels.view(torch.int64)
    return torch.where(wide < 0, 2**63 - 1, wide)
