"""`kbundle tune` on the CPU: it measures, contains what misbehaves, and survives being killed."""

import json
import os
import pathlib
import random
import shlex
import signal
import sys
import time

import pytest
from cli.traps import write_traps

PYTHON = {"KBUNDLE_PYTHON": sys.executable}
KINDS = {"fault": "fault", "hang": "hang", "wrong": "wrong", "nan": "wrong", "leak": "memory", "abort": "abort",
         "output": "output", "outside": "outside", "endless": "compile"}


def name_of(variant):
    return variant.partition("/")[2].partition("[")[0]


def records(folder):
    lines = [line for path in sorted(pathlib.Path(folder).glob("*/*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def traps(command, tmp_path_factory):
    """What a tune of the misbehaving family reported, its records, and how to run the command again."""
    from cli.command import Command
    folder = tmp_path_factory.mktemp("traps")
    kbundle = Command(command, folder / "cache", folder)
    manifest = write_traps(folder / "traps")
    arguments = ["--candidate-limit", "1.5", "--memory-limit", "8", "--compile-limit", "4"]
    done = kbundle("tune", manifest, "--target", "host", "--out", folder / "out", "--json", *arguments, env=PYTHON)
    assert done.code == 0, done.err
    return done.json, records(folder / "out"), kbundle


@pytest.mark.parametrize("trap", KINDS)
def test_misbehaving_candidate_costs_itself_alone(traps, trap):
    report, [record], _ = traps
    failed = {name_of(f["variant"]): f["kind"] for f in report["failures"]}
    assert failed[trap] == KINDS[trap]
    [candidate] = [c for c in record["candidates"] if name_of(c["variant"]) == trap]
    assert candidate["failed"]["kind"] == KINDS[trap]


def test_the_others_are_measured_and_the_fastest_wins(traps):
    report, [record], _ = traps
    measured = {name_of(c["variant"]) for c in record["candidates"] if "us" in c}
    assert measured == {"good", "fast"}
    assert name_of(record["default"]) == "good" and name_of(record["winner"]) == "fast"
    assert record["verdict"] == "faster" and report["winners_other_than_default"] == 1
    assert report["restarts"] >= 5


def test_the_command_in_a_failure_shows_it_again(traps):
    report, _, kbundle = traps
    commands = {name_of(f["variant"]): f["command"] for f in report["failures"]}
    words = shlex.split(commands["wrong"])
    assert words[:2] == ["kbundle", "tune"]
    again = kbundle(*words[1:], "--json", env=PYTHON)
    assert again.code == 1
    [failure] = again.json["failures"]
    assert failure["kind"] == "wrong" and "element 4089" in failure["message"]
    assert again.json["files"] == []


def test_tuning_a_family_writes_sorted_records_beside_its_manifest(kbundle, tiny):
    done = kbundle("tune", tiny, "--target", "host", env=PYTHON)
    assert done.code == 0, done.err
    assert "3 of 3 problems" in done.out
    [path] = (pathlib.Path(tiny).parent / "tuning").iterdir()
    lines = path.read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [r["op"] for r in found] == ["tiny.negate", "tiny.scale", "tiny.scale"]
    assert all(r["verdict"] in ("only", "default", "noise", "faster") for r in found)
    assert all(c["fingerprint"] for r in found for c in r["candidates"])


def test_problems_of_a_file_are_tuned_and_merged_into_the_records(kbundle, tiny, tmp_path):
    assert kbundle("tune", tiny, "--target", "host", "--op", "tiny.negate", env=PYTHON).code == 0
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"op": "tiny.scale", "operands": {"x": "f32[3,10]"}, "attributes": {"factor": 3.0}}\n')
    done = kbundle("tune", tiny, "--target", "host", "--problems", problems, "--json", env=PYTHON)
    assert done.code == 0 and done.json["problems"] == 1
    [path] = (pathlib.Path(tiny).parent / "tuning").iterdir()
    assert {json.loads(line)["op"] for line in path.read_text().splitlines()} == {"tiny.negate", "tiny.scale"}


@pytest.mark.parametrize("line, what", [
    ("{", "no JSON"), ('{"op": "tiny.scala", "operands": {}}', "tiny.scale"),
    ('{"op": "tiny.scale", "operands": {"z": "f32[4]"}}', "z"), ('{"op": "tiny.scale", "operands": {"x": 3}}', "x")])
def test_bad_problem_names_file_line_and_fault(kbundle, tiny, tmp_path, line, what):
    problems = tmp_path / "problems.jsonl"
    problems.write_text("\n" + line + "\n")
    done = kbundle("tune", tiny, "--target", "host", "--problems", problems, env=PYTHON)
    assert done.code == 1 and f"{problems}:2" in done.err and what in done.err


def test_reference_that_fails_costs_its_problems_alone(kbundle, tiny):
    reference = pathlib.Path(tiny).parent / "reference.py"
    reference.write_text(reference.read_text().replace("return -x", "return missing"))
    done = kbundle("tune", tiny, "--target", "host", "--json", env=PYTHON)
    assert done.code == 1 and done.json["measured"] == 2 and done.json["skipped"] == 1
    assert "missing" in done.err and "reference.py, line" in done.err
    [unanswered] = done.json["unanswered"]
    assert "tiny.negate" in unanswered and len(done.json["files"]) == 1


def test_a_problem_of_which_no_candidate_is_right_is_named_and_fails_the_tune(kbundle, tiny):
    reference = pathlib.Path(tiny).parent / "reference.py"
    reference.write_text(reference.read_text().replace("return -x", "return -x + 1"))
    done = kbundle("tune", tiny, "--target", "host", env=PYTHON)
    assert done.code == 1, done.out
    [line] = [line for line in done.out.splitlines() if "no record of" in line]
    assert "tiny.negate" in line and "no candidate is right" in line
    assert kbundle("tune", tiny, "--target", "host", "--op", "tiny.scale", env=PYTHON).code == 0


def test_make_inputs_is_given_shapes_and_all_attributes(kbundle, tiny):
    reference = pathlib.Path(tiny).parent / "reference.py"
    reference.write_text(reference.read_text() + """

def make_inputs(op, problem, seed):
    wanted = {"scale": {"factor": 0.5, "x": (4, 33)} if problem["x"] == (4, 33) else {"factor": 2.0, "x": (2, 3, 8)},
              "negate": {"x": (100,)}}[op]
    assert problem == wanted, problem
""")
    done = kbundle("tune", tiny, "--target", "host", env=PYTHON)
    assert done.code == 0 and "3 of 3 problems" in done.out, done.err


def test_no_gpu_is_an_environment_error_that_says_what_to_do(kbundle, tmp_path):
    source = tmp_path / "gpu"
    source.mkdir()
    (source / "gpu.toml").write_text("""
[family]
name = "gpu"
reference = "reference.py"
[op.copy]
summary = "y = x"
types = { T = ["f32"] }
operands = { x = "T[N]" }
results = { y = "T[N]" }
tolerance = 0
problems = [{ x = [8] }]
[[op.copy.variant]]
name = "plain"
provider = "cuda"
source = "copy.cu"
steps = [{ kernel = "copy<{T}>", grid = ["1"], block = ["32"], args = ["y", "x", "i64(N)"] }]
""")
    (source / "copy.cu").write_text("template <typename T> __global__ void copy(T*, const T*, long) {}\n")
    (source / "reference.py").write_text("def copy(x):\n    return x\n")
    done = kbundle("tune", source, "--target", "sm_90a", env=PYTHON | {"LD_LIBRARY_PATH": ""})
    if done.code == 0:
        pytest.skip("this machine has a GPU")
    assert done.code == 3 and "driver" in done.err


def test_no_python_is_an_environment_error_that_says_what_to_do(kbundle, tiny):
    done = kbundle("tune", tiny, "--target", "host", "--python", "/nowhere/python")
    assert done.code == 3 and "--python" in done.err


def test_help_prints_the_protocol(kbundle):
    assert "Protocol 1" in kbundle("tune", "--help").out


REPLAYED = """\
[family]
name = "replayed"
[op.copy]
summary = "y = x"
types = { T = ["f32"] }
operands = { x = "T[N]" }
results = { y = "T[N]" }
tolerance = 0
problems = [%s]
[[op.copy.variant]]
name = "plain"
provider = "host"
source = "copy.cc"
tunables = { A = [1, 2, 3, 4, 5, 6] }
steps = [{ kernel = "copy_{T}", range = "N", grain = "A", args = ["y", "x"] }]
"""


def test_fifty_kills_end_with_the_records_of_an_undisturbed_tune(kbundle, tmp_path):
    folder = tmp_path / "replayed"
    folder.mkdir()
    (folder / "replayed.toml").write_text(REPLAYED % ", ".join("{ x = [%d] }" % n for n in range(1, 41)))
    (folder / "copy.cc").write_text("")
    line = lambda out: ["tune", folder, "--target", "host", "--replay", "7", "--out", tmp_path / out]
    begin = time.monotonic()
    assert kbundle(*line("calm")).code == 0
    calm_s = time.monotonic() - begin
    calm = text_of(tmp_path / "calm")
    assert len(calm.splitlines()) == 40
    rng, kills, run = random.Random(1), 0, 0
    while kills < 50:
        out = f"killed{run}"
        process = kbundle.start(*line(out), "--resume")
        time.sleep(rng.uniform(0, calm_s / 4))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        assert_nothing_twice(tmp_path / out)
        if process.returncode == 0:
            assert text_of(tmp_path / out) == calm
            run += 1
    assert kbundle(*line(out), "--resume").code == 0
    assert text_of(tmp_path / out) == calm and not list((tmp_path / out).glob("*/*.journal"))


def text_of(folder):
    return "".join(path.read_text() for path in folder.glob("*/*.jsonl"))


def assert_nothing_twice(folder):
    for path in folder.glob("*/*.journal"):
        events = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        keys = [(e["number"], e["variant"], e.get("round")) for e in events if e["event"] in ("samples", "checked")]
        assert len(keys) == len(set(keys)), "something was measured twice"


def test_killed_tune_leaves_no_process_behind(kbundle, tmp_path):
    manifest = write_traps(tmp_path / "traps", endless=False)
    process = kbundle.start("tune", manifest, "--target", "host", "--out", tmp_path / "out", "--candidate-limit", "60",
                            env=PYTHON)
    deadline = time.monotonic() + 60
    children = []
    while time.monotonic() < deadline and not any("tune-worker" in c for _, c in children):
        children = of_parent(process.pid)
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert children
    for pid, _ in children:
        while os.path.exists(f"/proc/{pid}") and state_of(pid) != "Z":
            assert time.monotonic() < deadline, f"process {pid} outlives its tune"
            time.sleep(0.02)


def of_parent(parent):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if entry.name.isdigit() and int(fields[1]) == parent:
                found.append((int(entry.name), (entry / "cmdline").read_text().replace("\0", " ")))
        except (OSError, IndexError):
            continue
    return found


def state_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize("gpus", ["0,1", "0,1,2,3,4,5,6"])
def test_several_gpus_end_with_the_records_of_one_also_after_a_kill(kbundle, tmp_path, gpus):
    folder = tmp_path / "replayed"
    folder.mkdir()
    (folder / "replayed.toml").write_text(REPLAYED % ", ".join("{ x = [%d] }" % n for n in range(1, 41)))
    (folder / "copy.cc").write_text("")
    line = lambda out, *more: ["tune", folder, "--target", "host", "--replay", "7", "--out", tmp_path / out, *more]
    assert kbundle(*line("one")).code == 0
    assert kbundle(*line("several", "--device", gpus)).code == 0
    assert text_of(tmp_path / "several") == text_of(tmp_path / "one") and len(text_of(tmp_path / "one").splitlines()) == 40
    rng, killed = random.Random(2), 0
    while killed < 5:
        process = kbundle.start(*line("killed", "--device", gpus, "--resume"))
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += 1
        assert_nothing_twice(tmp_path / "killed")
    assert kbundle(*line("killed", "--device", gpus, "--resume")).code == 0
    assert text_of(tmp_path / "killed") == text_of(tmp_path / "one")


@pytest.mark.parametrize("line, what", [
    (["--target", "sm_90a", "--device", "0,0"], "0,0"), (["--target", "sm_90a", "--device", "one"], "a GPU's number"),
    (["--target", "sm_90a", "--device", "-1"], "a GPU's number"), (["--target", "host", "--device", "0"], "is the CPU"),
    (["--check", "--device", "all"], "needs no GPU")])
def test_gpus_that_are_none_are_told_before_anything_starts(kbundle, tiny, line, what):
    done = kbundle("tune", tiny, *line, env=PYTHON)
    assert done.code == 2 and what in done.err, done.err
