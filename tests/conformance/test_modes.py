"""Promise: a host variant of build/kernels.kb that promises the same bits gives the same bits."""

import os
import pathlib

import pytest
from conformance import capi, devices, modes, runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))
# Ops without a batch, whose items are not apart: maps, sizes, one scale of a tensor, products of groups.
NO_BATCH = ("grouped.", "quantize.", "permutation.", "attention.sdpa_ragged", "attention.sdpa_fp8", "router.topk_rows", "router.aux_loss")


@pytest.fixture(scope="module")
def conformance():
    if not BUNDLE.exists():
        pytest.skip(f"no bundle at {BUNDLE}: build it with `kbundle build kernels -o {BUNDLE}`")
    return runner.Conformance(BUNDLE, devices.Host(), [ROOT / "kernels"])


@pytest.mark.parametrize("mode", list(modes.MODES))
def test_what_is_promised_is_kept(conformance, mode):
    held, wrong, idle = modes.Modes(conformance), [], []
    promising = list(modes.promising(conformance, mode))
    best = max(variant["target"] for _, variant in promising)  # of one source the widest vectors have the most to hide
    for op, variant in promising:
        if variant["target"] != best:
            continue
        outcome = held.run(op, variant, mode)
        wrong += [f"{variant['id']}: {failure}" for failure in outcome.failures]
        if not outcome.compared:
            idle.append(variant["id"])
    assert not wrong, f"{len(wrong)}, the first: {wrong[:5]}"
    # Products of few rows see how many there are, so no batch of any size may choose them.
    assert all("/few_rows" in variant for variant in idle), f"compared nothing: {idle}"


def test_every_op_is_deterministic_on_a_cpu_and_most_are_batch_invariant(conformance):
    for op in conformance.ops():
        of_host = [v for v in op["variants"] if v["provider"] == "host"]
        assert all(v["deterministic"] == "true" for v in of_host), op["name"]
        if not op["name"].startswith(NO_BATCH) or op["name"] == "permutation.unpermute_with_mask_map":
            assert all(v["batch_invariant"] for v in of_host), op["name"]


def test_a_batch_of_every_size_gets_one_variant(conformance):
    """Without the mode few rows and many get two."""
    chosen = {}
    for mode in (0, capi.BATCH_INVARIANT):
        problems = [capi.Problem("matmul.matmul", [("f32", (rows, 64)), ("f32", (64, 48))] + [None] * 6, {"out_dtype": "f32"})
                    for rows in (1, 2, 12, 13, 1000)]
        chosen[mode] = {conformance.bundle.explain(problem, capi.HOST, modes=mode)["chosen"] for problem in problems}
    assert len(chosen[0]) == 2 and len(chosen[capi.BATCH_INVARIANT]) == 1


def test_for_one_query_a_plan_of_cudnn_promises_nothing(conformance):
    """It adds up parts of the keys in the order in which they come."""
    whole, new = [("bf16", (16, length, heads, 128)) for length, heads in ((4096, 8), (1, 32))]
    lengths = ("i32", (16,))
    problem = capi.Problem("attention.sdpa_forward", [new, whole, whole, None, lengths, lengths, None, None, None], {"scale": 128 ** -0.5})
    chosen = [conformance.bundle.explain(problem, capi.CUDA, target="sm_90a", modes=mode)["chosen"].split("[")[0]
              for mode in (0, capi.DETERMINISTIC)]
    assert chosen == ["attention.sdpa_forward/cudnn", "attention.sdpa_forward/decode"]


def test_too_small_a_workspace_is_an_error_and_no_other_variant(conformance):
    problem = capi.Problem("matmul.matmul", [("f32", (4, 64)), ("f32", (64, 48))] + [None] * 6, {"out_dtype": "f32"})
    with pytest.raises(capi.KbError, match="batches of every size get this variant or none") as refused:
        capi.Plan(conformance.bundle, problem, capi.HOST, workspace_limit=8192, modes=capi.BATCH_INVARIANT)
    assert refused.value.code == 8
    assert capi.Plan(conformance.bundle, problem, capi.HOST, workspace_limit=8192).workspace_bytes <= 8192


def test_modes_that_nobody_knows_are_refused(conformance):
    problem = capi.Problem("softmax.scaled_forward", [("f32", (4, 64))], {})
    with pytest.raises(capi.KbError, match="known are 1 .deterministic. and 2 .batch_invariant."):
        capi.Plan(conformance.bundle, problem, capi.HOST, modes=4)
