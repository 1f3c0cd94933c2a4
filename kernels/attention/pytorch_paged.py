"""Attention on keys and values in pages, as a function of PyTorch: kbt.paged_attention, where kbt is kbundle.torch; the forward pass alone. It
means what it means for JAX; README.md beside this file says it, corner cases included.
"""

import math

import torch

from kbundle.torch import call
from kbundle.torch._dtypes import int32
from kbundle_kernels.pytorch.attention import modifier, sight

__all__ = ["paged_attention"]

_POOLS = {"KPSH": "hpsd", "PSKH": "pshd"}


def paged_attention(q, k_pages, v_pages, lengths, page_indices, *, scale=1.0, is_causal="bottom_right", local_window_size=None, k_scale=None,
                    v_scale=None, layout="KPSH", return_residual=False, score_mod=None, **score_values):
    """softmax(scale * q keys^T) values, the keys and values of a sequence being in pages that page_indices[sequence] names, in order.

    q[B, N, H], or with T queries for each sequence q[B, T, N, H]; k_pages[K, P, S, H] and v_pages[K, P, S, V] of P pages of S keys, K divides
    N; lengths, integers [B]: the keys that a sequence has; page_indices, integers [B, pages of a sequence]. Both lie on the device. There is
    no gradient.

    scale               1 as for JAX: q is scaled already. None: 1 / sqrt(H)
    is_causal           "bottom_right": the last query is at the last key of its length, those before see one key less each; False: all see
                        all; True: query t sees the keys up to t
    local_window_size   left, or (left, 0): keys further to the left of the last one that is_causal lets a query see are not seen
    k_scale, v_scale    numbers or f32 scalars on the device: what pages hold, times them, is the number. Pages may be float8_e4m3fn, or of
                        q's dtype
    layout              "PSKH": k_pages[P, S, K, H], v_pages[P, S, K, V]
    return_residual     also the log-sum-exp of the scores, float32[B, N] or float32[B, T, N]
    score_mod           as of scaled_dot_product_attention; `k` counts keys from the beginning of their sequence

    A page index that is none makes the keys of that page unseen. A query that sees no key gives 0."""
    where = "paged_attention"
    if layout not in _POOLS:
        raise ValueError("%s: layout is %r; it must be 'KPSH' or 'PSKH'" % (where, layout))
    if q.dim() not in (3, 4) or k_pages.dim() != 4 or v_pages.dim() != 4:
        raise ValueError("%s: q %s, k_pages %s, v_pages %s; q is [B, N, H] or [B, T, N, H], and pages have the four axes of %s"
                         % (where, tuple(q.shape), tuple(k_pages.shape), tuple(v_pages.shape), layout))
    one, q = q.dim() == 3, q[:, None] if q.dim() == 3 else q
    if is_causal is False and local_window_size is not None:
        if q.shape[1] != 1:
            raise ValueError("%s: local_window_size=%r with is_causal=False, of %d queries for each sequence: no kernel has one window for several "
                             "queries; is_causal=\"bottom_right\" gives each its own" % (where, local_window_size, q.shape[1]))
        is_causal = "bottom_right"  # of one query the same, and a window then ends at the last key
    seen = sight(where, is_causal, False, local_window_size)
    if seen.pop("window_right", 0) != 0:
        raise ValueError("%s: local_window_size=%r looks ahead; without is_causal the kernels take a right size of 0" % (where, local_window_size))
    attributes, tensors = modifier(where, score_mod, score_values, q.device)
    out, stats = call(None, "attention.paged_attention", q, k_pages, v_pages, int32(lengths), int32(page_indices),
                      _scalar(where, "k_scale", k_scale, q.device), _scalar(where, "v_scale", v_scale, q.device), *tensors,
                      scale=1 / math.sqrt(q.shape[-1]) if scale is None else float(scale), layout=_POOLS[layout], with_stats=return_residual,
                      **seen, **attributes)
    out = out[:, 0] if one else out
    if not return_residual:
        return out
    stats = stats.transpose(1, 2)
    return out, stats[:, 0] if one else stats


def _scalar(where, name, scale, device):
    if scale is None:
        return None
    scale = torch.as_tensor(scale, dtype=torch.float32, device=device)
    if scale.dim() != 0:
        raise ValueError("%s: %s has shape %s; it is one number for all pages" % (where, name, tuple(scale.shape)))
    return scale
