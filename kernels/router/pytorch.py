"""The router of mixture-of-experts layers as functions of PyTorch, with gradients: kbt.route, kbt.router_topk, kbt.router_scores,
kbt.moe_aux_loss, where kbt is kbundle.torch. They mean what they mean for JAX; README.md beside this file says it, ties and NaN included.
"""

import typing

import torch

from kbundle.torch import Derivative, DerivativeFunction, call
from kbundle.torch._dtypes import int32

__all__ = ["Routing", "moe_aux_loss", "route", "router_scores", "router_topk"]


class Routing(typing.NamedTuple):
    """Where tokens go, as `route` returns it. Entry i of a token is its i-th best expert."""
    weights: torch.Tensor  # [tokens, k], of the logits' dtype: gradients flow through these
    indices: torch.Tensor  # int32[tokens, k]: the experts
    row_id_map: torch.Tensor  # int32[tokens, 2 * k + 1], for `permute` and `unpermute`
    tokens_per_expert: torch.Tensor  # int32[E]
    expert_offsets: torch.Tensor  # int32[E + 1]: where each expert's rows begin, then their number, padding included


def route(logits, k, *, score_function="softmax", use_pre_softmax=False, expert_bias=None, num_groups=None, group_topk=None,
          scaling_factor=1.0, align_size=1):
    """Chooses k of E experts for each token of logits[..., E] and numbers the rows that go to them: a Routing.

    Rows are numbered expert by expert, and within an expert token by token; those of an expert are padded to a multiple of align_size. All
    else is as in `router_topk`, but that no tensor [tokens, E] is made."""
    how = _checked("route", logits, score_function, expert_bias, num_groups, group_topk)
    indices, weights, row_id_map, tokens_per_expert, expert_offsets, *_ = call(
        None, "router.topk_rows", logits.reshape(-1, logits.shape[-1]), _bias(expert_bias), k=k, use_pre_softmax=use_pre_softmax,
        scaling_factor=scaling_factor, align_size=align_size, **how)
    return Routing(weights, indices, row_id_map, tokens_per_expert, expert_offsets)


def router_topk(logits, k, *, score_function="softmax", use_pre_softmax=False, expert_bias=None, num_groups=None, group_topk=None,
                scaling_factor=1.0, routing_map="bytes"):
    """(probs[..., E], routing_map) of logits[..., E]: what the k best experts of each token weigh, 0 elsewhere, and who they are.

    score_function "softmax": weights are the softmax over the chosen, or with use_pre_softmax over all experts. "sigmoid": sigmoids, of
    k > 1 divided by their sum; expert_bias[E] is added for the choice only. num_groups and group_topk: the experts are that many groups in
    a row, and only the group_topk groups whose best k / group_topk scores have the greatest sum are looked at. Weights are multiplied by
    scaling_factor. Equal scores go to the lower index. logits are float32, float16 or bfloat16, and so is probs; what is between is float32.
    routing_map: "bytes", bool[..., E]; "bits", uint8[..., ceil(E / 8)], the lowest first; or None. Gradients flow to logits."""
    how = _checked("router_topk", logits, score_function, expert_bias, num_groups, group_topk)
    _, _, probs, as_bytes, as_bits = call(
        None, "router.topk", logits, _bias(expert_bias), k=k, use_pre_softmax=use_pre_softmax, scaling_factor=scaling_factor,
        map=_map("router_topk", routing_map), **how)
    return probs, as_bytes if as_bits is None else as_bits


def router_scores(logits, k, *, score_function="softmax", routing_map="bytes"):
    """(scores[..., E], routing_map) of logits[..., E], for `moe_aux_loss`: the softmax, or the sigmoids divided by their sum, in float32
    whatever the logits are; and the k best of each token, without groups or a bias. Gradients flow to logits."""
    scores, _, as_bytes, as_bits = call(None, "router.scores", logits, k=k, score_function=score_function, map=_map("router_scores", routing_map))
    return scores, as_bytes if as_bits is None else as_bits


def moe_aux_loss(probs, tokens_per_expert, k, coefficient, *, total_num_tokens=None):
    """coefficient * E / (k * T ** 2) * sum(probs.sum(0) * tokens_per_expert), a float32, for probs[..., E] of T tokens (or
    total_num_tokens, where these are not all) and integers tokens_per_expert[E]. The same bits in every run. Gradients flow to probs."""
    if probs.dim() < 1 or tokens_per_expert.shape != probs.shape[-1:] or tokens_per_expert.dtype not in (torch.int32, torch.int64):
        raise ValueError("moe_aux_loss: tokens_per_expert is %s%s; for probs of shape %s it must be integers%s"
                         % (tokens_per_expert.dtype, list(tokens_per_expert.shape), tuple(probs.shape), list(probs.shape[-1:])))
    probs = probs.reshape(-1, probs.shape[-1])
    return call(None, "router.aux_loss", probs, int32(tokens_per_expert), k=k, coefficient=coefficient,
                total_num_tokens=probs.shape[0] if total_num_tokens is None else total_num_tokens)


def _checked(where, logits, score_function, expert_bias, num_groups, group_topk):
    """Attributes of the choice. What the numbers must be the op says."""
    if logits.dim() < 1:
        raise ValueError("%s: logits have shape (); they need at least the axis E" % where)
    if expert_bias is not None and score_function != "sigmoid":
        raise ValueError("%s: expert_bias is for score_function='sigmoid' only" % where)
    if (num_groups is None) != (group_topk is None):
        raise ValueError("%s: num_groups is %s and group_topk %s; give both or none" % (where, num_groups, group_topk))
    return {"score_function": score_function, "num_groups": 1 if num_groups is None else num_groups,
            "group_topk": 1 if group_topk is None else group_topk}


def _bias(expert_bias):
    """It counts for the choice, which has no gradient."""
    return None if expert_bias is None else expert_bias.detach().to(torch.float32)


def _map(where, routing_map):
    if routing_map not in ("bytes", "bits", None):
        raise ValueError("%s: routing_map is %r; it must be 'bytes', 'bits' or None" % (where, routing_map))
    return routing_map or "none"


def _through_aux_loss(flow):
    """E numbers, the same for every token: what needs no op."""
    how, (tokens, experts) = flow.attributes, flow.shapes["probs"]
    total = how["total_num_tokens"]
    factor = how["coefficient"] * experts / (how["k"] * total ** 2) if total else 0.0
    slope = flow["dloss"] * factor * flow["tokens_per_expert"].float()
    return {"probs": slope.expand(tokens, experts)}


DERIVATIVES = {"router.topk": Derivative("router.topk_backward"), "router.topk_rows": Derivative("router.topk_backward"),
               "router.scores": Derivative("router.scores_backward"),
               "router.aux_loss": DerivativeFunction(_through_aux_loss, lambda flow: ("tokens_per_expert",), through=("loss",))}
