"""The attention ops on small odd shapes, the same on every device, every variant forced: masks x layouts x grouped heads x
lengths x biases x dropout, and the corner cases that kernels/attention/README.md defines.

Results are judged by the largest magnitude of the tensor: gradients of single rows may cancel, those of a tensor do not.
What must be nothing (rows that see nothing, keys that nobody sees) must be exactly 0.
"""

import itertools
import sys
import zlib
from functools import partial

import numpy as np

from conformance import ahead, capi, compare, devices, family, paged, ragged, runner

#         queries, keys
SIZES = [(5, 9), (130, 70), (70, 130), (1, 200), (64, 64), (129, 65), (33, 257)]
DEPTHS = [(17, 12), (8, 8), (64, 64), (1, 3), (33, 48), (128, 128)]
HEADS = [(2, 2), (4, 2), (3, 1)]
MASKS = [("none", -1), ("causal", -1), ("causal", 7), ("causal", 0), ("causal_bottom_right", -1), ("causal_bottom_right", 70)]
LENGTHS = [(), ("kv_lengths",), ("q_lengths", "kv_lengths"), ("q_lengths",)]
BIASES = [None, (False, False), (True, False), (False, True), (True, True)]  # whether batches and heads have their own
DROPOUTS = [0.0, 0.0, 0.3]
BATCH = 2
PICKED = 120
HALVES = ("bf16", "f16")
F32_TOLERANCE = 2e-5


def problem_of(size, depth, heads, layout, mask, lengths, bias, dropout):
    """Shapes and attributes of the forward op."""
    (queries, keys), (d, dv), (h, hkv) = size, depth, heads
    shape = lambda tokens, heads, d: (BATCH, tokens, heads, d) if layout == "bshd" else (BATCH, heads, tokens, d)
    problem = {"q": shape(queries, h, d), "k": shape(keys, hkv, d), "v": shape(keys, hkv, dv)}
    if bias is not None:
        problem["bias"] = (BATCH if bias[0] else 1, h if bias[1] else 1, queries, keys)
    problem |= {name: (BATCH,) for name in lengths}
    if dropout:
        problem["dropout_state"] = (4,)
    attributes = {"scale": d ** -0.5, "layout": layout, "mask": mask[0], "window": mask[1], "dropout": dropout}
    return problem, attributes


def both_ops(reference, name, problem, attributes, seed, change=lambda made: None, deterministic=True):
    """The forward and the backward case of one problem; `change` edits the forward op's operands."""
    def operands():
        made = reference.make_inputs("sdpa_forward", problem | attributes, seed)
        change(made)
        return {operand: made[operand] for operand in problem}

    def with_gradient():
        made = operands()
        o, stats = reference.sdpa_forward(**made, **attributes, with_stats=True)
        dout = np.random.default_rng(seed + 1).standard_normal(o.shape)
        return made | {"o": o + dout / np.linalg.norm(dout, axis=-1, keepdims=True), "dout": dout, "stats": stats}

    yield name, "sdpa_forward", operands, attributes | {"with_stats": True}
    yield name, "sdpa_backward", with_gradient, attributes | {"bias_gradient": "bias" in problem, "deterministic": deterministic}


def both_packed_ops(reference, name, problem, attributes, seed, deterministic=True):
    """The same of queries, keys and values in one tensor."""
    batch, tokens, heads, d = problem["qkv"]
    out = (batch, tokens, heads - 2 * attributes["kv_heads"], d)
    gradient = problem | {"dout": out, "o": out, "stats": (batch, out[2], tokens)}

    def operands(op, shapes):
        made = reference.make_inputs(op, shapes | attributes, seed)
        return {operand: made[operand] for operand in shapes}

    yield name, "sdpa_packed_forward", partial(operands, "sdpa_packed_forward", problem), attributes | {"with_stats": True}
    yield (name, "sdpa_packed_backward", partial(operands, "sdpa_packed_backward", gradient),
           attributes | {"bias_gradient": "bias" in problem, "deterministic": deterministic})


def cases(reference):
    """(name, op, operands by name or a function that makes them, attributes) with arrays in float64 or integers."""
    every = list(itertools.product(HEADS, ["bshd", "bhsd"], MASKS, LENGTHS, BIASES, DROPOUTS))
    for number in np.random.default_rng(0).permutation(len(every))[:PICKED]:
        heads, *rest = every[number]
        size, depth = SIZES[number % len(SIZES)], DEPTHS[number % len(DEPTHS)]
        problem, attributes = problem_of(size, depth, heads, *rest)
        name = f"{size[0]} on {size[1]}, d {depth}, heads {heads}, {rest}"
        yield from both_ops(reference, name, problem, attributes, int(number))
    yield from whole_columns(reference)
    yield from long_sequences(reference)
    yield from modified_cases(reference)
    yield from corner_cases(reference)
    yield from packed_cases(reference)
    yield from fp8_cases(reference)
    yield from ragged.cases(reference)
    yield from few_queries(reference)
    yield from paged.cases(reference)
    yield from ahead.cases(reference, sys.modules[__name__])


def whole_columns(reference):
    """Rows as models have them, gradients in any order: what variants for tensor cores take."""
    every = itertools.product([(64, 64), (96, 96), (128, 128), (192, 128), (256, 256)], MASKS, HEADS)
    for number, (depth, mask, heads) in enumerate(every):
        size = [(130, 130), (64, 64), (33, 257), (257, 257)][number % 4]
        if size[0] < size[1] and mask[0] == "causal":
            size = (65, 65)
        problem, attributes = problem_of(size, depth, heads, ["bshd", "bhsd"][number % 2], mask, (), None, 0.0)
        yield from both_ops(reference, f"{size[0]} on {size[1]}, d {depth}, heads {heads}, {mask}, in any order", problem, attributes, number,
                            deterministic=False)


def long_sequences(reference):
    """Rows that see thousands of keys: what variants of large blocks take. Forward alone, for a matrix of scores is held in float64."""
    every = [((70, 2110), ("none", -1)), ((70, 2140), ("causal_bottom_right", -1)), ((33, 2250), ("causal_bottom_right", 2100))]
    for number, ((size, mask), depth) in enumerate(itertools.product(every, [(64, 64), (96, 96)])):
        problem, attributes = problem_of(size, depth, (2, 1 + number % 2), ["bshd", "bhsd"][number % 2], mask, (), None, 0.0)
        yield next(both_ops(reference, f"{ragged.LONG}{size[0]} on {size[1]}, d {depth}, {mask}", problem, attributes, number))


def few_queries(reference):
    """One query and some, on keys of several lengths: what variants for a cache of keys take. Forward alone."""
    sizes, depths = [(1, 700), (4, 333), (16, 1300), (13, 20)], [(128, 128), (64, 64), (40, 56), (256, 256), (128, 72)]
    every = itertools.product([(8, 2), (2, 2), (24, 1)], ["bshd", "bhsd"], MASKS, LENGTHS[:3])
    for number, (heads, layout, mask, lengths) in enumerate(every):
        size, depth = sizes[number % 4], depths[number % 5]
        problem, attributes = problem_of(size, depth, heads, layout, mask, lengths, None, 0.0)
        if number % 7 == 0:
            attributes |= {"score_mod": "softcap", "score_scalars": [1.5]}
        name = f"{size[0]} on {size[1]}, d {depth}, heads {heads}, {layout}, {mask}, {lengths}"
        yield next(both_ops(reference, name, problem, attributes, number))
    # One, two, four and eight blocks share a sequence's keys, where a variant's blocks share them; rows that see none; a window of few.
    sizes = [(1, 60), (2, 100), (2, 250), (1, 500), (1, 700), (2, 700), (9, 4)]
    for number, (depth, heads, size) in enumerate(itertools.product([(64, 64), (128, 128), (256, 256)], [(8, 4), (20, 1)], sizes)):
        mask = {(9, 4): ("causal_bottom_right", -1), (2, 700): ("causal_bottom_right", 100)}.get(size, ("none", -1))
        problem, attributes = problem_of(size, depth, heads, ["bshd", "bhsd"][number % 2], mask, (), None, 0.0)
        name = f"{size[0]} on {size[1]}, d {depth}, heads {heads}, {mask}"
        yield next(both_ops(reference, name, problem, attributes, number))


def modified_cases(reference):
    """Every modifier of the manifest in both layouts, alone and with everything else; every row sees some key that no
    modifier hides, for among scores of -1e9 float32 knows no differences."""
    for number, (score_mod, layout) in enumerate(itertools.product(reference.modifiers(), ["bshd", "bhsd"])):
        modifier = reference.modifiers()[score_mod]
        values = {"cap": 1.5, "left": 9.0, "gain": 3.0, "rate": 0.7}
        extra = {"score_mod": score_mod, "score_scalars": [values.get(name, 0.8) for name in modifier.scalars]}
        for mask, lengths, bias, dropout in [(("none", -1), (), None, 0.0),
                                             (("causal", 30), ("q_lengths",), (False, True), 0.2)]:
            problem, attributes = problem_of((70, 93), (17, 12), (4, 2), layout, mask, lengths, bias, dropout)
            problem |= {f"score_tensor{i}": (4,) for i in range(len(modifier.tensors))}
            yield from both_ops(reference, f"{score_mod}, {layout}, {mask}", problem, attributes | extra, number)


def packed_cases(reference):
    """Queries, keys and values in one tensor: every mask, number of heads and depth of a few; lengths, biases, dropout in turn."""
    every = itertools.product([(5, 17), (70, 64), (129, 12), (64, 128), (33, 1)], HEADS, MASKS[:4])
    for number, ((tokens, d), (h, hkv), mask) in enumerate(every):
        problem = {"qkv": (BATCH, tokens, h + 2 * hkv, d)}
        attributes = {"scale": d ** -0.5, "kv_heads": hkv, "mask": mask[0], "window": mask[1], "dropout": DROPOUTS[number % 3]}
        bias = BIASES[number % 5]
        if bias is not None:
            problem["bias"] = (BATCH if bias[0] else 1, h if bias[1] else 1, tokens, tokens)
        if number % 4 == 0:
            problem["lengths"] = (BATCH,)
        if attributes["dropout"]:
            problem["dropout_state"] = (4,)
        if number % 7 == 0:
            attributes |= {"score_mod": "softcap", "score_scalars": [1.5]}
        name = f"packed {tokens} x {d}, heads {h, hkv}, {mask}, {bias}"
        yield from both_packed_ops(reference, name, problem, attributes, number)
    for tokens, mask, window in [(4110, "causal", -1), (2200, "causal", 2050), (2100, "none", -1)]:  # large blocks
        attributes = {"scale": 0.125, "kv_heads": 1, "mask": mask, "window": window}
        yield next(both_packed_ops(reference, f"{ragged.LONG}packed {tokens}, {mask}, {window}", {"qkv": (1, tokens, 3, 64)}, attributes, tokens))


def fp8_cases(reference):
    """Of both types: every mask, layout and number of heads, lengths in turn."""
    every = itertools.product([((70, 93), (16, 32)), ((129, 64), (33, 12))], HEADS, ["bshd", "bhsd"], MASKS, ["e4m3", "e5m2"])
    for number, (((queries, keys), depth), heads, layout, mask, dtype) in enumerate(every):
        lengths = LENGTHS[number % len(LENGTHS)]
        problem, attributes = problem_of((queries, keys), depth, heads, layout, mask, lengths, None, 0.0)
        problem |= {f"descale_{name}": () for name in "qkvs"} | {"scale_s": (), "scale_o": ()}
        del attributes["dropout"]
        made = reference.make_inputs("sdpa_fp8_forward", problem | attributes, number)
        yield (f"fp8 {queries} on {keys}, d {depth}, heads {heads}, {layout}, {mask}, {lengths}", "sdpa_fp8_forward",
               {name: np.asarray(made[name]) for name in problem}, attributes | {"dtype": dtype, "with_stats": True})


def corner_cases(reference):
    for layout, mask in itertools.product(["bshd", "bhsd"], [("none", -1), ("causal_bottom_right", 20)]):
        problem, attributes = problem_of((70, 90), (16, 16), (4, 2), layout, mask, ("q_lengths", "kv_lengths"), (False, False), 0.0)
        for queries, keys in [((0, 70), (90, 0)), ((-5, 2**31 - 1), (2**31 - 1, -2**31)), ((70, 30), (10, 90)), ((1, 64), (64, 1))]:
            def lengths(made, queries=queries, keys=keys):  # called when the loop is over
                made["q_lengths"], made["kv_lengths"] = np.array(queries), np.array(keys)
            yield from both_ops(reference, f"lengths {queries} on {keys}, {layout}, {mask}", problem, attributes, 1, lengths)

        def hidden_by_bias(made):
            made["bias"][..., 3, :] = -np.inf
            made["bias"][..., 10:, 5:80] = -np.inf
        yield from both_ops(reference, f"bias of -inf, {layout}, {mask}", problem, attributes, 2, hidden_by_bias)

        def large(made):
            made["q"] *= 25
        yield from both_ops(reference, f"large scores, {layout}, {mask}", problem, attributes, 3, large)
    for dropout in (0.001, 0.999, 1.0):
        problem, attributes = problem_of((40, 70), (16, 16), (4, 2), "bshd", ("none", -1), (), None, dropout)
        yield from both_ops(reference, f"dropout {dropout}", problem, attributes, 4)
    problem, attributes = problem_of((40, 70), (16, 16), (4, 2), "bshd", ("none", -1), (), None, 0.0)
    yield from both_ops(reference, "scale 0", problem, attributes | {"scale": 0.0}, 5)
    yield from both_ops(reference, "negative scale", problem, attributes | {"scale": -0.5}, 6)


class Cases(family.Cases):
    """Each variant of the family on each case that it is legal for."""

    def __init__(self, bundle_path, device, roots, cases=cases):
        super().__init__("attention", cases, bundle_path, device, roots)

    def wants(self, types, case):
        """On the host, whose blocks do not grow with the sequences, long ones run in one dtype; of bfloat16 and float16, which differ only in
        how a number is read and written, every other case goes to one."""
        if self.device.kind == capi.CUDA or types["T"] not in HALVES:
            return True
        return not case[0].startswith(ragged.LONG) and HALVES[zlib.crc32(case[0].encode()) % 2] == types["T"]

    def judge(self, outcome, op, name, found, wanted):
        for number, (result, array) in enumerate(zip(op["results"], found)):
            if array is None:
                continue
            dtype = next(n for n, t in devices.NUMPY.items() if array.dtype == t)
            tolerance = runner.tolerance_of(op, number, dtype)
            if dtype == "f32":
                tolerance["relative"] = min(F32_TOLERANCE, tolerance["relative"])
            ratio, sentence = compare.worst(array.reshape(-1), wanted[number].reshape(-1), **tolerance)
            outcome.worst = max(outcome.worst, ratio)
            if not ratio <= 1:
                outcome.failures.append(f"{name}, {result['name']}: {ratio:.3g} times the tolerance, {sentence}")
            nothing = wanted[number] == 0
            if (array.astype(np.float64)[nothing] != 0).any():
                outcome.failures.append(f"{name}, {result['name']}: not 0 where it must be")
