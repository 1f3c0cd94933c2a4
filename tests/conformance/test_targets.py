"""Every GPU generation of the bundle has attention: of drawn problems some variant is legal, and its blocks fit the shared memory there."""

import random

import pytest
from conformance import attention, capi

BUNDLE = capi.ROOT / "build/kernels.kb"
# Bytes of shared memory that a block may have, by the CUDA programming guide's table of compute capabilities.
SHARED = {"sm_80": 163 << 10, "sm_90a": 227 << 10, "sm_100f": 227 << 10}


@pytest.fixture(scope="module")
def bundle():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    return capi.Bundle(BUNDLE)


def drawn(chance, columns=range(1, 257)):
    """(operands, attributes, the wider of the columns) of one forward problem."""
    dtype, d, dv = chance.choice(["bf16", "f16"]), chance.choice(columns), chance.choice(columns)
    sizes = chance.randint(1, 3000), chance.randint(1, 3000)
    heads = (chance.choice([1, 2, 4]) * (few := chance.randint(1, 6)), few)
    mask, lengths = chance.choice(attention.MASKS), chance.choice(attention.LENGTHS)
    shapes, attributes = attention.problem_of(sizes, (d, dv), heads, chance.choice(["bshd", "bhsd"]), mask, lengths,
                                              chance.choice(attention.BIASES), chance.choice(attention.DROPOUTS))
    if chance.random() < 0.3:
        attributes |= {"score_mod": "softcap", "score_scalars": [2.0]}
    integer = {"q_lengths": "i32", "kv_lengths": "i32", "dropout_state": "u32"}
    return [(integer.get(name, dtype), shapes[name]) if name in shapes else None
            for name in ("q", "k", "v", "bias", "q_lengths", "kv_lengths", "dropout_state")], attributes, max(d, dv)


def gradient_of(operands, attributes):
    q, v = operands[0], operands[2]
    tokens = 1 if attributes["layout"] == "bshd" else 2
    o = q[0], (*q[1][:3], v[1][3])
    stats = "f32", (q[1][0], q[1][3 - tokens], q[1][tokens])
    return [*operands[:3], o, o, stats, *operands[3:]]


def shared_of(bundle, op, operands, attributes, target):
    """Of the chosen variant's steps the largest; None where no variant is legal."""
    found = bundle.explain(capi.Problem(f"attention.{op}", operands, attributes), capi.CUDA, target)
    return max(step.get("shared", 0) for step in found["launch"]["steps"]) if found["chosen"] else None


@pytest.mark.parametrize("target", SHARED)
def test_attention_and_its_gradient_have_a_variant(bundle, target):
    chance, none = random.Random(), []
    for _ in range(150):
        operands, attributes, columns = drawn(chance)
        forward = shared_of(bundle, "sdpa_forward", operands, attributes, target)
        assert forward is not None and forward <= SHARED[target], (operands, attributes)
        backward = shared_of(bundle, "sdpa_backward", gradient_of(operands, attributes), attributes, target)
        assert backward is None or backward <= SHARED[target], (operands, attributes)
        if backward is None:
            none.append(columns)
    assert min(none, default=256) > (128 if target == "sm_80" else 255), f"of {sorted(none)} columns no gradient"


def test_a_small_gpu_has_heads_of_64_columns(bundle):
    """sm_86 and sm_89 run sm_80's code with 99 KB."""
    chance = random.Random()
    for _ in range(60):
        operands, attributes, _ = drawn(chance, range(8, 65, 8))
        assert shared_of(bundle, "sdpa_forward", operands, attributes, "sm_80") <= 99 << 10
        assert shared_of(bundle, "sdpa_backward", gradient_of(operands, attributes), attributes, "sm_80") <= 99 << 10
