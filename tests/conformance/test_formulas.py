"""What is left to XLA gives what the op promises: each formula that a family's wrapper gives along with a call, compiled for this CPU, on
cases that the op's own variants are held to, strange rows among them."""

import functools
import importlib
import os
import pathlib

import jax
import numpy as np
import pytest

from conformance import accuracy, capi, compare, cross_entropy, devices, matmul, norm, quantize, runner
from kbundle import _spec
from kbundle.jax._formula import Formula, formula

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))
MOST_ELEMENTS, USUAL = 1 << 16, 3  # of a case; cases of a choice of dtypes beside those of strange rows
STRANGE = ("special", "not finite", "NaN", "gamma", "ignored", "smoothed", "labels", "finite")
QUANTIZED = ("strange", "every", "between", "zeros", "NaN", "inf", "subnormal", "random")


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left():
    """Of what the tests of this file share."""
    yield
    program.cache_clear()
    all_cases.cache_clear()


def formulas_of(family):
    made = vars(importlib.import_module(f"kbundle_kernels.{family}_formulas")).items()
    return {name: found for name, found in made if isinstance(found, Formula)}


@functools.cache
def program(formula, present, attributes):
    """One for all cases of these attributes: those of the same shapes are compiled once."""
    return jax.jit(lambda *some: formula.results(_spec.spread(some, present), dict(attributes)))


def results_of(formula, arrays, attributes):
    """As the wrapper has it computed, the operands in their own dtypes."""
    run = program(formula, tuple(array is not None for array in arrays), tuple(sorted(attributes.items())))
    with jax.enable_x64(True):
        made = run(*(array for array in arrays if array is not None))
    return [None if result is None else np.asarray(result) for result in made]


def left(formula, arrays, attributes):
    """Whether XLA is given the formula of such a problem."""
    avals = [array if array is None else jax.ShapeDtypeStruct(np.shape(array), np.asarray(array).dtype) for array in arrays]
    return formula.takes(avals, attributes)


@functools.cache
def all_cases(family):
    made = {"norm": norm, "cross_entropy": cross_entropy, "quantize": quantize}[family].Cases(BUNDLE, devices.Host(), [ROOT / "kernels"])
    return made, made.cases


def cases_of(family, op):
    """Of the family's those of strange rows, and a few of the others, from all over."""
    made, cases = all_cases(family)
    words = QUANTIZED if family == "quantize" else STRANGE
    few = [case for case in cases if case[1] == op and all(a is None or a.size <= MOST_ELEMENTS for a in case[2].values())
           and case[3].get("epsilon", 1) > 0]  # without epsilon nothing is left
    strange = [case for case in few if any(word in case[0] for word in words)]
    usual = [case for case in few if not any(word in case[0] for word in words) and next(iter(case[2].values())).size]
    made.forget()
    made.cases = strange + usual[::max(1, len(usual) // USUAL)]
    return made


@pytest.mark.parametrize("family, op", [(family, op) for family in ("norm", "cross_entropy", "quantize") for op in formulas_of(family)])
def test_a_formula_gives_what_is_defined(family, op):
    cases, formula, tried = cases_of(family, op), formulas_of(family)[op], set()
    outcome = runner.Outcome(op)
    for described, variant in cases.variants():
        types = tuple(sorted(variant["types"].items()))
        if described["name"] != f"{family}.{op}" or types in tried or family == "cross_entropy" and "f16" in variant["types"].values():
            continue  # bf16 is as narrow, and as wide as f32
        tried.add(types)
        for name, problem, inferred, arrays, wanted, _ in cases.prepared(described, variant["types"]):
            if not left(formula, arrays, problem.attributes):
                continue
            found = results_of(formula, arrays, problem.attributes)
            for result, is_there in zip(inferred["results"], found, strict=True):
                assert result["present"] == (is_there is not None)
                assert is_there is None or (is_there.dtype, list(is_there.shape)) == (devices.NUMPY[result["dtype"]], list(result["dims"]))
            cases.judge(outcome, described, f"{types} {name}", found, wanted.results)
            outcome.launches += 1
    assert not outcome.failures
    assert len(tried) > 2 and outcome.launches >= 6 * len(tried)


@pytest.mark.parametrize("op", formulas_of("softmax"))
def test_a_softmax_is_within_the_bars(op):
    """Those of accuracy.py, on its cases and on logits of thousands, where a product rounded to float32 would lose digits."""
    bundle, reference, formula = capi.Bundle(BUNDLE), runner.load_reference("softmax", [ROOT / "kernels"]), formulas_of("softmax")[op]
    wrong, tried = [], 0
    for seed, (described, dtype, problem, special, _, change) in enumerate(accuracy.cases(bundle.describe(whole=False))):
        if described["name"] != f"softmax.{op}" or np.prod(problem.operands[0][1]) > MOST_ELEMENTS or special == "unaligned":
            continue
        problem = problem if seed % 4 else capi.Problem(described["name"], problem.operands, {"scale": -1.7})
        arrays = change(runner.make_operands(reference, described, problem, seed))
        if "forward" in op and seed % 3 == 0 and dtype != "f16":
            arrays[0] = (arrays[0].astype(np.float32) * 2000).astype(arrays[0].dtype)
        with np.errstate(all="ignore"):
            wanted = runner.wanted_results(reference, described, problem, arrays)[0]
        found, = results_of(formula, arrays, problem.attributes)
        ratio, sentence = compare.worst(found, wanted, **accuracy.tolerance(described["name"], dtype))
        tried += 1
        if not ratio <= 1:
            wrong.append(f"{problem} {special}: {ratio:.3g} times the bar, {sentence}")
    assert tried > 12
    assert not wrong


class ProductsByFormula(matmul.Cases):
    """Of the cases that are left to XLA each third."""

    turn = 0

    def results(self, variant, arrays, attributes):
        problem, product = self.problem(variant, arrays, attributes), formulas_of("matmul")["product"]
        is_left = variant["id"] in self.legal(problem) and left(product, arrays, problem.attributes)
        self.turn += is_left
        return results_of(product, arrays, problem.attributes) if is_left and self.turn % 3 == 0 else None, problem


@pytest.mark.parametrize("operands, out", [("f32", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32")])
def test_a_product_is_within_what_its_sums_allow(operands, out):
    cases = ProductsByFormula(BUNDLE, devices.Host(), [ROOT / "kernels"])
    types = {"A": operands, "B": operands, "O": out}
    variant = next(v for v in cases.variants() if v["types"] == types and "/blocked[" in v["id"])  # which takes all that the op allows
    outcome = cases.run(variant)
    assert not outcome.failures
    assert outcome.launches >= 9


def test_a_wrong_formula_is_seen():
    """An RMS norm whose sums are of float32 fails, if nowhere else then where squares overflow."""
    cases = cases_of("norm", "rmsnorm_forward")
    described, variant = next((o, v) for o, v in cases.variants() if o["name"] == "norm.rmsnorm_forward" and v["types"] == {"T": "f32", "G": "f32"})

    @formula(when=None)
    def narrow(x, gamma, residual=None, *, epsilon=1e-6, zero_centered_gamma=False):
        rsigma = jax.lax.rsqrt((x * x).mean(-1) + np.float32(epsilon))
        return x * rsigma[..., None] * gamma, rsigma, None
    outcome = runner.Outcome("narrow")
    for name, problem, _, arrays, wanted, _ in cases.prepared(described, variant["types"]):
        if "special" in name:
            found = results_of(narrow, arrays, problem.attributes)
            cases.judge(outcome, described, name, found, wanted.results)
    assert any("y" in failure for failure in outcome.failures)
