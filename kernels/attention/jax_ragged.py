"""Attention over sequences that lie one after another in one tensor: kbj.ragged_dot_product_attention.

It runs the ragged ops of the default bundle (kbundle.use); what they mean, corner cases included, is in README.md beside
this file. Everything but arrays is part of the compiled program.
"""

import collections
import functools

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from kbundle import Error
from kbundle_kernels.attention_arguments import DTYPES, Known, both, dropout_state, lengths_of, one_bias, scale_of, score_modifier, sight
from kbundle_kernels.attention_sinks import gradient_of_sinks, sinks_of, with_sinks
from kbundle.jax import _arguments, call
from kbundle.jax._primitive import placed, same_axes

__all__ = ["ragged_dot_product_attention"]

_FORWARD, _BACKWARD = "attention.sdpa_ragged_forward", "attention.sdpa_ragged_backward"

# Operands after the tensors, by their names in the op, and sinks, which no op takes; None where absent.
_Extra = collections.namedtuple("_Extra", "q_offsets kv_offsets q_lengths kv_lengths bias dropout_state score_tensor0 score_tensor1 sinks",
                                defaults=(None,))


def ragged_dot_product_attention(query, key, value, query_offsets, key_value_offsets, *, max_query_length, max_key_value_length,
                                 query_lengths=None, key_value_lengths=None, scale=None, is_causal=False,
                                 local_window_size=None, return_residual=False, score_mod=None, deterministic=False, sinks=None,
                                 bottom_right_diagonal=False, bias=None, dropout_rate=0.0, dropout_seed=None, **score_values):
    """dot_product_attention of B sequences, each on keys of its own, that lie one after another.

    query[T, N, H], key[S, K, H], value[S, K, V]; K divides N. Sequence b has the rows offsets[b] .. offsets[b + 1] - 1 of
    query (and of key and value), the offsets being int32[B + 1] arrays that grow. What belongs to no sequence is 0 in the
    result, and so is its gradient. Gradients flow to query, key, value, bias and sinks.

    query_lengths, key_value_lengths   int32[B], either or both: sequence b has the rows from offsets[b] to offsets[b] +
                        lengths[b] - 1 alone, and never more than to offsets[b + 1]. Rows between two sequences may hold
                        anything, NaN too
    max_query_length, max_key_value_length   Python numbers: no sequence is longer, and what is, is cut there. Kernels are
                        sized by them, so that small ones are faster
    is_causal           also "bottom_right": the last query of a sequence sees its last key
    local_window_size   as of dot_product_attention, within each sequence
    bottom_right_diagonal   windows, and is_causal, begin at the last query and the last key of a sequence
    bias                broadcasts to [B, N, max_query_length, max_key_value_length] and is rounded to query's dtype: query q of
                        sequence b reads bias[b, :, q], q counting from the beginning of the sequence
    dropout_rate, dropout_seed   as of dot_product_attention; the generator is its "own". What is dropped is that of arrays
                        [B, max_query_length, N, H] with the same seed, and does not depend on where sequences lie
    return_residual     also the log-sum-exp of the scores, float32[T, N]; no gradient flows through it
    score_mod           as of dot_product_attention; `q` and `k` count from the beginning of their sequence, `b` sequences
    sinks               floats [N] or one number, as of dot_product_attention, with gradients
    deterministic       gradients of the same inputs are the same bits
    """
    where = "ragged_dot_product_attention"
    deterministic = _arguments.flag(where, "deterministic", deterministic)
    return_residual = _arguments.flag(where, "return_residual", return_residual)
    arrays = [jnp.asarray(x) for x in (query, key, value)]
    _check_arrays(*arrays)
    bounds = {"max_queries": _arguments.integer(where, "max_query_length", max_query_length, least=1),
              "max_keys": _arguments.integer(where, "max_key_value_length", max_key_value_length, least=1)}
    seen = sight(where, is_causal, local_window_size, bottom_right_diagonal)
    modifier, tensors = score_modifier(where, score_mod, score_values)
    offsets = _offsets("query_offsets", query_offsets), _offsets("key_value_offsets", key_value_offsets)
    sequences = len(offsets[0]) - 1
    if len(offsets[1]) - 1 != sequences:
        raise ValueError("ragged_dot_product_attention: query_offsets are of %d sequences, key_value_offsets of %d"
                         % (sequences, len(offsets[1]) - 1))
    lengths = both([lengths_of(where, "query_lengths", query_lengths, sequences),
                    lengths_of(where, "key_value_lengths", key_value_lengths, sequences)],
                   [min(bound, 2**31 - 1) for bound in bounds.values()], sequences)
    dropout_rate, heads = _arguments.number(where, "dropout_rate", dropout_rate, 0, 1), arrays[0].shape[1]
    bias = one_bias(where, bias, None, (sequences, heads, *bounds.values()), arrays[0].dtype)
    extra = _Extra(*offsets, *lengths, bias, dropout_state(where, dropout_rate, dropout_seed), *tensors, sinks_of(where, sinks, heads))
    attributes = dict(scale=scale_of(where, scale, arrays[0].shape[-1]), dropout=dropout_rate, **seen, **bounds, **modifier)
    *arrays, extra = _placed(arrays, extra, attributes)
    out, stats = _attention(tuple(sorted(attributes.items())), deterministic, *arrays, extra)
    return (out, jax.lax.stop_gradient(stats)) if return_residual else out


def _check_arrays(query, key, value):
    shapes = "query %s, key %s, value %s" % (query.shape, key.shape, value.shape)
    if not query.ndim == key.ndim == value.ndim == 3 or key.shape[:2] != value.shape[:2] or query.shape[2] != key.shape[2]:
        raise ValueError("ragged_dot_product_attention: %s; each is [rows, heads, features], key and value differ in the "
                         "features only, and query has those of key" % shapes)
    if 0 in query.shape + key.shape + value.shape or query.shape[1] % key.shape[1]:
        raise ValueError("ragged_dot_product_attention: %s; none is empty, and query heads are a multiple of key heads" % shapes)
    if not query.dtype == key.dtype == value.dtype or query.dtype not in DTYPES:
        raise Error("UNIMPLEMENTED", "ragged_dot_product_attention: query is %s, key %s, value %s; the kernels take one of float32, "
                    "float16 and bfloat16" % (query.dtype, key.dtype, value.dtype))


def _offsets(name, offsets):
    offsets = jnp.asarray(offsets)
    if offsets.ndim != 1 or len(offsets) < 2 or not jnp.issubdtype(offsets.dtype, jnp.integer):
        raise ValueError("ragged_dot_product_attention: %s is %s%s; it needs to be int32[B + 1] of B >= 1 sequences"
                         % (name, offsets.dtype, list(offsets.shape)))
    return _arguments.int32(offsets)


def _placed(arrays, extra, attributes):
    """Query, key, value and extra, where the forward op wants them: the gradient of one that was elsewhere goes back there."""
    leaves, structure = jax.tree.flatten((arrays, extra))
    arrays, extra = jax.tree.unflatten(structure, same_axes(leaves))
    operands = placed(None, _FORWARD, *_given([*arrays, *extra[:-1]]), **attributes)
    query, key, value, *rest = operands + (None,) * (2 + len(extra) - len(operands))
    return query, key, value, _Extra(*rest, extra.sinks)


def _given(operands):
    """Without the absent ones at the end."""
    while operands[-1] is None:
        operands.pop()
    return operands


def _call(op, operands, attributes, **more):
    return call(None, op, *_given(operands), **dict(attributes), **more)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(attributes, deterministic, query, key, value, extra):
    return _forward(attributes, [query, key, value], extra)


def _forward(attributes, arrays, extra):
    out, stats = _call(_FORWARD, [*arrays, *extra[:-1]], attributes, with_stats=True)
    return (out, stats) if extra.sinks is None else with_sinks(out, stats, extra.sinks, turned=False)


def _attention_forward(attributes, deterministic, query, key, value, extra):
    if any(x is not None and x.perturbed for x in (extra.score_tensor0, extra.score_tensor1)):
        raise Error("UNIMPLEMENTED", "differentiating ragged_dot_product_attention: the gradient of a tensor of score_mod=%r is "
                    "not computed; keep it out of what is differentiated (jax.lax.stop_gradient)" % dict(attributes)["score_mod"])
    arrays = [x.value for x in (query, key, value)]
    wanted = Known(name for name, x in extra._asdict().items() if x is not None and x.perturbed)
    extra = _Extra(*(None if x is None else x.value for x in extra))
    out, stats = _forward(attributes, arrays, extra)
    return (out, stats), (*arrays, out, stats, extra, wanted)


def _attention_backward(attributes, deterministic, saved, cotangents):
    query, key, value, out, stats, extra, wanted = saved
    if isinstance(cotangents[0], SymbolicZero):
        return None, None, None, None
    *gradients, dbias = _call(_BACKWARD, [query, key, value, out, cotangents[0], stats, *extra[:-1]], attributes,
                              deterministic=deterministic, bias_gradient="bias" in wanted)
    of_sinks = gradient_of_sinks(out, cotangents[0], stats, extra.sinks, turned=False) if "sinks" in wanted else None
    return (*gradients, _Extra(*[None] * (len(extra) - 1), of_sinks)._replace(bias=dbias))


_attention.defvjp(_attention_forward, _attention_backward, symbolic_zeros=True)
