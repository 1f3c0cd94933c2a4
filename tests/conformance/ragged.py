"""Cases of the ragged attention ops: random batches, and sequences that are empty, alone, at their bound, longer than it, or
followed by rows that nobody has; such rows between sequences hold NaN and infinities, and so does a bias past the end of all sequences.
"""

import itertools

import numpy as np

LONG = "long: "  # begins the names of cases that are there for what GPUs' variants do with large blocks
HEADS = [(2, 2), (4, 2), (3, 1)]
DEPTHS = [(144, 136), (17, 12), (8, 8), (64, 64), (1, 3), (33, 48), (128, 128)]
MASKS = [("none", -1), ("causal", -1), ("causal", 7), ("causal_bottom_right", -1), ("causal_bottom_right", 40)]
# Lengths of queries and of keys, rows in front of them and behind them, and the bounds where they are not the longest.
BATCHES = [
    ([5, 70, 33], [9, 70, 40], 0, 0),
    ([64], [64], 0, 0),
    ([1], [200], 0, 3),
    ([0, 20, 0, 0, 65], [10, 0, 0, 30, 129], 0, 11),
    ([0, 0], [0, 0], 0, 6),
    ([130, 2], [3, 130], 4, 70),
    ([64, 128, 64], [128, 64, 1], 0, 0),
    ([10, 90, 10], [80, 20, 10], 0, 5, 64, 48),  # cut at the bound
]


def lay_out(batch):
    """Rows, offsets and the bound, of queries and of keys."""
    lengths, (front, behind), bounds = batch[:2], batch[2:4], batch[4:]
    for number, of in enumerate(lengths):
        offsets = front + np.concatenate([[0], np.cumsum(of)])
        yield max(1, offsets[-1] + behind), offsets, bounds[number] if bounds else max(1, *of, 1)


def problem_of(batch, depth, heads, mask):
    (rows, q_offsets, max_queries), (keys, kv_offsets, max_keys) = lay_out(batch)
    (d, dv), (h, hkv), (kind, window) = depth, heads, mask
    shapes = {"q": (rows, h, d), "k": (keys, hkv, d), "v": (keys, hkv, dv), "q_offsets": (len(q_offsets),),
              "kv_offsets": (len(kv_offsets),)}
    attributes = {"scale": d ** -0.5, "mask": kind, "window": window, "max_queries": int(max_queries), "max_keys": int(max_keys)}
    return shapes, attributes, {"q_offsets": q_offsets, "kv_offsets": kv_offsets}


def both_ops(reference, name, shapes, attributes, offsets, seed, deterministic=True, spoil=lambda made: made):
    def operands():
        return spoil(reference.make_inputs("sdpa_ragged_forward", shapes | attributes, seed) | offsets)

    def with_gradient():
        made = operands()
        o, stats = reference.sdpa_ragged_forward(**made, **attributes, with_stats=True)
        dout = np.random.default_rng(seed + 1).standard_normal(o.shape)
        return spoil(made | {"o": o + dout / np.linalg.norm(dout, axis=-1, keepdims=True), "dout": dout, "stats": stats})

    yield name, "sdpa_ragged_forward", operands, attributes | {"with_stats": True}
    yield name, "sdpa_ragged_backward", with_gradient, attributes | {"deterministic": deterministic, "bias_gradient": "bias" in shapes}


def cases(reference):
    for number, (batch, mask) in enumerate(itertools.product(BATCHES, MASKS)):
        depth, heads = DEPTHS[number % len(DEPTHS)], HEADS[number % len(HEADS)]
        name = f"ragged {batch}, d {depth}, heads {heads}, {mask}"
        yield from both_ops(reference, name, *problem_of(batch, depth, heads, mask), number)
    rng = np.random.default_rng(7)
    for number in range(20):
        count = rng.integers(1, 9)
        batch = (list(rng.integers(0, 100, count)), list(rng.integers(0, 100, count)), 0, int(rng.integers(0, 40)))
        mask, depth, heads = (options[rng.integers(len(options))] for options in (MASKS, DEPTHS, HEADS))
        yield from both_ops(reference, f"ragged, random {number}: {batch}, d {depth}, heads {heads}, {mask}",
                            *problem_of(batch, depth, heads, mask), number)
    yield from whole_columns(reference)
    yield from modified_cases(reference)
    yield from odd_offsets(reference)
    yield from gaps(reference)
    yield from biased_or_dropped(reference)


def whole_columns(reference):
    """Rows of 64 and 128 columns, gradients in any order: what variants for tensor cores take."""
    for number, (batch, mask) in enumerate(itertools.product(BATCHES, MASKS)):
        depth, heads = ((64, 64), (128, 128))[number % 2], HEADS[number % len(HEADS)]
        yield from both_ops(reference, f"ragged {batch}, d {depth}, heads {heads}, {mask}, in any order",
                            *problem_of(batch, depth, heads, mask), number, deterministic=False)
    for number, (length, mask) in enumerate([(1050, ("none", -1)), (2100, ("causal", -1)), (1250, ("causal", 1100))]):
        batch = ([length + 40, length - 40], [length + 40, length - 40], 0, 3)  # long enough for large blocks
        for depth in ((64, 64), (128, 128)):
            yield from both_ops(reference, f"{LONG}ragged {batch}, d {depth}, {mask}, in any order",
                                *problem_of(batch, depth, (2, 1 + number % 2), mask), number, deterministic=False)
    # Many key heads, each of several query heads: gradients of keys in blocks that take all of these.
    shared = itertools.product((BATCHES[3], BATCHES[5], ([0, 90, 129], [128, 200, 0], 5, 9)), MASKS, ((64, 64), (128, 128)))
    for number, (batch, mask, depth) in enumerate(shared):
        heads = ((12, 4), (10, 5), (40, 8))[number % 3]
        yield from both_ops(reference, f"ragged {batch}, d {depth}, heads {heads}, {mask}, in any order",
                            *problem_of(batch, depth, heads, mask), number, deterministic=False)


def modified_cases(reference):
    values = {"cap": 1.5, "left": 9.0, "gain": 3.0, "rate": 0.7}
    for number, (name, modifier) in enumerate(reference.modifiers().items()):
        extra = {"score_mod": name, "score_scalars": [values.get(scalar, 0.8) for scalar in modifier.scalars]}
        shapes, attributes, offsets = problem_of(([30, 1, 70], [30, 1, 70], 2, 9), (17, 12), (4, 2), ("none", -1))
        shapes |= {f"score_tensor{i}": (4,) for i in range(len(modifier.tensors))}
        yield from both_ops(reference, f"ragged, {name}", shapes, attributes | extra, offsets, number)


def odd_offsets(reference):
    """Offsets outside the tensor, and such that decrease: what they leave of the sequences is computed."""
    odd = [((-9, 30, 70, 2**31 - 1), (-2**31, 50, 100, 151)), ((130, 131, 140, 150), (0, 50, 100, 150)), ((0, 40, 20, 20), (60, 100, 10, 5))]
    for number, ((queries, keys), depth) in enumerate(itertools.product(odd, (16, 64))):
        shapes, attributes, _ = problem_of(([40, 40, 40], [50, 50, 50], 0, 0), (depth, depth), (4, 2), ("causal", -1))
        offsets = {"q_offsets": np.array(queries), "kv_offsets": np.array(keys)}
        yield from both_ops(reference, f"{'d 64, ' * (depth == 64)}offsets {queries} on {keys}", shapes, attributes, offsets, number, depth == 16)


def gaps(reference):
    """Rows of no sequence behind some of the sequences: in the orders that variants promise, with both lengths or one."""
    rng = np.random.default_rng(11)
    for number, (batch, mask, deterministic) in enumerate(itertools.product(BATCHES, MASKS, (True, False))):
        depth, heads = DEPTHS[number % 7] if deterministic else ((64, 64), (128, 128))[number // 2 % 2], HEADS[number % len(HEADS)]
        lengths = {name: np.array(of) for name, of in zip(("q_lengths", "kv_lengths"), batch)}
        if number % 8 == 6:
            del lengths[("q_lengths", "kv_lengths")[number // 8 % 2]]
        spans = [list(np.array(of) + rng.integers(0, 40, len(of)) * (name in lengths))
                 for name, of in zip(("q_lengths", "kv_lengths"), batch)]
        bounds = batch[4:] or [max(1, *of, 1) for of in batch[:2]]
        yield from spoiled(reference, f"gaps {batch} in {spans}, lengths of {sorted(lengths)}, d {depth}, heads {heads}, {mask}",
                           problem_of((*spans, *batch[2:4], *bounds), depth, heads, mask), lengths, number, deterministic)
    large = [(700, ("none", -1)), (900, ("causal", -1)), (800, ("causal", 650))]
    for number, ((length, mask), depth) in enumerate(itertools.product(large, (64, 128))):
        lengths = {"q_lengths": np.array([length, length - 90]), "kv_lengths": np.array([length - 30, length])}
        problem = problem_of(([length + 70] * 2,) * 2 + (0, 90), (depth, depth), (2, 1), mask)
        yield from spoiled(reference, f"{LONG}gaps, lengths {length}, d {depth}, {mask}", problem, lengths, number, False)
    odd = [((-3, 2**31 - 1, 5), (2**31 - 1, -2**31, 60)), ((0, 41, 40), (50, 51, -1))]
    for number, ((queries, keys), depth) in enumerate(itertools.product(odd, (16, 64, 128))):
        problem = problem_of(([40, 40, 40], [50, 50, 50], 3, 9), (depth, depth), (4, 2), ("causal", -1))
        lengths = {"q_lengths": np.array(queries), "kv_lengths": np.array(keys)}
        yield from spoiled(reference, f"lengths {queries} on {keys}, d {depth}", problem, lengths, number, depth == 16)


BIASES = [(False, False), (True, True), None, (True, False), (False, True)]  # whether sequences and heads have their own
DROPOUTS = [0.3, 0.0, 0.5, None]  # None: there is no state


def biased_or_dropped(reference):
    """A bias of every kind of sharing, dropout, both, in either order; sequences at their rows and with gaps, and modifiers."""
    every = itertools.product(BATCHES[:5] + BATCHES[7:], BIASES, (True, False))
    for number, (batch, of_bias, deterministic) in enumerate(every):
        dropout, mask, heads = DROPOUTS[number % 4] if of_bias else 0.3, MASKS[number % 5], HEADS[number // 2 % 3]
        depth = ((64, 64), (128, 128), (17, 12), (144, 136))[number % 4] if not deterministic else DEPTHS[number % 7]
        problem = extended(problem_of(batch, depth, heads, mask), of_bias, dropout)
        name = f"ragged {batch}, bias {of_bias}, dropout {dropout}, d {depth}, heads {heads}, {mask}"
        if number % 3 == 1:  # every second row of the offsets is of none
            lengths = {of + "_lengths": np.diff(problem[2][of + "_offsets"]) // 2 for of in ("q", "kv")}
            yield from spoiled(reference, name + ", gaps", problem, lengths, number, deterministic)
        else:
            yield from both_ops(reference, name, *problem, number, deterministic)
    modified = {"softcap": [1.5], "alibi": [], "sliding_window": [9.0]}
    for number, (dropout, (modifier, scalars)) in enumerate(itertools.product((0.001, 0.2, 0.999, 1.0), modified.items())):
        problem = problem_of(([30, 1, 70], [30, 1, 70], 2, 9), ((17, 12), (64, 64))[number % 2], (4, 2), ("causal", 30))
        shapes, attributes, offsets = extended(problem, (True, False), dropout)
        shapes |= {"score_tensor0": (4,)} if modifier == "alibi" else {}
        attributes |= {"score_mod": modifier, "score_scalars": scalars}
        yield from both_ops(reference, f"ragged, {modifier}, bias, dropout {dropout}", shapes, attributes, offsets, number)


def extended(problem, of_bias, dropout):
    """The problem with a bias and dropout; of_bias: whether sequences and heads have their own, None: no bias."""
    shapes, attributes, offsets = problem
    if of_bias is not None:
        own = (len(offsets["q_offsets"]) - 1, shapes["q"][1])
        shared = (most if has else 1 for most, has in zip(own, of_bias))
        shapes = shapes | {"bias": (*shared, attributes["max_queries"], attributes["max_keys"])}
    if dropout is not None:
        shapes, attributes = shapes | {"dropout_state": (4,)}, attributes | {"dropout": dropout}
    return shapes, attributes, offsets


def spoiled(reference, name, problem, lengths, seed, deterministic):
    """NaN and infinities in every row that no sequence has, of all operands."""
    shapes, attributes, offsets = problem
    owned = {of: rows_of_sequences(offsets[of + "_offsets"], lengths.get(of + "_lengths"), shapes[of[0]][0], attributes[bound])
             for of, bound in (("q", "max_queries"), ("kv", "max_keys"))}

    def spoil(made):
        made = dict(made)
        for operand, of in (("q", "q"), ("k", "kv"), ("v", "kv"), ("o", "q"), ("dout", "q"), ("stats", "q")):
            if operand in made:
                made[operand] = made[operand].copy()
                made[operand][~owned[of]] = np.resize([np.nan, np.inf, -np.inf], made[operand][~owned[of]].shape)
        if "bias" in made:
            longest = [max(spans_of(offsets[of + "_offsets"], lengths.get(of + "_lengths"), rows, attributes[bound]))
                       for of, rows, bound in (("q", len(made["q"]), "max_queries"), ("kv", len(made["k"]), "max_keys"))]
            made["bias"] = made["bias"].copy()
            made["bias"][..., longest[0]:, :] = made["bias"][..., longest[1]:] = np.nan
        return made

    shapes = shapes | {of: values.shape for of, values in lengths.items()}
    yield from both_ops(reference, name, shapes, attributes, offsets | lengths, seed, deterministic, spoil)


def spans_of(offsets, lengths, rows, bound):
    """How many rows each sequence has."""
    most = np.minimum(np.maximum(np.diff(np.clip(offsets, 0, rows)), 0), bound)
    return most if lengths is None else np.clip(lengths, 0, most)


def rows_of_sequences(offsets, lengths, rows, bound):
    """Whether some sequence has a row."""
    owned = np.zeros(rows, bool)
    for first, count in zip(np.clip(offsets, 0, rows), spans_of(offsets, lengths, rows, bound)):
        owned[first:first + count] = True
    return owned
