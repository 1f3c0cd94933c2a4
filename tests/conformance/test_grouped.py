"""Every host variant of the grouped ops is right for any sizes, as reference.py defines it; the gradients are those of the product."""

import os
import pathlib

import numpy as np
import pytest

from conformance import capi, devices, grouped, judged, runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))
OPS = ["matmul", "scaled_matmul", "weight_gradient", "sum_rows"]


@pytest.fixture(scope="module")
def cases():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    made = grouped.Cases(BUNDLE, devices.Host(), [ROOT / "kernels"])
    made.right = judged.Right("grouped")
    return made


@pytest.mark.parametrize("op", OPS)
def test_every_variant_gives_what_is_defined(cases, op):
    outcomes = [cases.run(o, variant) for o, variant in cases.variants() if o["name"] == "grouped." + op]
    assert outcomes
    wrong = [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
    assert not wrong
    assert all(o.launches >= (40 if op == "scaled_matmul" else 50) for o in outcomes)


def test_a_wrong_result_is_seen(cases):
    """The reference is made to say something else: every case must fail."""
    op, variant = next((o, v) for o, v in cases.variants() if o["name"] == "grouped.weight_gradient")
    right = cases.reference.weight_gradient
    with cases.saying("weight_gradient", lambda *given, **how: right(*given, **how) + 1):
        outcome = cases.run(op, variant)
        assert len(outcome.failures) == outcome.launches > 10


def test_the_references_of_gradients_are_the_derivatives():
    """The product is linear in each operand: <dy, its change> is <gradient, change>."""
    reference, rng = runner.load_reference("grouped", [ROOT / "kernels"]), np.random.default_rng(0)
    x, w, bias, dy = (rng.standard_normal(shape) for shape in ((11, 5), (4, 5, 3), (4, 3), (11, 3)))
    sizes = np.int32([4, 0, -2, 5])
    dx, dw, db = rng.standard_normal(x.shape), rng.standard_normal(w.shape), rng.standard_normal(bias.shape)
    of_x = reference.matmul(dy, w, sizes, trans_w=True)
    assert np.isclose((dy * reference.matmul(dx, w, sizes)).sum(), (of_x * dx).sum())
    assert np.isclose((dy * reference.matmul(x, dw, sizes)).sum(), (reference.weight_gradient(x, dy, sizes) * dw).sum())
    assert np.isclose((dy * reference.matmul(0 * x, w, sizes, db)).sum(), (reference.sum_rows(dy, sizes) * db).sum())


@pytest.mark.parametrize("op", ["weight_gradient", "sum_rows"])
def test_no_rows_give_zeros(cases, op):
    bundle = capi.Bundle(BUNDLE)
    described = next(o for o in bundle.describe()["ops"] if o["name"] == "grouped." + op)
    arrays = [np.zeros((0, 24)), np.zeros((0, 40)), np.zeros(3, np.int32)][op == "sum_rows":]
    dtypes = ["bf16", "bf16", "i32"][op == "sum_rows":]
    problem = capi.Problem("grouped." + op, [(d, a.shape) for d, a in zip(dtypes, arrays)], {} if op == "sum_rows" else {"out_dtype": "f32"})
    arrays = [a.astype(devices.NUMPY[d]) for d, a in zip(dtypes, arrays)]
    launch = runner.Launch(devices.Host(), described, problem, bundle.infer(problem, capi.HOST), arrays, 0)
    try:
        found = launch.run(capi.Plan(bundle, problem, capi.HOST))[0]
        assert found.size and not found.astype(np.float32).any()
    finally:
        launch.free()


def test_threads_change_no_bit(cases):
    rng = np.random.default_rng(1)
    given = {"x": rng.standard_normal((300, 70)), "w": rng.standard_normal((5, 70, 200)), "sizes": np.int32([90, 0, 130, 7, 60])}
    for op, variant in cases.variants():
        if op["name"] != "grouped.matmul" or variant["types"] != {"T": "f32", "O": "f32"}:
            continue
        found = []
        for threads in (1, 2, 5):
            cases.device.threads = threads
            _, problem, inferred, arrays, _, legal = cases.prepare(op, variant["types"], "", None, given, {"trans_w": False})
            cases.bundle.force(variant["id"])
            launch = runner.Launch(cases.device, op, problem, inferred, arrays, 0)
            try:
                found.append(launch.run(capi.Plan(cases.bundle, problem, cases.device.kind))[0].tobytes())
            finally:
                launch.free()
                cases.bundle.clear_policy()
        assert len(set(found)) == 1
