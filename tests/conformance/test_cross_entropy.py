"""Every host variant of the cross-entropy ops is right on rows that matter, as reference.py defines it; and so are gradients, by differences."""

import itertools
import os
import pathlib

import numpy as np
import pytest

from conformance import compare, cross_entropy, devices, judged, runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))


@pytest.fixture(scope="module")
def cases():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    made = cross_entropy.Cases(BUNDLE, devices.Host(), [ROOT / "kernels"])
    made.right = judged.Right("cross_entropy")
    return made


@pytest.mark.parametrize("op", cross_entropy.OPS)
def test_every_variant_gives_what_is_defined(cases, op):
    outcomes = [cases.run(o, variant) for o, variant in cases.variants() if o["name"] == "cross_entropy." + op]
    assert outcomes
    wrong = [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
    assert not wrong
    assert sum(o.launches for o in outcomes) >= 50 * len(outcomes)


def test_a_wrong_result_is_seen(cases):
    """The reference is made to say something else: every case with a row must fail."""
    op, variant = next((o, v) for o, v in cases.variants() if o["name"] == "cross_entropy.loss_and_gradient")
    right = cases.reference.loss_and_gradient

    def wrong(*given, **attributes):
        loss, lse, dlogits = right(*given, **attributes)
        return loss, lse, dlogits + 1
    with cases.saying("loss_and_gradient", wrong):
        outcome = cases.run(op, variant, 12)
        assert outcome.launches == 12 and len(outcome.failures) >= 8


@pytest.mark.parametrize("error, holds", [(0, True), (2e-5, False)])
def test_a_log_sum_exp_that_cancels_is_judged_by_its_terms(cases, error, holds):
    """Near 0 no f32 is within 2e-6 of it, but of the terms, of which the largest logit is one; a wrong one is seen there too."""
    reference, (x, label) = cases.reference, cross_entropy.special(np.random.default_rng(3), 1024, "cancelling")
    logits = np.stack([x, x[::-1]]).astype(np.float32).astype(np.float64)
    labels = np.array([label, label])
    [op] = [op for op in cases.ops.values() if op["name"] == "cross_entropy.loss_forward"]
    loss, lse = reference.loss_forward(logits, labels)
    assert (np.abs(lse) < 1e-3).all()
    size = cross_entropy.terms(logits, labels, lse)
    found = [array.astype(np.float32) for array in (loss, lse + 2.0**-23 * size + error)]
    assert not compare.worst(found[1], lse, relative=2e-6)[0] <= 1  # as a result without terms would be judged
    outcome = runner.Outcome("made up")
    cases.judge(outcome, op, "cancelling", found, [loss, lse, size])
    assert (not outcome.failures) == holds, outcome.failures


def test_inputs_are_made_whose_results_say_something():
    """Of those of make_inputs neither the log-sum-exp nor the loss is what rounding leaves of larger numbers."""
    reference = runner.load_reference("cross_entropy", [ROOT / "kernels"])
    for seed, columns in itertools.product(range(100), (2, 3, 128, 1000)):
        made = reference.make_inputs("loss_forward", {"logits": (3, columns)}, seed)
        loss, lse = reference.loss_forward(made["logits"], made["labels"])
        assert (np.abs(lse[made["labels"] >= 0]) > 1.9).all() and (loss[made["labels"] >= 0] > 0.6).all()


@pytest.mark.parametrize("how", [{}, {"label_smoothing": 0.2, "z_loss": 0.01}], ids=str)
def test_the_backward_reference_is_the_derivative_of_the_forward_one(how):
    """Central differences in float64."""
    reference, rng = runner.load_reference("cross_entropy", [ROOT / "kernels"]), np.random.default_rng(0)
    logits, labels, dloss = rng.standard_normal((4, 7)), np.array([0, 6, -100, 3]), rng.standard_normal(4)
    lse = reference.loss_forward(logits, labels, **how)[1]
    found = reference.loss_backward(logits, labels, lse, dloss, **how)
    for place in np.ndindex(logits.shape):
        step = np.zeros(logits.shape)
        step[place] = 1e-6
        up, down = (np.sum(dloss * reference.loss_forward(logits + s, labels, **how)[0]) for s in (step, -step))
        assert abs((up - down) / 2e-6 - found[place]) < 1e-7


def test_the_reference_means_what_log_softmax_means():
    reference, rng = runner.load_reference("cross_entropy", [ROOT / "kernels"]), np.random.default_rng(1)
    logits, labels = 5 * rng.standard_normal((6, 9)), np.array([0, 8, 4, -100, 9, -1])
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss, lse = reference.loss_forward(logits, labels, label_smoothing=0.25)
    target = 0.25 / 9 + 0.75 * (np.arange(9) == labels[:, None])
    np.testing.assert_allclose(loss[:3], -(target * logs).sum(-1)[:3], rtol=1e-12)
    assert loss[3] == lse[3] == 0 and np.isnan(loss[4:]).all() and np.isfinite(lse[4:]).all()
