"""Every host variant of the router ops is right on rows that matter, as reference.py defines it; and so are gradients, by differences."""

import os
import pathlib

import numpy as np
import pytest

from conformance import devices, judged, router, runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))
OPS = ["topk", "topk_rows", "scores", "topk_backward", "scores_backward", "aux_loss"]


@pytest.fixture(scope="module")
def cases():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    made = router.Cases(BUNDLE, devices.Host(), [ROOT / "kernels"])
    made.right = judged.Right("router")
    return made


@pytest.mark.parametrize("op", OPS)
def test_every_variant_gives_what_is_defined(cases, op):
    outcomes = [cases.run(o, variant) for o, variant in cases.variants() if o["name"] == "router." + op]
    assert outcomes
    wrong = [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
    assert not wrong
    assert sum(o.launches for o in outcomes) >= 20 * len(outcomes)


def test_a_wrong_result_is_seen(cases):
    """The reference is made to say something else: every case with a token must fail."""
    op, variant = next((o, v) for o, v in cases.variants() if o["name"] == "router.topk")
    right = cases.reference.topk

    def wrong(*given, **attributes):
        indices, *rest = right(*given, **attributes)
        return indices + 1, *rest
    with cases.saying("topk", wrong):
        outcome = cases.run(op, variant)
        assert 10 < len(outcome.failures) < outcome.launches  # those of no tokens pass


def differences(function, x, gradient):
    """Central differences in float64 of a sum of function(x) * gradient."""
    found = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[place] = 1e-6
        found[place] = np.sum((function(x + step) - function(x - step)) * gradient) / 2e-6
    return found


@pytest.mark.parametrize("how", router.HOW, ids=str)
def test_the_backward_references_are_the_derivatives_of_the_forward_ones(how):
    reference, rng = runner.load_reference("router", [ROOT / "kernels"]), np.random.default_rng(0)
    x = rng.standard_normal((4, 12))
    for k in (1, 3):
        indices = reference.topk(x, k=k, **how)[0]
        dprobs, dweights = rng.standard_normal((4, 12)), rng.standard_normal((4, k))
        found = reference.topk_backward(x, indices, dprobs, dweights, **how)
        wanted = differences(lambda x: reference.topk(x, k=k, **how)[2], x, dprobs) + differences(
            lambda x: reference.topk(x, k=k, **how)[1], x, dweights)
        np.testing.assert_allclose(found, wanted, atol=1e-7)
    only = {"score_function": how.get("score_function", "softmax")}
    found = reference.scores_backward(dprobs, x, **only)
    np.testing.assert_allclose(found, differences(lambda x: reference.scores(x, k=2, **only)[0], x, dprobs), atol=1e-7)


def test_ties_go_to_the_lower_index_where_transformer_engine_takes_a_bit_reversed_one():
    """There expert 16 beats expert 1: lanes compare through a tree and keep their own side."""
    reference = runner.load_reference("router", [ROOT / "kernels"])
    assert reference.topk(np.zeros((1, 32)), k=4)[0].tolist() == [[0, 1, 2, 3]]


def test_sigmoid_scores_of_one_expert_sum_to_one_as_do_others():
    """TransformerEngine's kernel divides always, its JAX code only for k > 1."""
    reference = runner.load_reference("router", [ROOT / "kernels"])
    for k in (1, 2):
        made = reference.scores(np.random.default_rng(0).standard_normal((3, 8)), k=k, score_function="sigmoid")[0]
        np.testing.assert_allclose(made.sum(axis=-1), 1.0, rtol=1e-12)
