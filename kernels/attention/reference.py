"""Float64 references of the attention ops: what each op means, corner cases included.

Of query q and key k of batch b and head h, with s = scale * dot(q, k):
    score  = s + bias[b, h, q, k]                       where the key is seen, else -inf
    p      = exp(score - stats[b, h, q]),               stats = log(sum(exp(score)))
    o      = sum over k of kept(p) * v[k]
A row that sees nothing, or whose every score is -inf, has stats -inf and o = 0, and gives no gradient. Which keys are
seen: `_seen`. Which elements dropout keeps: `kept_by_dropout`. Float attributes are used as their float32 values, as
the kernels receive them.
"""

import numpy as np

_PART = 1 << 22  # scores that are in memory at a time
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


def _heads_first(x, layout):
    return np.swapaxes(x, 1, 2) if layout == "bshd" else x


def _seen(rows, keys, query_length, key_length, mask, window):
    """Whether query row sees key: [rows, keys]."""
    q, k = np.asarray(rows)[:, None], np.asarray(keys)[None, :]
    seen = (q < query_length) & (k < key_length)
    if mask == "none":
        return seen
    diagonal = q + (key_length - query_length if mask == "causal_bottom_right" else 0)
    seen &= k <= diagonal
    return seen & (diagonal - k <= window) if window >= 0 else seen


class _Scores:
    """The scores of one problem, by parts: some queries of one head of one batch."""

    def __init__(self, q, k, bias, q_lengths, kv_lengths, dropout_state, *, scale, layout="bshd", mask="none", window=-1,
                 dropout=0.0):
        self.q, self.k = _heads_first(q, layout), _heads_first(k, layout)
        self.batch, self.heads, self.queries = self.q.shape[:3]
        self.keys = self.k.shape[2]
        self.group = self.heads // self.k.shape[1]
        self.bias, self.state = bias, dropout_state
        self.scale, self.mask, self.window = np.float64(np.float32(scale)), mask, window
        self.dropout = np.float64(np.float32(dropout)) if dropout_state is not None else 0.0
        self.query_lengths = self._lengths(q_lengths, self.queries)
        self.key_lengths = self._lengths(kv_lengths, self.keys)

    def _lengths(self, given, most):
        return np.full(self.batch, most) if given is None else np.clip(np.asarray(given, np.int64), 0, most)

    def parts(self):
        """(b, h, slice of queries) that together are everything."""
        step = max(1, _PART // max(1, self.keys))
        for b in range(self.batch):
            for h in range(self.heads):
                for first in range(0, self.queries, step):
                    yield b, h, slice(first, min(first + step, self.queries))

    def bias_of(self, array, b, h):
        """The part of bias (or of its gradient) that this batch and head use."""
        return array[b if array.shape[0] > 1 else 0, h if array.shape[1] > 1 else 0]

    def of(self, b, h, rows):
        """(score, -inf where not seen; 1 or 0 by which the gradient of s is that of the score)."""
        s = self.scale * (self.q[b, h, rows] @ self.k[b, h // self.group].T)
        slope = np.ones_like(s)
        if self.bias is not None:
            s = s + self.bias_of(self.bias, b, h)[rows]
        numbers = np.arange(rows.start, rows.stop)
        seen = _seen(numbers, np.arange(self.keys), self.query_lengths[b], self.key_lengths[b], self.mask, self.window)
        return np.where(seen, s, -np.inf), np.where(seen, slope, 0.0)

    def keep(self, b, h, rows):
        """What dropout multiplies p by."""
        if self.dropout <= 0:
            return 1.0
        numbers = (b * self.heads + h) * self.queries + np.arange(rows.start, rows.stop)
        kept = kept_by_dropout(self.state, self.dropout, numbers, np.arange(self.keys))
        return np.where(kept, 1 / (1 - self.dropout) if self.dropout < 1 else 0.0, 0.0)


def _log_sum_exp(score):
    largest = np.max(score, axis=-1, initial=-np.inf)
    safe = np.where(largest == -np.inf, 0.0, largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        return safe + np.log(np.sum(np.exp(score - safe[:, None]), axis=-1))


def _probabilities(score, stats):
    """exp(score - stats); 0 in rows that see nothing."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where((stats == -np.inf)[:, None], 0.0, np.exp(score - stats[:, None]))


def sdpa_forward(q, k, v, bias=None, q_lengths=None, kv_lengths=None, dropout_state=None, *, with_stats=False,
                 layout="bshd", **attributes):
    scores = _Scores(q, k, bias, q_lengths, kv_lengths, dropout_state, layout=layout, **attributes)
    v = _heads_first(v, layout)
    o = np.zeros(scores.q.shape[:3] + v.shape[-1:])
    stats = np.full(scores.q.shape[:3], -np.inf)
    for b, h, rows in scores.parts():
        score, _ = scores.of(b, h, rows)
        stats[b, h, rows] = _log_sum_exp(score)
        p = _probabilities(score, stats[b, h, rows])
        o[b, h, rows] = (p * scores.keep(b, h, rows)) @ v[b, h // scores.group]
    return _heads_first(o, layout), stats if with_stats else None


def sdpa_backward(q, k, v, o, dout, stats, bias=None, q_lengths=None, kv_lengths=None, dropout_state=None, *,
                  layout="bshd", deterministic=False, bias_gradient=False, **attributes):
    """The gradients, of o and stats as they are given."""
    scores = _Scores(q, k, bias, q_lengths, kv_lengths, dropout_state, layout=layout, **attributes)
    v, o, dout = (_heads_first(x, layout) for x in (v, o, dout))
    dq, dk, dv = np.zeros(scores.q.shape), np.zeros(scores.k.shape), np.zeros(v.shape)
    dbias = np.zeros(bias.shape) if bias_gradient else None
    for b, h, rows in scores.parts():
        kv = h // scores.group
        score, slope = scores.of(b, h, rows)
        p, keep = _probabilities(score, stats[b, h, rows]), scores.keep(b, h, rows)
        dp = (dout[b, h, rows] @ v[b, kv].T) * keep
        dscore = p * (dp - np.sum(o[b, h, rows] * dout[b, h, rows], axis=-1, keepdims=True))
        dv[b, kv] += (p * keep).T @ dout[b, h, rows]
        if bias_gradient:
            scores.bias_of(dbias, b, h)[rows] += dscore
        ds = scores.scale * slope * dscore
        dq[b, h, rows] = ds @ scores.k[b, kv]
        dk[b, kv] += ds.T @ scores.q[b, h, rows]
    dq, dk, dv = (_heads_first(x, layout) for x in (dq, dk, dv))
    return dq, dk, dv, dbias


def _attributes(problem):
    names = "scale", "layout", "mask", "window", "dropout"
    return {name: problem[name] for name in names if name in problem}


def work(op, problem):
    """The number of scores, and what a head takes beside them."""
    batch, queries, heads, _ = problem["q"]
    keys = problem["k"][1]
    if problem.get("layout", "bshd") == "bhsd":
        queries, heads, keys = heads, queries, problem["k"][2]
    return batch * heads * (queries * keys + 4000)


def make_inputs(op, problem, seed):
    """Lengths from 0 to their bound, one of them full; a seed and an offset. The backward ops get the stats of the
    forward op, and an o that is its result moved along dout: where a query sees one key only, the gradient would
    otherwise be nothing but rounding errors."""
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
    if "dropout_state" in problem:
        made["dropout_state"] = rng.integers(0, 1 << 32, 4, dtype=np.uint32)
    if op == "sdpa_backward":
        made["dout"] = normal("dout")
        given = [made.get(name) for name in ("q", "k", "v", "bias", "q_lengths", "kv_lengths", "dropout_state")]
        o, made["stats"] = sdpa_forward(*given, with_stats=True, **_attributes(problem))
        made["o"] = o + made["dout"] / np.linalg.norm(made["dout"], axis=-1, keepdims=True)
    return made
