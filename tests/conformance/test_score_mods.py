"""Any score modifier of the grammar that a manifest names is computed forward and backward by the kernels that have it compiled in, as
NumPy computes it in float64: 50 random ones, others in each run. KB_SEED repeats a run."""

import os
import random
import subprocess

import numpy as np
import pytest

from conformance import attention, devices, modified_attention, runner

MODIFIERS, OF_A_FAMILY = 50, 13
SIZE, DEPTH, HEADS, TENSOR = (30, 77), (17, 12), (4, 2), (4,)
TOLERANCE = 1e-3  # of a result's largest magnitude: another expression is off by far more, float32 by far less
NEAR = 1e-5  # how far float32's score may be from float64's


def steady(modifier, values, given, attributes):
    """Whether no score lies so near to where its slope jumps that float32 may take the other side."""
    q, k = (x if attributes["layout"] == "bhsd" else np.swapaxes(x, 1, 2) for x in (given["q"], given["k"]))
    lengths = dict(zip("bhqk", (*q.shape[:3], k.shape[2])))
    for b, h in np.ndindex(q.shape[:2]):
        s = attributes["scale"] * q[b, h] @ k[b, h // (q.shape[1] // k.shape[1])].T
        indices = dict(zip("bhqk", (b, h, np.arange(lengths["q"])[:, None], np.arange(lengths["k"])[None, :])))
        tables = [given["score_tensor0"]] if modifier.tensors else []
        low, high = (modifier(s + by, indices, lengths, values, tables)[1] for by in (-NEAR, NEAR))
        if np.abs(high - low).max() > 1e-2:
            return False
    return True


def cases_of(modifiers):
    def cases(reference):
        for number, (name, (_, modifier, values)) in enumerate(modifiers.items()):
            layout, mask = ("bshd", "bhsd")[number % 2], (("none", -1), ("causal", -1))[number // 2 % 2]
            problem, attributes = attention.problem_of(SIZE, DEPTH, HEADS, layout, mask, (), None, 0.0)
            problem |= {"score_tensor0": TENSOR} if modifier.tensors else {}
            attributes |= {"score_mod": name, "score_scalars": values}
            tries = (list(attention.both_ops(reference, name, problem, attributes, 100 * number + i)) for i in range(100))
            yield from next(both for both in tries if steady(modifier, values, both[0][2], attributes))
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


@pytest.mark.parametrize("first", range(0, MODIFIERS, OF_A_FAMILY))
def test_random_modifiers_are_what_numpy_says(first, command, tmp_path):
    seed = int(os.environ.get("KB_SEED", random.SystemRandom().randrange(1 << 30)))
    print("KB_SEED", seed)
    grammar = modified_attention.Grammar(seed + first)
    modifiers = grammar.modifiers(f"modifier{i}" for i in range(first, min(first + OF_A_FAMILY, MODIFIERS)))
    folder, bundle = tmp_path / "attention", tmp_path / f"modified{first}.kb"
    modified_attention.write(folder, modified_attention.texts(modifiers), [listed(b) for b in (False, True)], ("simd",))
    built = subprocess.run([command, "build", str(folder), "--provider", "host", "--target", "x86-64-v2", "-o", str(bundle),
                            "--cache", str(tmp_path / "cache")], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-2000:]
    every = Cases(bundle, devices.Host(), [tmp_path], cases_of(modifiers))
    outcomes = [every.run(op, variant) for op, variant in every.variants() if variant["types"]["T"] == "f32"]
    print("largest errors", [o.worst for o in outcomes])
    assert len(outcomes) == 2
    assert all(outcome.launches == len(modifiers) for outcome in outcomes)
    assert not [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
