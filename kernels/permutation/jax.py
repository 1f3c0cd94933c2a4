"""Routing of tokens to experts as differentiable JAX functions: kbj.permute, kbj.unpermute, kbj.sort_chunks, where kbj is
kbundle.jax.

They run the ops of the first bundle that has them (kbundle.bundles). What each op means, for any values in its maps and sizes, is in
README.md beside this file. num_out_tokens is part of the compiled program: a Python number, never a traced one.
"""

import functools

import jax
import jax.numpy as jnp

from kbundle.jax import _arguments, call
from kbundle.jax._primitive import like, placed

__all__ = ["permute", "sort_chunks", "unpermute"]


def permute(x, routing_map, num_out_tokens, probs=None, *, row_id_map=None):
    """Copies each token of x[..., H] to every expert that routing_map[..., E] (nonzero) names: expert by expert, and
    within an expert in the order of tokens.

    Returns (out[num_out_tokens, H], permuted_probs[num_out_tokens] or None, row_id_map[tokens, 2 * E + 1]); the map is
    for `unpermute`. Tokens past num_out_tokens are dropped, rows that no token goes to are 0, and so is a row whose
    probability is 0: padding is routed that way. Gradients flow to x and probs.

    With row_id_map[tokens, 2 * n + 1], of another call or of `route`, routing_map is None, and probs[..., n] belong to its n columns of
    rows: for `route` the weights of the k chosen.
    """
    x = jnp.asarray(x)
    num_out_tokens = _arguments.integer("permute", "num_out_tokens", num_out_tokens)
    if row_id_map is not None:
        return _permute_by(x, routing_map, num_out_tokens, probs, jnp.asarray(row_id_map))
    routing_map = _arguments.real("permute", "routing_map", routing_map)
    if x.ndim < 1 or routing_map.shape[:-1] != x.shape[:-1]:
        raise ValueError("permute: x has shape %s and routing_map %s; they differ in their last axis only"
                         % (x.shape, routing_map.shape))
    if routing_map.dtype not in (jnp.bool_, jnp.uint8):
        routing_map = routing_map != 0
    if probs is not None:
        probs = jnp.asarray(probs)
        if probs.shape != routing_map.shape:
            raise ValueError("permute: probs has shape %s; it needs that of routing_map, %s"
                             % (probs.shape, routing_map.shape))
        probs = _arguments.rows(probs)
    row_id_map = call(None, "permutation.row_id_map", _arguments.rows(routing_map))
    operands = _placed("permute_with_mask_map", _arguments.rows(x), row_id_map, probs, probs=probs, num_out_tokens=num_out_tokens)
    return *_permute(*operands, num_out_tokens), row_id_map


def _permute_by(x, routing_map, num_out_tokens, probs, row_id_map):
    if routing_map is not None:
        raise ValueError("permute: routing_map and row_id_map are both given; give one")
    if x.ndim < 1:
        raise ValueError("permute: x has shape (); it needs at least the axis H")
    x = _arguments.rows(x)
    if row_id_map.dtype != jnp.int32 or row_id_map.ndim != 2 or row_id_map.shape[0] != x.shape[0] or row_id_map.shape[1] % 2 == 0:
        raise ValueError("permute: row_id_map is %s%s; for %d tokens it must be int32[%d, 2 * n + 1]"
                         % (row_id_map.dtype, list(row_id_map.shape), x.shape[0], x.shape[0]))
    columns = row_id_map.shape[1] // 2
    if probs is not None:
        probs = jnp.asarray(probs)
        if probs.shape[-1:] != (columns,) or probs.size != x.shape[0] * columns:
            raise ValueError("permute: probs has shape %s; for row_id_map of shape %s it must be (%d, %d)"
                             % (probs.shape, row_id_map.shape, x.shape[0], columns))
        probs = probs.reshape(x.shape[0], columns)
    operands = _placed("permute_with_mask_map", x, row_id_map, probs, probs=probs, num_out_tokens=num_out_tokens)
    return *_permute(*operands, num_out_tokens), row_id_map


def unpermute(x, row_id_map, merging_probs=None):
    """Sums the rows of x[rows, H] that belong to each token, as the row_id_map of `permute` says, times
    merging_probs[..., E] where they are given. Returns out[tokens, H]. Gradients flow to x and merging_probs."""
    row_id_map = jnp.asarray(row_id_map)
    if merging_probs is not None:
        merging_probs = jnp.asarray(merging_probs)
        if merging_probs.ndim < 1:
            raise ValueError("unpermute: merging_probs has shape (); it needs at least the axis E")
        merging_probs = _arguments.rows(merging_probs)
    return _unpermute(*_placed("unpermute_with_mask_map", jnp.asarray(x), row_id_map, merging_probs, probs=merging_probs))


def sort_chunks(x, split_sizes, sorted_indices, probs=None):
    """Cuts x[..., H] into chunks of split_sizes[N] rows and puts chunk sorted_indices[j] at place j.

    Returns (out[tokens, H], permuted_probs[tokens] or None, row_id_map[tokens]). Rows that no token goes to are 0.
    Gradients flow to x and probs.
    """
    x = jnp.asarray(x)
    if x.ndim < 1:
        raise ValueError("sort_chunks: x has shape (); it needs at least the axis H")
    if probs is not None:
        probs = jnp.asarray(probs)
        if probs.shape != x.shape[:-1]:
            raise ValueError("sort_chunks: probs has shape %s; it needs that of the tokens, %s" % (probs.shape, x.shape[:-1]))
        probs = probs.reshape(-1)
    x = _arguments.rows(x)
    row_id_map = call(None, "permutation.make_chunk_sort_map", _integers("split_sizes", split_sizes),
                      _integers("sorted_indices", sorted_indices), num_tokens=x.shape[0])
    return *_sort_chunks(*_placed("sort_chunks_by_map", x, row_id_map, probs, probs=probs)), row_id_map


def _integers(name, values):
    """An int32[N]: a size or index that is no integer would be rounded silently."""
    values = jnp.asarray(values)
    if values.ndim != 1 or not jnp.issubdtype(values.dtype, jnp.integer):
        raise ValueError("sort_chunks: %s is %s%s; it needs to be int32[N]" % (name, values.dtype, list(values.shape)))
    return _arguments.int32(values)


def _call(op, *operands, probs, **attributes):
    """A call of an op whose P is chosen by an attribute."""
    return call(None, "permutation." + op, *operands, **_of_dtype(probs), **attributes)


def _placed(op, *operands, probs, **attributes):
    """The operands where that call would bring them."""
    return placed(None, "permutation." + op, *operands, **_of_dtype(probs), **attributes)


def _of_dtype(probs):
    """The attribute P; it means nothing where there are no probabilities."""
    return {} if probs is None else {"probs_dtype": probs.dtype}


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _permute(x, row_id_map, probs, num_out_tokens):
    return _call("permute_with_mask_map", x, row_id_map, probs, probs=probs, num_out_tokens=num_out_tokens)


def _permute_forward(x, row_id_map, probs, num_out_tokens):
    return _permute(x, row_id_map, probs, num_out_tokens), (row_id_map, probs)


def _permute_backward(num_out_tokens, saved, cotangents):
    row_id_map, probs = saved
    dout, dpermuted_probs = cotangents
    dtype, of = dout.dtype, row_id_map if probs is None else _without_padding(row_id_map, probs)
    dout = dout if dtype.itemsize > 1 else dout.astype(jnp.float32)  # codes of FP8 are copied, not added
    dx = _call("unpermute_with_mask_map", dout, of, probs=None)[0].astype(dtype)
    if probs is None:
        return dx, None, None
    # A row of probability 0 has its part in this one: the rows that are summed here are single numbers.
    _, dprobs = _call("unpermute_with_mask_map", dpermuted_probs[:, None], row_id_map, None, dpermuted_probs, probs=probs)
    return dx, None, dprobs


def _without_padding(row_id_map, probs):
    """The map without the entries of probability 0. Their rows were written as 0, whatever x is, and what comes back for them
    counts for nothing, even where it is NaN: so they are passed over, not multiplied by 0."""
    experts = probs.shape[1]
    rows, named = row_id_map[:, :experts], row_id_map[:, experts:2 * experts]
    padding = jnp.take_along_axis(probs, jnp.maximum(named, 0), axis=1) == 0
    return jnp.concatenate([jnp.where(padding, -1, rows), row_id_map[:, experts:]], axis=1)


@jax.custom_vjp
def _unpermute(x, row_id_map, merging_probs):
    return _call("unpermute_with_mask_map", x, row_id_map, merging_probs, probs=merging_probs)[0]


def _unpermute_forward(x, row_id_map, merging_probs):
    # Without probabilities only the number of rows is needed.
    return _unpermute(x, row_id_map, merging_probs), (x, row_id_map, merging_probs)


def _unpermute_backward(saved, dout):
    x, row_id_map, merging_probs = saved
    if merging_probs is None:
        dx, _ = _call("permute_with_mask_map", dout, row_id_map, probs=None, num_out_tokens=x.shape[0])
        return dx, None, None
    dx, dprobs = call(None, "permutation.unpermute_backward_with_merging_probs", dout, row_id_map, x,
                      merging_probs)
    return dx, None, like(dprobs, merging_probs)


@jax.custom_vjp
def _sort_chunks(x, row_id_map, probs):
    return _call("sort_chunks_by_map", x, row_id_map, probs, probs=probs)


def _sort_chunks_forward(x, row_id_map, probs):
    return _sort_chunks(x, row_id_map, probs), row_id_map


def _sort_chunks_backward(row_id_map, cotangents):
    dout, dpermuted_probs = cotangents
    dx, dprobs = _call("sort_chunks_by_map", dout, row_id_map, dpermuted_probs, probs=dpermuted_probs, is_forward=False)
    return dx, None, dprobs


_permute.defvjp(_permute_forward, _permute_backward)
_unpermute.defvjp(_unpermute_forward, _unpermute_backward)
_sort_chunks.defvjp(_sort_chunks_forward, _sort_chunks_backward)
