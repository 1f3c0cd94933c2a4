"""Routing of tokens to experts as functions of PyTorch, with gradients: kbt.permute, kbt.unpermute, kbt.sort_chunks, where kbt is
kbundle.torch. They mean what they mean for JAX; README.md beside this file says it, for any values in maps and sizes.
"""

import torch

from kbundle.torch import DerivativeFunction, call
from kbundle.torch._dtypes import int32

__all__ = ["permute", "sort_chunks", "unpermute"]


def permute(x, routing_map, num_out_tokens, probs=None, *, row_id_map=None):
    """Copies each token of x[..., H] to every expert that routing_map[..., E] (nonzero) names: expert by expert, and within an expert in
    the order of tokens.

    Returns (out[num_out_tokens, H], permuted_probs[num_out_tokens] or None, row_id_map[tokens, 2 * E + 1]); the map is for `unpermute`.
    num_out_tokens is a Python number. Tokens past it are dropped, rows that no token goes to are 0, and so is a row whose probability is 0:
    padding is routed that way. Gradients flow to x and probs.

    With row_id_map[tokens, 2 * n + 1], of another call or of `route`, routing_map is None, and probs[..., n] belong to its n columns of rows:
    for `route` the weights of the k chosen."""
    if x.dim() < 1 or (routing_map is None) == (row_id_map is None):
        raise ValueError("permute: x has shape %s, routing_map and row_id_map are %s; x needs at least the axis H, and one of both is given"
                         % (tuple(x.shape), "both None" if routing_map is None else "both given" if row_id_map is not None else "one"))
    rows = x.reshape(-1, x.shape[-1])
    if row_id_map is None:
        if routing_map.shape[:-1] != x.shape[:-1] or not routing_map.dim():
            raise ValueError("permute: x has shape %s and routing_map %s; they differ in their last axis only"
                             % (tuple(x.shape), tuple(routing_map.shape)))
        if routing_map.dtype not in (torch.bool, torch.uint8):
            routing_map = routing_map != 0
        row_id_map = call(None, "permutation.row_id_map", routing_map.reshape(-1, routing_map.shape[-1]))
    elif row_id_map.dtype != torch.int32 or row_id_map.dim() != 2 or row_id_map.shape[0] != rows.shape[0] or row_id_map.shape[1] % 2 == 0:
        raise ValueError("permute: row_id_map is %s%s; for %d tokens it must be int32[%d, 2 * n + 1]"
                         % (row_id_map.dtype, list(row_id_map.shape), rows.shape[0], rows.shape[0]))
    columns = row_id_map.shape[1] // 2
    if probs is not None and (probs.shape[-1:] != (columns,) or probs.numel() != rows.shape[0] * columns):
        raise ValueError("permute: probs has shape %s; for %d tokens and %d columns of rows it must be (%d, %d)"
                         % (tuple(probs.shape), rows.shape[0], columns, rows.shape[0], columns))
    out, permuted = call(None, "permutation.permute_with_mask_map", rows, row_id_map, None if probs is None else probs.reshape(-1, columns),
                         num_out_tokens=num_out_tokens, **_of(probs))
    return out, permuted, row_id_map


def unpermute(x, row_id_map, merging_probs=None):
    """Sums the rows of x[rows, H] that belong to each token, as the row_id_map of `permute` says, times merging_probs[..., E] where they are
    given. Returns out[tokens, H]. Gradients flow to x and merging_probs."""
    if merging_probs is not None:
        if merging_probs.dim() < 1:
            raise ValueError("unpermute: merging_probs has shape (); it needs at least the axis E")
        merging_probs = merging_probs.reshape(-1, merging_probs.shape[-1])
    return call(None, "permutation.unpermute_with_mask_map", x, row_id_map, merging_probs, **_of(merging_probs))[0]


def sort_chunks(x, split_sizes, sorted_indices, probs=None):
    """Cuts x[..., H] into chunks of split_sizes[N] rows and puts chunk sorted_indices[j] at place j; both are integers on the device.

    Returns (out[tokens, H], permuted_probs[tokens] or None, row_id_map[tokens]). Rows that no token goes to are 0. Gradients flow to x and
    probs."""
    if x.dim() < 1 or (probs is not None and probs.shape != x.shape[:-1]):
        raise ValueError("sort_chunks: x has shape %s and probs %s; x needs at least the axis H, and probs all axes of x but that"
                         % (tuple(x.shape), None if probs is None else tuple(probs.shape)))
    rows = x.reshape(-1, x.shape[-1])
    row_id_map = call(None, "permutation.make_chunk_sort_map", _integers("split_sizes", split_sizes),
                      _integers("sorted_indices", sorted_indices), num_tokens=rows.shape[0])
    return *call(None, "permutation.sort_chunks_by_map", rows, row_id_map, None if probs is None else probs.reshape(-1), **_of(probs)), row_id_map


def _integers(name, values):
    """An int32[N]: a size or index that is no integer would be rounded silently."""
    if values.dim() != 1 or values.dtype not in (torch.int32, torch.int64):
        raise ValueError("sort_chunks: %s is %s%s; it needs to be int32[N]" % (name, values.dtype, list(values.shape)))
    return int32(values)


def _of(probs):
    """The attribute of their dtype; it means nothing where there are none."""
    return {} if probs is None else {"probs_dtype": probs.dtype}


# ---- gradients ----

def _through_permute(flow):
    row_id_map, probs, dout, dpermuted = flow["row_id_map"], flow["probs"], flow["dout"], flow["dpermuted_probs"]
    made = {"x": None, "probs": None}
    if dout is not None and "x" in flow.wanted:
        passed = row_id_map if probs is None else _without_padding(row_id_map, probs)
        made["x"] = flow.call("permutation.unpermute_with_mask_map", dout, passed)[0]
    if dpermuted is not None and "probs" in flow.wanted:
        # A row of probability 0 has its part in this one: the rows that are summed here are single numbers.
        made["probs"] = flow.call("permutation.unpermute_with_mask_map", dpermuted[:, None], row_id_map, None, dpermuted, **_of(dpermuted))[1]
    return made


def _without_padding(row_id_map, probs):
    """The map without the entries of probability 0. Their rows were written as 0, whatever x is, and what comes back for them counts for
    nothing, even where it is NaN: so they are passed over, not multiplied by 0."""
    experts = probs.shape[1]
    rows, named = row_id_map[:, :experts], row_id_map[:, experts:2 * experts]
    padding = probs.gather(1, named.clamp(min=0).long()) == 0
    return torch.cat([rows.masked_fill(padding, -1), row_id_map[:, experts:]], 1)


def _through_unpermute(flow):
    dout, row_id_map = flow["dout"], flow["row_id_map"]
    if "permuted_probs" in flow.wanted:  # no function gives them here, and nothing flows back through what they become
        return {}
    if "merging_probs" not in flow.shapes:
        return {"x": flow.call("permutation.permute_with_mask_map", dout, row_id_map, num_out_tokens=flow.shapes["x"][0])[0]}
    dx, dprobs = flow.call("permutation.unpermute_backward_with_merging_probs", dout, row_id_map, flow["x"], flow["merging_probs"])
    return {"x": dx, "merging_probs": dprobs}


def _through_sort(flow):
    dout, dpermuted = flow["dout"], flow["dpermuted_probs"]
    if dout is None:  # then the probabilities alone are sent back, as rows that nobody wants
        dout = dpermuted[:, None]
    dx, dprobs = flow.call("permutation.sort_chunks_by_map", dout, flow["row_id_map"], dpermuted, is_forward=not flow.attributes["is_forward"],
                           **_of(dpermuted))
    return {"x": None if flow["dout"] is None else dx, "probs": dprobs}


def _of_unpermute(flow):
    return ("row_id_map", "x", "merging_probs") if "merging_probs" in flow.shapes else ("row_id_map",)


DERIVATIVES = {
    "permutation.permute_with_mask_map": DerivativeFunction(_through_permute, lambda flow: ("row_id_map", "probs"),
                                                            through=("out", "permuted_probs")),
    "permutation.unpermute_with_mask_map": DerivativeFunction(_through_unpermute, _of_unpermute, through=("out",)),
    "permutation.sort_chunks_by_map": DerivativeFunction(_through_sort, lambda flow: ("row_id_map",), through=("out", "permuted_probs"))}
