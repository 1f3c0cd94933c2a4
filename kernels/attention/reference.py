"""Float64 references of the attention ops: what each op means, corner cases included.

Of query q and key k of batch b and head h, with s = scale * dot(q, k) and the modifier m (reference_modifiers.py; s if there is none):
    score  = m(s) + bias[b, h, q, k]                    where the key is seen, else -inf
    p      = exp(score - stats[b, h, q]),               stats = log(sum(exp(score)))
    o      = sum over k of kept(p) * v[k]
A row that sees nothing, or whose every score is -inf, has stats -inf and o = 0, and gives no gradient. Which keys are
seen: `_seen`. Which elements dropout keeps: `kept_by_dropout`. Float attributes are used as their float32 values, as
the kernels receive them.
"""

import concurrent.futures
import functools
import os
import pathlib
import tomllib

import numpy as np
from reference_layouts import Ragged, dense, in_rows, make_paged_inputs, random_offsets
from reference_modifiers import Modifier

_PART = 1 << 18  # scores of a part: few enough to stay in a core's cache from one step to the next
_LARGE = 1 << 22  # scores of a problem for several threads
_THREADS = min(16, os.cpu_count() or 1)
_PHILOX = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)


def philox4x32(counter, key, rounds=10):
    """The four words of Philox4x32 for counters [.., 4] and one key [2]."""
    c = [counter[..., i].astype(np.uint64) for i in range(4)]
    k = [np.uint64(int(word) & 0xFFFFFFFF) for word in key]
    for _ in range(rounds):
        a, b = c[0] * _PHILOX[0], c[2] * _PHILOX[1]
        c = [(b >> np.uint64(32)) ^ c[1] ^ k[0], b & _LOW, (a >> np.uint64(32)) ^ c[3] ^ k[1], a & _LOW]
        k = [(k[i] + _WEYL[i]) & _LOW for i in range(2)]
    return np.stack(c, axis=-1)


def kept_by_dropout(state, dropout, rows, keys):
    """True where dropout keeps: rows are numbers (b * H + h) * SQ + q, keys numbers of keys.

    The word of (row, key) is word key % 4 of Philox4x32-10 of the counter (key / 4, row, state[2], state[3]) under the
    key (state[0], state[1]): a 64-bit seed, low word first, and a 64-bit offset, low word first. Elements whose word is
    below floor(dropout * 2^32) are dropped.
    """
    counter = np.zeros((len(rows), (max(keys, default=-1) // 4) + 1, 4), np.uint64)
    counter[..., 0] = np.arange(counter.shape[1])
    counter[..., 1] = np.asarray(rows, np.uint64)[:, None]
    counter[..., 2:] = np.asarray(state, np.uint64)[2:]
    words = philox4x32(counter, state[:2]).reshape(len(rows), -1)[:, np.asarray(keys)]
    return words >= np.uint64(np.floor(np.float64(np.float32(dropout)) * 2.0 ** 32))


@functools.lru_cache(maxsize=None)
def modifiers():
    """{name: Modifier} of the manifest beside this file."""
    text = pathlib.Path(__file__).with_name("attention.toml").read_text()
    section = text.split("[family.score_mods]\n", 1)[1].split("\n[", 1)[0]  # the rest is TOML 1.1, which tomllib does not read
    return {name: Modifier(expression) for name, expression in tomllib.loads(section).items()}


def _heads_first(x, layout):
    return np.swapaxes(x, 1, 2) if layout == "bshd" else x


def _seen(rows, keys, query_length, key_length, mask, window, window_right):
    """Whether query row sees key: [rows, keys]."""
    q, k = np.asarray(rows)[:, None], np.asarray(keys)[None, :]
    seen = (q < query_length) & (k < key_length)
    diagonal = q + (key_length - query_length if mask.endswith("bottom_right") else 0)
    if mask.startswith("causal"):
        seen &= k <= diagonal
    if window >= 0:
        seen &= k >= diagonal - window
    return seen & (k <= diagonal + window_right) if window_right >= 0 else seen


class _Scores:
    """The scores of one problem, by parts: some queries of one head of one batch."""

    def __init__(self, q, k, bias, q_lengths, kv_lengths, dropout_state, *tensors, scale, layout="bshd", mask="none",
                 window=-1, window_right=-1, dropout=0.0, generator="own", score_mod="none", score_scalars=()):
        if generator != "own" and dropout_state is not None:
            raise NotImplementedError("which elements the generator of %s drops is its own affair" % generator)
        self.q, self.k = _heads_first(q, layout), _heads_first(k, layout)
        self.batch, self.heads, self.queries = self.q.shape[:3]
        self.keys = self.k.shape[2]
        self.group = self.heads // self.k.shape[1]
        self.bias, self.state = bias, dropout_state
        self.scale, self.mask, self.windows = np.float64(np.float32(scale)), mask, (window, window_right)
        self.dropout = np.float64(np.float32(dropout)) if dropout_state is not None else 0.0
        self.modifier = None if score_mod == "none" else modifiers()[score_mod]
        self.scalars, self.tensors = score_scalars, tensors
        self.query_lengths = self._lengths(q_lengths, self.queries)
        self.key_lengths = self._lengths(kv_lengths, self.keys)

    def _lengths(self, given, most):
        return np.full(self.batch, most) if given is None else np.clip(np.asarray(given, np.int64), 0, most)

    def parts(self):
        """(b, h, slice of queries) that together are all queries that there are."""
        for b, (queries, keys) in enumerate(zip(self.query_lengths, self.key_lengths)):
            step = max(1, _PART // max(1, keys))
            for h in range(self.heads):
                for first in range(0, queries, step):
                    yield b, h, slice(first, min(first + step, queries))

    def by_parts(self, compute):
        """(b, h, rows, what compute gives for them) of all parts in their order; of a large problem on several threads."""
        parts = list(self.parts())
        if self.batch * self.heads * self.queries * self.keys <= _LARGE:
            yield from ((*part, compute(*part)) for part in parts)
            return
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            for part, made in zip(parts, pool.map(lambda part: compute(*part), parts)):
                yield *part, made

    def bias_of(self, array, b, h):
        """The part of bias (or of its gradient) that this batch and head use."""
        return array[b if array.shape[0] > 1 else 0, h if array.shape[1] > 1 else 0]

    def of(self, b, h, rows):
        """(slice of keys, outside of which these rows see none; score, -inf where not seen; by what the gradient of s is that of the score)."""
        numbers, keys = np.arange(rows.start, rows.stop), np.arange(self.key_lengths[b])
        seen = _seen(numbers, keys, self.query_lengths[b], self.key_lengths[b], self.mask, *self.windows)
        ends = np.flatnonzero(seen.any(axis=0))[[0, -1]] if seen.any() else (0, -1)
        some = slice(ends[0], ends[1] + 1)
        keys, seen = keys[some], seen[:, some]
        s, slope = self.scale * self.q[b, h, rows] @ self.k[b, h // self.group, some].T, None
        if self.modifier is not None:
            indices, lengths = (b, h, numbers[:, None], keys[None, :]), (self.batch, self.heads, self.queries, self.keys)
            s, slope = self.modifier(s, dict(zip("bhqk", indices)), dict(zip("bhqk", lengths)), self.scalars, self.tensors)
        if self.bias is not None:
            s = s + self.bias_of(self.bias, b, h)[rows, some]
        hidden = not seen.all()
        return some, np.where(seen, s, -np.inf) if hidden else s, np.where(seen, slope, 0.0) if hidden and slope is not None else slope

    def keep(self, b, h, rows, keys):
        """What dropout multiplies p by; None where there is none."""
        if self.dropout <= 0:
            return None
        numbers = (b * self.heads + h) * self.queries + np.arange(rows.start, rows.stop)
        kept = kept_by_dropout(self.state, self.dropout, numbers, np.arange(keys.start, keys.stop))
        return np.where(kept, 1 / (1 - self.dropout) if self.dropout < 1 else 0.0, 0.0)


def _times(x, factor):
    return x if factor is None else x * factor


def _softmax(score):
    """(log of the sum of exp(score), exp(score) divided by the sum: 0 in rows that see nothing)."""
    largest = np.max(score, axis=-1, initial=-np.inf)
    safe = np.where(largest == -np.inf, 0.0, largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.exp(score - safe[:, None])
        total = np.sum(p, axis=-1)
        return safe + np.log(total), p / np.where(total == 0, 1.0, total)[:, None]


def _probabilities(score, stats):
    """exp(score - stats); 0 in rows that see nothing."""
    with np.errstate(invalid="ignore", over="ignore"):
        p = np.exp(score - stats[:, None])
    return np.where((stats == -np.inf)[:, None], 0.0, p) if (stats == -np.inf).any() else p


def sdpa_forward(q, k, v, bias=None, q_lengths=None, kv_lengths=None, dropout_state=None, score_tensor0=None,
                 score_tensor1=None, *, with_stats=False, layout="bshd", **attributes):
    scores = _Scores(q, k, bias, q_lengths, kv_lengths, dropout_state, score_tensor0, score_tensor1, layout=layout, **attributes)
    v = _heads_first(v, layout)
    o = np.zeros(scores.q.shape[:3] + v.shape[-1:])
    stats = np.full(scores.q.shape[:3], -np.inf)

    def compute(b, h, rows):
        keys, score, _ = scores.of(b, h, rows)
        stats[b, h, rows], p = _softmax(score)
        o[b, h, rows] = _times(p, scores.keep(b, h, rows, keys)) @ v[b, h // scores.group, keys]

    for _ in scores.by_parts(compute):
        pass
    return _heads_first(o, layout), stats if with_stats else None


def sdpa_backward(q, k, v, o, dout, stats, bias=None, q_lengths=None, kv_lengths=None, dropout_state=None,
                  score_tensor0=None, score_tensor1=None, *, layout="bshd", deterministic=False, bias_gradient=False, **attributes):
    """The gradients, of o and stats as they are given."""
    scores = _Scores(q, k, bias, q_lengths, kv_lengths, dropout_state, score_tensor0, score_tensor1, layout=layout, **attributes)
    v, o, dout = (_heads_first(x, layout) for x in (v, o, dout))
    dq, dk, dv = np.zeros(scores.q.shape), np.zeros(scores.k.shape), np.zeros(v.shape)
    dbias = np.zeros(bias.shape) if bias_gradient else None

    def compute(b, h, rows):
        kv = h // scores.group
        keys, score, slope = scores.of(b, h, rows)
        p, keep = _probabilities(score, stats[b, h, rows]), scores.keep(b, h, rows, keys)
        dp = _times(dout[b, h, rows] @ v[b, kv, keys].T, keep)
        dscore = p * (dp - np.sum(o[b, h, rows] * dout[b, h, rows], axis=-1, keepdims=True))
        ds = _times(dscore, slope)
        dq[b, h, rows] = scores.scale * (ds @ scores.k[b, kv, keys])
        of_k = scores.scale * (ds.T @ scores.q[b, h, rows])
        return keys, of_k, _times(p, keep).T @ dout[b, h, rows], dscore if bias_gradient else None

    for b, h, rows, (keys, of_k, of_v, of_bias) in scores.by_parts(compute):
        dk[b, h // scores.group, keys] += of_k
        dv[b, h // scores.group, keys] += of_v
        if bias_gradient:
            scores.bias_of(dbias, b, h)[rows, keys] += of_bias
    dq, dk, dv = (_heads_first(x, layout) for x in (dq, dk, dv))
    return dq, dk, dv, dbias


def _rounded(x, dtype):
    """To the nearest number of an FP8 type; what is larger than the largest becomes that."""
    largest, mantissa, least = {"e4m3": (448.0, 3, -6), "e5m2": (57344.0, 2, -14)}[dtype]
    _, exponent = np.frexp(x)  # magnitudes in [2^(exponent - 1), 2^exponent)
    unit = np.exp2(np.maximum(exponent - 1, least) - mantissa)
    return np.clip(np.round(x / unit) * unit, -largest, largest)


def sdpa_fp8_forward(q, k, v, descale_q, descale_k, descale_v, descale_s, scale_s, scale_o, q_lengths=None, kv_lengths=None, *, dtype,
                     with_stats=False, layout="bshd", **attributes):
    scores = _Scores(q * descale_q, k * descale_k, None, q_lengths, kv_lengths, None, layout=layout, **attributes)
    v = _heads_first(v, layout)
    o = np.zeros(scores.q.shape[:3] + v.shape[-1:])
    stats = np.full(scores.q.shape[:3], -np.inf)

    def compute(b, h, rows):
        keys, score, _ = scores.of(b, h, rows)
        stats[b, h, rows], p = _softmax(score)
        o[b, h, rows] = _rounded(p * scale_s, dtype) @ v[b, h // scores.group, keys] * (descale_s * descale_v)
        return np.max(p, initial=0.0)

    amax_s = max((largest for *_, largest in scores.by_parts(compute)), default=0.0)
    amax_o = np.max(np.abs(o), initial=0.0)
    return _rounded(_heads_first(o, layout) * scale_o, dtype), amax_s, amax_o, stats if with_stats else None


def _unpacked(qkv, kv_heads):
    """q, k, v of [batch, token, heads of q, then of k, then of v, column]."""
    heads = qkv.shape[2] - 2 * kv_heads
    return np.split(qkv, [heads, heads + kv_heads], axis=2)


def sdpa_packed_forward(qkv, bias=None, lengths=None, dropout_state=None, *tensors, kv_heads, **attributes):
    return sdpa_forward(*_unpacked(qkv, kv_heads), bias, lengths, lengths, dropout_state, *tensors, **attributes)


def sdpa_packed_backward(qkv, o, dout, stats, bias=None, lengths=None, dropout_state=None, *tensors, kv_heads, **attributes):
    *gradients, dbias = sdpa_backward(*_unpacked(qkv, kv_heads), o, dout, stats, bias, lengths, lengths, dropout_state, *tensors,
                                      **attributes)
    return np.concatenate(gradients, axis=2), dbias


def _attributes(problem):
    names = "scale", "layout", "mask", "window", "window_right", "dropout", "generator", "score_mod", "score_scalars", "kv_heads"
    return {name: problem[name] for name in names if name in problem}


def work(op, problem):
    """The number of scores, and what a head takes beside them."""
    if "qkv" in problem:
        batch, tokens, width, _ = problem["qkv"]
        return batch * (width - 2 * problem["kv_heads"]) * (tokens * tokens + 4000)
    if "pages" in problem:
        batch, queries, heads, _ = problem["q"]
        return batch * heads * (queries * problem["pages"][1] * problem["k"][2 if problem.get("layout") == "hpsd" else 1] + 4000)
    if "q_offsets" in problem:
        return (problem["q_offsets"][0] - 1) * problem["q"][1] * (problem["max_queries"] * problem["max_keys"] + 4000)
    batch, queries, heads, _ = problem["q"]
    keys = problem["k"][1]
    if problem.get("layout", "bshd") == "bhsd":
        queries, heads, keys = heads, queries, problem["k"][2]
    return batch * heads * (queries * keys + 4000)


def repeats(op, attributes, result):
    return not op.endswith("backward") or attributes.get("deterministic", False)


def make_inputs(op, problem, seed):
    """Lengths from 0 to their bound, one of them full; a seed and an offset. The backward ops get the stats of the
    forward op, and an o that is its result moved along dout: where a query sees one key only, the gradient would
    otherwise be nothing but rounding errors."""
    if "qkv" in problem:
        return _make_packed_inputs(op, problem, seed)
    if "pages" in problem:
        return make_paged_inputs(problem, seed)
    if "q_offsets" in problem:
        return _make_ragged_inputs(op, problem, seed)
    rng = np.random.default_rng(seed)
    normal = lambda name: rng.standard_normal(problem[name])
    made = {name: normal(name) for name in ("q", "k", "v", "bias") if name in problem}
    made["q"] += 0.25  # so that few scores of few keys sum up to a log of nearly 0
    made["k"] += 0.25
    if problem.get("scale"):  # scores of about 1, whatever the scale
        made["q"] /= problem["scale"] * np.sqrt(problem["q"][-1])
    tokens = 1 if problem.get("layout", "bshd") == "bshd" else 2
    for name, of in (("q_lengths", "q"), ("kv_lengths", "k")):
        if name in problem:
            made[name] = rng.integers(0, problem[of][tokens] + 1, problem[name])
            made[name][rng.integers(len(made[name]))] = problem[of][tokens]
    made |= {name: 0.05 * rng.random(problem[name]) for name in ("score_tensor0", "score_tensor1") if name in problem}
    if op == "sdpa_fp8_forward":
        made |= {"scale_s": 256.0, "descale_s": 1 / 256, "scale_o": 32.0}
        made |= {"descale_" + name: 1 / 8 for name in "qkv"}
        made |= {name: 8 * made.get(name, normal(name)) for name in "qkv"}
    if "dropout_state" in problem:
        made["dropout_state"] = rng.integers(0, 1 << 32, 4, dtype=np.uint32)
    if op == "sdpa_backward":
        made["dout"] = normal("dout")
        given = [made.get(name) for name in ("q", "k", "v", "bias", "q_lengths", "kv_lengths", "dropout_state",
                                               "score_tensor0", "score_tensor1")]
        o, made["stats"] = sdpa_forward(*given, with_stats=True, **_attributes(problem))
        made["o"] = o + made["dout"] / np.linalg.norm(made["dout"], axis=-1, keepdims=True)
    return made


def _make_packed_inputs(op, problem, seed):
    """Those of the op of separate tensors, put together."""
    batch, tokens, width, depth = problem["qkv"]
    heads, kv_heads = width - 2 * problem["kv_heads"], problem["kv_heads"]
    apart = {"q": (batch, tokens, heads, depth), "k": (batch, tokens, kv_heads, depth), "v": (batch, tokens, kv_heads, depth)}
    given = {name: value for name, value in problem.items() if name not in ("qkv", "lengths", "kv_heads")}
    lengths = {name: (batch,) for name in ("q_lengths", "kv_lengths") if "lengths" in problem}
    made = make_inputs("sdpa_forward", given | apart | lengths, seed)
    made["qkv"] = np.concatenate([made.pop(name) for name in "qkv"], axis=2)
    if lengths:
        made["lengths"] = made.pop("kv_lengths")
        del made["q_lengths"]
    if op == "sdpa_packed_backward":
        made["dout"] = np.random.default_rng(seed + 1).standard_normal(problem["dout"])
        given = [made.get(name) for name in ("qkv", "bias", "lengths", "dropout_state", "score_tensor0", "score_tensor1")]
        o, made["stats"] = sdpa_packed_forward(*given, with_stats=True, **_attributes(problem))
        made["o"] = o + made["dout"] / np.linalg.norm(made["dout"], axis=-1, keepdims=True)
    return made


# ---- ragged, and in pages ----

def sdpa_ragged_forward(q, k, v, q_offsets, kv_offsets, q_lengths=None, kv_lengths=None, bias=None, dropout_state=None, *tensors,
                        max_queries, max_keys, with_stats=False, **attributes):
    ragged = Ragged(q, k, v, q_offsets, kv_offsets, q_lengths, kv_lengths, max_queries, max_keys)
    o, stats = sdpa_forward(*ragged.operands, bias, *ragged.lengths, dropout_state, *tensors, with_stats=True, **attributes)
    stats = in_rows(np.swapaxes(stats, 1, 2), ragged.of_q, ragged.rows, -np.inf)
    return in_rows(o, ragged.of_q, ragged.rows), stats if with_stats else None


def sdpa_ragged_backward(q, k, v, o, dout, stats, q_offsets, kv_offsets, q_lengths=None, kv_lengths=None, bias=None, dropout_state=None,
                         *tensors, max_queries, max_keys, **attributes):
    ragged = Ragged(q, k, v, q_offsets, kv_offsets, q_lengths, kv_lengths, max_queries, max_keys)
    given = ragged.like_q(o), ragged.like_q(dout), np.swapaxes(ragged.like_q(stats), 1, 2)
    dq, dk, dv, dbias = sdpa_backward(*ragged.operands, *given, bias, *ragged.lengths, dropout_state, *tensors, **attributes)
    return (in_rows(dq, ragged.of_q, ragged.rows), in_rows(dk, ragged.of_kv, ragged.keys),
            in_rows(dv, ragged.of_kv, ragged.keys), dbias)


def _make_ragged_inputs(op, problem, seed):
    rng = np.random.default_rng(seed)
    made = {name: rng.standard_normal(problem[name]) for name in ("q", "k", "v", "bias") if name in problem}
    made["q"] += 0.25
    made["k"] += 0.25
    if problem.get("scale"):
        made["q"] /= problem["scale"] * np.sqrt(problem["q"][-1])
    if "dropout_state" in problem:
        made["dropout_state"] = rng.integers(0, 1 << 32, 4, dtype=np.uint32)
    made["q_offsets"] = random_offsets(rng, problem["q_offsets"][0], problem["q"][0], problem["max_queries"])
    made["kv_offsets"] = random_offsets(rng, problem["q_offsets"][0], problem["k"][0], problem["max_keys"])
    for name, offsets in (("q_lengths", "q_offsets"), ("kv_lengths", "kv_offsets")):
        if name in problem:  # of two sequences one has a gap behind it
            most = np.diff(made[offsets])
            made[name] = np.where(rng.random(len(most)) < 0.5, most, rng.integers(0, most + 1))
    made |= {name: 0.05 * rng.random(problem[name]) for name in ("score_tensor0", "score_tensor1") if name in problem}
    if op == "sdpa_ragged_backward":
        made["dout"] = rng.standard_normal(problem["dout"])
        attributes = {name: problem[name] for name in ("max_queries", "max_keys")} | _attributes(problem)
        given = [made.get(name) for name in ("q", "k", "v", "q_offsets", "kv_offsets", "q_lengths", "kv_lengths", "bias", "dropout_state",
                                               "score_tensor0", "score_tensor1")]
        o, made["stats"] = sdpa_ragged_forward(*given, with_stats=True, **attributes)
        made["o"] = o + made["dout"] / np.linalg.norm(made["dout"], axis=-1, keepdims=True)
    return made


def paged_attention(q, k, v, lengths, pages, k_scale=None, v_scale=None, *tensors, layout="pshd", **attributes):
    """As sdpa_forward, the keys of unknown pages hidden by a bias."""
    k, known = dense(k, pages, layout, k_scale)
    v, _ = dense(v, pages, layout, v_scale)
    bias = np.broadcast_to(np.where(known, 0.0, -np.inf)[:, None, None, :], (len(q), 1, q.shape[1], known.shape[1]))
    return sdpa_forward(q, k, v, bias, None, lengths, None, *tensors, **attributes)
