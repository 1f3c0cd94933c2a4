"""Every host variant of the norm ops is right on rows that matter, as reference.py defines it; and so are gradients, by differences."""

import os
import pathlib

import numpy as np
import pytest

from conformance import capi, devices, judged, norm, runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))


@pytest.fixture(scope="module")
def cases():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    made = norm.Cases(BUNDLE, devices.Host(), [ROOT / "kernels"])
    made.right = judged.Right("norm")
    return made


@pytest.mark.parametrize("op", [kind + what for kind in ("rmsnorm_", "layernorm_") for what in ("forward", "backward", "quantize")])
def test_every_variant_gives_what_is_defined(cases, op):
    outcomes = [cases.run(o, variant) for o, variant in cases.variants() if o["name"] == "norm." + op]
    assert outcomes
    wrong = [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
    assert not wrong
    assert sum(o.launches for o in outcomes) >= 30 * len(outcomes)


def test_a_wrong_result_is_seen(cases):
    """The reference is made to say something else: every case with a finite number in it must fail."""
    op, variant = next((o, v) for o, v in cases.variants() if o["name"] == "norm.rmsnorm_backward")
    right = cases.reference.rmsnorm_backward

    def wrong(*given, **attributes):
        dx, dgamma = right(*given, **attributes)
        return dx, dgamma + 1
    with cases.saying("rmsnorm_backward", wrong):
        outcome = cases.run(op, variant)
        assert len(outcome.failures) == outcome.launches > 10


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_the_backward_reference_is_the_derivative_of_the_forward_one(kind):
    """Central differences in float64, of every operand."""
    reference, rng = runner.load_reference("norm", [ROOT / "kernels"]), np.random.default_rng(0)
    x, gamma, dy, dsum = rng.standard_normal((3, 7)), rng.standard_normal(7), rng.standard_normal((3, 7)), rng.standard_normal((3, 7))
    forward, how = getattr(reference, kind + "norm_forward"), {"zero_centered_gamma": True}
    beta = rng.standard_normal(7)

    def loss(x, gamma, beta):
        more = (beta,) if kind == "layer" else ()
        return np.sum(forward(x, gamma, *more, epsilon=0.1, **how)[0] * dy) + np.sum(x * dsum)
    made = forward(x, gamma, epsilon=0.1, **how)
    moments = made[1:3] if kind == "layer" else made[1:2]
    gradients = getattr(reference, kind + "norm_backward")(dy, x, *moments, gamma, dsum, **how)
    for number, found in enumerate(gradients):
        at = [x, gamma, beta]
        for place in np.ndindex(at[number].shape):
            step = np.zeros(at[number].shape)
            step[place] = 1e-6
            up, down = list(at), list(at)
            up[number], down[number] = at[number] + step, at[number] - step
            assert abs((loss(*up) - loss(*down)) / 2e-6 - found[place]) < 1e-7


def test_a_plan_of_no_rows_writes_zeros(cases):
    """dgamma is a sum over rows: with none of them it is 0, not what was in memory."""
    bundle = capi.Bundle(BUNDLE)
    problem = capi.Problem("norm.rmsnorm_backward", [("bf16", (0, 24)), ("bf16", (0, 24)), ("f32", (0,)), ("f32", (24,)), None], {})
    inferred = bundle.infer(problem, capi.HOST)
    described = next(op for op in bundle.describe()["ops"] if op["name"] == "norm.rmsnorm_backward")
    arrays = [np.zeros((0, 24)), np.zeros((0, 24)), np.zeros(0), np.ones(24), None]
    launch = runner.Launch(devices.Host(), described, problem, inferred, arrays, 0)
    try:
        assert np.array_equal(launch.run(capi.Plan(bundle, problem, capi.HOST))[1], np.zeros(24, np.float32))
    finally:
        launch.free()


@pytest.mark.parametrize("columns", [7, 8, 9, 15, 31, 33, 100, 1025])
@pytest.mark.parametrize("op", ["rmsnorm_backward", "layernorm_backward"])
def test_an_infinity_in_a_rows_last_vector_reaches_its_own_column_alone(op, columns):
    """A row's last vector may be read together with elements of the one before, which no sum may count twice, nor an infinity times 0."""
    bundle, reference, rows = capi.Bundle(BUNDLE), runner.load_reference("norm", [ROOT / "kernels"]), 3
    described = next(o for o in bundle.describe()["ops"] if o["name"] == "norm." + op)
    given = reference.make_inputs(op, {"x": (rows, columns), "dy": (rows, columns)}, 1)
    for column in range(max(0, columns - 17), columns):
        dy = np.array(given["dy"])
        dy[1, column] = np.inf
        arrays = [np.asarray((given | {"dy": dy})[o["name"]], np.float32) if o["name"] in given else None for o in described["operands"]]
        problem = capi.Problem("norm." + op, [None if a is None else ("f32", a.shape) for a in arrays], {})
        launch = runner.Launch(devices.Host(), described, problem, bundle.infer(problem, capi.HOST), arrays, 0)
        try:
            found = launch.run(capi.Plan(bundle, problem, capi.HOST))
        finally:
            launch.free()
        assert not np.isfinite(found[0][1]).any() and np.isfinite(found[0][[0, 2]]).all()
        for sums in filter(lambda array: array is not None, found[1:]):
            assert np.array_equal(np.flatnonzero(~np.isfinite(sums)), [column]) and np.isinf(sums[column]), (columns, column, sums[column])
