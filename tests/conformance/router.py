"""The router ops on rows that matter, the same on every device, every variant forced: equal scores, NaN and infinities, numbers of experts
around every limit, any k, groups of every size, no tokens at all, and indices that no forward pass makes."""

import numpy as np

from conformance import family

EXPERTS = [1, 2, 3, 8, 31, 32, 33, 64, 127, 128, 160, 255, 256, 257, 300, 384, 512, 513, 1000, 4096, 8192]
HOW = [{}, {"use_pre_softmax": True}, {"score_function": "sigmoid"}, {"score_function": "sigmoid", "scaling_factor": 2.5}]
MAPS = [{"map": "bytes"}, {"map": "bits"}, {"map": "none"}]
GROUPS = [(8, 2, 1, 2), (12, 4, 2, 2), (64, 8, 4, 8), (256, 8, 4, 8), (160, 8, 3, 6), (66, 33, 20, 20), (512, 16, 2, 32), (600, 100, 40, 40),
          (256, 256, 8, 8), (96, 3, 2, 6)]


def grid(rng, *dims):
    """Numbers that all dtypes hold (a fourth of them too), many of them equal."""
    return rng.integers(-128, 128, dims) / 32.0


def special(rng, experts):
    """Rows that are constant, have NaN and infinities, or hardly anything to choose."""
    rows = [np.zeros(experts), np.full(experts, -3.5), np.where(np.arange(experts) % 2, 0.0, -0.0)]
    for value in (np.nan, np.inf, -np.inf):
        one = grid(rng, experts)
        one[rng.integers(experts)] = value
        rows += [one, np.full(experts, value)]
    many = grid(rng, experts)
    many[rng.random(experts) < 0.5] = np.nan
    few = np.full(experts, -np.inf)
    few[:: max(1, experts // 3)] = 1.0
    return np.stack([*rows, many, few, 8 * grid(rng, experts)])


def forward_cases(reference):
    for number, experts in enumerate(EXPERTS):
        rng = np.random.default_rng(experts)
        for k in {1, min(2, experts), min(8, experts), min(40, experts)} | ({experts} if experts <= 512 else set()):
            how = HOW[(number + k) % 4] | MAPS[(number + k) % 3]
            for tokens in (0, 1, 5):
                yield f"{tokens} x {experts}, k {k}", "topk", {"logits": grid(rng, tokens, experts)}, how | {"k": k}
            yield f"special rows of {experts}, k {k}", "topk", {"logits": special(rng, experts)}, how | {"k": k}
            yield f"rows, {experts}, k {k}", "topk_rows", {"logits": grid(rng, 70, experts)}, how | {"k": k, "align_size": [1, 16, 128][k % 3]}
            more = {"score_function": ["softmax", "sigmoid"][k % 2], **MAPS[k % 3]}
            yield f"scores, {experts}, k {k}", "scores", {"logits": special(rng, experts)}, more | {"k": k}
    yield "leading dims", "topk", {"logits": grid(rng, 3, 4, 5, 48)}, {"k": 4, "dense": False}
    yield "no rows", "topk_rows", {"logits": np.zeros((0, 16))}, {"k": 4, "align_size": 8}
    for number, (experts, groups, group_topk, k) in enumerate(GROUPS):
        for how in HOW:
            for bias in (False, True) if how.get("score_function") else (False,):
                given = {"logits": (9, experts)} | ({"expert_bias": (experts,)} if bias else {})
                how = how | {"k": k, "num_groups": groups, "group_topk": group_topk}
                yield f"{groups} groups of {experts}", "topk", reference.make_inputs("topk", given | how, number), how
    for experts, k in ((8, 2), (33, 5), (256, 8), (512, 8), (700, 50)):
        how = {"k": k, "score_function": "sigmoid", "map": "bytes"}
        made = reference.make_inputs("topk", {"logits": (40, experts), "expert_bias": (experts,)} | how, experts)
        yield f"bias, {experts}", "topk", made, how
        yield f"bias, rows, {experts}", "topk_rows", made, how | {"align_size": 4}


def wild_indices(rng, experts, k):
    """Some outside, some named twice; but for the first row at least two that count, or nothing but rounding would be left."""
    wild = rng.integers(-2, experts + 2, (5, k))
    wild[2] = wild[2, 0]
    if k > 1:
        wild[:, 0] = rng.integers(experts, size=5)
        wild[:, -1] = (wild[:, 0] + 1 + rng.integers(experts - 1, size=5)) % experts
    wild[0] = [-1, 2 ** 31 - 1, -2 ** 31][k % 3]
    return wild


def backward_cases():
    for number, experts in enumerate(EXPERTS):
        rng = np.random.default_rng(experts)
        for k in {1, min(3, experts), min(8, experts), min(40, experts)}:
            logits = grid(rng, 5, experts) / 4
            indices = np.argsort(rng.random((5, experts)), axis=-1)[:, :k]
            how = {name: value for name, value in HOW[(number + k) % 4].items() if name != "map"}
            given = {"dprobs": rng.standard_normal((5, experts)), "dweights": rng.standard_normal((5, k))}
            given.pop(["dprobs", "dweights", None][(number + k) % 3], None)
            yield f"{experts}, k {k}", "topk_backward", {"logits": logits, "indices": indices, **given}, how
            given |= {"logits": logits, "indices": wild_indices(rng, experts, k)}
            yield f"wild indices, {experts}, k {k}", "topk_backward", given, how
        dscores = rng.standard_normal((4, experts))
        for score_function in ("softmax", "sigmoid"):
            given = {"dscores": dscores, "logits": grid(rng, 4, experts) / 4}
            yield f"scores of {experts}", "scores_backward", given, {"score_function": score_function}
            given = {"dscores": dscores[:0], "logits": grid(rng, 0, experts)}
            yield f"no scores of {experts}", "scores_backward", given, {"score_function": score_function}
    logits = np.stack([grid(rng, 16), np.full(16, np.nan)])
    given = {"logits": logits, "indices": np.tile(np.arange(4), (2, 1)), "dprobs": np.tile(np.arange(16.0) % 5, (2, 1))}
    for how in HOW:
        yield "NaN", "topk_backward", given, how


def cases(reference):
    """(name, op, operands by name, attributes) with arrays in float64."""
    yield from forward_cases(reference)
    yield from backward_cases()
    for tokens in (0, 1, 15, 17, 1000):
        for experts in (1, 8, 33, 256, 1001):
            rng = np.random.default_rng(tokens + experts)
            given = {"probs": rng.random((tokens, experts)), "tokens_per_expert": rng.integers(0, 3000, experts)}
            yield f"{tokens} x {experts}", "aux_loss", given, {"k": 2, "coefficient": 0.01, "total_num_tokens": tokens}
    yield "no tokens of some", "aux_loss", {"probs": np.zeros((0, 8)), "tokens_per_expert": np.ones(8)}, {
        "k": 2, "coefficient": 0.01, "total_num_tokens": 7}


class Cases(family.Cases):
    """Each variant of the family on each case that it is legal for."""

    def __init__(self, bundle_path, device, roots):
        super().__init__("router", cases, bundle_path, device, roots)

    def prepare(self, *case):
        with np.errstate(all="ignore"):
            return super().prepare(*case)
