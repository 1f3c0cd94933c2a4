"""Promise: results say which bundle each section measured, and a section of another bundle than the latest run's is marked."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run  # noqa: E402
from conformance import capi  # noqa: E402

BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", pathlib.Path(__file__).resolve().parents[2] / "build/kernels.kb"))
NOW, BEFORE = "00000000000000aa", "00000000000000bb"


def section(**more):
    return {"passed": True, "seconds": 1.0, "date": "2026-11-22", "bars": [], "facts": {}, "tables": [], **more}


def test_sections_of_another_bundle_are_marked_stale():
    sections = {"speed": section(bundle=NOW), "permutation": section(bundle=BEFORE), "bandwidth": section()}
    text = run.markdown({"device": "GPU", "date": "2026-11-22", "driver": "1", "cuda": "13.0", "versions": {}, "bundle": NOW,
                         "sections": sections})
    speed, permutation, bandwidth = text.split("\n## ")[1:]
    assert f"bundle {NOW}" in text.split("\n## ")[0]
    assert f"bundle {NOW}." in speed and "Stale" not in speed
    assert "**Stale**" in permutation and BEFORE in permutation
    assert "**Stale**" in bandwidth


def test_a_bundle_is_named_by_its_content_id(tmp_path):
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    assert run.bundle_id(BUNDLE) == capi.Bundle(BUNDLE).describe(whole=False)["content_id"]
    assert run.bundle_id(tmp_path / "none.kb") is None
