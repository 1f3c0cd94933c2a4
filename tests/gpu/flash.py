"""Our own CUDA kernels for attention, every variant forced on small odd shapes: those that every device gets
(conformance/attention.py), and heads as wide as each kernel is for, with each score modifier that is compiled in.

With --few only two of the latter for each variant, for compute-sanitizer; variants that there is no time for are counted. With --cute
those of CuTe DSL in place of CUDA's.
"""

import itertools
import sys
import time

import numpy as np

from conformance import ahead, attention, capi, devices, paged, ragged, runner
from report import Report

ROOT = capi.ROOT
BUNDLE = ROOT / "build/kernels.kb"
SIZES = [(130, 70), (70, 130), (1, 200), (129, 257)]
DEPTHS = [(64, 64), (40, 64), (96, 96), (72, 96), (128, 128), (128, 64), (192, 128), (136, 96), (256, 256), (200, 160), (33, 20),
          (100, 100), (130, 7), (129, 256)]
WHOLE_DEPTHS = [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256)]
FEW_SECONDS = 110


def wide_cases(reference):
    """Of each depth two plain cases, one with dropout, one with a bias; of each modifier one in each layout."""
    for number, (depth, kind) in enumerate(itertools.product(DEPTHS, ("plain", "lengths", "dropout", "bias"))):
        layout, mask = ("bshd", "bhsd")[number % 2], attention.MASKS[number % len(attention.MASKS)]
        lengths = attention.LENGTHS[1 + number // 4 % 3] if kind == "lengths" else ()
        heads = attention.HEADS[number // 4 % len(attention.HEADS)]
        problem, attributes = attention.problem_of(SIZES[number // 2 % len(SIZES)], depth, heads, layout, mask, lengths,
                                                   (number % 8 > 3, True) if kind == "bias" else None, 0.3 if kind == "dropout" else 0.0)
        yield from both(reference, f"d {depth}, {kind}, {layout}, {mask}", problem, attributes, number)
    for number, (name, layout) in enumerate(itertools.product(reference.modifiers(), ("bshd", "bhsd"))):
        modifier = reference.modifiers()[name]
        values = {"cap": 1.5, "left": 40.0, "gain": 3.0, "rate": 0.7}
        problem, attributes = attention.problem_of((130, 140), (128, 128), (4, 2), layout, ("none", -1), (), None, 0.0)
        problem |= {f"score_tensor{i}": (4,) for i in range(len(modifier.tensors))}
        attributes |= {"score_mod": name, "score_scalars": [values.get(scalar, 0.8) for scalar in modifier.scalars]}
        yield from both(reference, f"{name}, d 128, {layout}", problem, attributes, number)


def whole_cases(reference):
    """Plain ones of the very widths of a kernel, where each row sees a key: what FlashAttention-4's kernels take, in both layouts, with
    few keys, with many, and of wide columns with so many blocks that they fill waves: for which it has other blocks."""
    few = [("none", -1, 129, 257), ("causal", -1, 333, 333), ("causal", 70, 333, 333), ("causal_bottom_right", -1, 130, 333),
           ("causal_bottom_right", 70, 130, 333)]
    many = [("none", -1, 129, 2500), ("causal_bottom_right", -1, 150, 2600), ("causal_bottom_right", 1100, 150, 1200)]
    full = 66 // attention.BATCH  # heads, of 132 blocks of 128 rows
    waves = itertools.product([d for d in WHOLE_DEPTHS if d[0] > 128], [(*case[:2], 256, 256) for case in few[:3]], [(full, full)])
    usual = itertools.product(WHOLE_DEPTHS, few + many, [(2, 2), (6, 2)])
    for number, (depth, (mask, window, *size), heads) in enumerate(itertools.chain(usual, waves)):
        layout = ("bshd", "bhsd")[number // 2 % 2]
        problem, attributes = attention.problem_of(size, depth, heads, layout, (mask, window), (), None, 0.0)
        name = f"whole {depth}, {heads}, {layout}, {mask}, {window}, {size}"
        for case, op, given, more in attention.both_ops(reference, name, problem, attributes, number):
            yield case, op, given, more | ({"deterministic": False} if op.endswith("backward") else {})


# Of as many tiles as keep every multiprocessor busy, for which FlashAttention-4's blocks stay: mask, queries, keys, heads, columns. Small and
# large blocks, with a last round that is full and one that is not.
FULL = [(("causal", -1), 333, 333, (96, 24), 128), (("none", -1), 300, 320, (112, 14), 128), (("causal_bottom_right", -1), 200, 320, (128, 32), 128),
        (("causal", 70), 190, 190, (192, 48), 128), (("causal_bottom_right", 70), 129, 320, (192, 64), 128), (("none", -1), 65, 257, (288, 96), 128),
        (("none", -1), 33, 31, (528, 264), 128), (("none", -1), 760, 760, (22, 11), 128), (("causal", -1), 1300, 1300, (14, 7), 128),
        (("causal_bottom_right", -1), 640, 1100, (27, 9), 128), (("causal", -1), 260, 260, (48, 12), 64), (("none", -1), 400, 380, (32, 32), 64),
        (("causal", 200), 500, 500, (32, 8), 64), (("causal", -1), 2300, 2300, (10, 5), 64), (("none", -1), 1150, 1200, (22, 11), 64),
        (("causal", -1), 500, 500, (32, 8), 96), (("none", -1), 300, 300, (48, 12), 96), (("causal_bottom_right", 64), 222, 333, (60, 20), 96),
        (("causal", -1), 320, 320, (32, 8), 256), (("none", -1), 200, 220, (40, 10), 256), (("causal", 70), 190, 190, (64, 16), 256),
        (("causal_bottom_right", -1), 310, 320, (32, 32), 192), (("none", -1), 200, 220, (40, 40), 192),
        (("causal_bottom_right", 70), 190, 200, (64, 16), 192), (("causal_bottom_right", 70), 150, 200, (30, 10), 192),
        (("causal", 70), 150, 150, (30, 10), 256), (("causal", -1), 700, 700, (32, 8), 256), (("none", -1), 420, 440, (48, 12), 256),
        (("causal_bottom_right", 200), 500, 520, (40, 10), 256), (("causal_bottom_right", -1), 640, 700, (36, 18), 192),
        (("none", -1), 380, 333, (60, 20), 192), (("causal", 200), 500, 500, (48, 12), 192), (("causal", -1), 60, 60, (96, 24), 256),
        (("none", -1), 64, 129, (80, 80), 192), (("causal_bottom_right", -1), 60, 70, (96, 32), 192), (("none", -1), 50, 77, (90, 30), 256),
        (("none", -1), 500, 480, (12, 12), 192), (("none", -1), 500, 500, (12, 3), 256), (("causal", -1), 1000, 1000, (8, 4), 256),
        (("causal_bottom_right", -1), 1000, 1024, (8, 8), 192), (("none", -1), 1100, 1000, (20, 5), 96), (("causal", -1), 2000, 2000, (10, 5), 96),
        (("none", -1), 1000, 990, (10, 10), 192), (("causal_bottom_right", -1), 700, 1100, (14, 7), 192), (("causal", 800), 1000, 1000, (10, 5), 192),
        (("none", -1), 520, 1200, (13, 13), 64), (("none", -1), 500, 1150, (30, 10), 64), (("none", -1), 500, 1150, (30, 10), 96),
        (("none", -1), 1150, 1200, (22, 11), 96),
        (("causal", -1), 1200, 1200, (10, 5), 64), (("causal_bottom_right", -1), 700, 1100, (15, 5), 96),
        # of so many heads with few keys that half of what fits is a section
        (("causal", -1), 65, 65, (300, 300), 64), (("causal", -1), 130, 130, (160, 80), 128), (("causal", 50), 130, 130, (140, 140), 192),
        (("causal", -1), 190, 190, (140, 140), 256),
        # rows that see nothing: not FlashAttention-4's
        (("causal", -1), 200, 90, (144, 144), 128), (("causal", 3), 314, 320, (112, 56), 128)]
PACKED_FULL = [(("none", -1), 320, (30, 30), 128), (("causal", -1), 512, (20, 5), 128), (("causal", 70), 300, (32, 8), 128),
               (("none", -1), 760, (22, 11), 128), (("causal", -1), 1300, (14, 7), 128), (("none", -1), 320, (40, 40), 64),
               (("causal", -1), 512, (26, 13), 64), (("causal", 70), 300, (40, 10), 64), (("none", -1), 1150, (22, 11), 64),
               (("causal", -1), 2300, (10, 5), 64), (("none", -1), 1130, (7, 7), 64), (("causal", -1), 1200, (10, 5), 64)]

# Backward: blocks enough to take all the query heads that share their keys, and of causal masks so many that they have an order.
SHARED = [(("causal", -1), 130, 130, (68, 34), 64), (("none", -1), 70, 200, (18, 9), 64), (("causal", 40), 100, 100, (34, 17), 64),
          (("causal", -1), 130, 130, (68, 34), 96), (("none", -1), 70, 200, (18, 9), 96), (("causal", 40), 100, 100, (34, 17), 96),
          (("causal", -1), 130, 130, (68, 34), 128), (("none", -1), 70, 200, (18, 9), 128), (("causal", 40), 100, 100, (34, 17), 128),
          (("causal_bottom_right", -1), 110, 130, (68, 34), 192), (("none", -1), 70, 200, (18, 9), 192), (("causal", 40), 100, 100, (34, 17), 192),
          (("causal", -1), 130, 130, (34, 17), 256), (("none", -1), 70, 200, (18, 9), 256), (("causal", 40), 100, 100, (34, 17), 256),
          (("causal", -1), 130, 130, (100, 100), 64), (("causal", -1), 140, 140, (100, 100), 128),
          (("causal_bottom_right", -1), 70, 280, (48, 3), 128)]
PACKED_SHARED = [(("causal", -1), 130, (68, 34), 128), (("none", -1), 70, (60, 20), 128), (("causal", 40), 100, (34, 17), 128),
                 (("causal", -1), 130, (68, 34), 64), (("none", -1), 70, (60, 20), 64), (("causal", 40), 100, (34, 17), 64)]


def of_lists(reference, kind, dense, packed, scales):
    """Both ops of each problem of two such lists; scales: by number, what the usual scale is multiplied with."""
    for number, (mask, queries, keys, heads, d) in enumerate(dense):
        layout, scale = ("bshd", "bhsd")[number % 2], scales.get(number, 1) * d ** -0.5
        problem, attributes = attention.problem_of((queries, keys), (d, 128 if d == 192 else d), heads, layout, mask, (), None, 0.0)
        name = f"{kind}, {queries} on {keys} x {d}, {heads}, {layout}, {mask}, {scale:.2g}"
        yield attention.both_ops(reference, name, problem, attributes | {"scale": scale}, number, deterministic=False)
    for number, (mask, tokens, (h, hkv), d) in enumerate(packed):
        attributes = {"scale": d ** -0.5, "kv_heads": hkv, "mask": mask[0], "window": mask[1], "dropout": 0.0}
        problem = {"qkv": (attention.BATCH, tokens, h + 2 * hkv, d)}
        name = f"packed, {kind}, {tokens} x {d}, {h} on {hkv}, {mask}"
        yield attention.both_packed_ops(reference, name, problem, attributes, number, deterministic=False)


def full_cases(reference):
    """Forward of many tiles: every mask, more and fewer keys than queries, both layouts; scales of 0 and below besides."""
    for forward, _ in of_lists(reference, "full", FULL, PACKED_FULL, {1: -1, 6: 0}):
        yield forward


def shared_cases(reference):
    """Backward of grouped heads, and of many tiles of a causal mask: every mask and width, both layouts."""
    for _, backward in of_lists(reference, "shared", SHARED, PACKED_SHARED, {}):
        yield backward


def packed_cases(reference):
    """The same of queries, keys and values in one tensor, which are all as wide."""
    widths = [d for d, dv in DEPTHS if d == dv] + [40, 72, 200, 20, 130]
    plain = [(d, kind, {}) for d, kind in itertools.product(widths, ("plain", "lengths", "dropout", "bias"))]
    values = {"cap": 1.5, "left": 40.0, "gain": 3.0, "rate": 0.7}
    modified = [(128, kind, {"score_mod": name, "score_scalars": [values.get(s, 0.8) for s in modifier.scalars]})
                for (name, modifier), kind in itertools.product(reference.modifiers().items(), ("plain", "again"))]
    for number, (d, kind, modifier) in enumerate(plain + modified):
        tokens, (h, hkv) = (130, 70, 129, 1)[number // 2 % 4] if not modifier else 130, attention.HEADS[number // 4 % 2]
        mask = attention.MASKS[number % 4] if not modifier else ("none", -1)
        problem = {"qkv": (attention.BATCH, tokens, h + 2 * hkv, d)}
        problem |= {"lengths": (attention.BATCH,)} if kind == "lengths" else {}
        problem |= {"dropout_state": (4,)} if kind == "dropout" else {}
        problem |= {"bias": (attention.BATCH if number % 8 > 3 else 1, h, tokens, tokens)} if kind == "bias" else {}
        if modifier:
            problem |= {f"score_tensor{i}": (h,) for i in range(len(reference.modifiers()[modifier["score_mod"]].tensors))}
        attributes = {"scale": d ** -0.5, "kv_heads": hkv, "mask": mask[0], "window": mask[1], "dropout": 0.3 if kind == "dropout" else 0.0}
        yield from attention.both_packed_ops(reference, f"packed {tokens} x {d}, {kind}, {mask}, {modifier.get('score_mod', '')}", problem,
                                             attributes | modifier, number, number % 2 == 0)


def packed_whole_cases(reference):
    """Of one tensor every mask at the widths that FlashAttention-4's kernels take, plain, with few and with many keys."""
    masks = [("none", -1), ("causal", -1), ("causal", 70), ("causal", 1200)]
    for number, (d, mask, (h, hkv), tokens) in enumerate(itertools.product((64, 128), masks, [(2, 2), (3, 1)], (130, 2222))):
        problem = {"qkv": (attention.BATCH, tokens, h + 2 * hkv, d)}
        attributes = {"scale": d ** -0.5, "kv_heads": hkv, "mask": mask[0], "window": mask[1], "dropout": 0.0}
        yield from attention.both_packed_ops(reference, f"packed {tokens} x {d}, {h} heads on {hkv}, {mask}", problem, attributes, number, False)


def both(reference, name, problem, attributes, number):
    """Both ops; of backward ones by turns the deterministic one and the other."""
    for case, op, given, more in attention.both_ops(reference, name, problem, attributes, number):
        yield case, op, given, more | ({"deterministic": number % 2 == 0} if op.endswith("backward") else {})


class Conformance(runner.Conformance):
    """Generic problems, of whose attention ones errors are measured by the largest magnitude of a tensor: rows may cancel, and
    kernels that multiply in 16 bits are then far off."""

    def judge(self, outcome, op, where, found, wanted):
        if op["name"].startswith("attention."):
            found, wanted = ([None if a is None else np.asarray(a).reshape(1, -1) for a in side] for side in (found, wanted))
        super().judge(outcome, op, where, found, wanted)


class Cases(attention.Cases):
    def __init__(self, bundle_path, device, roots, few=False):
        super().__init__(bundle_path, device, roots)
        wide = [*wide_cases(self.reference), *whole_cases(self.reference), *full_cases(self.reference), *shared_cases(self.reference),
                *packed_cases(self.reference), *packed_whole_cases(self.reference)]
        own = (*ragged.cases(self.reference), *attention.few_queries(self.reference), *paged.cases(self.reference),
               *ahead.cases(self.reference, attention))
        self.cases = [*wide, *own] if few else self.cases + wide

    def variants(self):
        provider = "cute" if "--cute" in sys.argv else "cuda"
        return [(op, variant) for op, variant in super().variants() if variant["provider"] == provider]


def main():
    report, cuda = Report("flash"), devices.Cuda()
    few, start = "--few" in sys.argv, time.monotonic()
    cases = Cases(BUNDLE, cuda, [ROOT / "kernels"], few)
    every, outcomes = cases.variants(), []
    for op, variant in every:
        if few and time.monotonic() - start > FEW_SECONDS:
            break
        outcomes.append(cases.run(op, variant, 2 if few else None))
        if not outcomes[-1].passed:
            report.hold(outcomes[-1].variant, False, outcomes[-1].reason())
    report.bar("variants right on every case", sum(o.passed for o in outcomes), max(1, len(outcomes)), "variants", at_least=True)
    report.fact("variants that there was no time for", len(every) - len(outcomes))
    report.fact("launches", sum(2 * o.launches for o in outcomes))
    report.finish()


if __name__ == "__main__":
    main()
