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
OF_LOOSE_ROWS = ("layernorm_forward_of_gradient", "layernorm_backward")  # left where rows begin anywhere, and right of all
STRANGE = ("special", "not finite", "NaN", "gamma", "ignored", "smoothed", "labels", "finite")
QUANTIZED = ("strange", "every", "between", "zeros", "NaN", "inf", "subnormal", "random")


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left():
    """Of what the tests of this file share."""
    yield
    all_cases.cache_clear()


def formulas_of(family):
    made = vars(importlib.import_module(f"kbundle_kernels.{family}_formulas")).items()
    return {name: found for name, found in made if isinstance(found, Formula)}


def op_of(name):
    """Of an op there may be another formula, for where it is differentiated."""
    return name.removesuffix("_of_gradient")


def results_of(formula, cases):
    """Of each (operands, attributes) what the wrapper has computed, the operands in their own dtypes. Most of the time is the compiler's: cases
    of several shapes are one program, which runs again for those that differ in values only. It makes loops as it does for users, not as
    conftest.py has it."""
    alike = {}
    for number, (arrays, attributes) in enumerate(cases):
        shapes = tuple(array if array is None else (array.dtype, array.shape) for array in arrays)
        alike.setdefault((shapes, tuple(sorted(attributes.items()))), []).append(number)
    compute = lambda *every: [formula.results(_spec.spread(some, [shape is not None for shape in shapes]), dict(attributes))
                              for some, (shapes, attributes) in zip(every, alike, strict=True)]
    run, found = jax.jit(compute, compiler_options={"xla_cpu_use_fusion_emitters": True}), [None] * len(cases)
    for turn in range(max(map(len, alike.values()), default=0)):
        numbers = [of_shape[turn % len(of_shape)] for of_shape in alike.values()]
        with jax.enable_x64(True):
            made = run(*([array for array in cases[number][0] if array is not None] for number in numbers))
        for number, results in zip(numbers, made, strict=True):
            found[number] = [None if result is None else np.asarray(result) for result in results]
    return found


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


@pytest.mark.parametrize("family, name", [(family, name) for family in ("norm", "cross_entropy", "quantize") for name in formulas_of(family)])
def test_a_formula_gives_what_is_defined(family, name):
    op, formula, tried = op_of(name), formulas_of(family)[name], set()
    cases, outcome = cases_of(family, op), runner.Outcome(name)
    for described, variant in cases.variants():
        types = tuple(sorted(variant["types"].items()))
        if described["name"] != f"{family}.{op}" or types in tried or family == "cross_entropy" and "f16" in variant["types"].values():
            continue  # bf16 is as narrow, and as wide as f32
        tried.add(types)
        are_left = [case for case in cases.prepared(described, variant["types"])
                    if name in OF_LOOSE_ROWS or left(formula, case[3], case[1].attributes)]
        made = results_of(formula, [(arrays, problem.attributes) for _, problem, _, arrays, *_ in are_left])
        for (case, _, inferred, _, wanted, _), found in zip(are_left, made, strict=True):
            for result, is_there in zip(inferred["results"], found, strict=True):
                assert result["present"] == (is_there is not None)
                assert is_there is None or (is_there.dtype, list(is_there.shape)) == (devices.NUMPY[result["dtype"]], list(result["dims"]))
            cases.judge(outcome, described, f"{types} {case}", found, wanted.results)
            outcome.launches += 1
    assert not outcome.failures, "\n".join(outcome.failures)
    assert len(tried) > 2 and outcome.launches >= 6 * len(tried)


@pytest.mark.parametrize("op", formulas_of("softmax"))
def test_a_softmax_is_within_the_bars(op):
    """Those of accuracy.py, on its cases and on logits of thousands, where a product rounded to float32 would lose digits."""
    bundle, reference, formula = capi.Bundle(BUNDLE), runner.load_reference("softmax", [ROOT / "kernels"]), formulas_of("softmax")[op]
    tried, wanted = [], []
    for seed, (described, dtype, problem, special, _, change) in enumerate(accuracy.cases(bundle.describe(whole=False))):
        if described["name"] != f"softmax.{op}" or np.prod(problem.operands[0][1]) > MOST_ELEMENTS or special == "unaligned":
            continue
        problem = problem if seed % 4 else capi.Problem(described["name"], problem.operands, {"scale": -1.7})
        arrays = change(runner.make_operands(reference, described, problem, seed))
        if "forward" in op and seed % 3 == 0 and dtype != "f16":
            arrays[0] = (arrays[0].astype(np.float32) * 2000).astype(arrays[0].dtype)
        with np.errstate(all="ignore"):
            wanted.append((runner.wanted_results(reference, described, problem, arrays)[0], dtype, f"{problem} {special}"))
        tried.append((arrays, problem.attributes))
    wrong = []
    for [found], (right, dtype, name) in zip(results_of(formula, tried), wanted, strict=True):
        ratio, sentence = compare.worst(found, right, **accuracy.tolerance(f"softmax.{op}", dtype))
        if not ratio <= 1:
            wrong.append(f"{name}: {ratio:.3g} times the bar, {sentence}")
    assert len(tried) > 12
    assert not wrong


class ProductsByFormula(matmul.Cases):
    """Of the cases that are left to XLA each third, by the formulas in turns, which are of one definition."""

    turn = 0

    def results(self, variant, arrays, attributes):
        problem, turned = self.problem(variant, arrays, attributes), attributes.get("trans_b")  # as gradients of b never are
        made = [one for name, one in formulas_of("matmul").items() if name != "gradient_of_b" or not turned]
        self.turn += (is_left := variant["id"] in self.legal(problem) and left(made[0], arrays, problem.attributes))
        if not is_left or self.turn % 3:
            return None, problem
        return results_of(made[self.turn // 3 % len(made)], [(arrays, problem.attributes)])[0], problem


@pytest.mark.parametrize("operands, out", [("f32", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32")])
def test_a_product_is_within_what_its_sums_allow(operands, out):
    cases = ProductsByFormula(BUNDLE, devices.Host(), [ROOT / "kernels"])
    types = {"A": operands, "B": operands, "O": out}
    variant = next(v for v in cases.variants() if v["types"] == types and "/blocked[" in v["id"])  # which takes all that the op allows
    outcome = cases.run(variant)
    assert not outcome.failures, "\n".join(outcome.failures)
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
    special = [case for case in cases.prepared(described, variant["types"]) if "special" in case[0]]
    found = results_of(narrow, [(arrays, problem.attributes) for _, problem, _, arrays, *_ in special])
    for (name, *_, wanted, _), results in zip(special, found, strict=True):
        cases.judge(outcome, described, name, results, wanted.results)
    assert any("y" in failure for failure in outcome.failures)
