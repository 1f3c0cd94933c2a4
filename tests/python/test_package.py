"""Promise: `import kbundle` shows what is in a bundle and why a variant would be chosen, without JAX."""

import os
import subprocess
import sys

import numpy as np
import pytest

import kbundle
from kbundle import _spec


@pytest.fixture(autouse=True)
def no_policy_stays():
    yield
    kbundle.clear_policy()


def test_a_bundle_describes_its_ops(probe):
    assert probe.name == "python_probe" and len(probe.content_id) == 64
    assert [op.name for op in probe.ops] == sorted(op.name for op in probe.ops)
    op = probe.op("probe.keep")
    assert [operand.name for operand in op.operands] == ["x", "mask"]
    assert [operand.optional for operand in op.operands] == [False, True]
    assert [result.conditional for result in op.results] == [False, True]
    assert op.vmap == "loop" and len(op.interface) == 16
    attributes = {attribute.name: attribute for attribute in probe.op("probe.attributes").attributes}
    assert attributes["mode"].choices == ["plain", "causal"] and attributes["list"].type == "int[]"
    assert "probe.keep(x, mask)" in repr(op)
    assert {variant.target for variant in op.variants} >= {"x86-64-v2", "x86-64-v3", "x86-64-v4"}


def test_opening_reads_nothing_that_is_long_and_rarely_wanted(kernels):
    [described] = kernels._describe("softmax.scaled_forward", whole=0)["ops"]
    assert not {"problems", "variants"} & set(described)
    op = kernels.op("softmax.scaled_forward")
    assert not {"problems", "variants"} & set(vars(op))
    assert len(op.problems) > 10 and all(problem.operands[0]["present"] for problem in op.problems)


def test_the_same_file_again_is_the_same_bundle(probe, probe_path, tmp_path):
    assert kbundle.open(probe_path) is probe
    copy = tmp_path / "copy.kb"
    copy.write_bytes(probe_path.read_bytes())
    assert kbundle.open(copy) is probe
    other = kbundle.open(probe_path, name="another name")
    assert other.name == "another name" and kbundle.find("another name") is other


def test_explain_says_which_variant_and_why_not_the_others(probe):
    for operand in ("f32[3,5]", ("float32", (3, 5)), np.zeros((3, 5), np.float32)):
        verdict = probe.explain("probe.shift", operand, target="x86-64-v3", by=2)
        assert verdict["chosen"] == "probe.shift/loop[T=f32]@x86-64-v3"
        assert len(verdict["candidates"]) > 1
        assert all(candidate["reason"] for candidate in verdict["candidates"])
    assert probe.explain("probe.shift", "f32[3,5]")["chosen"].startswith("probe.shift/loop")


def test_denied_and_forced_variants(probe):
    chosen = probe.explain("probe.shift", "f32[3]", target="x86-64-v3")["chosen"]
    probe.deny(chosen)
    assert probe.explain("probe.shift", "f32[3]", target="x86-64-v3")["chosen"] != chosen
    kbundle.clear_policy()
    probe.force("probe.shift/loop[T=f32]@x86-64-v2")
    assert probe.explain("probe.shift", "f32[3]", target="x86-64-v3")["chosen"].endswith("@x86-64-v2")
    with pytest.raises(kbundle.Error, match="NOT_FOUND"):
        probe.force("probe.shift/lop")


def test_a_wish_holds_for_problems_seen_before(probe):
    import jax
    import kbundle.jax as kbj
    x = np.ones((23, 3), np.float32)

    def chosen():
        return {row["variant"]: row["count"] for row in probe.stats()["chosen"] if "f32[23,3]" in row["problem"]}
    kbj.call(probe, "probe.shift", x, by=53)
    usual, = chosen()
    kbj.call(probe, "probe.shift", x, by=53)
    assert chosen() == {usual: 1}, "an equal call made another plan"
    probe.force("probe.shift/loop[T=f32]@x86-64-v2")
    kbj.call(probe, "probe.shift", x, by=53)
    assert set(chosen()) == {usual, "probe.shift/loop[T=f32]@x86-64-v2"}
    kbundle.clear_policy()
    jax.jit(lambda x: kbj.call(probe, "probe.shift", x, by=53))(x)
    assert chosen()[usual] == 2


def test_the_workspace_of_a_problem_is_the_same_whatever_the_policy(demo):
    before = [demo.infer("demo.histogram_share", (("u8", (500,)),), (), 1)["workspace_bytes"] for _ in range(2)]
    assert before[0] == before[1] > 0
    for variant in demo.op("demo.histogram_share").variants:
        demo.deny(variant.id)
    assert demo.infer("demo.histogram_share", (("u8", (500,)),), (), 1)["workspace_bytes"] == before[0]
    kbundle.clear_policy()
    assert demo.infer("demo.histogram_share", (("u8", (500,)),), (), 1)["workspace_bytes"] == before[0]


def test_verify_reads_every_byte(probe):
    probe.verify()


def test_stats_count_what_was_chosen(probe):
    import kbundle.jax as kbj
    kbj.call(probe, "probe.shift", np.ones((17, 3), np.float32), by=41)
    chosen = [row for row in probe.stats()["chosen"] if row["op"] == "probe.shift"]
    assert chosen and all(row["count"] >= 1 and row["reason"] for row in chosen)
    assert probe.stats()["plans_made"] >= 1


def test_equal_call_sites_share_one_plan(probe):
    import jax
    import kbundle.jax as kbj

    def many(x):
        for turn in range(96):
            x = kbj.call(probe, "probe.shift", x * 2, by=43)
        return x
    before = kbundle.stats()
    jax.block_until_ready(jax.jit(many)(np.zeros((5, 9), np.int32)))
    after = kbundle.stats()
    assert after["plans_made"] - before["plans_made"] <= 1
    assert after["plans_shared"] - before["plans_shared"] >= 95
    assert after["objects_loaded"] - before["objects_loaded"] <= 1


@pytest.mark.parametrize("text, expected", [
    ("f32[4,8]", ("f32", (4, 8))), ("bfloat16[ 2 , 3 ]", ("bf16", (2, 3))), ("u8[]", ("u8", ())),
])
def test_operands_as_text(text, expected):
    assert _spec.operand(text) == expected


@pytest.mark.parametrize("value, expected", [
    (True, (_spec.BOOL, True)), (np.bool_(False), (_spec.BOOL, False)), (3, (_spec.INT, 3)),
    (np.uint8(3), (_spec.INT, 3)), (0.5, (_spec.FLOAT, "0.5")), (np.float64(-0.0), (_spec.FLOAT, "-0.0")),
    ("x", (_spec.TEXT, "x")), ([1, 2], (_spec.INT_ARRAY, (1, 2))), ((), (_spec.INT_ARRAY, ())),
    ([1, 2.5], (_spec.FLOAT_ARRAY, ("1.0", "2.5"))), (np.array([1.5]), (_spec.FLOAT_ARRAY, ("1.5",))),
])
def test_attributes_in_normal_form(value, expected):
    assert _spec.attribute("a", value)[1:] == expected


def test_importing_kbundle_imports_neither_jax_nor_numpy():
    code = "import kbundle, sys; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_importing_kbundle_jax_takes_a_small_part_of_importing_jax_and_leaves_what_few_programs_use():
    code = """
import sys, time
start = time.perf_counter()
import jax, jax.numpy
middle = time.perf_counter()
import kbundle.jax as kbj
end = time.perf_counter()
later = ["kbundle.jax." + name for name in ("_cuts", "_partition", "_ranks", "_record", "_vmap")]
assert not [name for name in later if name in sys.modules], sys.modules
from kbundle.jax import GatheredWarning, check_ranks, record_problems
assert issubclass(GatheredWarning, UserWarning) and GatheredWarning is kbj.GatheredWarning and record_problems is kbj.record_problems
assert {"GatheredWarning", "check_ranks", "record_problems"} <= set(dir(kbj))
print((end - middle) / (middle - start))
"""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    ratios = [float(subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True).stdout) for _ in range(3)]
    assert min(ratios) < 0.05, ratios
