"""Cases of the attention ops whose windows look ahead, or back without a causal mask: narrow ones, such as nobody sees the end of, and such as
leave a query without keys or a key without queries.
"""

import itertools

import numpy as np

from conformance import ragged

#        mask, window, window_right
SIGHTS = [("none", 7, 5), ("none", 0, 0), ("none", -1, 9), ("none", 20, -1), ("none", 1000, 2000), ("none", -1, 0), ("none", 3, 130),
          ("bottom_right", 7, 30), ("bottom_right", 0, 0), ("bottom_right", -1, 4), ("bottom_right", 70, -1), ("bottom_right", 2**31 - 1, 2**31 - 1)]
COVERED = [("causal", 7, 3), ("causal", -1, 0), ("causal_bottom_right", 20, 9), ("causal", -1, 2**31 - 1)]  # what a causal mask hides anyway
PICKED = 60


def seen_as(attributes, sight):
    return attributes | dict(zip(("mask", "window", "window_right"), sight))


def cases(reference, of):
    """of: the module of the ops' other cases."""
    rng = np.random.default_rng(3)
    for number in range(PICKED):
        sight, size, depth, heads, layout, lengths, bias, dropout = (options[rng.integers(len(options))] for options in (
            SIGHTS + COVERED, of.SIZES, of.DEPTHS, of.HEADS, ["bshd", "bhsd"], of.LENGTHS, of.BIASES, of.DROPOUTS))
        problem, attributes = of.problem_of(size, depth, heads, layout, ("none", -1), lengths, bias, dropout)
        name = f"ahead {sight}, {size[0]} on {size[1]}, d {depth}, heads {heads}, {layout}, {lengths}, {bias}, {dropout}"
        yield from of.both_ops(reference, name, problem, seen_as(attributes, sight), number)
    yield from whole_columns(reference, of)
    yield from modified(reference, of)
    yield from packed(reference, of)
    yield from of_sequences(reference)


def whole_columns(reference, of):
    """Rows as models have them, gradients in any order: what variants for tensor cores take. Then sequences of several blocks."""
    for number, (sight, depth) in enumerate(itertools.product(SIGHTS, [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256)])):
        size = [(130, 130), (64, 64), (33, 257), (257, 257), (140, 97), (3, 129), (200, 193)][number % 7]
        yield from whole(reference, of, size, depth, of.HEADS[number // 2 % 3], ["bshd", "bhsd"][number % 2], sight, number)
    large = [(("none", 128, 128), 64), (("none", -1, 200), 64), (("none", 64, 1100), 96), (("none", 700, 3), 128),
             (("bottom_right", 300, 400), 128), (("bottom_right", 1100, 40), 64)]
    longer = [(("none", 1900, 120), 64, (2200, 2200)), (("none", -1, 2050), 96, (150, 2300)), (("bottom_right", 2000, 30), 96, (150, 2300)),
              (("none", 1000, 120), 128, (1300, 1300))]
    for number, (sight, depth) in enumerate(large):
        size = (1500, 1500) if sight[0] == "none" else (900, 1411)
        yield from whole(reference, of, size, (depth, depth), (2, 1 + number % 2), "bshd", sight, number, ragged.LONG)
    for number, (sight, depth, size) in enumerate(longer):  # forward alone: a matrix of scores is held in float64
        yield next(whole(reference, of, size, (depth, depth), (1, 1), "bshd", sight, number, ragged.LONG))
    heads = 66 // of.BATCH  # 132 blocks of 128 rows, a wave: others are for less
    for number, depth in enumerate([(192, 128), (256, 256)]):
        yield next(whole(reference, of, (256, 256), depth, (heads, heads), "bshd", ("none", 100, 40), number, ragged.LONG))
    yield next(whole(reference, of, (900, 950), (192, 128), (2, 1), "bshd", ("none", 700, 40), 0, ragged.LONG))


def whole(reference, of, size, depth, heads, layout, sight, seed, begins=""):
    problem, attributes = of.problem_of(size, depth, heads, layout, ("none", -1), (), None, 0.0)
    yield from of.both_ops(reference, f"{begins}ahead {sight}, {size[0]} on {size[1]}, d {depth}, heads {heads}, in any order", problem,
                           seen_as(attributes, sight), seed, deterministic=False)


def modified(reference, of):
    for number, (sight, depth) in enumerate(itertools.product(SIGHTS, [(24, 12), (128, 128)])):
        extra = {"score_mod": "softcap", "score_scalars": [1.5]} if number % 4 < 2 else {"score_mod": "relative"}
        problem, attributes = of.problem_of((130, 145), depth, (4, 2), "bshd", ("none", -1), (), None, 0.0)
        yield from of.both_ops(reference, f"ahead {sight}, {extra['score_mod']}, d {depth}", problem, seen_as(attributes | extra, sight), number,
                               deterministic=False)


def packed(reference, of):
    sights = [sight for sight in SIGHTS if sight[0] == "none"]
    every = itertools.product(sights, [(70, 24), (200, 64), (130, 128)], of.HEADS[:2])
    large = [(("none", -1, 9), (1300, 64), (1, 1)), (("none", 500, 700), (1300, 128), (1, 1))]  # large blocks
    for number, (sight, (tokens, d), (h, hkv)) in enumerate([*every, *large]):
        shapes = {"qkv": (of.BATCH, tokens, h + 2 * hkv, d)}
        if number % 5 == 1:
            shapes["lengths"] = (of.BATCH,)
        out = {"dout": (of.BATCH, tokens, h, d), "o": (of.BATCH, tokens, h, d), "stats": (of.BATCH, h, tokens)}
        attributes = seen_as({"scale": d ** -0.5, "kv_heads": hkv}, sight)
        for op, given, more in [("sdpa_packed_forward", shapes, {"with_stats": True}),
                                ("sdpa_packed_backward", shapes | out, {"deterministic": d == 24})]:
            made = reference.make_inputs(op, given | attributes, number)
            begins = ragged.LONG if tokens > 1000 else ""
            yield f"{begins}ahead {sight}, packed {tokens} x {d}, heads {h, hkv}", op, {name: made[name] for name in given}, attributes | more
    sight, problem = ("none", 300, 1800), {"qkv": (1, 2200, 3, 64)}  # the largest
    yield next(of.both_packed_ops(reference, f"{ragged.LONG}ahead {sight}, packed 2200", problem, seen_as({"scale": 0.125, "kv_heads": 1}, sight), 1))


def of_sequences(reference):
    every = list(itertools.product(ragged.BATCHES, SIGHTS + COVERED[:1]))  # an odd number of sights: every batch has others
    for number, (batch, sight) in enumerate(every[::2]):
        whole = number % 3 > 0
        depth, heads = ((64, 64), (128, 128))[number % 2] if whole else ragged.DEPTHS[number % 7], ragged.HEADS[number % 3]
        shapes, attributes, offsets = ragged.problem_of(batch, depth, heads, ("none", -1))
        yield from ragged.both_ops(reference, f"ahead {sight}, ragged {batch}, d {depth}, heads {heads}", shapes, seen_as(attributes, sight), offsets,
                                   number, deterministic=not whole)
    for number, (length, sight) in enumerate([(1090, ("none", -1, 100)), (1050, ("bottom_right", 700, 400))]):
        for depth in ((64, 64), (128, 128)):
            problem = ragged.problem_of(([length + 40, length - 40], [length - 10, length + 50], 0, 3), depth, (2, 1 + number), ("none", -1))
            yield from ragged.both_ops(reference, f"{ragged.LONG}ahead {sight}, ragged, {length} each, d {depth}", problem[0],
                                       seen_as(problem[1], sight), problem[2], number, deterministic=False)
    for number, (batch, sight, deterministic) in enumerate(itertools.product(ragged.BATCHES[:7], SIGHTS[::3] + SIGHTS[1:2], (True, False))):
        lengths = {name: np.array(of) for name, of in zip(("q_lengths", "kv_lengths"), batch)}
        spans = [[int(length) + (7 * i + number) % 30 for i, length in enumerate(of)] for of in batch[:2]]
        depth = ragged.DEPTHS[number % 7] if deterministic else ((64, 64), (128, 128))[number // 2 % 2]
        bounds = batch[4:] or [max(1, *of, 1) for of in batch[:2]]
        shapes, attributes, offsets = ragged.problem_of((*spans, *batch[2:4], *bounds), depth, ragged.HEADS[number % 3], ("none", -1))
        yield from ragged.spoiled(reference, f"ahead {sight}, gaps {batch} in {spans}, d {depth}", (shapes, seen_as(attributes, sight), offsets),
                                  lengths, number, deterministic)
