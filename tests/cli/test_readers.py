"""Promise: inspect, verify, explain and extract answer what was asked, as text and as JSON, by exit code."""

import struct
import subprocess

import pytest

SCALE_ANY = "tiny.scale/any[T=f32]@x86-64-v2"


def test_inspect_shows_ops_signatures_sizes_and_what_never_ran(kbundle, bundle):
    done = kbundle("inspect", bundle)
    assert done.code == 0 and done.err == ""
    assert "tiny.scale" in done.out and "tiny.negate" in done.out
    assert "(x: T[rows.., K], offset?: T[K]; factor: float = 2.0) -> (y: T[rows.., K])" in done.out
    assert "never run" in done.out and "made with" in done.out and "x86-64-v3" in done.out


def test_inspect_of_one_op_lists_its_variants_and_problems(kbundle, bundle):
    done = kbundle("inspect", bundle, "--op", "tiny.scale")
    assert done.code == 0
    assert SCALE_ANY in done.out and "tiny.negate" not in done.out
    assert "problems" in done.out


def test_inspect_json_is_the_documented_description(kbundle, bundle):
    whole = kbundle("inspect", bundle, "--json").json
    assert whole["name"] == "tiny" and whole["file_bytes"] == bundle.stat().st_size
    assert [op["name"] for op in whole["ops"]] == ["tiny.negate", "tiny.scale"]
    scale = whole["ops"][1]
    assert [(o["name"], o["optional"]) for o in scale["operands"]] == [("x", False), ("offset", True)]
    assert scale["attributes"][0]["default"] == 2.0
    assert {v["target"] for v in scale["variants"]} == {"x86-64-v2", "x86-64-v3"}
    assert SCALE_ANY in [v["id"] for v in scale["variants"]]
    for variant in scale["variants"]:
        assert whole["blobs"][variant["blob"]]["format"] == "host object"
    stored = [b for b in whole["blobs"]]
    assert all(0 < b["stored_bytes"] and 0 < b["bytes"] for b in stored)


def test_an_unknown_op_is_refused_with_the_nearest_name(kbundle, bundle):
    done = kbundle("inspect", bundle, "--op", "tiny.scal")
    assert done.code == 1 and done.out == ""
    assert done.err.startswith("kbundle: error: ") and "tiny.scale" in done.err


def test_verify_reads_every_byte_and_says_so(kbundle, bundle):
    done = kbundle("verify", bundle)
    assert done.code == 0 and "every byte" in done.out
    assert kbundle("verify", bundle, "--json").json["ok"] is True


def test_verify_for_a_target_with_code_is_fine(kbundle, bundle):
    done = kbundle("verify", bundle, "--target", "x86-64-v3", "--json")
    assert done.code == 0
    assert done.json["problems_checked"] == 3 and done.json["missing"] == []


def test_verify_names_each_op_that_a_target_lacks(kbundle, bundle):
    done = kbundle("verify", bundle, "--target", "sm_90a")
    assert done.code == 1
    assert "missing" in done.out and "tiny.scale" in done.out and "tiny.negate" in done.out
    assert {gap["op"] for gap in kbundle("verify", bundle, "--target", "sm_90a", "--json").json["missing"]} == {
        "tiny.scale", "tiny.negate"}


def test_verify_strict_refuses_code_that_never_ran(kbundle, bundle):
    assert kbundle("verify", bundle, "--strict").code == 1
    done = kbundle("verify", bundle, "--strict", "--target", "x86-64-v3", "--json")
    assert done.code == 1 and len(done.json["missing"]) == 3


def test_explain_names_the_choice_and_the_reason_against_each_other(kbundle, bundle):
    done = kbundle("explain", bundle, "tiny.scale", "--operand", "x=f32[4,33]", "--attr", "factor=0.5",
                   "--target", "x86-64-v3")
    assert done.code == 0
    assert "chosen     tiny.scale/any[T=f32]@x86-64-v3" in done.out
    assert "K % 2 == 0" in done.out
    assert "workspace  0 bytes" in done.out


def test_several_operands_after_one_flag_are_the_same_as_the_flag_repeated(kbundle, bundle):
    operands = ["x=f32[4,32]", "offset=f32[32]"]
    question = ["explain", bundle, "tiny.scale", "--json", "--target", "x86-64-v3"]
    together = kbundle(*question, "--operand", *operands)
    assert together.code == 0, together.err
    assert together.json == kbundle(*question, "--operand", operands[0], "--operand", operands[1]).json
    before = kbundle("explain", "--json", "--target", "x86-64-v3", "--operand", *operands, bundle, "tiny.scale")
    assert before.code == 0 and before.json == together.json, before.err


def test_host_is_a_target_wherever_one_is_asked_for(kbundle, tiny, tmp_path):
    out = tmp_path / "tiny.kb"
    done = kbundle("build", tiny, "-o", out, "--target", "host")
    assert done.code == 0, done.err
    targets = {v["target"] for op in kbundle("inspect", out, "--json").json["ops"] for v in op["variants"]}
    assert targets == {"x86-64-v2", "x86-64-v3", "x86-64-v4"}
    verified = kbundle("verify", out, "--target", "host", "--json")
    assert verified.code == 0 and verified.json["problems_checked"] == 3, verified.err
    assert kbundle("explain", out, "tiny.negate", "--operand", "x=i32[4]", "--target", "host").code == 0
    assert kbundle("build", tiny, "-o", out, "--target", "hosts").code == 2


def test_explain_json_is_the_documented_shape(kbundle, bundle):
    done = kbundle("explain", bundle, "tiny.scale", "--operand", "x=f32[4,32]", "--operand", "offset=f32[32]",
                   "--target", "x86-64-v2", "--json")
    assert done.code == 0
    assert done.json["chosen"] == "tiny.scale/even[T=f32]@x86-64-v2"
    assert done.json["workspace_bytes"] == 0
    reasons = {c["id"]: (c["legal"], c["reason"]) for c in done.json["candidates"]}
    assert reasons["tiny.scale/any[T=f32]@x86-64-v2"][0] is True
    assert reasons["tiny.scale/any[T=f32]@x86-64-v3"][0] is False


def test_explain_for_a_target_without_code_says_no(kbundle, bundle):
    done = kbundle("explain", bundle, "tiny.scale", "--operand", "x=f32[4,32]", "--target", "sm_90a", "--json")
    assert done.code == 1
    assert done.json["chosen"] is None and done.err.startswith("kbundle: error: ")


@pytest.mark.parametrize("arguments, word", [
    (["--operand", "x=f23[4]"], "f23"),
    (["--operand", "x"], "x=bf16"),
    (["--operand", "z=f32[4]"], "no operand"),
    (["--operand", "x=f32[4]", "--attr", "factor"], "scale=0.125"),
    (["--operand", "x=f32[4]", "--target", "sm_9o"], "sm_9o"),
    (["--operand", "x=f32[4]", "--align", "3"], "align"),
])
def test_a_mistyped_request_is_a_usage_error(kbundle, bundle, arguments, word):
    done = kbundle("explain", bundle, "tiny.scale", *arguments)
    assert done.code == 2
    assert done.err.startswith("kbundle: error: ") and word in done.err


@pytest.mark.parametrize("arguments, word", [
    (["--operand", "x=bf16[4]"], "bf16"),                               # not a type of this op
    (["--operand", "x=f32[]"], "x"),                                    # rank
    (["--operand", "x=f32[2,8]", "--operand", "offset=f32[9]"], "offset"),  # shape relation
    (["--operand", "x=f32[2,0]"], "K >= 1"),                            # require
    (["--operand", "x=f32[8]", "--attr", "facter=1"], "factor"),        # unknown attribute
    (["--operand", "x=f32[8]", "--attr", "factor=true"], "factor"),     # mistyped attribute
    ([], "x"),                                                          # missing operand
])
def test_a_problem_that_the_op_refuses_is_no(kbundle, bundle, arguments, word):
    done = kbundle("explain", bundle, "tiny.scale", *arguments, "--target", "x86-64-v2")
    assert done.code == 1
    assert done.err.startswith("kbundle: error: ") and word in done.err


def test_extract_writes_an_elf_object_that_exports_the_kernel(kbundle, bundle, tmp_path):
    target = tmp_path / "any.so"
    done = kbundle("extract", bundle, SCALE_ANY, "-o", target)
    assert done.code == 0 and "objdump" in done.out
    assert target.read_bytes()[:4] == b"\x7fELF" and b"scale_f32" in target.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir() if "any" in p.name) == ["any.so"]


def test_extract_to_standard_output_is_the_same_bytes(command, kbundle, bundle, tmp_path):
    kbundle("extract", bundle, SCALE_ANY, "-o", tmp_path / "any.so")
    piped = subprocess.run([command, "extract", bundle, SCALE_ANY, "-o", "-"], capture_output=True, check=True)
    assert piped.stdout == (tmp_path / "any.so").read_bytes()


def test_extract_reports_as_json_unless_the_code_itself_is_the_output(kbundle, bundle, tmp_path):
    done = kbundle("extract", bundle, SCALE_ANY, "-o", tmp_path / "any.so", "--json")
    assert done.code == 0 and done.json == {"ok": True, "variant": SCALE_ANY, "output": str(tmp_path / "any.so"),
                                            "bytes": (tmp_path / "any.so").stat().st_size, "is": "shared object"}
    done = kbundle("extract", bundle, SCALE_ANY, "-o", "-", "--json")
    assert done.code == 2 and done.json["error"]["code"] == "INVALID_ARGUMENT" and "leave out --json" in done.err


def test_extract_asks_for_one_target_where_there_are_several(kbundle, bundle, tmp_path):
    done = kbundle("extract", bundle, "tiny.scale/any[T=f32]", "-o", tmp_path / "x")
    assert done.code == 1
    assert "@x86-64-v2" in done.err and "@x86-64-v3" in done.err and not (tmp_path / "x").exists()


def test_extract_of_an_unknown_variant_names_the_nearest(kbundle, bundle, tmp_path):
    done = kbundle("extract", bundle, "tiny.scale/anny[T=f32]@x86-64-v2", "-o", tmp_path / "x")
    assert done.code == 1 and SCALE_ANY in done.err


def test_extract_into_a_folder_that_is_not_there_is_an_error(kbundle, bundle, tmp_path):
    done = kbundle("extract", bundle, SCALE_ANY, "-o", tmp_path / "none/x")
    assert done.code == 1 and done.err.startswith("kbundle: error: ")


# ---- files that are not bundles, or not any more ----

def newer(data):
    return data[:8] + struct.pack("<H", 9) + data[10:]


def flipped(data):
    return data[:-1] + bytes([data[-1] ^ 1])


DAMAGE = {
    "empty": lambda data: b"",
    "foreign": lambda data: b"\x7fELF" + b"\0" * 4096,
    "truncated": lambda data: data[:-7],
    "cut in the header": lambda data: data[:40],
    "extended": lambda data: data + b"\0",
    "newer": newer,
    "index bit flipped": lambda data: data[:200] + bytes([data[200] ^ 4]) + data[201:],
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("verb", ["inspect", "verify", "explain", "extract"])
def test_a_file_that_is_no_bundle_is_refused_by_every_verb(kbundle, bundle, tmp_path, kind, verb):
    bad = tmp_path / "bad.kb"
    bad.write_bytes(DAMAGE[kind](bundle.read_bytes()))
    more = {"explain": ["tiny.scale"], "extract": [SCALE_ANY, "-o", tmp_path / "x"]}.get(verb, [])
    done = kbundle(verb, bad, *more)
    assert done.code == 1 and done.out == ""
    assert done.err.startswith("kbundle: error: ") and "bad.kb" in done.err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("verb", ["inspect", "verify", "explain", "extract"])
def test_a_missing_file_is_refused_by_every_verb(kbundle, tmp_path, verb):
    more = {"explain": ["tiny.scale"], "extract": [SCALE_ANY, "-o", tmp_path / "x"]}.get(verb, [])
    done = kbundle(verb, tmp_path / "none.kb", *more)
    assert done.code == 1 and "none.kb" in done.err


def test_a_newer_format_asks_for_a_newer_kbundle(kbundle, bundle, tmp_path):
    bad = tmp_path / "bad.kb"
    bad.write_bytes(newer(bundle.read_bytes()))
    done = kbundle("inspect", bad)
    assert "9" in done.err and "upgrade" in done.err.lower()


def test_verify_finds_damage_in_code_that_opening_does_not_read(kbundle, bundle, tmp_path):
    bad = tmp_path / "bad.kb"
    bad.write_bytes(flipped(bundle.read_bytes()))
    assert kbundle("inspect", bad).code == 0
    done = kbundle("verify", bad, "--json")
    assert done.code == 1 and done.json["ok"] is False and done.json["error"]["code"] == "DATA_LOSS"
