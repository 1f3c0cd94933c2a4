"""The workspace that is reserved when a call is traced, before the device is known, suffices for what is chosen then: on every target, for
every listed problem, tuned winners among them."""

import os
import pathlib

import pytest

from conformance import capi

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))


@pytest.mark.parametrize("kind, target", [(capi.CUDA, "sm_90a"), (capi.CUDA, "sm_80"), (capi.HOST, "x86-64-v3")])
def test_what_is_reserved_suffices_for_what_is_chosen(kind, target):
    bundle, compared, short = capi.Bundle(BUNDLE), 0, []
    for problem in bundle.listed():
        chosen = bundle.explain(problem, kind, target)
        if not chosen["chosen"]:
            continue
        compared += 1
        reserved = bundle.infer(problem, kind)["workspace_bytes"]
        if reserved < chosen["workspace_bytes"]:
            short.append(f"{problem}: {reserved} bytes, {chosen['chosen']} takes {chosen['workspace_bytes']}")
    assert compared > 100
    assert not short
