"""Every host variant of build/kernels.kb that this CPU can run gives what the float64 reference says."""

import os
import pathlib

import pytest

from conformance import capi, devices, judged, runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))


@pytest.fixture(scope="module")
def conformance():
    made = runner.Conformance(BUNDLE, devices.Host(), [ROOT / "kernels"])
    made.right = judged.Right("every family")
    return made


def pytest_generate_tests(metafunc):
    found = [pytest.param(None, None, id="no bundle")]
    if BUNDLE.exists():
        ops = capi.Bundle(BUNDLE).describe()["ops"]
        of_same_types = lambda op: sorted(op["variants"], key=lambda variant: sorted(variant["types"].items()))
        found = [pytest.param(op, variant, id=variant["id"]) for op in ops for variant in of_same_types(op)
                 if variant["provider"] == "host"]
    if "variant" in metafunc.fixturenames:
        metafunc.parametrize("op, variant", found)


def test_variant_is_right_whenever_it_is_forced(conformance, op, variant):
    assert op, f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    reason = conformance.unreachable(op, variant)
    if reason:
        pytest.skip(reason)
    outcome = conformance.run(op, variant)
    assert outcome.passed, f"{variant['id']}: {outcome.reason()}"
