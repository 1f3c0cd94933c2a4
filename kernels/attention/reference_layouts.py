"""Where tensors of the attention ops lie otherwise than densely: sequences one after another, and keys and values in pages."""

import numpy as np


def sequences(offsets, lengths, rows, bound):
    """(first row, length) of each sequence: inside the tensor, no longer than the bound nor, where lengths are given, than its own, and never
    to where the next one begins, whatever offsets and lengths say."""
    at = np.clip(np.asarray(offsets, np.int64), 0, rows)
    most = np.minimum(np.maximum(at[1:] - at[:-1], 0), bound)
    return list(zip(at[:-1], most if lengths is None else np.clip(np.asarray(lengths, np.int64), 0, most)))


def _padded(x, where, bound):
    """[row, ..] as [sequence, bound, ..], 0 behind each sequence."""
    made = np.zeros((len(where), bound) + x.shape[1:])
    for b, (first, length) in enumerate(where):
        made[b, :length] = x[first:first + length]
    return made


def in_rows(x, where, rows, otherwise=0.0):
    """[sequence, bound, ..] as [row, ..]; otherwise: where no sequence is."""
    made = np.full((rows,) + x.shape[2:], otherwise)
    for b, (first, length) in enumerate(where):
        made[first:first + length] = x[b, :length]
    return made


class Ragged:
    """The operands of a ragged problem as those of one that is padded."""

    def __init__(self, q, k, v, q_offsets, kv_offsets, q_lengths, kv_lengths, max_queries, max_keys):
        self.rows, self.keys, self.bound = len(q), len(k), max_queries
        self.of_q = sequences(q_offsets, q_lengths, len(q), max_queries)
        self.of_kv = sequences(kv_offsets, kv_lengths, len(k), max_keys)
        self.operands = [_padded(q, self.of_q, max_queries), _padded(k, self.of_kv, max_keys), _padded(v, self.of_kv, max_keys)]
        self.lengths = [np.array([length for _, length in where]) for where in (self.of_q, self.of_kv)]

    def like_q(self, x):
        return _padded(x, self.of_q, self.bound)


def random_offsets(rng, count, rows, bound):
    """Lengths from 0 to the bound, one of them full, as far as there are rows."""
    lengths = rng.integers(0, bound + 1, count - 1)
    lengths[rng.integers(count - 1)] = bound
    return np.minimum(np.concatenate([[0], np.cumsum(lengths)]), rows)


def dense(pool, pages, layout, scale):
    """Keys or values in pages as [sequence, key, head, column], and whether a key's page is one of the pool: [sequence, key].
    What has no page is 0."""
    pool = np.moveaxis(pool, 0, 2) if layout == "hpsd" else pool  # [page, slot, head, column]
    known = (pages >= 0) & (pages < len(pool))
    found = np.where(known[..., None, None, None], pool[np.where(known, pages, 0)], 0.0)
    found = found.reshape(len(pages), -1, *pool.shape[2:])
    return found * (1.0 if scale is None else np.float64(scale)), np.repeat(known, pool.shape[1], axis=1)


def make_paged_inputs(problem, seed):
    """Every page has its own sequence while there are enough, one in nine of the table is none; lengths from 0 to the bound,
    one of them full."""
    rng = np.random.default_rng(seed)
    made = {name: rng.standard_normal(problem[name]) + (0.25 if name == "k" else 0.0) for name in ("q", "k", "v")}
    made["q"] = (made["q"] + 0.25) / ((problem.get("scale") or 1.0) * np.sqrt(problem["q"][-1]))
    of_pool = slice(1, 3) if problem.get("layout") == "hpsd" else slice(0, 2)
    (count, slots), (batch, table) = problem["k"][of_pool], problem["pages"]
    places = np.resize(rng.permutation(count), batch * table)
    none = rng.random(batch * table) < 1 / 9
    made["pages"] = np.where(none, rng.choice([-1, count, 2**31 - 1, -2**31], batch * table), places).reshape(batch, table)
    made["lengths"] = rng.integers(0, table * slots + 1, batch)
    made["lengths"][rng.integers(batch)] = table * slots
    for name in ("k", "v"):
        if name + "_scale" in problem:
            made[name], made[name + "_scale"] = 8 * made[name], np.asarray(1 / 8)
    made |= {name: 0.05 * rng.random(problem[name]) for name in ("score_tensor0", "score_tensor1") if name in problem}
    return made
