"""The cross entropy of a linear layer's result, without that result: kbt.linear_cross_entropy, where kbt is kbundle.torch.

Logits of a large vocabulary are the largest tensor of a model by far. Here they exist for some rows at a time: a chunk of rows is multiplied
with the weight, its logits become their gradient, and two more products add what they give to the gradients of hidden and weight. So there
are three products, as without chunks, and no logit is computed twice.
"""

import math

import torch

from kbundle.torch import call
from kbundle_kernels.pytorch.cross_entropy import check_labels, labels_of
from kbundle_kernels.pytorch.matmul import precision_of

__all__ = ["linear_cross_entropy"]

_CHUNK_BYTES = 256 << 20
_ALIGNED_ROWS, _ALIGNMENT = 256, 64  # rows of a chunk from which columns are added, until they are a multiple


def linear_cross_entropy(hidden, weight, labels, *, label_smoothing=0.0, ignore_index=-100, z_loss=0.0, reduction="mean",
                         vocabulary_last=False, chunk_rows=None, accumulate=torch.float32):
    """cross_entropy(hidden[.., D] @ weight[V, D].T, labels[..], ...), of which see `cross_entropy`, with no more than chunk_rows rows of
    logits and of their gradient in memory at a time; weight is [D, V] if vocabulary_last. chunk_rows is by default as many as take
    256 MiB each.

    Logits have the dtype of hidden (float32, float16 or bfloat16), and so has weight in the products. Gradients have the dtypes of hidden and
    weight. That of weight is summed over the chunks in `accumulate`: float32, or for less memory and with a rounding for each chunk hidden's
    own dtype. Where rows of logits would be no multiple of 16 bytes, as of 50257 columns, chunks of 256 rows and more are made with a copy of
    weight that has columns behind it, which takes products half the time; not with label smoothing. With "mean" and "sum" gradients are
    computed with the loss, where they are wanted; with "none" backwards, from logits that are computed again."""
    where = "linear_cross_entropy"
    check_labels(where, labels, reduction, label_smoothing, z_loss)
    vocabulary, depth = reversed(weight.shape) if vocabulary_last and weight.dim() == 2 else (*weight.shape, None, None)[:2]
    if weight.dim() != 2 or hidden.dim() < 1 or hidden.shape[-1] != depth or 0 in weight.shape:
        raise ValueError("%s: hidden has shape %s and weight %s; they must be [.., D] and %s, and the weight not empty" % (
            where, tuple(hidden.shape), tuple(weight.shape), "[D, V]" if vocabulary_last else "[V, D] (or [D, V] with vocabulary_last=True)"))
    if labels.shape != hidden.shape[:-1]:
        raise ValueError("%s: labels have shape %s; for hidden of shape %s they must have %s"
                         % (where, tuple(labels.shape), tuple(hidden.shape), tuple(hidden.shape[:-1])))
    if accumulate not in (torch.float32, hidden.dtype):
        raise ValueError("%s: accumulate is %s; it must be torch.float32, or hidden's dtype %s" % (where, accumulate, hidden.dtype))
    if chunk_rows is not None and not (isinstance(chunk_rows, int) and chunk_rows >= 1):
        raise ValueError("%s: chunk_rows is %r; it must be None or an integer, 1 or more" % (where, chunk_rows))
    flat, rows = labels_of(labels).reshape(-1), hidden.reshape(-1, depth)
    if chunk_rows is None:
        chunk_rows = max(128, _CHUNK_BYTES // (vocabulary * hidden.dtype.itemsize) // 128 * 128)
    attributes = {"label_smoothing": label_smoothing, "z_loss": z_loss, "ignore_index": ignore_index}
    how = _How(chunk_rows, bool(vocabulary_last), accumulate, precision_of(where, hidden, None), attributes)
    if reduction == "none":
        return _Each.apply(rows, weight, flat, how).reshape(labels.shape)
    # torch.func takes no gradients that are made before they are asked for
    total = _Each.apply(rows, weight, flat, how).sum() if torch._C._are_functorch_transforms_active() else _Total.apply(rows, weight, flat, how)
    return total if reduction == "sum" else total / (flat != ignore_index).sum().clamp_(min=1)


class _How:
    """What of a call are no tensors, and its products."""

    def __init__(self, chunk_rows, last, accumulate, precision, attributes):
        self.chunk_rows, self.last, self.accumulate, self.precision, self.attributes = chunk_rows, last, accumulate, precision, attributes

    def product(self, a, b, c=None, bias=None, out_dtype=None, **trans):
        more = {} if c is None else {"beta": 1.0}
        return call(None, "matmul.matmul", a, b, c, bias, out_dtype=out_dtype or a.dtype, precision=self.precision, **trans, **more)[0]

    def chunks(self, hidden):
        """Slices of all rows."""
        return [slice(first, first + self.chunk_rows) for first in range(0, hidden.shape[0], self.chunk_rows)]


class _Vocabulary:
    """What logits are made with: the weight in hidden's dtype, and columns behind it where rows of logits would not be aligned, which
    takes products twice the time. The logits there are -inf by a bias, and so of no weight. Smoothing would ask for their mean."""

    def __init__(self, hidden, weight, how):
        self.axis, self.how = int(how.last), how
        self.size, self.weight, self.bias = weight.shape[self.axis], weight.to(hidden.dtype), None
        few = min(how.chunk_rows, hidden.shape[0]) < _ALIGNED_ROWS
        if few or self.size * hidden.element_size() % 16 == 0 or how.attributes["label_smoothing"]:
            return
        behind = -self.size % _ALIGNMENT
        self.weight = torch.nn.functional.pad(self.weight, (0, behind) if how.last else (0, 0, 0, behind))
        self.bias = torch.nn.functional.pad(self.weight.new_zeros(self.size), (0, behind), value=-math.inf)

    def logits(self, hidden):
        return self.how.product(hidden, self.weight, bias=self.bias, trans_b=not self.how.last)

    def labels(self, labels):
        """Those of the columns behind are wrong, as any beyond the vocabulary."""
        if self.bias is None:
            return labels
        ignored = self.how.attributes["ignore_index"]
        return labels.masked_fill((labels >= self.size) & (labels != ignored), -1 if ignored != -1 else -2)

    def without(self, gradient):
        return gradient if self.bias is None else gradient.narrow(self.axis, 0, self.size).contiguous()


def _losses(hidden, weight, labels, how):
    """Every row's loss."""
    vocabulary = _Vocabulary(hidden, weight, how)
    labels = vocabulary.labels(labels)
    made = [call(None, "cross_entropy.loss_forward", vocabulary.logits(hidden[rows]), labels[rows], **how.attributes)[0]
            for rows in how.chunks(hidden)]
    return torch.cat(made) if made else hidden.new_zeros(0, dtype=torch.float32)


def _gradients(hidden, weight, labels, dloss, how):
    """Every row's loss, and the gradients of hidden and weight where dloss are those of the losses, None of their sum."""
    vocabulary, losses, dhidden = _Vocabulary(hidden, weight, how), [], []
    used, labels = vocabulary.weight, vocabulary.labels(labels)
    dweight = torch.zeros(used.shape, dtype=how.accumulate, device=weight.device)
    for rows in how.chunks(hidden):
        some = hidden[rows]
        loss, _, dlogits = call(None, "cross_entropy.loss_and_gradient", vocabulary.logits(some), labels[rows],
                                None if dloss is None else dloss[rows], **how.attributes)
        losses.append(loss)
        dhidden.append(how.product(dlogits, used, trans_b=how.last))
        left, right = (some, dlogits) if how.last else (dlogits, some)
        dweight = how.product(left, right, dweight, out_dtype=how.accumulate, trans_a=True)
    if not losses:
        return hidden.new_zeros(0, dtype=torch.float32), torch.zeros_like(hidden), torch.zeros_like(weight)
    return torch.cat(losses), torch.cat(dhidden), vocabulary.without(dweight).to(weight.dtype)


class _Total(torch.autograd.Function):
    """The sum of all losses. Gradients are there when the loss is."""

    @staticmethod
    def forward(ctx, hidden, weight, labels, how):
        if not (ctx.needs_input_grad[0] or ctx.needs_input_grad[1]):
            return _losses(hidden, weight, labels, how).sum()
        losses, *made = _gradients(hidden, weight, labels, None, how)
        ctx.save_for_backward(*made)
        return losses.sum()

    @staticmethod
    def backward(ctx, dtotal):
        made = [dtotal * gradient for gradient in ctx.saved_tensors]  # of their dtypes: dtotal is a number
        if torch.is_grad_enabled():  # how they depend on hidden and weight is gone
            made = torch._C._functions.DelayedError("linear_cross_entropy has no second derivative; use cross_entropy of a product", 2)(
                *[gradient.detach().requires_grad_() for gradient in made])
        return *made, None, None


class _Each(torch.autograd.Function):
    """All losses."""
    generate_vmap_rule = True

    @staticmethod
    def forward(hidden, weight, labels, how):
        return _losses(hidden, weight, labels, how)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.how = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, dloss):
        return *_gradients(*ctx.saved_tensors, dloss, ctx.how)[1:], None, None
