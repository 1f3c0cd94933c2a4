"""The router of mixture-of-experts layers as differentiable JAX functions: kbj.route, kbj.router_topk, kbj.router_scores,
kbj.moe_aux_loss, where kbj is kbundle.jax.

They run the ops of the first bundle that has them (kbundle.bundles). What each op means, ties and NaN included, is in README.md beside
this file. How many experts and which scores are part of the compiled program: Python values, never traced ones.
"""

import functools
import typing

import jax
import jax.numpy as jnp

from kbundle.jax import _arguments, call
from kbundle.jax._primitive import like, placed

__all__ = ["Routing", "moe_aux_loss", "route", "router_scores", "router_topk"]


class Routing(typing.NamedTuple):
    """Where tokens go, as `route` returns it. Entry i of a token is its i-th best expert."""
    weights: jax.Array  # [tokens, k], of the logits' dtype: gradients flow through these
    indices: jax.Array  # int32[tokens, k]: the experts
    row_id_map: jax.Array  # int32[tokens, 2 * k + 1], for `permute` and `unpermute`
    tokens_per_expert: jax.Array  # int32[E]
    expert_offsets: jax.Array  # int32[E + 1]: where each expert's rows begin, then their number, padding included


def route(logits, k, *, score_function="softmax", use_pre_softmax=False, expert_bias=None, num_groups=None, group_topk=None,
          scaling_factor=1.0, align_size=1):
    """Chooses k of E experts for each token of logits[..., E] and numbers the rows that go to them: a Routing.

    Rows are numbered expert by expert, and within an expert token by token; those of an expert are padded to a multiple of align_size.
    All else is as in `router_topk`, but that no tensor [tokens, E] is made. Tokens that lie on several devices count as one sequence.
    """
    logits, expert_bias, how = _checked("route", logits, k, score_function, use_pre_softmax, expert_bias, num_groups, group_topk,
                                        scaling_factor)
    how["align_size"] = _arguments.integer("route", "align_size", align_size, least=1, most=65536)
    logits = logits.reshape(-1, logits.shape[-1])
    operands = placed(None, "router.topk_rows", logits, expert_bias, **how)
    return Routing(*_rows(*operands, tuple(how.items())))


def router_topk(logits, k, *, score_function="softmax", use_pre_softmax=False, expert_bias=None, num_groups=None, group_topk=None,
                scaling_factor=1.0, routing_map="bytes"):
    """(probs[..., E], routing_map) of logits[..., E]: what the k best experts of each token weigh, 0 elsewhere, and who they are.

    score_function "softmax": weights are the softmax over the chosen, or with use_pre_softmax over all experts. "sigmoid": sigmoids,
    of k > 1 divided by their sum; expert_bias[E] is added for the choice only. num_groups and group_topk: the experts are that many
    groups in a row, and only the group_topk groups whose best k / group_topk scores have the greatest sum are looked at. Weights are
    multiplied by scaling_factor. Equal scores go to the lower index, as in lax.top_k. logits are float32, float16 or bfloat16, and so is
    probs; what is between is float32. routing_map: "bytes", bool[..., E]; "bits", uint8[..., ceil(E / 8)], the lowest first; or None.
    Gradients flow to logits.
    """
    logits, expert_bias, how = _checked("router_topk", logits, k, score_function, use_pre_softmax, expert_bias, num_groups, group_topk,
                                        scaling_factor)
    how["map"] = _arguments.choice("router_topk", "routing_map", routing_map, ("bytes", "bits", None)) or "none"
    operands = placed(None, "router.topk", logits, expert_bias, **how)
    return _dense(*operands, tuple(how.items()))


def router_scores(logits, k, *, score_function="softmax", routing_map="bytes"):
    """(scores[..., E], routing_map) of logits[..., E], for `moe_aux_loss`: the softmax, or the sigmoids divided by their sum, in float32
    whatever the logits are; and the k best of each token, without groups or a bias. Gradients flow to logits."""
    logits, _, how = _checked("router_scores", logits, k, score_function, False, None, None, None, 1.0)
    how = {"k": how["k"], "score_function": how["score_function"]}
    how["map"] = _arguments.choice("router_scores", "routing_map", routing_map, ("bytes", "bits", None)) or "none"
    return _scores(*placed(None, "router.scores", logits, **how), tuple(how.items()))


def moe_aux_loss(probs, tokens_per_expert, k, coefficient, *, total_num_tokens=None):
    """coefficient * E / (k * T ** 2) * sum(probs.sum(0) * tokens_per_expert), a float32, for probs[..., E] of T tokens (or
    total_num_tokens, where these are not all) and integers tokens_per_expert[E]. The same bits in every run. Gradients flow to probs."""
    probs, tokens_per_expert = _by_expert("moe_aux_loss", "probs", probs), jnp.asarray(tokens_per_expert)
    if not jnp.issubdtype(tokens_per_expert.dtype, jnp.integer) or tokens_per_expert.shape != probs.shape[-1:]:
        raise ValueError("moe_aux_loss: tokens_per_expert is %s%s; for probs of shape %s it must be integers%s"
                         % (tokens_per_expert.dtype, list(tokens_per_expert.shape), probs.shape, list(probs.shape[-1:])))
    k = _arguments.integer("moe_aux_loss", "k", k, least=1, most=8192)
    coefficient = _arguments.number("moe_aux_loss", "coefficient", coefficient)
    probs = probs.reshape(-1, probs.shape[-1])
    total = probs.shape[0] if total_num_tokens is None else _arguments.integer("moe_aux_loss", "total_num_tokens", total_num_tokens)
    how = {"k": k, "coefficient": coefficient, "total_num_tokens": total}
    operands = placed(None, "router.aux_loss", probs, _arguments.int32(tokens_per_expert), **how)
    return _aux_loss(*operands, tuple(how.items()))


def _by_expert(where, name, value):
    array = _arguments.floats(where, name, value)
    if array.ndim < 1:
        raise ValueError("%s: %s has shape (); it needs at least the axis E" % (where, name))
    return array


def _checked(where, logits, k, score_function, use_pre_softmax, expert_bias, num_groups, group_topk, scaling_factor):
    """logits, the bias in float32, and the attributes of the op."""
    logits = _by_expert(where, "logits", logits)
    experts = logits.shape[-1]
    if not 1 <= experts <= 8192:
        raise ValueError("%s: logits of shape %s have %d experts; there must be 1 to 8192" % (where, logits.shape, experts))
    k = _arguments.integer(where, "k", k, least=1, most=experts)
    score_function = _arguments.choice(where, "score_function", score_function, ("softmax", "sigmoid"))
    if expert_bias is not None:
        expert_bias = jnp.asarray(expert_bias)
        if score_function != "sigmoid":
            raise ValueError("%s: expert_bias is for score_function='sigmoid' only" % where)
        if expert_bias.shape != (experts,):
            raise ValueError("%s: expert_bias has shape %s; for logits of shape %s it must be (%d,)"
                             % (where, expert_bias.shape, logits.shape, experts))
        expert_bias = jax.lax.stop_gradient(expert_bias).astype(jnp.float32)
    if (num_groups is None) != (group_topk is None):
        raise ValueError("%s: num_groups is %s and group_topk %s; give both or none" % (where, num_groups, group_topk))
    groups = _arguments.integer(where, "num_groups", 1 if num_groups is None else num_groups, least=1, most=experts)
    group_topk = _arguments.integer(where, "group_topk", 1 if group_topk is None else group_topk, least=1, most=groups)
    if experts % groups:
        raise ValueError("%s: num_groups is %d; it must divide the %d experts" % (where, groups, experts))
    if k % group_topk:
        raise ValueError("%s: k is %d; it must be a multiple of group_topk, %d" % (where, k, group_topk))
    if k // group_topk > experts // groups:
        raise ValueError("%s: k is %d; %d groups of %d experts have %d" % (where, k, group_topk, experts // groups,
                                                                         group_topk * (experts // groups)))
    return logits, expert_bias, dict(
        k=k, score_function=score_function, use_pre_softmax=_arguments.flag(where, "use_pre_softmax", use_pre_softmax), num_groups=groups,
        group_topk=group_topk, scaling_factor=_arguments.number(where, "scaling_factor", scaling_factor))


def _topk_backward(logits, indices, dprobs, dweights, how):
    how = {name: value for name, value in how if name in ("score_function", "use_pre_softmax", "scaling_factor")}
    return like(call(None, "router.topk_backward", logits, indices, dprobs, dweights, **how), logits)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _dense(logits, expert_bias, how):
    return _dense_forward(logits, expert_bias, how)[0]


def _dense_forward(logits, expert_bias, how):
    indices, _, probs, as_bytes, as_bits = call(None, "router.topk", logits, expert_bias, **dict(how))
    return (probs, as_bytes if as_bits is None else as_bits), (logits, indices)


def _dense_backward(how, saved, cotangents):
    return _topk_backward(*saved, cotangents[0], None, how), None


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _rows(logits, expert_bias, how):
    return _rows_forward(logits, expert_bias, how)[0]


def _rows_forward(logits, expert_bias, how):
    indices, weights, *rows = call(None, "router.topk_rows", logits, expert_bias, **dict(how))
    return (weights, indices, *rows[:3]), (logits, indices)


def _rows_backward(how, saved, cotangents):
    return _topk_backward(*saved, None, cotangents[0], how), None


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _scores(logits, how):
    scores, _, as_bytes, as_bits = call(None, "router.scores", logits, **dict(how))
    return scores, as_bytes if as_bits is None else as_bits


def _scores_forward(logits, how):
    return _scores(logits, how), logits


def _scores_backward(how, logits, cotangents):
    return like(call(None, "router.scores_backward", cotangents[0], logits, score_function=dict(how)["score_function"]), logits),


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _aux_loss(probs, tokens_per_expert, how):
    return call(None, "router.aux_loss", probs, tokens_per_expert, **dict(how))


def _aux_loss_forward(probs, tokens_per_expert, how):
    return _aux_loss(probs, tokens_per_expert, how), (probs, tokens_per_expert)


def _aux_loss_backward(how, saved, dloss):
    """E numbers, the same for every token: what XLA broadcasts where it is used needs no op."""
    probs, tokens_per_expert = saved
    how = dict(how)
    total = how["total_num_tokens"]
    factor = how["coefficient"] * probs.shape[-1] / (how["k"] * total ** 2) if total else 0.0
    slope = (dloss * factor * tokens_per_expert.astype(jnp.float32)).astype(probs.dtype)
    return like(jnp.broadcast_to(slope, probs.shape), probs), None


_dense.defvjp(_dense_forward, _dense_backward)
_rows.defvjp(_rows_forward, _rows_backward)
_scores.defvjp(_scores_forward, _scores_backward)
_aux_loss.defvjp(_aux_loss_forward, _aux_loss_backward)
