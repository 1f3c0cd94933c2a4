"""Every host variant of the op matmul is right: odd shapes, layouts, dtypes, epilogues, aux outputs, bias gradients; every
FP8 and 16-bit number; and bits that do not depend on the number of threads."""

import os
import pathlib

import numpy as np
import pytest

from conformance import capi, devices, matmul

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))


@pytest.fixture(scope="module")
def cases():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    return matmul.Cases(BUNDLE, devices.Host(threads=1), [ROOT / "kernels"])


@pytest.mark.parametrize("out", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("operands", ["f32 f32", "f16 f16", "bf16 bf16", "e4m3 e4m3", "e4m3 e5m2", "e5m2 e4m3", "e5m2 e5m2"])
def test_every_variant_is_right_on_every_case(cases, operands, out):
    types = dict(zip("ABO", operands.split() + [out]))
    outcomes = [cases.run(variant) for variant in cases.variants() if variant["types"] == types]
    assert any(o.launches >= 30 for o in outcomes)
    wrong = [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
    assert not wrong


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_products_of_few_rows_are_right(cases, dtype):
    outcomes = [cases.run_few_rows(variant) for variant in variants(cases, dtype, dtype, dtype)]
    assert outcomes and all(o.launches == len(matmul.FEW_ROWS) * len(matmul.PRODUCTS) for o in outcomes)
    assert not [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_every_kernel_of_small_products_has_a_case_that_it_takes(cases, dtype):
    """On a GPU those are launched; which they are is known without one."""
    kernels = [v for v in cases.op["variants"] if v["provider"] == "cuda" and set(v["types"].values()) == {dtype}]
    assert len(kernels) > 15, f"no code for sm_90a in {BUNDLE}"
    legal = {}

    def takes(kernel, arrays, attributes):
        problem = cases.problem(kernel, arrays, attributes)
        if str(problem) not in legal:
            candidates = cases.bundle.explain(problem, capi.CUDA, "sm_90a")["candidates"]
            legal[str(problem)] = {candidate["id"] for candidate in candidates if candidate["legal"]}
        return kernel["id"] in legal[str(problem)]

    every = [*matmul.FEW_ROWS, *matmul.SMALL]
    assert not [kernel["id"] for kernel in kernels if not any(takes(kernel, *case) for case in cases.few_rows(kernel, every))]


def variants(cases, a, b, o):
    return [v for v in cases.variants() if v["types"] == {"A": a, "B": b, "O": o}]


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2", "f16", "bf16"])
def test_every_number_of_a_narrow_dtype_arrives_as_it_is(cases, dtype):
    type_ = np.dtype(devices.NUMPY[dtype])
    every = np.arange(2 ** (8 * type_.itemsize)).astype(f"u{type_.itemsize}").view(type_)
    a, one = every.reshape(-1, 1), np.ones((1, 1), type_)
    for variant in variants(cases, dtype, dtype, "f32"):
        for arrays, trans in (((a, one), {}), ((one, a.T), {}), ((a.T, one), {"trans_a": True}), ((one, a), {"trans_b": True})):
            found, _ = cases.results(variant, [*arrays, *[None] * 6], {"trans_a": False, "trans_b": False} | trans)
            if found is not None:
                np.testing.assert_array_equal(found[0].reshape(-1), every.astype(np.float32))


def test_what_is_no_number_stays_in_its_row_or_column(cases):
    a, b = np.ones((20, 70), np.float32), np.ones((70, 90), np.float32)
    a[3, 5], a[4, 6], b[7, 50] = np.nan, np.inf, -np.inf
    for epilogue in ("none", "relu"):
        for variant in variants(cases, "f32", "f32", "f32"):
            found, _ = cases.results(variant, [a, b, *[None] * 6], {"epilogue": epilogue})
            if found is None:
                continue
            with np.errstate(invalid="ignore"):
                wanted = a.astype(np.float64) @ b
            wanted = np.maximum(wanted, 0) if epilogue == "relu" else wanted
            np.testing.assert_array_equal(found[0], wanted.astype(np.float32))


def test_activations_of_numbers_of_any_size(cases):
    sizes = np.float32([0, 1e-30, 0.5, 2, 5, 9, 12, 17, 1e3, 1e10, 1e20, 3e38])
    numbers = np.concatenate([sizes, -sizes]).reshape(1, -1)
    for variant in variants(cases, "f32", "f32", "f32"):
        one = np.ones((1, 1), np.float32)
        found, _ = cases.results(variant, [one, numbers, *[None] * 6], {"epilogue": "gelu"})
        slopes, _ = cases.results(variant, [one, np.ones_like(numbers), None, None, numbers, *[None] * 3], {"epilogue": "dgelu"})
        with np.errstate(over="ignore"):
            gelu = cases.reference.gelu(numbers.astype(np.float64))
            slope = cases.reference.gelu_gradient(np.clip(numbers, -100, 100).astype(np.float64))
        np.testing.assert_allclose(found[0], gelu, rtol=1e-5, atol=1e-15)
        np.testing.assert_allclose(slopes[0], slope, rtol=2e-6, atol=1e-6)


def test_what_beta_0_multiplies_is_not_read(cases):
    a, b, c = np.ones((5, 6), np.float32), np.ones((6, 7), np.float32), np.full((5, 7), np.nan, np.float32)
    for variant in variants(cases, "f32", "f32", "f32"):
        found, _ = cases.results(variant, [a, b, c, *[None] * 5], {"beta": 0.0})
        np.testing.assert_array_equal(found[0], np.full((5, 7), 6, np.float32))


def test_threads_change_no_bit(cases):
    rng = np.random.default_rng(1)
    a, b, aux = (rng.standard_normal(dims).astype(np.float32) for dims in ((2, 300, 200), (2, 200, 170), (2, 300, 170)))
    given = [a, b, None, None, aux, None, None, None], {"epilogue": "dgelu", "bias_gradient": "d"}
    for variant in variants(cases, "f32", "f32", "f32"):
        found = []
        for threads in (1, 2, 5):
            cases.device.threads = threads
            found.append(cases.results(variant, *given)[0])
        cases.device.threads = 1
        if found[0] is not None:
            assert len({tuple(r.tobytes() for r in results if r is not None) for results in found}) == 1


def test_a_wrong_result_is_seen(cases):
    """The reference is made to say a little more: every case must fail."""
    right = cases.reference.matmul
    cases.reference.matmul = lambda a, *rest, **how: right(a * (1 + 1e-3), *rest, **how)
    try:
        outcome = cases.run(variants(cases, "f32", "f32", "f32")[0])
        assert len(outcome.failures) >= 0.9 * outcome.launches > 10
    finally:
        cases.reference.matmul = right


@pytest.mark.parametrize("change, words", [
    ({"b": ("f32", (5, 4))}, "trans_b ? B2 : B1"),
    ({"b": ("bf16", (4, 5))}, "A == B"),
    ({"bias": ("f32", (4,))}, "bias"),
    ({"aux": ("f32", (3, 5))}, "present(aux)"),
    ({"a_scale": ("f32", ())}, "a_scale"),
    ({"epilogue": "drelu"}, "present(mask)"),
    ({"bias_gradient": "d"}, "bias_gradient"),
    ({"fast_accumulation": True}, "fast_accumulation"),
])
def test_what_does_not_fit_is_refused_by_name(cases, change, words):
    given = {"a": ("f32", (3, 4)), "b": ("f32", (4, 5))}
    names = [operand["name"] for operand in cases.op["operands"]]
    operands = [(given | change).get(name) for name in names]
    attributes = {"out_dtype": "f32"} | {k: v for k, v in change.items() if k not in names}
    with pytest.raises(capi.KbError) as error:
        cases.bundle.infer(capi.Problem("matmul.matmul", operands, attributes), capi.HOST)
    assert words in str(error.value)
