"""`kbundle test`: every variant of a family outside the tree is launched and compared; what is wrong, dies or is never launched says so."""

import json
import pathlib
import shlex
import sys

import pytest
from cli.tiny import write_cuda

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
PYTHON = {"KBUNDLE_PYTHON": sys.executable}
RIGHT = "y[i] = -x[i]"


def test_run(kbundle, path, *arguments, target="host", env={}):
    done = kbundle("test", path, "--target", target, "--json", *arguments, env=PYTHON | env)
    assert done.out, done.err
    return done.code, done.json, {v["variant"]: v for v in done.json["variants"]}


test_run.__test__ = False


def levels(variants):
    return {name.partition("@")[2] for name in variants}


def test_a_right_family_passes_and_strict_verify_believes_it(kbundle, tiny, tmp_path):
    out = tmp_path / "tiny.kb"
    strict = ["verify", out, "--target", "host", "--strict"]
    assert kbundle("tune", tiny, "--target", "host", env=PYTHON).code == 0
    assert kbundle("build", tiny, "-o", out, "--target", "host").code == 0
    never = kbundle(*strict)
    assert never.code == 1 and "kbundle test" in never.out
    code, report, variants = test_run(kbundle, tiny)
    assert code == 0 and report["ok"] and report["failed"] == 0, variants
    assert len(variants) == 5 * len(levels(variants)) and all(v["problems"] >= 16 for v in variants.values())
    assert report["files"] == [str(tiny.parent / "ran_on.jsonl")]
    assert kbundle("build", tiny, "-o", out, "--target", "host").code == 0
    done = kbundle(*strict)
    assert done.code == 0, done.out
    before = (tiny.parent / "ran_on.jsonl").read_bytes()
    assert test_run(kbundle, tiny)[0] == 0 and (tiny.parent / "ran_on.jsonl").read_bytes() == before


def test_a_variant_that_is_wrong_at_an_edge_only_is_found_and_its_facts_are_taken_back(kbundle, tiny):
    """The listed problem has 100 elements; none of the problems made from it may be like it alone."""
    assert test_run(kbundle, tiny)[0] == 0
    facts = (tiny.parent / "ran_on.jsonl").read_text()
    source = tiny.parent / "negate.cc"
    source.write_text(source.read_text().replace(RIGHT, "y[i] = -x[i] + (end - begin == 33)"))
    code, report, variants = test_run(kbundle, tiny)
    wrong = [v for v in variants.values() if not v["ok"]]
    assert code == 1 and report["failed"] == len(wrong) == len(levels(variants))
    assert {v["kind"] for v in wrong} == {"wrong"} and all("tiny.negate" in v["variant"] for v in wrong)
    words = shlex.split(wrong[0]["command"])
    again = kbundle(*words[1:], env=PYTHON)
    assert again.code == 1 and "i32[33]" in again.out and "written" not in again.out
    one = kbundle("test", tiny, "--target", "host", env=PYTHON)
    assert one.code == 1 and f"wrong  {wrong[0]['variant']}" in one.out and "to see it again: kbundle test" in one.out
    source.write_text(source.read_text().replace(" + (end - begin == 33)", ""))
    assert test_run(kbundle, tiny)[0] == 0 and set(facts.splitlines()) <= set((tiny.parent / "ran_on.jsonl").read_text().splitlines())


def test_an_optional_operand_that_no_listed_problem_has_is_tried_too(kbundle, tiny):
    source = tiny.parent / "scale.cc"
    source.write_text(source.read_text().replace("offset[k]", "2 * offset[k]"))
    code, report, variants = test_run(kbundle, tiny)
    assert code == 1 and {v["kind"] for n, v in variants.items() if "tiny.scale" in n} == {"wrong"}
    assert all(v["ok"] for n, v in variants.items() if "negate" in n)


def test_a_variant_that_dies_costs_itself_alone(kbundle, tiny):
    source = tiny.parent / "negate.cc"
    source.write_text(source.read_text().replace(RIGHT, "y[i] = -x[i], *reinterpret_cast<volatile int*>(begin + 8) = 1"))
    code, report, variants = test_run(kbundle, tiny)
    assert code == 1
    assert {v["kind"] for v in variants.values() if "negate" in v["variant"]} == {"fault"}
    assert all(v["ok"] for v in variants.values() if "scale" in v["variant"])


def test_a_variant_without_code_is_named_with_its_compilers_words(kbundle, tiny):
    (tiny.parent / "negate.cc").write_text("nonsense")
    code, report, variants = test_run(kbundle, tiny)
    bad = [v for v in variants.values() if not v["ok"]]
    assert code == 1 and bad and {v["kind"] for v in bad} == {"compile"} and "nonsense" in bad[0]["message"]


def test_a_variant_that_no_problem_reaches_is_no_success_and_says_which_would(kbundle, tiny, tmp_path):
    tiny.write_text(tiny.read_text().replace('when     = ["K % 2 == 0"]', 'when     = ["K - 3 == 2 * 40007"]'))
    code, report, variants = test_run(kbundle, tiny)
    never = [v for v in variants.values() if not v["ok"]]
    assert code == 1 and {v["kind"] for v in never} == {"never"}
    assert "40007" in never[0]["message"] and "`problems` of [op.scale]" in never[0]["message"]
    problems = tmp_path / "model.jsonl"
    problems.write_text("".join(json.dumps({"op": "tiny.scale", "operands": {"x": f"{t}[1,80017]"}}) + "\n" for t in ("f32", "f64")))
    assert test_run(kbundle, tiny, "--problems", problems)[0] == 0


def test_one_op_or_variant_is_tested_alone_and_nothing_is_noted(kbundle, tiny):
    code, report, variants = test_run(kbundle, tiny, "--op", "tiny.negate")
    assert code == 0 and all("negate" in name for name in variants) and report["files"] == []
    [name] = [n for n in variants if n.endswith("v2")]
    assert list(test_run(kbundle, tiny, "--only", name, target="x86-64-v2")[2]) == [name]
    missing = kbundle("test", tiny, "--target", "host", "--only", name.replace("loop", "lop"), env=PYTHON)
    assert missing.code == 1 and "loop" in missing.err
    assert not (tiny.parent / "ran_on.jsonl").exists()


def test_inputs_are_new_each_time_and_a_seed_repeats_them(kbundle, tiny):
    seeds = {test_run(kbundle, tiny, "--op", "tiny.negate")[1]["seed"] for _ in range(2)}
    assert len(seeds) == 2
    assert test_run(kbundle, tiny, "--op", "tiny.negate", "--seed", "7")[1]["seed"] == 7


def test_a_family_without_a_reference_cannot_be_tested(kbundle, tiny):
    tiny.write_text(tiny.read_text().replace('reference = "reference.py"', ""))
    code, report, variants = test_run(kbundle, tiny)
    assert code == 1 and {v["kind"] for v in variants.values()} == {"reference"}


def test_a_python_without_the_packages_is_told_what_to_install(kbundle, tiny, tmp_path):
    import venv
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare/bin/python"
    done = kbundle("test", tiny, "--target", "host", "--python", python)
    assert done.code == 3 and f"{python} -m pip install numpy ml_dtypes" in done.err
    assert "numpy and ml_dtypes" in kbundle("test", "--help").out


def test_the_gpus_variants_take_the_same_road(kbundle, driver, tmp_path):
    manifest = write_cuda(tmp_path / "gpu")
    manifest.write_text(manifest.read_text().replace('["f32", "f64"]', '["f32"]'))
    code, report, variants = test_run(kbundle, manifest, target="sm_90a", env=driver | {"STANDIN_TWICE": "-1"})
    assert code == 0 and len(variants) == 3 and report["device"] == "Stand-in", variants
    facts = [json.loads(line) for line in (tmp_path / "gpu/ran_on.jsonl").read_text().splitlines()]
    assert len(facts) == 3 and {fact["device"] for fact in facts} == {"Stand-in"}
    code, report, variants = test_run(kbundle, manifest, target="sm_90a", env=driver)
    assert code == 1 and {v["kind"] for v in variants.values()} == {"outside"}  # a GPU that forgets: its guards are not whole
    code, report, variants = test_run(kbundle, manifest, target="sm_90a", env=driver | {"STANDIN_TWICE": "1000"})
    assert code == 1 and {v["kind"] for v in variants.values()} == {"abort"}


@pytest.mark.parametrize("target, code, what", [("sm_90a", 3, "driver"), ("sm_9o", 2, "sm_9o"), ("portable", 2, "names no device")])
def test_a_target_that_cannot_be_tested_here_says_why(kbundle, tiny, tmp_path, target, code, what):
    path = write_cuda(tmp_path / "gpu") if target == "sm_90a" else tiny
    done = kbundle("test", path, "--target", target, env=PYTHON | {"LD_LIBRARY_PATH": str(tmp_path)})
    assert done.code == code and what in done.err


def test_a_missing_gpu_is_told_before_anything_is_planned_or_compiled(kbundle, tmp_path):
    """The kernels list thousands of algorithms, whose problems take minutes to choose."""
    (tmp_path / "libcuda.so.1").touch()  # no driver, on machines that have one too
    done = kbundle("test", KERNELS, "--target", "sm_90a", env=PYTHON | {"LD_LIBRARY_PATH": str(tmp_path)}, timeout=90)
    assert done.code == 3 and "driver" in done.err
