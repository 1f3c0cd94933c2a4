"""Attention over sequences that lie one after another in one tensor, and over queries, keys and values that lie in one, as functions of
PyTorch with gradients: kbt.ragged_dot_product_attention, kbt.packed_dot_product_attention, where kbt is kbundle.torch. They mean what they
mean for JAX; README.md beside this file says it, corner cases included.
"""

import math

import torch

from kbundle.torch import call
from kbundle.torch._dtypes import int32
from kbundle_kernels.pytorch.attention import bias_of, drawn, modifier, sight

__all__ = ["packed_dot_product_attention", "ragged_dot_product_attention"]


def ragged_dot_product_attention(query, key, value, query_offsets, key_value_offsets, *, max_query_length, max_key_value_length,
                                 query_lengths=None, key_value_lengths=None, scale=None, is_causal=False, local_window_size=None,
                                 bottom_right_diagonal=False, attn_mask=None, dropout_p=0.0, score_mod=None, **score_values):
    """scaled_dot_product_attention of B sequences, each on keys of its own, that lie one after another.

    query[T, N, H], key[S, K, H], value[S, K, V]; K divides N. Sequence b has the rows offsets[b] .. offsets[b + 1] - 1 of query (and of key
    and value), the offsets being integers [B + 1] on the device that grow (cu_seqlens elsewhere). What belongs to no sequence is 0 in the
    result, [T, N, V], and so is its gradient. Gradients flow to query, key, value and a float attn_mask.

    query_lengths, key_value_lengths   integers [B] on the device, either or both: sequence b has the rows from offsets[b] to offsets[b] +
                        lengths[b] - 1 alone, and never more than to offsets[b + 1]. Rows between two sequences may hold anything, NaN too
    max_query_length, max_key_value_length   Python numbers: no sequence is longer, and what is, is cut there. Kernels are sized by them, so
                        that small ones are faster
    attn_mask           as there, of [B, N, max_query_length, max_key_value_length]: query q of sequence b reads [b, :, q], q counting from
                        the beginning of the sequence

    All else is as there, within each sequence; "bottom_right" means the last query and the last key of a sequence."""
    where = "ragged_dot_product_attention"
    if not query.dim() == key.dim() == value.dim() == 3 or key.shape[:2] != value.shape[:2] or query.shape[2] != key.shape[2] or (
            key.shape[1] == 0 or query.shape[1] % key.shape[1]):
        raise ValueError("%s: query %s, key %s, value %s; each is [rows, heads, features], key and value differ in the features only, and query "
                         "has those of key, and a multiple of its heads" % (where, tuple(query.shape), tuple(key.shape), tuple(value.shape)))
    offsets = _integers(where, "query_offsets", query_offsets, None), _integers(where, "key_value_offsets", key_value_offsets, None)
    sequences = offsets[0].shape[0] - 1
    if offsets[1].shape[0] - 1 != sequences or sequences < 1:
        raise ValueError("%s: query_offsets are of %d sequences, key_value_offsets of %d; give as many, of one sequence at least"
                         % (where, sequences, offsets[1].shape[0] - 1))
    lengths = _integers(where, "query_lengths", query_lengths, sequences), _integers(where, "key_value_lengths", key_value_lengths, sequences)
    bounds = max_query_length, max_key_value_length
    if (lengths[0] is None) != (lengths[1] is None):  # the kernels take both or none
        lengths = [torch.full((sequences,), most, dtype=torch.int32, device=query.device) if one is None else one
                   for one, most in zip(lengths, bounds)]
    bias = bias_of(where, attn_mask, (sequences, query.shape[1], *bounds), query)
    attributes, tensors = modifier(where, score_mod, score_values, query.device)
    attributes |= sight(where, is_causal, bottom_right_diagonal, local_window_size)
    return call(None, "attention.sdpa_ragged_forward", query, key, value, *offsets, *lengths, bias, drawn(where, dropout_p, query.device),
                *tensors, scale=1 / math.sqrt(query.shape[2]) if scale is None else float(scale), max_queries=bounds[0], max_keys=bounds[1],
                dropout=float(dropout_p), with_stats=True, **attributes)[0]


def packed_dot_product_attention(qkv, attn_mask=None, *, kv_heads=None, dropout_p=0.0, is_causal=False, scale=None, lengths=None,
                                 local_window_size=None, score_mod=None, **score_values):
    """scaled_dot_product_attention of queries, keys and values that lie in one tensor, which no kernel copies, nor its gradient.

    qkv[B, T, 3, N, H]; or with kv_heads=K qkv[B, T, N + 2 * K, H]: of a token first N heads of queries, then K of keys, then K of values.
    Returns [B, T, N, H]: heads come behind tokens here. lengths, integers [B] on the device: sequence b has so many tokens. The rest means
    what it means there; is_causal is True or False."""
    where = "packed_dot_product_attention"
    if qkv.dim() == 5 and kv_heads is None and qkv.shape[2] == 3:
        kv_heads, qkv = qkv.shape[3], qkv.flatten(2, 3)
    if qkv.dim() != 4 or not kv_heads or qkv.shape[2] <= 2 * kv_heads or qkv.shape[2] % kv_heads:
        raise ValueError("%s: qkv has shape %s, kv_heads=%r; it is [B, T, 3, N, H], or with kv_heads=K [B, T, N + 2 * K, H], N a multiple of K"
                         % (where, tuple(qkv.shape), kv_heads))
    if is_causal not in (True, False):
        raise ValueError("%s: is_causal is %r; it must be True or False" % (where, is_causal))
    batch, tokens, width, depth = qkv.shape
    bias = bias_of(where, attn_mask, (batch, width - 2 * kv_heads, tokens, tokens), qkv)
    attributes, tensors = modifier(where, score_mod, score_values, qkv.device)
    attributes |= sight(where, is_causal, False, local_window_size)
    return call(None, "attention.sdpa_packed_forward", qkv, bias, _integers(where, "lengths", lengths, batch),
                drawn(where, dropout_p, qkv.device), *tensors, scale=1 / math.sqrt(depth) if scale is None else float(scale), kv_heads=kv_heads,
                dropout=float(dropout_p), with_stats=True, **attributes)[0]


def _integers(where, name, values, count):
    """An int32[count]; None: of any length, or absent where that may be."""
    if values is None and count is not None:
        return None
    if values is None or values.dim() != 1 or values.dtype not in (torch.int32, torch.int64) or count not in (None, values.shape[0]):
        raise ValueError("%s: %s is %s; it needs to be int32[%s]" % (
            where, name, None if values is None else "%s%s" % (values.dtype, list(values.shape)), "B + 1" if count is None else count))
    return int32(values)
