"""Float64 references of the permutation ops: what each op means, for any bytes in its maps and sizes.

A row_id_map has 2 * E + 1 columns for E experts. Of token t, with n = map[t, 2 * E] brought into 0..E, entry s < n
says: map[t, s] is a row, map[t, E + s] its expert. An entry counts if its row lies in the permuted tensor and its
expert in 0..E - 1; others are passed over. A row that several entries name belongs to the last of them: that of the
highest token, and of its entries the highest s.
"""

import numpy as np


def _entries(row_id_map, rows):
    """(s, tokens, rows, experts) of the entries that count, one group per s in rising order."""
    experts = (row_id_map.shape[1] - 1) // 2
    wide = row_id_map.astype(np.int64)
    counts = np.clip(wide[:, 2 * experts], 0, experts)
    for s in range(int(counts.max(initial=0))):
        row, expert = wide[:, s], wide[:, experts + s]
        counted = (s < counts) & (row >= 0) & (row < rows) & (expert >= 0) & (expert < experts)
        token = np.flatnonzero(counted)
        yield s, token, row[token], expert[token]


def _owners(row_id_map, rows):
    """(token, expert) that each row belongs to; -1 where no entry names it."""
    width = row_id_map.shape[1]
    key = np.full(rows, -1, np.int64)
    for s, token, row, _ in _entries(row_id_map, rows):
        np.maximum.at(key, row, token * width + s)
    token, s = np.where(key < 0, -1, key // width), np.where(key < 0, 0, key % width)
    expert = row_id_map[token, (width - 1) // 2 + s].astype(np.int64) if len(row_id_map) else key
    return token, np.where(key < 0, -1, expert)


def row_id_map(routing_map):
    """Rows are numbered expert by expert, and within an expert token by token. A token's entries are in falling order
    of expert, which is falling order of row; columns that hold no entry are -1."""
    routed = np.asarray(routing_map) != 0
    tokens, experts = routed.shape
    rows = (np.cumsum(routed.T.reshape(-1)) - 1).reshape(experts, tokens).T
    counts = routed.sum(axis=1)
    made = np.full((tokens, 2 * experts + 1), -1, np.int64)
    made[:, 2 * experts] = counts
    token, flipped = np.nonzero(routed[:, ::-1])
    first = np.cumsum(counts) - counts
    s = np.arange(len(token)) - first[token]
    made[token, s] = rows[token, experts - 1 - flipped]
    made[token, experts + s] = experts - 1 - flipped
    return made


def permute_with_mask_map(x, row_id_map, probs=None, *, num_out_tokens, probs_dtype="f32"):
    """out[row] = x[token] of the entry that the row belongs to, or 0 if there is none or its probability is 0."""
    token, expert = _owners(row_id_map, num_out_tokens)
    owned = token >= 0
    out = np.zeros((num_out_tokens, x.shape[1]))
    out[owned] = x[token[owned]]
    if probs is None:
        return out, None
    permuted_probs = np.zeros(num_out_tokens)
    permuted_probs[owned] = probs[token[owned], expert[owned]]
    out[permuted_probs == 0] = 0
    return out, permuted_probs


def unpermute_with_mask_map(x, row_id_map, merging_probs=None, permuted_probs=None, *, probs_dtype="f32"):
    """out[token] is the sum over its entries of x[row], times merging_probs[token, expert] where these are given;
    unpermuted_probs[token, expert] = permuted_probs[row], the last entry's if several name the expert, else 0."""
    tokens, experts = len(row_id_map), (row_id_map.shape[1] - 1) // 2
    out = np.zeros((tokens, x.shape[1]))
    unpermuted_probs = None if permuted_probs is None else np.zeros((tokens, experts))
    for _, token, row, expert in _entries(row_id_map, len(x)):
        weight = 1.0 if merging_probs is None else merging_probs[token, expert][:, None]
        out[token] += x[row] * weight
        if permuted_probs is not None:
            unpermuted_probs[token, expert] = permuted_probs[row]
    return out, unpermuted_probs


def unpermute_backward_with_merging_probs(dy, row_id_map, x, merging_probs):
    """The gradients of unpermute_with_mask_map(x, row_id_map, merging_probs): dx[row] = dy[token] * probability of the
    entry that the row belongs to, else 0; dprobs[token, expert] = sum(x[row] * dy[token]), the last entry's if several
    name the expert, else 0."""
    token, expert = _owners(row_id_map, len(x))
    owned = token >= 0
    dx, dprobs = np.zeros(x.shape), np.zeros(merging_probs.shape)
    dx[owned] = dy[token[owned]] * merging_probs[token[owned], expert[owned]][:, None]
    for _, token, row, expert in _entries(row_id_map, len(x)):
        dprobs[token, expert] = np.sum(x[row] * dy[token], axis=1)
    return dx, dprobs


def make_chunk_sort_map(split_sizes, sorted_indices, *, num_tokens):
    """map[t] is the row that token t goes to when chunk sorted_indices[j] comes j-th, or -1.

    Chunks follow one another in the order of split_sizes; a negative size counts as 0. An index outside 0..N - 1 takes
    no place; a chunk that is named twice goes to the first place, and its second place stays empty. A token gets -1
    that lies past the last chunk, whose chunk is not named, or that would go past the last token.
    """
    sizes = np.maximum(split_sizes.astype(np.int64), 0)
    starts = np.cumsum(sizes) - sizes
    made = np.full(num_tokens, -1, np.int64)
    place, seen = 0, set()
    for chunk in sorted_indices.astype(np.int64):
        if not 0 <= chunk < len(sizes):
            continue
        start, size = int(starts[chunk]), int(sizes[chunk])
        if chunk not in seen:
            count = max(0, min(size, num_tokens - start, num_tokens - place))
            made[start:start + count] = np.arange(place, place + count)
            seen.add(chunk)
        place += size
    return made


def sort_chunks_by_map(x, row_id_map, probs=None, *, is_forward=True, probs_dtype="f32"):
    """Forward out[map[t]] = x[t], a row belonging to the last token that names it; backward out[t] = x[map[t]].
    A row that no token goes to, or whose map points outside, is 0. Probabilities go with their rows."""
    tokens = len(x)
    row = row_id_map.astype(np.int64)
    if is_forward:
        inside = np.flatnonzero((row >= 0) & (row < tokens))
        source = np.full(tokens, -1, np.int64)
        np.maximum.at(source, row[inside], inside)
    else:
        source = np.where((row >= 0) & (row < tokens), row, -1)
    found = source >= 0
    out = np.zeros(x.shape)
    out[found] = x[source[found]]
    if probs is None:
        return out, None
    permuted_probs = np.zeros(tokens)
    permuted_probs[found] = probs[source[found]]
    return out, permuted_probs


def _routing(rng, tokens, experts, rows):
    """A routing map that fills at most `rows` rows: as many experts for every token as that allows, 8 at most, each
    token's at random; one expert gets nothing. Where k rows a token are all there are, none is left over, as without
    dropping; else some tokens are dropped."""
    k = min(experts, 8, rows // tokens) if tokens else 0
    routed = np.zeros((tokens, experts), bool)
    if k:
        order = rng.random((tokens, experts))
        if experts > k:
            order[:, rng.integers(experts)] = 2.0
        chosen = np.argsort(order, axis=1)[:, :k]
        np.put_along_axis(routed, chosen, True, axis=1)
        if k * tokens != rows:
            routed[rng.random(tokens) < 0.05] = False
    else:
        routed[:rows, rng.integers(experts)] = True
    return routed


def _map(rng, problem, rows):
    tokens, width = problem["row_id_map"]
    return row_id_map(_routing(rng, tokens, (width - 1) // 2, rows))


def make_inputs(op, problem, seed):
    """Valid maps and sizes. Numbers are positive where they are summed, so that a tolerance relative to the result means
    something; some probabilities are 0, as those of padding are."""
    rng = np.random.default_rng(seed)
    positive = lambda name: rng.random(problem[name]) + 0.5
    made = {}
    if op == "row_id_map":
        tokens, experts = problem["routing_map"]
        made["routing_map"] = _routing(rng, tokens, experts, tokens * experts)
    elif op == "permute_with_mask_map":
        rows = problem.get("num_out_tokens", problem["row_id_map"][0])
        made["row_id_map"] = _map(rng, problem, rows)
        if "probs" in problem:
            made["probs"] = positive("probs") * (rng.random(problem["probs"]) < 0.95)
    elif op == "unpermute_with_mask_map":
        made["row_id_map"] = _map(rng, problem, problem["x"][0])
        made |= {name: positive(name) for name in ("x", "merging_probs", "permuted_probs") if name in problem}
    elif op == "unpermute_backward_with_merging_probs":
        made["row_id_map"] = _map(rng, problem, problem["x"][0])
        made |= {name: positive(name) for name in ("dy", "x", "merging_probs")}
    elif op == "make_chunk_sort_map":
        chunks = problem["split_sizes"][0]
        tokens = problem.get("num_tokens", 0)
        cuts = np.sort(rng.integers(0, tokens + 1, chunks - 1))
        made["split_sizes"] = np.diff(np.concatenate([[0], cuts, [tokens]]))
        made["sorted_indices"] = rng.permutation(chunks)
    elif op == "sort_chunks_by_map":
        made["row_id_map"] = rng.permutation(problem["row_id_map"][0])
    return made
