"""Every host variant of the permutation ops is right on odd sizes and on maps of any bytes, as README.md defines it."""

import os
import pathlib

import pytest

from conformance import capi, devices, permutation

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))


@pytest.fixture(scope="module")
def cases():
    assert BUNDLE.exists(), f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`"
    return permutation.Cases(BUNDLE, devices.Host(), [ROOT / "kernels"])


@pytest.mark.parametrize("op", ["row_id_map", "permute_with_mask_map", "unpermute_with_mask_map",
                                "unpermute_backward_with_merging_probs", "make_chunk_sort_map", "sort_chunks_by_map"])
def test_every_variant_gives_what_is_defined(cases, op):
    outcomes = [cases.run(o, variant) for o, variant in cases.variants() if o["name"] == "permutation." + op]
    assert outcomes
    wrong = [f"{o.variant}: {o.reason()}" for o in outcomes if not o.passed]
    assert not wrong
    assert sum(o.launches for o in outcomes) >= 10 * len(outcomes)


def test_a_wrong_result_is_seen(cases):
    """The reference is made to say something else: every case that has an entry must fail."""
    op, variant = next((o, v) for o, v in cases.variants() if o["name"] == "permutation.make_chunk_sort_map")
    right = cases.reference.make_chunk_sort_map
    with cases.saying("make_chunk_sort_map", lambda *sizes, num_tokens: right(*sizes, num_tokens=num_tokens) + 1):
        outcome = cases.run(op, variant)
        assert len(outcome.failures) == outcome.launches > 10
