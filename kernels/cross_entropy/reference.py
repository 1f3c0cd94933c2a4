"""Float64 references of the cross-entropy ops: what each op means. Infinities and NaN follow from the formulas.

Attributes count as their float32 values, as the kernels receive them. Rows whose label is ignored are not looked at: loss,
lse and gradient are 0. A label that is neither ignored nor a column makes loss and gradient NaN.
"""

import numpy as np


def _label(labels, V, ignore_index):
    """The column that each row's label names (0 where it names none), whether it is ignored, whether it is wrong."""
    ignored = labels == ignore_index
    wrong = ~ignored & ((labels < 0) | (labels >= V))
    return np.where(ignored | wrong, 0, labels).astype(np.int64), ignored, wrong


def _log_sum_exp(logits):
    top = np.max(logits, axis=-1, keepdims=True, where=~np.isnan(logits), initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    return np.log(np.sum(np.exp(logits - top), axis=-1)) + top[..., 0]


def loss_forward(logits, labels, *, label_smoothing=0.0, z_loss=0.0, ignore_index=-100):
    """loss and lse."""
    e, z = np.float64(np.float32(label_smoothing)), np.float64(np.float32(z_loss))
    column, ignored, wrong = _label(labels, logits.shape[-1], ignore_index)
    with np.errstate(all="ignore"):
        lse = _log_sum_exp(logits)
        loss = (1 - e) * (lse - np.take_along_axis(logits, column[..., None], -1)[..., 0])
        loss = loss + e * (lse - np.mean(logits, axis=-1)) if e else loss
        loss = loss + z * lse * lse if z else loss
    return np.where(ignored, 0.0, np.where(wrong, np.nan, loss)), np.where(ignored, 0.0, lse)


def loss_backward(logits, labels, lse, dloss, *, label_smoothing=0.0, z_loss=0.0, ignore_index=-100):
    """dlogits."""
    e, z = np.float64(np.float32(label_smoothing)), np.float64(np.float32(z_loss))
    column, ignored, wrong = _label(labels, logits.shape[-1], ignore_index)
    with np.errstate(all="ignore"):
        p = np.exp(logits - lse[..., None])
        d = p * (1 + 2 * z * lse[..., None] if z else 1.0) - e / logits.shape[-1]
        d = (d - (1 - e) * (np.arange(logits.shape[-1]) == column[..., None])) * dloss[..., None]
    return np.where(ignored[..., None], 0.0, np.where(wrong[..., None], np.nan, d))


def loss_and_gradient(logits, labels, dloss=None, **how):
    """loss, lse, dlogits."""
    loss, lse = loss_forward(logits, labels, **how)
    dloss = np.ones(labels.shape) if dloss is None else dloss
    return loss, lse, loss_backward(logits, labels, lse, dloss, **how)


loss_and_gradient_in_place = loss_and_gradient


def _share(labels, reduction, ignore_index):
    return 1 / max(1, np.count_nonzero(labels != ignore_index)) if reduction == "mean" else None


def reduced_forward(logits, labels, *, reduction="mean", ignore_index=-100, **how):
    """loss, lse, share: 1 / the number of rows that are not ignored, which the sum is multiplied by in the mean."""
    loss, lse = loss_forward(logits, labels, ignore_index=ignore_index, **how)
    share = _share(labels, reduction, ignore_index)
    return np.sum(loss) * (1 if share is None else share), lse, share


def reduced_backward(logits, labels, lse, dloss, share=None, **how):
    """dlogits."""
    return loss_backward(logits, labels, lse, np.full(labels.shape, dloss * (1 if share is None else share)), **how)


def reduced_and_gradient(logits, labels, dloss=None, *, reduction="mean", ignore_index=-100, **how):
    """loss, lse, share, dlogits."""
    loss, lse, share = reduced_forward(logits, labels, reduction=reduction, ignore_index=ignore_index, **how)
    return loss, lse, share, reduced_backward(logits, labels, lse, 1 if dloss is None else dloss, share, ignore_index=ignore_index, **how)


def make_inputs(op, problem, seed):
    """Logits whose log-sum-exp is 2 at least on either side of 0, labels that are columns but for some that are ignored, that
    log-sum-exp, and gradients of no particular size. A label's probability is small: else a short row is nothing but what rounding
    leaves of 1 - 1, as a log-sum-exp near 0 is what it leaves of the largest logit and the logarithm of the sum."""
    rng = np.random.default_rng(seed)
    dims, ignore_index = problem["logits"], problem.get("ignore_index", -100)
    logits, lse = 3 * rng.standard_normal(dims), 5 * rng.standard_normal(dims[:-1])
    logits += (np.where(lse < 0, lse - 2, lse + 2) - _log_sum_exp(logits))[..., None]
    labels = np.argmin(logits[..., :4096], axis=-1)
    labels = np.where(rng.random(dims[:-1]) < 0.1, ignore_index, labels)
    more = 0.5 if dims[-1] < 4 else 0.0  # with a column or two the label's is not small
    lse = np.where(labels == ignore_index, 0.0, _log_sum_exp(logits) + more)
    share = _share(labels, "mean", ignore_index)
    return {"logits": logits, "labels": labels, "lse": lse, "dloss": 0.25 + rng.random(problem.get("dloss", ())), "share": share}
