"""Float64 references of the router ops: what each op means. Infinities and NaN follow from the formulas.

Better is the greater score; equal scores go to the lower index; NaN is better than all else; zeros of either sign are equal. Without
a bias experts are ordered by their logits, of which their scores rise.
"""

import numpy as np

TINY = 1e-20  # is added to the sum that sigmoids are divided by


def _sigmoid(x):
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-x))


def _softmax(x):
    with np.errstate(invalid="ignore"):
        e = np.exp(x - np.max(np.where(np.isnan(x), -np.inf, x), axis=-1, keepdims=True, initial=-np.inf))
        return e / e.sum(axis=-1, keepdims=True)


def _order(keys, excluded=None):
    """Places along the last axis from the best to the worst; those that are excluded come last."""
    nan = np.isnan(keys)
    rank = [-np.where(nan, 0.0, keys), ~nan]
    return np.lexsort(rank if excluded is None else [*rank, excluded], axis=-1)


def _keys(logits, expert_bias):
    return logits if expert_bias is None else _sigmoid(logits) + expert_bias


def _group_scores(logits, expert_bias, k, score_function, use_pre_softmax, num_groups, group_topk):
    keys = _keys(logits, expert_bias)
    scores = keys if expert_bias is not None else (
        _sigmoid(logits) if score_function == "sigmoid" else _softmax(logits) if use_pre_softmax else logits)
    split = lambda a: a.reshape(*a.shape[:-1], num_groups, -1)
    best = _order(split(keys))[..., :k // group_topk]
    return np.take_along_axis(split(scores), best, axis=-1).sum(axis=-1)


def _choose(logits, expert_bias, k, score_function, use_pre_softmax, num_groups, group_topk):
    """The k best experts of each token."""
    excluded = None
    if num_groups > 1:
        scores = _group_scores(logits, expert_bias, k, score_function, use_pre_softmax, num_groups, group_topk)
        kept = np.zeros(scores.shape, bool)
        np.put_along_axis(kept, _order(scores)[..., :group_topk], True, axis=-1)
        excluded = np.repeat(~kept, logits.shape[-1] // num_groups, axis=-1)
    return _order(_keys(logits, expert_bias), excluded)[..., :k]


def _maps(indices, experts, map):
    chosen = np.zeros((*indices.shape[:-1], experts), bool)
    np.put_along_axis(chosen, indices, True, axis=-1)
    bits = np.packbits(chosen, axis=-1, bitorder="little") if map == "bits" else None
    return chosen if map == "bytes" else None, bits


def topk(logits, expert_bias=None, *, k, score_function="softmax", use_pre_softmax=False, num_groups=1, group_topk=1, scaling_factor=1.0,
         dense=True, map="none"):
    """indices, weights, probs where dense, the map as bytes or as bits."""
    indices = _choose(logits, expert_bias, k, score_function, use_pre_softmax, num_groups, group_topk)
    found = np.take_along_axis(logits, indices, axis=-1)
    if score_function == "sigmoid":
        weights = _sigmoid(found)
        weights = weights / (weights.sum(axis=-1, keepdims=True) + TINY) if k > 1 else weights
    elif use_pre_softmax:
        weights = np.take_along_axis(_softmax(logits), indices, axis=-1)
    else:
        weights = _softmax(found)
    weights = weights * np.float64(np.float32(scaling_factor))
    probs = None
    if dense:
        probs = np.zeros(logits.shape)
        np.put_along_axis(probs, indices, weights, axis=-1)
    return indices, weights, probs, *_maps(indices, logits.shape[-1], map)


def _rows(indices, experts, align_size):
    """row_id_map, tokens_per_expert, expert_offsets of indices[tokens, k]."""
    tokens, k = indices.shape
    named = (indices >= 0) & (indices < experts)
    entry = np.flatnonzero(named)
    expert = indices.reshape(-1)[entry].astype(np.int64)
    counts = np.bincount(expert, minlength=experts)
    offsets = np.concatenate([[0], np.cumsum((counts + align_size - 1) // align_size * align_size)])
    order = np.argsort(expert, kind="stable")
    rows = np.full(tokens * k, -1, np.int64)
    first = np.cumsum(counts) - counts
    rows[entry[order]] = offsets[expert[order]] + np.arange(len(entry)) - first[expert[order]]
    made = np.empty((tokens, 2 * k + 1), np.int64)
    made[:, :k], made[:, k:2 * k], made[:, 2 * k] = rows.reshape(tokens, k), np.arange(k), k
    return made, counts, offsets


def topk_rows(logits, expert_bias=None, *, align_size=1, **how):
    indices, weights, *rest = topk(logits, expert_bias, **{"dense": False, **how})
    return indices, weights, *_rows(indices, logits.shape[-1], align_size), *rest


def _all_scores(logits, score_function):
    if score_function == "softmax":
        return _softmax(logits)
    s = _sigmoid(logits)
    return s / (s.sum(axis=-1, keepdims=True) + TINY)


def scores(logits, *, k, score_function="softmax", map="none"):
    """scores of all experts, the k best, the map."""
    indices = _choose(logits, None, k, score_function, False, 1, 1)
    return _all_scores(logits, score_function), indices, *_maps(indices, logits.shape[-1], map)


def topk_backward(logits, indices, dprobs=None, dweights=None, *, score_function="softmax", use_pre_softmax=False, scaling_factor=1.0):
    """dlogits. An entry counts if it names an expert that no later entry of its token names."""
    experts, k = logits.shape[-1], indices.shape[-1]
    flat = lambda a, last: None if a is None else a.reshape(-1, last)
    x, g, gw, wide = flat(logits, experts), flat(dprobs, experts), flat(dweights, k), flat(indices, k).astype(np.int64)
    chosen, dw = np.zeros(x.shape, bool), np.zeros(x.shape)
    for slot in range(k):
        token = np.flatnonzero((wide[:, slot] >= 0) & (wide[:, slot] < experts))
        expert = wide[token, slot]
        chosen[token, expert] = True
        dw[token, expert] = (0.0 if g is None else g[token, expert]) + (0.0 if gw is None else gw[token, slot])
    dw = np.where(chosen, dw, 0.0) * np.float64(np.float32(scaling_factor))
    with np.errstate(invalid="ignore", divide="ignore"):
        if score_function == "sigmoid":
            s = np.where(chosen, _sigmoid(x), 0.0)
            whole = s.sum(axis=-1, keepdims=True) + TINY if k > 1 else 1.0
            along = (dw * s).sum(axis=-1, keepdims=True) / whole if k > 1 else 0.0
            slope = np.where(chosen, (dw - along) / whole * s * (1 - s), 0.0)
        else:
            p = _softmax(x) if use_pre_softmax else np.where(chosen, _softmax(np.where(chosen, x, -np.inf)), 0.0)
            weighed = np.where(chosen, dw * p, 0.0).sum(axis=-1, keepdims=True)
            slope = p * (dw - weighed)
            slope = slope if use_pre_softmax else np.where(chosen, slope, 0.0)
    return slope.reshape(logits.shape)


def scores_backward(dscores, logits, *, score_function="softmax"):
    s = _all_scores(logits, score_function)
    slope = s * (dscores - (dscores * s).sum(axis=-1, keepdims=True))
    return slope * (1 - _sigmoid(logits)) if score_function == "sigmoid" else slope


def aux_loss(probs, tokens_per_expert, *, k, coefficient, total_num_tokens):
    experts = probs.shape[-1]
    if total_num_tokens == 0:
        return np.float64(0.0)
    factor = np.float64(np.float32(coefficient)) * experts / (k * float(total_num_tokens) ** 2)
    return factor * np.sum(probs.sum(axis=0) * tokens_per_expert)


def _grid(rng, dims):
    """Logits that every dtype holds, many of them equal, and that float32 adds without rounding."""
    return rng.integers(-128, 128, dims) / 32.0


def _ambiguous(logits, expert_bias, problem):
    """Tokens whose choice float32 might make another way: scores are rounded, but logits are not."""
    how = [problem["k"], problem.get("score_function", "softmax"), problem.get("use_pre_softmax", False), problem.get("num_groups", 1),
           problem.get("group_topk", 1)]
    close = np.zeros(logits.shape[:-1], bool)
    if how[3] > 1 and (how[1] == "sigmoid" or how[2]):
        scores = np.sort(_group_scores(logits, expert_bias, *how), axis=-1)[..., ::-1]
        if how[4] < how[3]:
            close |= scores[..., how[4] - 1] - scores[..., how[4]] < 2e-6
    if expert_bias is not None:
        how[0] = min(how[0] + how[4], logits.shape[-1] // how[3] * how[4])  # one more of each group
        if how[0] // how[4] * how[4] != how[0]:
            how[0] -= how[0] % how[4]
        keys = _keys(logits, expert_bias)
        excluded = None
        if how[3] > 1:
            exact = [problem["k"], *how[1:]]
            kept = np.zeros((*logits.shape[:-1], how[3]), bool)
            scores = _group_scores(logits, expert_bias, *exact)
            np.put_along_axis(kept, _order(scores)[..., :how[4]], True, axis=-1)
            excluded = np.repeat(~kept, logits.shape[-1] // how[3], axis=-1)
        best = np.take_along_axis(keys, _order(keys, excluded)[..., :how[0]], axis=-1)
        close |= (-np.diff(best, axis=-1) < 2e-6).any(axis=-1)
    return close


def make_inputs(op, problem, seed):
    """Logits with many equals, such that rounding changes no choice; maps of what is chosen."""
    rng = np.random.default_rng(seed)
    if op == "aux_loss":
        return {"probs": rng.random(problem["probs"]), "tokens_per_expert": rng.integers(0, 2000, problem["tokens_per_expert"])}
    dims = problem["logits"]
    logits = _grid(rng, dims)
    if op == "topk_backward":
        return {"logits": logits, "indices": _order(logits)[..., :problem["indices"][-1]]}
    if op == "scores_backward":
        return {"logits": logits}
    bias = None
    if "expert_bias" in problem:
        bias = np.float64(np.float32(rng.random(problem["expert_bias"]) - 0.5))
    for _ in range(100):
        close = _ambiguous(logits, bias, problem)
        if not close.any():
            break
        logits[close] = _grid(rng, (int(close.sum()), dims[-1]))
    return {"logits": logits} | ({} if bias is None else {"expert_bias": bias})
