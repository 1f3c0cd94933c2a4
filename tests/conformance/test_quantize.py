"""Every host variant of the quantize ops gives the codes that the formula says, bit for bit, whatever the numbers are."""

import os
import pathlib

import ml_dtypes
import numpy as np
import pytest

from conformance import capi, devices, judged, quantize

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))


@pytest.fixture(scope="module")
def cases():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    made = quantize.Cases(BUNDLE, devices.Host(), [ROOT / "kernels"])
    made.right = judged.Right("quantize")
    return made


def test_every_variant_gives_what_is_defined(cases):
    outcomes = [cases.run(op, variant) for op, variant in cases.variants()]
    assert {o.variant.split("/")[0] for o in outcomes} == set(cases.ops)
    wrong = [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
    assert not wrong
    assert min(o.launches for o in outcomes) >= 10


def test_a_wrong_code_is_seen(cases):
    """The reference is made to round everything to zero: codes between two numbers must then differ."""
    op, variant = next((o, v) for o, v in cases.variants() if o["name"] == "quantize.per_tensor" and v["types"] == {"T": "f32", "Q": "e4m3"})
    right = cases.reference.codes

    def truncated(scaled, out_dtype):
        found = right(scaled, out_dtype)
        with np.errstate(invalid="ignore"):
            away = np.abs(found) > np.minimum(np.abs(scaled), 448)
        return np.where(away, np.nextafter(found.astype(ml_dtypes.float8_e4m3fn), ml_dtypes.float8_e4m3fn(0)).astype(np.float64), found)

    with cases.saying("codes", truncated):
        assert len(cases.run(op, variant).failures) > 20


def test_the_largest_numbers_are_those_of_the_dtypes(cases):
    for name, dtype in cases.reference.FP8.items():
        assert cases.reference.MOST[name] == float(ml_dtypes.finfo(dtype).max)
    assert capi.HOST == cases.device.kind
