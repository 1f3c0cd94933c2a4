"""The accuracy bars hold on this CPU: f16 and bf16 within 1 ulp, f32 within 2e-6 of the row's largest value."""

import os
import pathlib

import pytest

from conformance import accuracy, devices

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))


@pytest.fixture(scope="module")
def results():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    return list(accuracy.run(BUNDLE, devices.Host(), [ROOT / "kernels"]))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("family", ["scaled", "scaled_masked", "scaled_causal"])
def test_accuracy_is_within_the_bar(results, family, direction, dtype):
    mine = [r for r in results if r[0] == f"softmax.{family}_{direction}" and r[1] == dtype]
    assert len(mine) > 8
    wrong = [f"{problem} {special}: {ratio:.3g} times the bar, {sentence}"
             for _, _, problem, special, ratio, sentence in mine if not ratio <= 1]
    assert not wrong
