"""The permutation ops on maps that matter, the same on every device, every variant forced: odd sizes, experts that get no
token, tokens that are dropped, and maps and sizes of any bytes, whose result is defined and exactly that."""

import numpy as np

from conformance import family

INT32 = np.iinfo(np.int32)
#           tokens, hidden, experts, top-k
SIZES = [(40, 1, 8, 1), (40, 7, 8, 8), (9, 4096, 64, 8), (100, 64, 5, 2), (257, 48, 3, 1), (1, 1000, 1, 1), (3, 17, 100, 40)]
MAPS = ["routed", "one expert gets nothing", "all dropped", "too few rows", "near misses", "any bytes", "all one row"]


def routing(rng, tokens, experts, k, kind):
    routed = np.zeros((tokens, experts), bool)
    order = rng.random((tokens, experts))
    if kind == "one expert gets nothing" and experts > k:
        order[:, experts // 2] = 2
    np.put_along_axis(routed, np.argsort(order, axis=1)[:, :k], True, axis=1)
    return routed & (kind != "all dropped")


def row_id_map(reference, rng, tokens, experts, k, rows, kind):
    """An int32 map of one of MAPS; `rows` is how many rows there are to point at."""
    shape = tokens, 2 * experts + 1
    if kind == "near misses":
        made = np.where(np.arange(shape[1]) < experts, rng.integers(-2, rows + 2, shape), rng.integers(-2, experts + 2, shape))
        made[:, -1] = rng.integers(-2, experts + 3, tokens)
    elif kind == "any bytes":
        made = rng.integers(INT32.min, INT32.max, shape, endpoint=True)
        made[::2, :experts] = rng.integers(0, max(rows, 1), made[::2, :experts].shape)
        made[::3, -1] = INT32.max
        made[1::3, -1] = INT32.min
    elif kind == "all one row":
        made = np.full(shape, min(rows, experts) - 1)
        made[:, -1] = experts
    else:
        made = reference.row_id_map(routing(rng, tokens, experts, k, kind))
    return made.astype(np.int32)


def cases(reference):
    """(name, op, operands by name, attributes) with arrays in float64 or int32."""
    for number, (tokens, hidden, experts, k) in enumerate(SIZES):
        size = f"{tokens} x {hidden}, {k} of {experts}"
        for kind in MAPS:
            rng = np.random.default_rng(number)
            rows = max(1, tokens * k // (2 if kind == "too few rows" else 1))
            entries = row_id_map(reference, rng, tokens, experts, k, rows, kind)
            x, y = rng.random((tokens, hidden)) + 0.5, rng.random((rows, hidden)) + 0.5
            probs = rng.random((tokens, experts)) * (rng.random((tokens, experts)) < 0.9)
            name = f"{size}, {kind}"
            yield name, "permute_with_mask_map", {"x": x, "row_id_map": entries}, {"num_out_tokens": rows}
            yield name, "permute_with_mask_map", {"x": x, "row_id_map": entries, "probs": probs}, {"num_out_tokens": rows + 37}
            yield name, "unpermute_with_mask_map", {"x": y, "row_id_map": entries}, {}
            yield name, "unpermute_with_mask_map", {"x": y, "row_id_map": entries, "merging_probs": probs,
                                                    "permuted_probs": rng.random(rows)}, {}
            yield (name, "unpermute_backward_with_merging_probs",
                   {"dy": x, "row_id_map": entries, "x": y, "merging_probs": probs}, {})
            if kind in MAPS[:3]:
                yield name, "row_id_map", {"routing_map": routing(rng, tokens, experts, k, kind)}, {}
    yield from chunk_cases()


def chunk_cases():
    for number, (tokens, chunks, kind) in enumerate((t, c, k) for t in (1, 7, 1000) for c in (1, 3, 64, 300)
                                                    for k in ("sorted", "short", "negative", "near misses", "any bytes")):
        rng = np.random.default_rng(number)
        sizes = np.diff(np.concatenate([[0], np.sort(rng.integers(0, tokens + 1, chunks - 1)), [tokens]]))
        order = rng.permutation(chunks)
        rows = rng.permutation(tokens)
        if kind == "short":
            sizes[::3] //= 2
        elif kind == "negative":
            sizes[::3] *= -1
        elif kind == "near misses":
            order, rows = rng.integers(-1, chunks + 1, chunks), rng.integers(-1, tokens + 1, tokens)
        elif kind == "any bytes":
            any_bytes = lambda n: rng.integers(INT32.min, INT32.max, n, endpoint=True)
            sizes, order, rows = np.where(rng.random(chunks) < 0.5, sizes, any_bytes(chunks)), any_bytes(chunks), any_bytes(tokens)
            order[::2] = rng.integers(0, chunks, order[::2].shape)
            rows[::2] = rng.integers(0, tokens, rows[::2].shape)
        name = f"{tokens} tokens, {chunks} chunks, {kind}"
        yield (name, "make_chunk_sort_map", {"split_sizes": sizes.astype(np.int32), "sorted_indices": order.astype(np.int32)},
               {"num_tokens": tokens})
        x = rng.standard_normal((tokens, 1 + number % 40))
        for forward in (True, False):
            yield (name, "sort_chunks_by_map", {"x": x, "row_id_map": rows.astype(np.int32), "probs": rng.random(tokens)},
                   {"is_forward": forward})


class Cases(family.Cases):
    """Each variant of the family on each case that it is legal for."""

    def __init__(self, bundle_path, device, roots):
        super().__init__("permutation", cases, bundle_path, device, roots)
