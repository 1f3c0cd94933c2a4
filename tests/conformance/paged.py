"""Cases of paged_attention: pages of any size in both layouts, tables that name pages twice or none at all, lengths out of bounds, and
pages that nobody names full of NaN.
"""

import itertools

import numpy as np

HEADS = [(2, 2), (4, 2), (3, 1), (10, 2)]
DEPTHS = [(17, 12), (8, 8), (64, 64), (1, 3), (128, 128), (72, 80), (256, 136)]
MASKS = [("none", -1), ("causal", -1), ("causal", 7), ("causal_bottom_right", -1), ("causal_bottom_right", 0), ("causal_bottom_right", 70)]
#         batch, queries, keys of a page, pages of a sequence
SIZES = [(2, 1, 16, 13), (3, 5, 1, 70), (1, 16, 64, 3), (4, 2, 4, 9), (2, 70, 32, 5), (9, 1, 128, 2), (1, 1, 3, 1)]


def problem_of(size, depth, heads, layout, mask, scaled=False):
    (batch, queries, slots, table), (d, dv), (h, hkv) = size, depth, heads
    count = batch * table * 2 // 3 + 2
    pool = lambda columns: (hkv, count, slots, columns) if layout == "hpsd" else (count, slots, hkv, columns)
    shapes = {"q": (batch, queries, h, d), "k": pool(d), "v": pool(dv), "lengths": (batch,), "pages": (batch, table)}
    if scaled:
        shapes |= {"k_scale": (), "v_scale": ()}
    return shapes, {"scale": d ** -0.5, "layout": layout, "mask": mask[0], "window": mask[1]}


def case(reference, name, shapes, attributes, seed, change=lambda made: None):
    made = reference.make_inputs("paged_attention", shapes | attributes, seed)
    change(made)
    axis = 1 if attributes["layout"] == "hpsd" else 0
    count = shapes["k"][axis]
    unused = np.setdiff1d(np.arange(count), made["pages"])
    for pool in ("k", "v"):
        np.moveaxis(made[pool], axis, 0)[unused] = np.nan
    yield name, "paged_attention", {operand: made[operand] for operand in shapes}, attributes | {"with_stats": True}


def cases(reference):
    every = itertools.product(SIZES, MASKS, ["pshd", "hpsd"])
    for number, (size, mask, layout) in enumerate(every):
        depth, heads = DEPTHS[number % len(DEPTHS)], HEADS[number % len(HEADS)]
        yield from case(reference, f"paged {size}, d {depth}, heads {heads}, {layout}, {mask}",
                        *problem_of(size, depth, heads, layout, mask, number % 3 == 0), number)
    sizes = [(1, 1, 16, 4), (1, 2, 64, 2), (1, 2, 1, 250), (1, 1, 32, 16)]  # of one sequence, whose keys some blocks share
    for number, (depth, heads, size) in enumerate(itertools.product([(64, 64), (128, 128), (256, 256)], [(16, 8), (20, 1)], sizes)):
        yield from case(reference, f"paged {size}, d {depth}, heads {heads}",
                        *problem_of(size, depth, heads, ["pshd", "hpsd"][number % 2], ("causal_bottom_right", -1)), number)
    yield from modified_cases(reference)
    for lengths in ([0, 1, 65], [-5, 2**31 - 1, 64], [-2**31, 0, 63]):
        def wild(made):
            made["lengths"] = np.array(lengths)
        shapes, attributes = problem_of((3, 3, 16, 5), (64, 64), (4, 2), "pshd", ("causal_bottom_right", -1))
        yield from case(reference, f"paged, lengths {lengths}", shapes, attributes, 1, wild)
    shapes, attributes = problem_of((300, 1, 16, 9), (16, 16), (4, 2), "pshd", ("none", -1))
    yield from case(reference, "paged, many sequences", shapes, attributes, 2)
    shapes, attributes = problem_of((1, 2, 64, 80), (32, 32), (4, 1), "hpsd", ("causal_bottom_right", -1))
    yield from case(reference, "paged, one long sequence", shapes, attributes | {"scale": -0.3}, 3)

    def empty(made):
        made["lengths"][:] = 0
    yield from case(reference, "paged, a sequence of no keys", *problem_of((1, 2, 16, 30), (64, 64), (4, 2), "pshd", ("none", -1)), 5, empty)

    def nowhere(made):
        made["pages"][:] = 1 << 20
    yield from case(reference, "paged, no page at all", *problem_of((2, 2, 8, 5), (16, 16), (2, 2), "pshd", ("none", -1)), 4, nowhere)


def modified_cases(reference):
    values = {"cap": 1.5, "left": 90.0, "gain": 3.0, "rate": 0.7}
    for number, (name, modifier) in enumerate(reference.modifiers().items()):
        extra = {"score_mod": name, "score_scalars": [values.get(scalar, 0.8) for scalar in modifier.scalars]}
        depth = (64, 64) if number % 2 else (256, 136)
        shapes, attributes = problem_of((2, 5, 16, 5), depth, (4, 2), "pshd", ("none", -1))
        shapes |= {f"score_tensor{i}": (4,) for i in range(len(modifier.tensors))}

        def seen(made):  # every query sees a key that no modifier hides: among scores of -1e9 float32 knows no differences
            made["pages"][:] = np.arange(10).reshape(2, 5) % shapes["k"][0]
            made["lengths"][:] = [80, 30]
        yield from case(reference, f"paged, {name}", shapes, attributes | extra, number, seen)
