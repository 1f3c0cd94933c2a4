"""Attention on keys and values in pages: kbj.paged_attention, the forward pass alone.

It runs the op of the default bundle (kbundle.use); what it means, corner cases included, is in README.md beside this
file. Everything but arrays is part of the compiled program.
"""

import functools

import jax
import jax.numpy as jnp

from kbundle import Error
from kbundle_kernels.attention import _call
from kbundle_kernels.attention_arguments import DTYPES, lengths_of, scale_of, score_modifier, sight
from kbundle_kernels.attention_sinks import sinks_of, with_sinks
from kbundle.jax import _arguments
from kbundle.jax._primitive import same_axes

__all__ = ["paged_attention"]

_POOLS = {"KPSH": "hpsd", "PSKH": "pshd"}


def paged_attention(q, k_pages, v_pages, lengths, page_indices, *, attn_logits_soft_cap=None, scale=1.0, is_causal="bottom_right",
                    local_window_size=None, k_scale=None, v_scale=None, layout="KPSH", return_residual=False, score_mod=None,
                    sinks=None, **score_values):
    """softmax(scale * q keys^T) values, the keys and values of a sequence being in pages that page_indices[sequence] names, in order.

    Names, order and meaning are those of jax.experimental.pallas.ops.tpu.paged_attention: q[B, N, H], or with T queries
    for each sequence q[B, T, N, H]; k_pages[K, P, S, H] and v_pages[K, P, S, V] of S keys a page; lengths int32[B], keys that
    a sequence has; page_indices int32[B, pages of a sequence]. There is no gradient: asking for one is an error.

    attn_logits_soft_cap  cap * tanh(score / cap): score_mod="softcap"
    scale               1 as there: q is scaled already. None: 1 / sqrt(H)
    is_causal           "bottom_right": the last query is at the last key of its length, those before see one key less each;
                        False: all see all; True: query t sees the keys up to t
    local_window_size   left, or (left, 0): keys further to the left of the last one that is_causal lets a query see are not seen
    k_scale, v_scale    numbers or f32 scalars on the device: what pages hold, times them, is the number. Pages may be
                        float8_e4m3fn, or of q's dtype
    layout              "PSKH": k_pages[P, S, K, H], v_pages[P, S, K, V]
    return_residual     also the log-sum-exp of the scores, float32[B, N] or float32[B, T, N]
    sinks               floats [N] or one number, as of dot_product_attention
    score_mod           as of dot_product_attention; `k` counts keys from the beginning of their sequence

    A page index that is none makes the keys of that page unseen. A query that sees no key gives 0.
    """
    where = "paged_attention"
    _arguments.choice(where, "layout", layout, tuple(_POOLS))
    return_residual = _arguments.flag(where, "return_residual", return_residual)
    q, k_pages, v_pages = (jnp.asarray(x) for x in (q, k_pages, v_pages))
    _check_arrays(q, k_pages, v_pages, layout)
    one = q.ndim == 3
    q = q[:, None] if one else q
    batch = q.shape[0]
    is_causal = _arguments.choice(where, "is_causal", is_causal, (False, True, "bottom_right"))
    if is_causal is False and local_window_size is not None:
        if q.shape[1] != 1:
            raise Error("UNIMPLEMENTED", "paged_attention: local_window_size=%r with is_causal=False, of %d queries for each sequence: no kernel "
                        "has one window for several queries; is_causal=\"bottom_right\" gives each its own" % (local_window_size, q.shape[1]))
        is_causal = "bottom_right"  # of one query the same, and a window then ends at the last key
    try:
        seen = sight(where, is_causal, local_window_size, ahead=False)
    except NotImplementedError as error:
        raise Error("UNIMPLEMENTED", "paged_attention: %s" % error) from None
    if attn_logits_soft_cap is not None:
        if score_mod is not None:
            raise ValueError("paged_attention: attn_logits_soft_cap and score_mod=%r are both given" % (score_mod,))
        cap = _arguments.number(where, "attn_logits_soft_cap", attn_logits_soft_cap)
        score_mod, score_values = "softcap", {**score_values, "cap": cap}
    if lengths is None:
        raise ValueError("paged_attention: lengths is None; it needs to be int32[%d]" % batch)
    scale = scale_of(where, scale, q.shape[-1])
    modifier, tensors = score_modifier(where, score_mod, score_values)
    operands = [q, k_pages, v_pages, lengths_of(where, "lengths", lengths, batch), _indices(page_indices, batch),
                _scalar("k_scale", k_scale), _scalar("v_scale", v_scale), *tensors]
    leaves, tree = jax.tree.flatten(operands)
    operands = jax.tree.unflatten(tree, same_axes(leaves))
    attributes = dict(scale=scale, layout=_POOLS[layout], **seen, **modifier)
    sinks = sinks_of(where, sinks, q.shape[2])
    out, *stats = _paged_attention(tuple(sorted(attributes.items())), return_residual or sinks is not None, *operands)
    if sinks is not None:
        out, *stats = with_sinks(out, *stats, sinks, turned=True)
    stats = [jnp.swapaxes(x, 1, 2) for x in stats]
    results = [x[:, 0] if one else x for x in (out, *stats)]
    return tuple(results) if return_residual else results[0]


def _check_arrays(q, k_pages, v_pages, layout):
    shapes = "q %s, k_pages %s, v_pages %s" % (q.shape, k_pages.shape, v_pages.shape)
    if q.ndim not in (3, 4) or k_pages.ndim != 4 or k_pages.shape[:3] != v_pages.shape[:3] or q.shape[-1] != k_pages.shape[3]:
        raise ValueError("paged_attention: %s; q is [B, N, H] or [B, T, N, H], k_pages and v_pages have the four axes of %s and differ "
                         "in the last one only, and q has the last axis of k_pages" % (shapes, layout))
    heads = k_pages.shape[layout.index("K")]
    if 0 in k_pages.shape + v_pages.shape or q.shape[-2] == 0 or q.shape[-2] % heads:
        raise ValueError("paged_attention: %s; no axis of pages is empty, and query heads are a multiple of the %d heads of k_pages"
                         % (shapes, heads))
    if q.dtype not in DTYPES or k_pages.dtype != v_pages.dtype or k_pages.dtype not in (q.dtype, jnp.float8_e4m3fn):
        raise Error("UNIMPLEMENTED", "paged_attention: q is %s, k_pages %s, v_pages %s; the kernels take one of float32, float16 and "
                    "bfloat16, and pages of the same or of float8_e4m3fn" % (q.dtype, k_pages.dtype, v_pages.dtype))


def _indices(indices, batch):
    indices = jnp.asarray(indices)
    if indices.ndim != 2 or indices.shape[0] != batch or indices.shape[1] == 0 or not jnp.issubdtype(indices.dtype, jnp.integer):
        raise ValueError("paged_attention: page_indices is %s%s; it needs to be int32[%d, pages of a sequence]"
                         % (indices.dtype, list(indices.shape), batch))
    return _arguments.int32(indices)


def _scalar(name, scale):
    if scale is None:
        return None
    scale = jnp.asarray(scale, jnp.float32)
    if scale.ndim != 0:
        raise ValueError("paged_attention: %s has shape %s; it is one number for all pages" % (name, scale.shape))
    return scale


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _paged_attention(attributes, with_stats, *operands):
    operands = list(operands)
    while operands[-1] is None:
        operands.pop()
    return tuple(x for x in _call("attention.paged_attention", operands, attributes, with_stats=with_stats) if x is not None)


@_paged_attention.defjvp
def _paged_attention_jvp(attributes, with_stats, operands, tangents):
    raise Error("UNIMPLEMENTED", "differentiating paged_attention: its gradient is not computed; keep it out of what is differentiated "
                "(jax.lax.stop_gradient)")
