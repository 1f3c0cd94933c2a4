"""Every host variant of the attention ops is right on odd shapes under every mask, layout and bias, as README.md defines it."""

import os
import pathlib

import numpy as np
import pytest

from conformance import attention, capi, devices, dropout, family, judged, runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))


@pytest.fixture(scope="module")
def cases():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    made = attention.Cases(BUNDLE, devices.Host(), [ROOT / "kernels"])
    made.right = judged.Right("attention")
    return made


@pytest.mark.parametrize("op, least", [("sdpa_forward", 100), ("sdpa_backward", 100), ("sdpa_packed_forward", 50), ("sdpa_packed_backward", 50),
                                       ("sdpa_fp8_forward", 70), ("sdpa_ragged_forward", 60),
                                       ("sdpa_ragged_backward", 60), ("paged_attention", 80)])
def test_every_variant_gives_what_is_defined(cases, op, least):
    outcomes = [cases.run(o, variant) for o, variant in cases.variants() if o["name"] == "attention." + op]
    assert outcomes
    wrong = [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
    assert not wrong
    assert sum(o.launches for o in outcomes) >= least * len(outcomes)


@pytest.mark.parametrize("op", ["sdpa_ragged_forward", "sdpa_ragged_backward"])
@pytest.mark.parametrize("name", ["offsets (0, 40, 20", "lengths (0, 41, 40) on (50, 51, -1), d 16"])
def test_no_offsets_and_lengths_reach_outside_the_tensors(cases, op, name):
    """Sequences that lie over one another have no meaning, and still every buffer's guard bytes stay whole."""
    rng = np.random.default_rng(0)
    [(_, _, operands, attributes)] = [case for case in cases.cases if case[1] == op and case[0].startswith(name)]
    given = operands()
    for o, variant in ((o, v) for o, v in cases.variants() if o["name"] == "attention." + op):
        cases.bundle.clear_policy()
        for _ in range(20):
            wild = {operand: rng.choice([-2**31, -1, 0, 17, 60, 119, 150, 2**31 - 1], len(array))
                    for operand, array in given.items() if operand.endswith(("_offsets", "_lengths"))}
            arrays, described = family.operands_of(o, variant["types"], given | wild)
            problem = capi.Problem(o["name"], described, attributes)
            inferred = cases.bundle.infer(problem, cases.device.kind)
            cases.bundle.force(variant["id"])
            launch = runner.Launch(cases.device, o, problem, inferred, arrays, 0)
            launch.run(capi.Plan(cases.bundle, problem, cases.device.kind))
            launch.free()
            cases.bundle.clear_policy()


def test_a_wrong_result_is_seen(cases):
    """The reference is made to hide one key too many of causal queries: those cases must fail."""
    op, variant = next((o, v) for o, v in cases.variants() if o["name"] == "attention.sdpa_forward" and v["types"]["T"] == "f32")
    right, every = cases.reference._seen, cases.cases
    cases.cases = [case for case in every if case[1] == "sdpa_forward" and case[3]["mask"] == "causal" and case[2]()["k"].size > 2000]
    try:
        with cases.saying("_seen", lambda rows, *rest: right(np.maximum(np.asarray(rows) - 1, 0), *rest)):
            outcome = cases.run(op, variant)
            assert len(outcome.failures) >= outcome.launches > 10
    finally:
        cases.cases = every


def test_operands_that_another_reference_made_are_not_kept(cases):
    """Backward has what forward made: the right one before and after, another one between."""
    op, variant = next((o, v) for o, v in cases.variants() if o["name"] == "attention.sdpa_backward" and v["types"]["T"] == "f32")
    every, forward = cases.cases, cases.reference.sdpa_forward
    cases.cases = [next(case for case in every if case[1] == "sdpa_backward")]

    def outputs():
        [(_, _, _, arrays, _, _)] = cases.prepared(op, variant["types"])
        return arrays[[operand["name"] for operand in op["operands"]].index("o")]

    try:
        before = outputs()
        with cases.saying("sdpa_forward", lambda *given, **how: [made + 1 for made in forward(*given, **how)]):
            np.testing.assert_allclose(outputs(), before + 1, atol=1e-6)
        np.testing.assert_array_equal(outputs(), before)
    finally:
        cases.cases = every
        cases.forget()


def test_dropout_is_philox_4x32_10(cases):
    """The known answers of Random123."""
    for counter, key, wanted in [
            ([0] * 4, [0] * 2, [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([0xffffffff] * 4, [0xffffffff] * 2, [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            ([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0],
             [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1])]:
        assert cases.reference.philox4x32(np.array(counter, np.uint64), key).tolist() == wanted


def test_dropout_drops_its_share(cases):
    kept = cases.reference.kept_by_dropout([1, 2, 3, 4], 0.3, np.arange(500), np.arange(2000))
    assert abs(kept.mean() - 0.7) < 0.002
    other = cases.reference.kept_by_dropout([1, 2, 4, 4], 0.3, np.arange(500), np.arange(2000))
    assert abs((kept & other).mean() - 0.49) < 0.002


def test_dropout_can_be_judged_by_what_it_drops():
    """What tests/gpu does with generators that nobody else knows, done with ours: the mask that is recovered is the defined one."""
    operands = [("f32", (2, 50, 2, 24))] * 3 + [None] * 3 + [("u32", (4,))]
    for mask in ("none", "causal"):
        attributes = {"scale": 0.2, "mask": mask, "dropout": 0.25}
        case = dropout.Dropout(capi.Bundle(BUNDLE), devices.Host(), operands, attributes)
        states = [np.array(state, np.uint32) for state in ([1, 2, 3, 4], [1, 2, 9, 4], [7, 2, 3, 4])]
        failed = [(name, found) for name, holds, found in dropout.judge(case, states, 1e-5, [(0, 0), (1, 1)]) if not holds]
        assert not [f for f in failed if "another" not in f[0]], failed  # of few elements the shares that differ are not sharp
        reference = attention.runner.load_reference("attention", [ROOT / "kernels"])
        wanted = reference.kept_by_dropout(states[0], 0.25, np.arange(4 * 50), np.arange(50)).reshape(2, 2, 50, 50) & case.visible()
        np.testing.assert_array_equal(case.mask(states[0]), wanted)


def test_dropout_that_two_ways_draw_apart_is_seen():
    operands = [("f32", (1, 50, 2, 24))] * 3 + [None] * 3 + [("u32", (4,))]
    case = dropout.Dropout(capi.Bundle(BUNDLE), devices.Host(), operands, {"scale": 0.2, "dropout": 0.25})
    backward, state = case.backward, np.array([1, 2, 3, 4], np.uint32)
    case.backward = lambda *arrays: backward(*arrays[:-1], state + 1)
    errors = case.errors(state, case.mask(state), 1, [(0, 0)])
    assert errors["o"] < 1e-5 and min(errors[name] for name in ("dq", "dk", "dv")) > 1e-2
