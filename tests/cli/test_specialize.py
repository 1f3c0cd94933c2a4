"""Promise: specialize takes a model's problems to a verified bundle in one command that may be killed at any time and started again; what it
writes beside the manifests makes a plain build give the same bytes."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest

PYTHON = {"KBUNDLE_PYTHON": sys.executable}
MODEL = [{"op": "tiny.scale", "operands": {"x": "f32[300,64]"}, "attributes": {"factor": 3.0}},
         {"op": "tiny.scale", "operands": {"x": "f32[7,33]"}},
         {"op": "tiny.negate", "operands": {"x": "i32[5000]"}},
         {"op": "other.op", "operands": {"x": "f32[4]"}}]


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.jsonl"
    path.write_text("".join(json.dumps(problem) + "\n" for problem in MODEL))
    return path


def committed(tiny):
    folder = pathlib.Path(tiny).parent
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.jsonl"))}


def test_a_models_problems_are_tuned_run_built_and_verified(kbundle, tiny, model, tmp_path):
    done = kbundle("specialize", model, tiny, "--target", "host", "-o", tmp_path / "model.kb", env=PYTHON)
    assert done.code == 0, done.err + done.out
    assert "1 problem of other families" in done.err and "tuning 1 of 3 problems" in done.err
    first, second, third = [line.split() for line in done.out.splitlines() if line.startswith("  before")]
    assert first[1].startswith("even[") and first[2] == "(manifest"
    after = [line for line in done.out.splitlines() if line.startswith("  after")]
    assert "(exact)" in after[0] and " us" in after[0] and "(manifest order)" in after[1]
    assert "each has an exact variant that can be launched" in done.out
    [record] = [json.loads(line) for path in (pathlib.Path(tiny).parent / "tuning").iterdir() for line in path.read_text().splitlines()]
    assert record["problem"]["operands"] == {"x": "f32[300,64]"}
    assert not (tmp_path / "model.kb.before").exists()

    [advice] = [line for line in done.out.splitlines() if line.startswith("commit ")]
    assert "ran_on.jsonl" in advice and "tuning/" in advice
    words = advice.split("without a GPU: kbundle ")[1].split()
    words[words.index("-o") + 1] = tmp_path / "again.kb"
    assert kbundle(*words, "--name", "model").code == 0
    assert (tmp_path / "again.kb").read_bytes() == (tmp_path / "model.kb").read_bytes()


def test_a_second_run_finds_nothing_to_do(kbundle, tiny, model, tmp_path):
    words = ["specialize", model, tiny, "--target", "host", "-o", tmp_path / "model.kb"]
    assert kbundle(*words, env=PYTHON).code == 0
    bundle, files = (tmp_path / "model.kb").read_bytes(), committed(tiny)
    done = kbundle(*words, env=PYTHON)
    assert done.code == 0, done.err
    assert "tuning" not in done.err and "comparing" not in done.err and "commit nothing new" in done.out
    assert (tmp_path / "model.kb").read_bytes() == bundle and committed(tiny) == files
    report = kbundle(*words, "--json", env=PYTHON).json
    assert report["ok"] and report["written"] == [] and report["output"] == str(tmp_path / "model.kb")
    assert [problem["after"]["how"] for problem in report["problems"]].count("exact") == 1 and report["verify"]["missing"] == []
    assert report["problems"][0]["after"]["us"] > 0 and report["build"].startswith("kbundle build ")


def test_a_run_that_is_killed_anywhere_goes_on(kbundle, tiny, model, tmp_path):
    """Killed at growing ages until one run reaches its end; what was chosen before the first is still what is compared with."""
    words = [kbundle.path, "specialize", model, tiny, "--target", "host", "-o", tmp_path / "model.kb"]
    killed = 0
    for age in [0.3, 0.8, 1.5, 2.5, 4, 6, 9, 13, 300]:
        with open(tmp_path / "log", "w") as log:
            child = subprocess.Popen(words, stdout=log, stderr=log, env=kbundle.environment | PYTHON)
            begun = time.monotonic()
            while child.poll() is None and time.monotonic() - begun < age:
                time.sleep(0.05)
            if child.poll() is not None:
                break
            child.send_signal(signal.SIGKILL)
            child.wait()
            killed += 1
    text = (tmp_path / "log").read_text()
    assert child.returncode == 0 and killed > 0, text
    assert "(manifest order)" in text.split("before")[1] and "(exact)" in text
    assert not list(pathlib.Path(tiny).parent.glob("tuning/*.journal"))
    done = kbundle("verify", tmp_path / "model.kb", "--target", "host", "--strict")
    assert done.code == 0, done.out


@pytest.mark.parametrize("line, what", [
    ('{"op": "tiny.scala", "operands": {}}', "tiny.scale"),
    ('{"op": "tiny.scale", "operands": {"x": "f32[3,0]"}}', "K >= 1"),
    ('{"op": "tiny.scale", ', "no JSON")])
def test_a_line_that_is_no_problem_is_named_before_anything_is_compiled(kbundle, tiny, tmp_path, line, what):
    model = tmp_path / "model.jsonl"
    model.write_text('{"op": "tiny.negate", "operands": {"x": "i32[8]"}}\n' + line + "\n")
    done = kbundle("specialize", model, tiny, "--target", "host", "-o", tmp_path / "model.kb", env=PYTHON)
    assert done.code == 1 and f"{model}:2" in done.err and what in done.err
    assert not (tmp_path / "model.kb").exists() and committed(tiny) == {}


def test_what_cannot_be_specialized_says_why(kbundle, tiny, model, tmp_path):
    out = tmp_path / "model.kb"
    missing = kbundle("specialize", tmp_path / "no.jsonl", tiny, "--target", "host", "-o", out)
    assert missing.code == 1 and "no.jsonl" in missing.err
    assert kbundle("specialize", model, tiny, "--target", "sm_nine", "-o", out).code == 2
    model.write_text('{"op": "tini.scale", "operands": {"x": "f32[4,4]"}}\n')
    other = kbundle("specialize", model, tiny, "--target", "host", "-o", out)
    assert other.code == 1 and "names no family" in other.err and "tiny" in other.err
    model.write_text('{"op": "tiny.negate", "operands": {"x": "i32[8]"}}\n')
    level = "x86-64-v4" if "avx512f" not in pathlib.Path("/proc/cpuinfo").read_text() else "sm_90a"
    elsewhere = kbundle("specialize", model, tiny, "--target", level, "-o", out, env=PYTHON)
    assert elsewhere.code != 0 and "kbundle: error" in elsewhere.err
    assert not out.exists()


def test_a_source_is_never_the_output(kbundle, tiny, model):
    before = pathlib.Path(tiny).read_bytes()
    done = kbundle("specialize", model, tiny, "--target", "host", "-o", tiny, env=PYTHON)
    assert done.code == 1 and pathlib.Path(tiny).read_bytes() == before
