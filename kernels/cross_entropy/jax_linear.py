"""The cross entropy of a linear layer's result, without that result: kbj.linear_cross_entropy, where kbj is kbundle.jax.

Logits of a large vocabulary are the largest array of a model by far: 8 GB for 32768 tokens and 128256 columns in bfloat16. Here they
exist for some rows at a time. A chunk of rows is multiplied with the weight, its logits become their own gradient in place, and
two more products add what they give to the gradients of hidden and weight. So there are three products, as without chunks, and no
logit is computed twice; the price is that the weight's gradient is read and written once for each chunk.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kbundle.jax import _arguments, _specs, call
from kbundle.jax._primitive import explicit, moved, same_axes
from kbundle_kernels import cross_entropy_formulas as formulas
from kbundle_kernels.cross_entropy import _REDUCTIONS, checked_labels, reduced, share
from kbundle_kernels.matmul import layer

__all__ = ["linear_cross_entropy"]

_CHUNK_BYTES = 512 << 20
_ALIGNED_ROWS, _ALIGNMENT = 256, 64  # rows of a chunk from which columns are added, until they are a multiple; measured on an H200


def linear_cross_entropy(hidden, weight, labels, *, label_smoothing=0.0, ignore_index=-100, z_loss=0.0, reduction="mean",
                         vocabulary_last=False, chunk_rows=None, accumulate=jnp.float32):
    """cross_entropy(hidden[.., D] @ weight[V, D].T, labels[..], ...), of which see `cross_entropy`, with no more than chunk_rows rows of
    logits in memory at a time; weight is [D, V] if vocabulary_last. chunk_rows is by default as many as take 512 MiB.

    Logits have the dtype of hidden (float32, float16 or bfloat16), and so has weight in the products. Gradients have the dtypes of hidden
    and weight. That of weight is summed over the chunks in `accumulate`: float32, or for less memory and with a rounding for each chunk
    weight's own dtype. Where rows of logits would be no multiple of 16 bytes, as of 50257 columns, chunks of 256 rows and more are made
    with a copy of weight that has columns behind it, which takes products half the time; not with label smoothing. With "mean" and
    "sum" gradients are computed with the loss, where both are asked for; with "none" backwards, from logits that are computed again.

    Rows that lie on several devices: with explicit axes each computes its own, with all of the weight, and chunk_rows is of each; under
    a plain jit the loop is XLA's to divide, so call it inside jax.shard_map there, with reduction="sum".
    """
    where = "linear_cross_entropy"
    hidden, weight = _arguments.floats(where, "hidden", hidden), _arguments.floats(where, "weight", weight)
    labels = jnp.asarray(labels)
    reduction = _arguments.choice(where, "reduction", reduction, _REDUCTIONS)
    last = _arguments.flag(where, "vocabulary_last", vocabulary_last)
    if weight.ndim != 2 or hidden.ndim < 1 or hidden.shape[-1] != weight.shape[0 if last else 1] or 0 in weight.shape:
        raise ValueError("%s: hidden has shape %s and weight %s; they must be [.., D] and %s, and the weight not empty"
                         % (where, hidden.shape, weight.shape, "[D, V]" if last else "[V, D] (or [D, V] with vocabulary_last=True)"))
    if labels.shape != hidden.shape[:-1]:
        raise ValueError("%s: labels have shape %s; for hidden of shape %s they must have %s"
                         % (where, labels.shape, hidden.shape, hidden.shape[:-1]))
    if accumulate not in (jnp.float32, weight.dtype):
        raise _arguments.refuse(where, "accumulate", accumulate, "float32, or the weight's dtype %s" % weight.dtype)
    labels, how = checked_labels(where, labels, label_smoothing, ignore_index, z_loss)
    if explicit(hidden, weight, labels):
        return _divided(hidden, weight, labels, reduction, **how, vocabulary_last=last, chunk_rows=chunk_rows, accumulate=accumulate)
    given = (hidden.reshape(-1, hidden.shape[-1]), weight, labels.reshape(-1))
    vocabulary = weight.shape[1 if last else 0]
    rows = _chunk_rows(given[0], vocabulary, None if chunk_rows is None else _arguments.integer(where, "chunk_rows", chunk_rows, least=1))
    setting = _How(rows, last, jnp.dtype(accumulate), tuple(how.items()))
    *given, scale = same_axes([*given, share(given[2], ignore_index, reduction)])
    if reduction == "none":
        return _each(*given, setting).reshape(labels.shape)
    return _total(*given, scale, setting)


def _divided(hidden, weight, labels, reduction, **how):
    """Each device has the rows that hidden has there, or labels where hidden is not split by rows."""
    arrays = hidden, weight, labels
    types = [jax.typeof(array) for array in arrays]
    rows, mesh = _specs.of_type(types[0])[:-1], _specs.mesh_of(types)
    rows = rows if any(rows) else _specs.of_type(types[2])
    lie = (*rows, ()), ((), ()), rows
    arrays = [moved(array, spec, mesh) for array, spec in zip(arrays, lie)]
    axes = tuple(axis for dim in rows for axis in dim)

    def part(h, w, l):
        if reduction == "none":
            return linear_cross_entropy(h, w, l, reduction="none", **how)
        return jax.lax.psum(linear_cross_entropy(h, w, l, reduction="sum", **how), axes)
    specs = tuple(_specs.partition_spec(spec) for spec in lie)
    loss = jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=specs[2] if reduction == "none" else _specs.partition_spec(()))(*arrays)
    return loss if reduction == "none" else loss * share(arrays[2], how["ignore_index"], reduction)


class _How(NamedTuple):
    """What of a call is part of the program."""
    rows: int  # of a chunk
    last: bool
    accumulate: jnp.dtype
    attributes: tuple


def _chunk_rows(hidden, vocabulary, most):
    """Equal chunks of whole tiles, but for the last one."""
    tokens = max(1, hidden.shape[0])
    most = max(128, _CHUNK_BYTES // (vocabulary * hidden.dtype.itemsize)) if most is None else most
    each = -(-tokens // -(-tokens // most))
    return min(each if most < 128 else -(-each // 128) * 128, tokens)


def _chunks(tokens, rows, step, carry):
    """step(carry, first, rows) over all rows: a loop over whole chunks, then what is left."""
    whole = tokens // rows
    if whole > 1:
        carry = jax.lax.fori_loop(0, whole, lambda i, carry: step(carry, i * rows, rows), carry)
    elif whole:
        carry = step(carry, 0, rows)
    return step(carry, whole * rows, tokens - whole * rows) if tokens > whole * rows else carry


def _part(array, first, rows):
    return jax.lax.dynamic_slice_in_dim(array, first, rows)


def _put(array, part, first):
    return jax.lax.dynamic_update_slice_in_dim(array, part, first, 0)


class _Vocabulary:
    """What logits are made with: the weight in hidden's dtype, and columns behind it where rows of logits would not be aligned, which
    takes products twice the time. The logits there are -inf by a bias, and so of no weight. Smoothing would ask for their mean."""

    def __init__(self, hidden, weight, how):
        self.axis, self.how = int(how.last), how
        self.size = weight.shape[self.axis]
        few = how.rows < _ALIGNED_ROWS or self.size * hidden.dtype.itemsize % 16 == 0
        behind = 0 if few or dict(how.attributes)["label_smoothing"] else -self.size % _ALIGNMENT
        self.weight = _widened(weight.astype(hidden.dtype), self.axis, behind)
        self.bias = None if not behind else jnp.where(jnp.arange(self.size + behind) < self.size, 0, -jnp.inf).astype(hidden.dtype)

    def logits(self, hidden):
        return layer(hidden, self.weight, self.bias, trans_w=not self.how.last)

    def labels(self, labels):
        """Those of the columns behind are wrong, as any beyond the vocabulary."""
        if self.bias is None:
            return labels
        ignored = dict(self.how.attributes)["ignore_index"]
        return jnp.where((labels >= self.size) & (labels != ignored), np.asarray(-1 if ignored != -1 else -2, labels.dtype), labels)

    def without(self, gradient):
        return gradient if self.bias is None else jax.lax.slice_in_dim(gradient, 0, self.size, axis=self.axis)


def _widened(array, axis, behind):
    return array if not behind else jnp.pad(array, [(0, behind if at == axis else 0) for at in range(array.ndim)])


def _zeros(shape, dtype, beside):
    """Zeros that vary over the same axes of a shard_map as an array beside them."""
    return same_axes([jnp.zeros(shape, dtype), beside])[0]


def _losses(hidden, weight, labels, how):
    """Every row's loss."""
    vocabulary = _Vocabulary(hidden, weight, how)
    labels = vocabulary.labels(labels)

    def step(loss, first, rows):
        here, _ = call(None, "cross_entropy.loss_forward", vocabulary.logits(_part(hidden, first, rows)), _part(labels, first, rows),
                       formula=formulas.loss_forward, **dict(how.attributes))
        return _put(loss, here, first)
    return _chunks(len(labels), how.rows, step, _zeros(labels.shape, jnp.float32, hidden))


def _gradients(hidden, weight, labels, dloss, how):
    """Every row's loss, and the gradients of hidden and weight where dloss are those of the losses."""
    vocabulary = _Vocabulary(hidden, weight, how)
    labels = vocabulary.labels(labels)
    summed = how.accumulate if len(labels) > how.rows else weight.dtype  # of one chunk nothing is

    def step(carry, first, rows):
        loss, dhidden, dweight = carry
        some = _part(hidden, first, rows)
        here, _, dlogits = call(None, "cross_entropy.loss_and_gradient_in_place", vocabulary.logits(some), _part(labels, first, rows),
                                _part(dloss, first, rows), formula=formulas.loss_and_gradient, **dict(how.attributes))
        dhidden = _put(dhidden, layer(dlogits, vocabulary.weight, trans_w=how.last), first)
        # XLA makes one product of this that adds to dweight in place.
        left, right = (some, dlogits) if how.last else (dlogits, some)
        dweight = dweight + jax.lax.dot_general(left, right, (((0,), (0,)), ((), ())), preferred_element_type=summed)
        return _put(loss, here, first), dhidden, dweight
    start = (_zeros(labels.shape, jnp.float32, hidden), _zeros(hidden.shape, hidden.dtype, hidden),
             _zeros(vocabulary.weight.shape, summed, hidden))
    loss, dhidden, dweight = _chunks(len(labels), how.rows, step, start)
    return loss, dhidden, vocabulary.without(dweight).astype(weight.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _total(hidden, weight, labels, scale, how):
    """scale times the sum of the losses."""
    return scale * jnp.sum(_losses(hidden, weight, labels, how))


def _scaled(gradient, factor):
    return (factor * gradient.astype(jnp.float32)).astype(gradient.dtype)


def _total_forward(hidden, weight, labels, scale, how):
    """Gradients have the scale in them: where this ends a computation XLA has nothing to multiply them by. float16 would lose small ones."""
    within = jnp.ones_like(scale) if hidden.dtype == jnp.float16 else scale
    loss, *gradients = _gradients(hidden, weight, labels, _zeros(labels.shape, jnp.float32, hidden) + within, how)
    total = jnp.sum(loss)
    return scale * total, (gradients, total, scale)


def _total_backward(how, saved, dtotal):
    gradients, total, scale = saved
    factor = dtotal * scale if gradients[0].dtype == jnp.float16 else dtotal
    return *(_scaled(gradient, factor) for gradient in gradients), None, dtotal * total


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _each(hidden, weight, labels, how):
    return _losses(hidden, weight, labels, how)


def _each_backward(how, saved, dloss):
    return *_gradients(*saved, dloss, how)[1:], None


_total.defvjp(_total_forward, _total_backward)
_each.defvjp(lambda hidden, weight, labels, how: (_each(hidden, weight, labels, how), (hidden, weight, labels)), _each_backward)
