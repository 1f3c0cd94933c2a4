"""`kbundle tune --check`: what has no record, what is stale and why, without a device and without tuning."""

import json
import pathlib
import sys

import pytest

PYTHON = {"KBUNDLE_PYTHON": sys.executable}


@pytest.fixture
def tuned(kbundle, tiny):
    """The tiny family with records of this CPU, and their file."""
    done = kbundle("tune", tiny, "--target", "host", env=PYTHON)
    assert done.code == 0, done.err
    [path] = (pathlib.Path(tiny).parent / "tuning").glob("*.jsonl")
    return pathlib.Path(tiny), path


def check(kbundle, manifest, code, *arguments):
    done = kbundle("tune", manifest, "--check", "--json", *arguments, env=PYTHON)
    assert done.code == code, done.err or done.out
    [target] = done.json["targets"]
    assert done.json["ok"] == target["ok"] == (code == 0)
    return target


def test_listed_problems_without_records_are_missing_where_there_is_a_choice(kbundle, tiny):
    """Of the three two have a single variant that is legal for them."""
    found = check(kbundle, tiny, 1, "--target", "host")
    assert found["problems"] == len(found["missing"]) == 1 and found["records"] == 0
    text = kbundle("tune", tiny, "--check", "--target", "host", env=PYTHON)
    assert text.code == 1 and "missing  tiny.scale" in text.out and "1 missing, 0 stale" in text.out


def test_fresh_records_are_fine_and_another_driver_is_only_noted(kbundle, tuned):
    manifest, path = tuned
    found = check(kbundle, manifest, 0)
    assert found["records"] == 3 and not found["missing"] + found["stale"] + found["notes"]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for number, line in enumerate(lines):
        line["device"]["driver"] = f"580.{number % 2}"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    [note] = check(kbundle, manifest, 0)["notes"]
    assert "2 drivers" in note


def test_a_changed_source_makes_only_its_own_candidates_stale(kbundle, tuned):
    manifest, _ = tuned
    source = manifest.parent / "negate.cc"
    text = source.read_text()
    assert "-x[" in text
    source.write_text(text.replace("-x[", "1 + -x["))
    found = check(kbundle, manifest, 1)
    [stale] = found["stale"]
    assert "tiny.negate" in stale["record"] and not found["missing"]
    [why] = stale["why"]
    assert "winner tiny.negate/loop" in why and "other code" in why


def test_new_and_gone_candidates_are_named(kbundle, tuned):
    manifest, _ = tuned
    manifest.write_text(manifest.read_text().replace('"loop"', '"lap"'))
    [stale] = check(kbundle, manifest, 1)["stale"]
    new, gone = stale["why"]
    assert "tiny.negate/lap" in new and new.endswith("is new")
    assert "tiny.negate/loop" in gone and gone.endswith("is gone")


def test_record_of_a_device_that_cannot_run_the_target_is_refused(kbundle, tuned):
    manifest, path = tuned
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    next(line for line in lines if len(line["candidates"]) > 1)["device"]["target"] = "sm_80"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = check(kbundle, manifest, 1)
    [refused] = found["refused"]
    assert "cannot run" in refused["why"][0] and len(found["missing"]) == 1


def test_problems_of_a_file_are_checked_in_place_of_the_listed_ones(kbundle, tuned, tmp_path):
    manifest, _ = tuned
    problems = tmp_path / "model.jsonl"
    problems.write_text('{"op": "tiny.scale", "operands": {"x": "f32[3,10]"}, "attributes": {"factor": 3.0}}\n')
    found = check(kbundle, manifest, 1, "--target", "host", "--problems", problems)
    assert found["problems"] == 1 and "[3,10]" in found["missing"][0]
    assert kbundle("tune", manifest, "--target", "host", "--problems", problems, env=PYTHON).code == 0
    assert check(kbundle, manifest, 0, "--target", "host", "--problems", problems)["problems"] == 1


def test_one_op_is_checked_alone(kbundle, tiny):
    found = check(kbundle, tiny, 0, "--target", "host", "--op", "tiny.negate")
    assert found["problems"] == 0 and not found["missing"]  # its only variant is no choice


def test_a_record_cut_short_is_an_error_with_its_line(kbundle, tuned):
    manifest, path = tuned
    text = path.read_text()
    path.write_text(text[:len(text) - 20])
    done = kbundle("tune", manifest, "--check", env=PYTHON)
    assert done.code == 1 and f"{path.name}:3:" in done.err


def test_held_out_problems_are_checked_and_measured_apart_and_change_no_bundle(kbundle, tuned, tmp_path):
    manifest, path = tuned
    before, records = tmp_path / "before.kb", path.read_text()
    assert kbundle.build(manifest, before).code == 0
    text = manifest.read_text()
    held = 'tolerance = 0\nheld_out  = [{ T = "i32", x = [%s] }]'
    manifest.write_text(text.replace("tolerance = 0", held % "77"))
    check(kbundle, manifest, 0)
    after = tmp_path / "after" / "before.kb"
    assert kbundle.build(manifest, after).code == 0 and after.read_bytes() == before.read_bytes()
    assert kbundle("tune", manifest, "--target", "host", "--held-out", env=PYTHON).code == 2
    out = tmp_path / "out"
    done = kbundle("tune", manifest, "--target", "host", "--held-out", "--out", out, "--json", env=PYTHON)
    assert done.code == 0 and done.json["problems"] == 1 and path.read_text() == records
    [found] = [line for file in out.glob("*/*.jsonl") for line in file.read_text().splitlines()]
    assert json.loads(found)["problem"]["operands"] == {"x": "i32[77]"}
    manifest.write_text(text.replace("tolerance = 0", held % "-1"))
    refused = kbundle("tune", manifest, "--check", env=PYTHON)
    assert refused.code == 1 and "a dim must be an integer that is not negative" in refused.err


def test_an_op_with_variants_of_several_providers_is_checked(kbundle):
    """One placeholder of code for all providers would be one blob, of one provider's format."""
    attention = pathlib.Path(__file__).parents[2] / "kernels/attention"
    done = kbundle("tune", attention, "--op", "attention.sdpa_fp8_forward", "--check", "--target", "sm_90a", "--json", env=PYTHON)
    assert done.code in (0, 1) and "targets" in done.json, done.err


def test_a_family_that_was_never_tuned_is_left_out_beside_one_that_was(kbundle, tuned, tmp_path):
    manifest, _ = tuned
    other = tmp_path / "tiny" / "other"
    other.mkdir()
    for name in ("scale.cc", "rows.h", "negate.cc", "reference.py"):
        (other / name).write_text((manifest.parent / name).read_text())
    text = manifest.read_text().replace('name      = "tiny"', 'name      = "other"')
    (other / "other.toml").write_text(text)
    found = check(kbundle, manifest.parent, 0)
    assert found["untuned"] == {"other": 1} and found["problems"] == 1
    told = kbundle("tune", manifest.parent, "--check", env=PYTHON)
    assert told.code == 0 and "untuned  other: no record at all" in told.out


def test_check_takes_the_python_that_it_is_given(kbundle, tmp_path):
    """Its records name Triton's kernels: what --python names is where Triton is looked for."""
    softmax = pathlib.Path(__file__).parents[2] / "kernels/softmax"
    done = kbundle("tune", softmax, "--check", "--target", "sm_90a", "--python", "/nowhere/python", env=PYTHON)
    assert done.code != 0 and "/nowhere/python" in done.err
