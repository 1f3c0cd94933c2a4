"""Any score modifier of the grammar that a manifest names is computed forward and backward by the kernels that have it compiled in, as
NumPy computes it in float64: random ones, others in each run, with tensors over every set of indices. KB_SEED repeats a run, and
KB_MODIFIERS says how many: scripts/soak takes 50."""

import os
import random
import subprocess

import numpy as np
import pytest

from conformance import attention, devices, modified_attention, runner

MODIFIERS, OF_A_FAMILY = int(os.environ.get("KB_MODIFIERS", 13)), 13
SIZE, DEPTH, HEADS = (30, 77), (17, 12), (4, 2)
LENGTHS = dict(zip("bhqk", (attention.BATCH, HEADS[0], *SIZE)))
TOLERANCE = 1e-3  # of a result's largest magnitude: another expression is off by far more, float32 by far less
SPREADS = (0.5, 1, 2, 4)  # of the tensors: what one maximum hides of small numbers another hides of large ones
NEAR = 1e-5  # how far float32's score may be from float64's


def steady(modifier, values, given, attributes):
    """Whether no score lies so near to where its slope jumps that float32 may take the other side."""
    q, k = (x if attributes["layout"] == "bhsd" else np.swapaxes(x, 1, 2) for x in (given["q"], given["k"]))
    tables = [given[f"score_tensor{i}"] for i in range(len(modifier.tensors))]
    for b, h in np.ndindex(q.shape[:2]):
        s = attributes["scale"] * q[b, h] @ k[b, h // (q.shape[1] // k.shape[1])].T
        indices = dict(zip("bhqk", (b, h, np.arange(SIZE[0])[:, None], np.arange(SIZE[1])[None, :])))
        low, high = (modifier(s + by, indices, LENGTHS, values, tables)[1] for by in (-NEAR, NEAR))
        if np.abs(high - low).max() > 1e-2:
            return False
    return True


def cases_of(modifiers):
    def cases(reference):
        for number, (name, (_, modifier, values)) in enumerate(modifiers.items()):
            layout, mask = ("bshd", "bhsd")[number % 2], (("none", -1), ("causal", -1))[number // 2 % 2]
            problem, attributes = attention.problem_of(SIZE, DEPTH, HEADS, layout, mask, (), None, 0.0)
            problem |= modifier.shapes(LENGTHS)
            attributes |= {"score_mod": name, "score_scalars": values}
            tries = (list(attention.both_ops(reference, name, problem, attributes, 100 * number + i)) for i in range(100))
            yield from next(both for both in tries if steady(modifier, values, both[0][2](), attributes))
    return cases


class Cases(attention.Cases):
    def judge(self, outcome, op, name, found, wanted):
        for result, array, want in zip(op["results"], found, wanted):
            if array is None:
                continue
            error = np.abs(array - want).max() / max(np.abs(want).max(), 1e-3)
            outcome.worst = max(outcome.worst, error)
            if not error <= TOLERANCE:
                outcome.failures.append(f"{name}, {result['name']}: off by {error:.3g} of its largest magnitude")


def listed(backward):
    """The one problem of an op, which a manifest must have."""
    made = {"T": "f32", "q": [1, 4, 2, 8], "k": [1, 4, 2, 8], "v": [1, 4, 2, 8], "scale": 0.35}
    return [made if backward else made | {"with_stats": True}]


def test_each_tensor_of_a_random_modifier_shows_in_its_scores():
    """With a causal mask as without: behind a condition that never holds, a tensor read from elsewhere would be right."""
    seed = int(os.environ.get("KB_SEED", random.SystemRandom().randrange(1 << 30)))
    print("KB_SEED", seed)
    rng, indices = np.random.default_rng(seed), dict(zip("bhqk", (1, 2, np.arange(SIZE[1])[:, None], np.arange(SIZE[1])[None, :])))
    lengths = LENGTHS | {"q": SIZE[1]}
    scores, seen = rng.standard_normal((SIZE[1], SIZE[1])), np.tri(SIZE[1], dtype=bool)
    for text, modifier, values in modified_attention.Grammar(seed).modifiers(range(MODIFIERS)).values():
        shapes = list(modifier.shapes(lengths).values())

        def drawn(size):
            return [size * rng.standard_normal(shape) for shape in shapes]

        for number in range(len(shapes)):
            moved = np.zeros(scores.shape, bool)
            for size in SPREADS * 8:
                tables = drawn(size)
                changed = [new if i == number else table for i, (table, new) in enumerate(zip(tables, drawn(size)))]
                before, after = (modifier(scores, indices, lengths, values, x)[0] for x in (tables, changed))
                moved |= before != after
            assert moved[seen].any() and moved[~seen].any(), f"tensor {number} of {text}"


@pytest.mark.parametrize("first", range(0, MODIFIERS, OF_A_FAMILY))
def test_random_modifiers_are_what_numpy_says(first, command, tmp_path):
    seed = int(os.environ.get("KB_SEED", random.SystemRandom().randrange(1 << 30)))
    print("KB_SEED", seed)
    grammar = modified_attention.Grammar(seed + first)
    modifiers = grammar.modifiers(f"modifier{i}" for i in range(first, min(first + OF_A_FAMILY, MODIFIERS)))
    folder, bundle = tmp_path / "attention", tmp_path / f"modified{first}.kb"
    problems = {"sdpa_forward": listed(False), "sdpa_backward": listed(True)}
    modified_attention.write(folder, modified_attention.texts(modifiers), problems, ("simd",))
    built = subprocess.run([command, "build", str(folder), "--provider", "host", "--target", "x86-64-v2", "-o", str(bundle),
                            "--cache", str(tmp_path / "cache")], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-2000:]
    every = Cases(bundle, devices.Host(), [tmp_path], cases_of(modifiers))
    outcomes = [every.run(op, variant) for op, variant in every.variants() if variant["types"]["T"] == "f32"]
    print("largest errors", [o.worst for o in outcomes])
    assert len(outcomes) == 2
    assert all(outcome.launches == len(modifiers) for outcome in outcomes)
    assert not [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
