"""Attention as a function of PyTorch, with gradients: kbt.scaled_dot_product_attention, where kbt is kbundle.torch.

It runs the ops of the first bundle that has them (kbundle.bundles). What they mean, corner cases included, is in README.md beside this file.
"""

import math

import torch

from kbundle import Error, default_bundle
from kbundle.torch import Derivative, call, shortcut

__all__ = ["scaled_dot_product_attention"]

_FORWARD = "attention.sdpa_forward"
_HIDDEN = {torch.float16: -3e4}  # what a mask adds to a score; of other dtypes -1e30


def _deterministic(needs):
    return torch.are_deterministic_algorithms_enabled()


def _bias_gradient(needs):
    return "bias" in needs


_MORE = {"operands": {"dout": "do"}, "attributes": {"deterministic": _deterministic, "bias_gradient": _bias_gradient}}
DERIVATIVES = {"attention.sdpa_forward": Derivative("attention.sdpa_backward", **_MORE),
               "attention.sdpa_packed_forward": Derivative("attention.sdpa_packed_backward", **_MORE),
               "attention.sdpa_ragged_forward": Derivative("attention.sdpa_ragged_backward", **_MORE)}


@shortcut()
def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, *,
                                 local_window_size=None, bottom_right_diagonal=False, score_mod=None, **score_values):
    """softmax(scale * query key^T + bias) value: torch.nn.functional.scaled_dot_product_attention, with its names, layout and meaning.

    query[B, N, T, H], key[B, K, S, H], value[B, K, S, V], or the same without B; K divides N, and is N unless enable_gqa. Gradients flow to
    query, key, value and a float attn_mask; they are the same bits each time where torch.use_deterministic_algorithms is on.

    attn_mask           boolean (True takes part) or of query's dtype (added to the scores); broadcasts to [B, N, T, S]
    dropout_p           is applied whether or not something is in training, as there; drawn by torch's generator of the device
    is_causal           the first query sees the first key alone; also "bottom_right": the last query sees the last key
    local_window_size   left, or (left, right): how many keys before and behind its own a query sees; one size is both, and None all.
                        is_causal hides what is behind, whatever right says
    bottom_right_diagonal   a query's own key is counted from the last query and the last key, for windows and for is_causal
    score_mod           the name of a score modifier of the family's manifest, such as "softcap" or "alibi"; its scalars (Python numbers)
                        and tensors (float32) follow by name: score_mod="softcap", cap=30.0. No gradient flows to them

    A query that sees no key gives 0 here."""
    where = "scaled_dot_product_attention"
    _check(where, query, key, value, enable_gqa)
    unbatched = query.dim() == 3
    if unbatched:
        query, key, value = query[None], key[None], value[None]
    batch, heads, queries, depth = query.shape
    state = drawn(where, dropout_p, query.device)
    bias = bias_of(where, attn_mask, (batch, heads, queries, key.shape[2]), query)
    attributes, tensors = modifier(where, score_mod, score_values, query.device)
    attributes |= sight(where, is_causal, bottom_right_diagonal, local_window_size)
    out, _ = call(None, _FORWARD, query, key, value, bias, None, None, state, *tensors, layout="bhsd", with_stats=True,
                  scale=1 / math.sqrt(depth) if scale is None else float(scale), dropout=float(dropout_p), **attributes)
    return out[0] if unbatched else out


def drawn(where, dropout_p, device):
    """What dropout draws from, by torch's generator of the device, uint32[4]; None where nothing is dropped."""
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueError("%s: dropout_p is %r; it must be a number from 0 to 1" % (where, dropout_p))
    return torch.randint(-2**31, 2**31, (4,), dtype=torch.int32, device=device).view(torch.uint32) if dropout_p > 0 else None


def sight(where, is_causal, bottom_right, window):
    """The attributes of which keys a query sees."""
    if is_causal not in (True, False, "bottom_right"):
        raise ValueError("%s: is_causal is %r; it must be True, False or 'bottom_right'" % (where, is_causal))
    bottom_right = bottom_right or is_causal == "bottom_right"
    sizes = window if isinstance(window, (tuple, list)) else (window, window)
    if len(sizes) != 2 or not all(one is None or type(one) is int and 0 <= one < 2**31 for one in sizes):
        raise ValueError("%s: local_window_size is %r; it must be one number of keys or two, (left, right), each 0 or more, or None: no bound"
                         % (where, window))
    left, right = (-1 if one is None else one for one in sizes)
    if is_causal or right == 0:
        return {"mask": "causal_bottom_right" if bottom_right else "causal", "window": left}
    if left < 0 and right < 0:
        return {"mask": "none", "window": -1}
    return {"mask": "bottom_right" if bottom_right else "none", "window": left, "window_right": right}


def _check(where, query, key, value, enable_gqa):
    def shapes():  # of an error alone: torch.compile does not trace the text of shapes that it does not know
        return "query %s, key %s, value %s" % (tuple(query.shape), tuple(key.shape), tuple(value.shape))
    if query.dim() not in (3, 4) or not query.dim() == key.dim() == value.dim():
        raise ValueError("%s: %s; all need the axes [B, N, T, H], or all but the batch" % (where, shapes()))
    if key.shape[:-1] != value.shape[:-1] or query.shape[-1] != key.shape[-1] or query.shape[:-3] != key.shape[:-3]:
        raise ValueError("%s: %s; key and value differ in the last axis only, and query has the batch and the last axis of key" % (where, shapes()))
    heads, kept = query.shape[-3], key.shape[-3]
    if kept == 0 or heads % kept or (heads != kept and not enable_gqa):
        raise ValueError("%s: %s; query and key have as many heads, or with enable_gqa=True query a multiple of key's" % (where, shapes()))
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError("%s: query is %s, key %s, value %s; they must be of one dtype" % (where, query.dtype, key.dtype, value.dtype))


def bias_of(where, mask, shape, query):
    """attn_mask as one bias[B or 1, N or 1, T, S]."""
    if mask is None:
        return None
    dims = (1,) * (4 - mask.dim()) + tuple(mask.shape)
    if len(dims) > 4 or any(dim not in (1, full) for dim, full in zip(dims, shape)):
        raise ValueError("%s: attn_mask has shape %s; it needs to broadcast to %s" % (where, tuple(mask.shape), tuple(shape)))
    if mask.dtype == torch.bool:
        hidden = _HIDDEN.get(query.dtype, -1e30)
        mask = torch.zeros(mask.shape, dtype=query.dtype, device=mask.device).masked_fill(~mask, hidden)
    elif mask.dtype != query.dtype:
        raise ValueError("%s: attn_mask is %s; it must be boolean, or of query's dtype, %s" % (where, mask.dtype, query.dtype))
    return mask.reshape(dims).expand(dims[:2] + tuple(shape[2:]))


@torch.compiler.assume_constant_result
def _modifiers():
    """((name, its scalars, its tensors), ...) of the bundle that serves attention."""
    known = getattr(default_bundle(_FORWARD).op(_FORWARD), "expressions", ())
    return tuple((one["name"], tuple(one["scalars"]), tuple(tensor["name"] for tensor in one["tensors"]))
                 for one in known if one["attribute"] == "score_mod")


def modifier(where, name, values, device):
    """Attributes of the modifier, and its two tensors (float32, flat, or None)."""
    if name is None:
        if values:
            raise TypeError("%s: unknown arguments %s" % (where, ", ".join(sorted(values))))
        return {}, (None, None)
    found = [one for one in _modifiers() if one[0] == name]
    if not found:
        raise ValueError("%s: score_mod=%r; the bundle has %s" % (where, name, ", ".join(one[0] for one in _modifiers()) or "none"))
    _, scalars, tensors = found[0]
    if sorted(values) != sorted(scalars + tensors):
        raise TypeError("%s: score_mod=%r takes %s, given are %s"
                        % (where, name, ", ".join(scalars + tensors) or "nothing", ", ".join(sorted(values)) or "none"))
    if any(values[one].requires_grad for one in tensors):
        raise Error("UNIMPLEMENTED", "%s: the gradient of a tensor of score_mod=%r is not computed; detach it" % (where, name))
    flat = [values[one].to(device=device, dtype=torch.float32).reshape(-1) for one in tensors]
    attributes = {"score_mod": name, "score_scalars": [float(values[one]) for one in scalars]}
    return attributes, (*flat, None, None)[:2]
