"""Promise: usage, exit codes, colours and streams are those of a well-behaved Unix tool."""

import json
import os
import pty
import re
import resource
import subprocess

import pytest
from cli.command import HOST_TARGETS

VERBS = ["build", "inspect", "verify", "explain", "extract", "doctor"]


def on_a_terminal(kbundle, *arguments, env=None):
    """What the command writes when both streams are a terminal, and its exit code."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([kbundle.path, *map(str, arguments)], env=kbundle.environment | (env or {}),
                             stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # EIO: the other end is closed
            break
        if not part:
            break
        text += part
    os.close(ours)
    return text.decode(), child.wait(timeout=60)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(kbundle, verb):
    done = kbundle(verb, "--help")
    assert done.code == 0 and done.err == ""
    assert "Example:" in done.out and f"kbundle {verb}" in done.out


def test_the_command_itself_has_help_and_a_version(kbundle):
    done = kbundle("--help")
    assert done.code == 0 and all(verb in done.out for verb in VERBS) and "Exit codes" in done.out
    assert re.fullmatch(r"kbundle \d+\.\d+\.\d+\n", kbundle("--version").out)
    assert re.fullmatch(r"\d+\.\d+\.\d+", json.loads(kbundle("--version", "--json").out)["version"])


@pytest.mark.parametrize("arguments", [
    [], ["bundel"], ["build"], ["build", "x"], ["inspect"], ["inspect", "a", "b"], ["inspect", "a", "--jason"],
    ["explain", "a"], ["extract", "a", "b"], ["verify", "a", "--target"], ["build", "x", "-o", "y", "-j", "0"],
])
def test_a_wrong_command_line_is_exit_code_2_and_one_line_of_advice(kbundle, arguments):
    done = kbundle(*arguments)
    assert done.code == 2 and done.out == ""
    assert done.err.startswith("kbundle: error: ") and "--help" in done.err


def test_an_unknown_target_is_a_usage_error_of_every_verb_that_takes_one(kbundle, bundle, tiny, tmp_path):
    for arguments in (["build", tiny, "-o", tmp_path / "x.kb", "--target", "sm_90q"],
                      ["verify", bundle, "--target", "sm_90q"],
                      ["explain", bundle, "tiny.scale", "--operand", "x=f32[4]", "--target", "sm_90q"]):
        done = kbundle(*arguments)
        assert done.code == 2 and "sm_90q" in done.err


def test_an_empty_target_is_no_target_left_out(kbundle, bundle, tiny, tmp_path):
    """It is what a script's unset variable becomes: a check that passes because it asks nothing is none."""
    for arguments in (["build", tiny, "-o", tmp_path / "x.kb", "--target", ""], ["test", tiny, "--target", ""],
                      ["tune", tiny, "--check", "--target", ""], ["verify", bundle, "--target", ""], ["verify", bundle, "--target="],
                      ["explain", bundle, "tiny.scale", "--operand", "x=f32[4]", "--target", ""]):
        done = kbundle(*arguments)
        assert done.code == 2 and "--target" in done.err and done.out == "", (arguments, done.err)


def test_an_operand_that_is_given_twice_is_a_usage_error(kbundle, bundle):
    done = kbundle("explain", bundle, "tiny.scale", "--operand", "x=f32[3]", "x=f32[4]")
    assert done.code == 2 and "x is given twice" in done.err


def test_off_a_terminal_no_byte_is_an_escape(kbundle, bundle, tiny, tmp_path):
    for done in (kbundle("inspect", bundle), kbundle("verify", bundle, "--target", "sm_90a"),
                 kbundle.build(tiny, tmp_path / "x.kb"), kbundle("inspect", tmp_path / "none")):
        assert "\x1b" not in done.out + done.err and "\r" not in done.out + done.err


def test_off_a_terminal_progress_is_plain_lines(kbundle, tiny, tmp_path):
    done = kbundle.build(tiny, tmp_path / "x.kb")
    assert done.code == 0
    counts = [re.match(r"\[ *(\d+)/(\d+)\] \S", line) for line in done.err.splitlines()]
    assert counts and all(counts)
    assert counts[-1].group(1) == counts[-1].group(2)


def test_on_a_terminal_there_is_colour_and_one_moving_line(kbundle, bundle, tiny, tmp_path):
    text, code = on_a_terminal(kbundle, "verify", bundle, "--target", "sm_90a")
    assert code == 1 and "\x1b[31m" in text
    text, code = on_a_terminal(kbundle, "build", tiny, "-o", tmp_path / "x.kb", "--target", HOST_TARGETS)
    assert code == 0 and "\r[" in text and "\x1b[K" in text


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_color_and_dumb_terminals_get_no_colour(kbundle, bundle, env):
    text, code = on_a_terminal(kbundle, "verify", bundle, "--target", "sm_90a", env=env)
    assert code == 1 and "missing" in text and not re.search(r"\x1b\[\d*m", text)


def test_an_empty_no_color_is_as_if_unset(kbundle, bundle):
    text, _ = on_a_terminal(kbundle, "verify", bundle, "--target", "sm_90a", env={"NO_COLOR": ""})
    assert "\x1b[31m" in text


def test_a_reader_that_goes_away_is_no_crash(kbundle, bundle):
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([kbundle.path, "inspect", str(bundle), "--json"], env=kbundle.environment, stdout=write_end,
                          stderr=subprocess.PIPE, timeout=60)
    os.close(write_end)
    assert done.returncode == 0 and done.stderr == b""


def test_a_full_disk_under_standard_output_is_an_error(kbundle, bundle):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([kbundle.path, "inspect", str(bundle)], env=kbundle.environment, stdout=full,
                              stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and b"kbundle: error: writing standard output" in done.stderr


@pytest.mark.parametrize("arguments", [["schema"], ["man"], ["completion", "zsh"], ["explain-error", "--markdown"]])
def test_output_longer_than_a_buffer_on_a_full_disk_is_an_error_and_a_reader_s_end_is_not(kbundle, arguments):
    """What does not fit the buffer fails before the end, which finds nothing left to write."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([kbundle.path, *arguments], env=kbundle.environment, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and b"kbundle: error: writing standard output" in done.stderr
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([kbundle.path, *arguments], env=kbundle.environment, stdout=write_end, stderr=subprocess.PIPE, timeout=60)
    os.close(write_end)
    assert done.returncode == 0 and done.stderr == b""


def test_closed_streams_are_no_crash(kbundle, bundle):
    done = subprocess.run(["sh", "-c", '"$0" inspect "$1" >&- 2>&-', kbundle.path, str(bundle)],
                          env=kbundle.environment, timeout=60)
    assert done.returncode in (0, 1)


def test_the_user_locale_changes_no_number(kbundle, bundle):
    plain = kbundle("inspect", bundle, "--json")
    for locale in ("de_DE.UTF-8", "C.UTF-8"):
        assert kbundle("inspect", bundle, "--json", env={"LC_ALL": locale}).out == plain.out


@pytest.mark.parametrize("arguments, meant", [
    (["buidl", "x"], "build"), (["inspct", "a"], "inspect"), (["build", "x", "-o", "y", "--trget", "sm_80"], "--target"),
    (["tune", "x", "--resum"], "--resume"), (["explain", "a", "b", "--opernd=x=f32[4]"], "--operand"),
])
def test_a_misspelled_command_or_option_gets_its_neighbour(kbundle, arguments, meant):
    done = kbundle(*arguments)
    assert done.code == 2 and "did you mean" in done.err and meant in done.err.splitlines()[0]


@pytest.mark.parametrize("arguments, code", [
    (["build", "/nowhere", "-o", "x.kb"], "NOT_FOUND"), (["inspect", "/nowhere"], "NOT_FOUND"),
    (["verify", "/nowhere"], "NOT_FOUND"), (["explain", "/nowhere", "a.b"], "NOT_FOUND"),
    (["tune", "/nowhere", "--target", "host"], "NOT_FOUND"),
    (["tune", "/nowhere", "--check"], "NOT_FOUND"), (["verify", "a", "--target", "sm_90q"], "INVALID_ARGUMENT"),
    (["buidl"], "INVALID_ARGUMENT"),
])
def test_a_failure_with_json_is_json_too(kbundle, arguments, code):
    done = kbundle(*arguments, "--json")
    assert done.code in (1, 2) and done.err
    assert done.json["ok"] is False and done.json["error"]["code"] == code and done.json["error"]["message"] in done.err


def test_a_failure_that_nobody_foresaw_is_json_too(kbundle, tiny, tmp_path):
    """Here: no memory for the text of definitions."""
    doubling = "".join(f', D{n + 1} = "{{D{n}}}{{D{n}}}"' for n in range(40))
    tiny.write_text(tiny.read_text().replace("[op.scale]", f'define = {{ D0 = "nnnnnnnn"{doubling} }}\n\n[op.scale]', 1)
                    .replace("y = factor * x", "{D40}"))
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    done = kbundle.build(tiny, tmp_path / "x.kb", "--json", preexec_fn=limit)
    assert done.code == 1 and "please report this" in done.err
    assert done.json["error"]["code"] == "INTERNAL" and done.json["error"]["message"] in done.err


def test_help_names_the_environment(kbundle):
    text = kbundle("--help").out
    for name in ("CACHE", "CUDA_ROOT", "CXX", "CUDNN", "PYTHON", "COMPILE_TIMEOUT"):
        assert f"KBUNDLE_{name}" in text


def test_a_failed_unit_is_shown_as_failed(kbundle, tiny, tmp_path):
    (tiny.parent / "negate.cc").write_text("#error on purpose\n")
    done = kbundle.build(tiny, tmp_path / "x.kb", "--keep-going")
    assert done.code == 1
    rows = [line for line in done.err.splitlines() if re.match(r"\[ *\d+/\d+\] ", line)]
    assert sum("failed: " in row for row in rows) == 2 and all(re.search(r" \d+\.\d s$", row) for row in rows)
