"""Every host variant of the cross-entropy ops is right on rows that matter, as reference.py defines it; and so are gradients, by differences."""

import os
import pathlib

import numpy as np
import pytest

from conformance import cross_entropy, devices, judged, runner

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
