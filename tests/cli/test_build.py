"""Promise: building twice compiles once, the same inputs give the same bytes, and no failure leaves half a file."""

import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest
from cli.command import HOST_TARGETS, Command
from cli.tiny import write_tiny


def wrapped_compiler(folder, body):
    """A compiler that does `body` (sh) and then what c++ does; every compile leaves a line in compiles.log."""
    script = folder / "slow-c++"
    script.write_text(f"""#!/bin/sh
case "$*" in *kb.so*) echo "$*" >> {folder}/compiles.log;; esac
{body}
exec c++ "$@"
""")
    script.chmod(0o755)
    return str(script)


def test_a_second_build_compiles_nothing_and_writes_the_same_bytes(kbundle, tiny, tmp_path):
    first = kbundle.build(tiny, tmp_path / "tiny.kb", "--json")
    assert first.code == 0 and first.json["compiled"] > 0 and first.json["failed"] == 0
    data = (tmp_path / "tiny.kb").read_bytes()
    assert len(data) == first.json["bundle_bytes"]
    second = kbundle.build(tiny, tmp_path / "tiny.kb", "--json").json
    assert second["compiled"] == 0 and second["reused"] == first.json["compiled"] + first.json["reused"]
    assert second["seconds"] < 1
    assert (tmp_path / "tiny.kb").read_bytes() == data


def test_the_summary_counts_in_words(kbundle, tiny, tmp_path):
    done = kbundle.build(tiny, tmp_path / "tiny.kb")
    assert re.search(r"tiny\.kb: \d+ variants, \d+ code objects \(\d+ compiled, 0 reused\), [\d,]+ bytes", done.out)


def test_the_bundle_is_named_after_its_file_or_as_asked(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "first.kb")
    assert kbundle("inspect", tmp_path / "first.kb", "--json").json["name"] == "first"
    kbundle.build(tiny, tmp_path / "first.kb", "--name", "second")
    assert kbundle("inspect", tmp_path / "first.kb", "--json").json["name"] == "second"


def test_a_changed_header_rebuilds_only_what_includes_it_and_explain_says_why(kbundle, tiny, tmp_path):
    everything = kbundle.build(tiny, tmp_path / "tiny.kb", "--json").json["compiled"]
    (tiny.parent / "rows.h").write_text("#define ROWS_ZERO T{0}\n")
    changed = kbundle.build(tiny, tmp_path / "tiny.kb", "--explain")
    assert changed.code == 0
    told = changed.out
    assert "rows.h" in told and "negate" not in told
    compiled = int(re.search(r"(\d+) compiled", changed.out).group(1))
    assert 0 < compiled < everything


def test_a_changed_flag_or_source_rebuilds_and_explain_says_why(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "tiny.kb")
    negate = tiny.parent / "negate.cc"
    negate.write_text(negate.read_text() + "// changed\n")
    done = kbundle.build(tiny, tmp_path / "tiny.kb", "--explain")
    assert "negate.cc" in done.out and int(re.search(r"(\d+) compiled", done.out).group(1)) > 0


def test_a_touched_file_rebuilds_nothing(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "tiny.kb")
    for path in tiny.parent.iterdir():
        os.utime(path, (1, 1))
    assert kbundle.build(tiny, tmp_path / "tiny.kb", "--json").json["compiled"] == 0


def test_dry_run_says_what_it_would_compile_and_writes_nothing(kbundle, tiny, tmp_path):
    done = kbundle.build(tiny, tmp_path / "tiny.kb", "--dry-run")
    assert done.code == 0
    assert "negate.cc" in done.out and "scale.cc" in done.out and "dry run" in done.out
    assert not (tmp_path / "tiny.kb").exists()
    assert kbundle.build(tiny, tmp_path / "tiny.kb", "--json").json["compiled"] > 0


def test_a_failing_kernel_prints_its_log_once_with_a_command_that_reproduces_it(kbundle, tiny, tmp_path):
    (tiny.parent / "negate.cc").write_text("#error on purpose\n")
    done = kbundle.build(tiny, tmp_path / "tiny.kb", "-j", "1")
    assert done.code == 1 and not (tmp_path / "tiny.kb").exists()
    assert "error on purpose" in done.err and "negate.cc" in done.err
    assert done.err.count("error: #error on purpose") == 1
    [command] = re.findall(r"^to see it again: (.*)$", done.err, re.M)
    again = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert again.returncode != 0 and "on purpose" in again.stderr


def test_the_json_of_a_failed_build_has_what_the_compiler_said(kbundle, tiny, tmp_path):
    for name, text in {"negate.cc": "one purpose", "scale.cc": "another purpose"}.items():
        (tiny.parent / name).write_text(f"#error {text}\n")
    done = kbundle.build(tiny, tmp_path / "tiny.kb", "--json", "--keep-going")
    assert done.code == 1 and done.json["ok"] is False
    for purpose in ("one purpose", "another purpose"):
        [text] = [text for text in done.json["failures"] if f"#error {purpose}" in text]
        assert "to see it again: " in text and text in done.err


@pytest.mark.parametrize("value", ["abc", "0", "-5", "10s", "1e3", "99999999999", " 5"])
def test_a_compile_limit_that_is_no_number_of_seconds_is_refused(kbundle, tiny, tmp_path, value):
    done = kbundle.build(tiny, tmp_path / "tiny.kb", env={"KBUNDLE_COMPILE_TIMEOUT": value})
    assert done.code == 1 and f"KBUNDLE_COMPILE_TIMEOUT is '{value}'" in done.err and "from 1 to " in done.err
    assert kbundle.build(tiny, tmp_path / "tiny.kb", env={"KBUNDLE_COMPILE_TIMEOUT": ""}).code == 0


@pytest.mark.parametrize("option, names", [("--target", "x86-64-v2,,x86-64-v3"), ("--target", ",x86-64-v2"), ("--target", "x86-64-v2,"),
                                           ("--target", ""), ("--provider", "host,,cuda"), ("--provider", "host,")])
def test_an_empty_name_in_a_list_is_a_usage_error(kbundle, tiny, tmp_path, option, names):
    done = kbundle("build", tiny, "-o", tmp_path / "x.kb", f"{option}={names}")
    assert done.code == 2 and option in done.err and not (tmp_path / "x.kb").exists(), done.err


def test_targets_may_be_given_together_or_one_by_one(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "a.kb", "--name", "n")
    kbundle("build", tiny, "-o", tmp_path / "b.kb", "--name", "n", "--target", "x86-64-v3", "-t", "x86-64-v2")
    assert (tmp_path / "a.kb").read_bytes() == (tmp_path / "b.kb").read_bytes()


def test_one_is_not_several(kbundle, tiny, tmp_path):
    done = kbundle("build", tiny, "--only", "tiny.negate/loop@x86-64-v2", "--target", "x86-64-v2")
    assert ": 1 variant, 1 code object (1 compiled, 0 reused)" in done.out
    kbundle("cache", "prune", "--max-size", "0K")
    assert "0 entries, 0 bytes" in kbundle("cache").out


def test_keep_going_compiles_the_others_and_still_fails(kbundle, tiny, tmp_path):
    good = (tiny.parent / "negate.cc").read_text()
    (tiny.parent / "negate.cc").write_text("#error on purpose\n")
    done = kbundle.build(tiny, tmp_path / "tiny.kb", "--keep-going", "-j", "1")
    assert done.code == 1
    (tiny.parent / "negate.cc").write_text(good)
    after = kbundle.build(tiny, tmp_path / "tiny.kb", "--json").json
    assert after["reused"] > 0 and after["compiled"] == 2  # negate, once a target


def test_an_old_bundle_survives_a_failed_build(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "tiny.kb")
    before = (tmp_path / "tiny.kb").read_bytes()
    (tiny.parent / "negate.cc").write_text("#error on purpose\n")
    assert kbundle.build(tiny, tmp_path / "tiny.kb").code == 1
    assert (tmp_path / "tiny.kb").read_bytes() == before


@pytest.mark.parametrize("before, after, words", [
    ('summary    = "y', 'sumary    = "y', ["sumary", "summary", "^"]),
    ('source   = "negate.cc"', 'source   = "negat.cc"', ["negat.cc"]),
    ('"K % 2 == 0"', '"K % 2"', ["K % 2", "^"]),
    ('"K % 2 == 0"', '"M % 2 == 0"', ["M", "^"]),
    ('grain = "4096"', 'grain = "4096 +"', ["4096 +", "^"]),
    ('range = "N"', 'range = "M"', ["M", "^"]),
    ("", "[[[", ["tiny.toml"]),
])
def test_a_bad_manifest_is_refused_at_its_line(kbundle, tiny, tmp_path, before, after, words):
    text = tiny.read_text()
    tiny.write_text(text.replace(before, after) if before else text + after)
    done = kbundle.build(tiny, tmp_path / "tiny.kb")
    assert done.code == 1 and not (tmp_path / "tiny.kb").exists()
    assert re.search(r"tiny\.toml:\d+:\d+: error: ", done.err), done.err
    assert all(word in done.err for word in words), done.err


def test_a_cycle_of_lets_is_refused(kbundle, tiny, tmp_path):
    tiny.write_text(tiny.read_text().replace('source   = "negate.cc"',
                                             'source   = "negate.cc"\nlet = { A = "B + 1", B = "A + 1" }'))
    done = kbundle.build(tiny, tmp_path / "tiny.kb")
    assert done.code == 1 and "cycle" in done.err.lower()


def test_a_folder_without_manifests_and_a_missing_path_are_errors(kbundle, tmp_path):
    (tmp_path / "none").mkdir()
    for path in (tmp_path / "none", tmp_path / "absent", tmp_path / "absent.toml"):
        done = kbundle("build", path, "-o", tmp_path / "x.kb")
        assert done.code == 1 and path.name in done.err


# ---- the machine misbehaves ----

def test_a_missing_compiler_is_exit_code_3_and_says_what_to_install(kbundle, tiny, tmp_path):
    done = kbundle.build(tiny, tmp_path / "tiny.kb", env={"KBUNDLE_CXX": str(tmp_path / "no-such-c++")})
    assert done.code == 3
    assert "no-such-c++" in done.err and "KBUNDLE_CXX" in done.err


def test_a_crashing_compiler_costs_its_own_job(kbundle, tiny, tmp_path):
    compiler = wrapped_compiler(tmp_path, 'case "$*" in *-c*negate.cc*|*negate.cc*-o*) kill -SEGV $$;; esac')
    done = kbundle.build(tiny, tmp_path / "tiny.kb", "--keep-going", env={"KBUNDLE_CXX": compiler})
    assert done.code == 1 and "signal 11" in done.err and "negate.cc" in done.err


def test_a_hanging_compiler_is_ended_and_said_to_hang(kbundle, tiny, tmp_path):
    compiler = wrapped_compiler(tmp_path, 'case "$*" in *negate.cc*) sleep 1000;; esac')
    begin = time.monotonic()
    done = kbundle.build(tiny, tmp_path / "tiny.kb", "--keep-going",
                         env={"KBUNDLE_CXX": compiler, "KBUNDLE_COMPILE_TIMEOUT": "3"})
    assert done.code == 1 and time.monotonic() - begin < 60
    assert "negate.cc" in done.err and re.search(r"3 s|limit|time", done.err)
    left = subprocess.run(["pgrep", "-f", str(tmp_path / "slow-c++")], capture_output=True)
    assert left.stdout == b""


def test_a_disk_full_while_writing_leaves_no_half_bundle(kbundle, tiny, tmp_path):
    whole = kbundle.build(tiny, tmp_path / "old.kb")
    assert whole.code == 0
    size = (tmp_path / "old.kb").stat().st_size

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

    for name in ("new.kb", "old.kb"):
        done = kbundle.build(tiny, tmp_path / name, "--name", "other", preexec_fn=limit)
        assert done.code == 1, done.err
        assert done.err.splitlines()[-1].startswith("kbundle: error: ") and name in done.err
    assert not (tmp_path / "new.kb").exists()
    assert kbundle("verify", tmp_path / "old.kb").code == 0
    assert sorted(p.name for p in tmp_path.glob("*.kb*")) == ["old.kb"]


def test_an_output_folder_that_is_not_there_or_not_writable_is_an_error(kbundle, tiny, tmp_path):
    (tmp_path / "file.txt").write_text("")
    done = kbundle.build(tiny, tmp_path / "file.txt/x.kb")
    assert done.code == 1 and done.err.splitlines()[-1].startswith("kbundle: error: ")


def test_ctrl_c_keeps_what_is_done_and_the_next_build_continues(kbundle, tiny, tmp_path):
    compiler = wrapped_compiler(tmp_path, "sleep 0.7")
    env = {"KBUNDLE_CXX": compiler}
    log = tmp_path / "compiles.log"
    build = kbundle.start("build", tiny, "-o", tmp_path / "tiny.kb", "--target", HOST_TARGETS, "-j", "1", env=env)
    deadline = time.monotonic() + 60
    while not (log.exists() and len(log.read_text().splitlines()) >= 2) and time.monotonic() < deadline:
        time.sleep(0.02)
    build.send_signal(signal.SIGINT)
    _, err = build.communicate(timeout=60)
    assert build.returncode == 130, err
    assert not (tmp_path / "tiny.kb").exists()
    before = len(log.read_text().splitlines())
    after = kbundle.build(tiny, tmp_path / "tiny.kb", "--json", env=env)
    assert after.code == 0 and after.json["reused"] > 0 and after.json["compiled"] > 0
    compiles = log.read_text().splitlines()
    assert len(compiles) - before == after.json["compiled"]
    assert kbundle("verify", tmp_path / "tiny.kb").code == 0


def test_a_second_ctrl_c_leaves_at_once(kbundle, tiny, tmp_path):
    compiler = wrapped_compiler(tmp_path, "sleep 30")
    log = tmp_path / "compiles.log"
    build = kbundle.start("build", tiny, "-o", tmp_path / "tiny.kb", "--target", HOST_TARGETS,
                          env={"KBUNDLE_CXX": compiler})
    deadline = time.monotonic() + 30
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    build.send_signal(signal.SIGINT)
    time.sleep(0.3)
    begin = time.monotonic()
    build.send_signal(signal.SIGINT)
    assert build.wait(timeout=20) == 130 and time.monotonic() - begin < 5
    build.stdout.close()
    build.stderr.close()
    assert not (tmp_path / "tiny.kb").exists()


# ---- the same inputs, the same bytes ----

def test_two_builds_at_once_share_a_store_and_agree(kbundle, tiny, tmp_path):
    builds = [kbundle.start("build", tiny, "-o", tmp_path / f"{i}.kb", "--name", "t", "--target", HOST_TARGETS)
              for i in range(3)]
    for build in builds:
        _, err = build.communicate(timeout=120)
        assert build.returncode == 0, err
    first = (tmp_path / "0.kb").read_bytes()
    assert all((tmp_path / f"{i}.kb").read_bytes() == first for i in range(3))
    assert kbundle.build(tiny, tmp_path / "3.kb", "--json").json["compiled"] == 0


def test_folder_home_locale_time_zone_and_jobs_change_no_byte(command, tmp_path):
    bundles = []
    for number, (folder, env, jobs) in enumerate([
            ("a", {"LC_ALL": "C", "TZ": "UTC"}, 1),
            ("a/much/longer/path/with spaces", {"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "USER": "x"}, 4)]):
        place = tmp_path / folder
        home = tmp_path / f"home{number}"
        home.mkdir()
        run = Command(command, tmp_path / f"cache{number}", home)
        manifest = write_tiny(place / "src")
        done = run.build(manifest, place / "out.kb", "-j", jobs, env=env, cwd=home)
        assert done.code == 0, done.err
        bundles.append((place / "out.kb").read_bytes())
    assert bundles[0] == bundles[1]
    for trace in (str(tmp_path), str(pathlib.Path.home()) + "/", "home1", os.uname().nodename):
        assert trace.encode() not in bundles[0]


def test_the_order_of_paths_changes_no_byte(kbundle, tiny, tmp_path):
    other = write_tiny(tmp_path / "other")
    other.write_text(other.read_text().replace('"tiny"', '"other"'))
    kbundle("build", tiny, other, "-o", tmp_path / "a.kb", "--name", "n", "--target", HOST_TARGETS)
    kbundle("build", other, tiny, "-o", tmp_path / "b.kb", "--name", "n", "--target", "x86-64-v3,x86-64-v2")
    assert (tmp_path / "a.kb").read_bytes() == (tmp_path / "b.kb").read_bytes()


def test_a_damaged_store_is_noticed_and_compiled_again(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "a.kb", "--name", "n")
    damaged = 0
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file() and path.stat().st_size > 2000:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0x55
            path.chmod(0o644)
            path.write_bytes(data)
            damaged += 1
    assert damaged > 0
    assert kbundle.build(tiny, tmp_path / "b.kb", "--name", "n").code == 0
    assert (tmp_path / "a.kb").read_bytes() == (tmp_path / "b.kb").read_bytes()


def test_the_store_may_be_removed_at_any_time(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "a.kb", "--name", "n")
    shutil.rmtree(tmp_path / "cache")
    assert kbundle.build(tiny, tmp_path / "b.kb", "--name", "n").code == 0
    assert (tmp_path / "a.kb").read_bytes() == (tmp_path / "b.kb").read_bytes()


def test_a_lean_build_leaves_out_what_no_choice_can_come_to(kbundle, tiny, tmp_path):
    text = tiny.read_text()
    again = text[text.index('[[op.scale.variant]]\nname     = "any"'):text.index("[op.negate]")].replace('"any"', '"behind"')
    tiny.write_text(text.replace("[op.negate]", again + "[op.negate]"))
    whole = kbundle.build(tiny, tmp_path / "whole.kb", "--name", "n", "--json").json
    lean = kbundle.build(tiny, tmp_path / "lean.kb", "--name", "n", "--lean", "--json").json
    assert whole["left_out"] == 0 and lean["left_out"] > 0 and lean["compiled"] == 0
    assert lean["variants"] == whole["variants"] - lean["left_out"] and lean["bundle_bytes"] < whole["bundle_bytes"]
    shown = {name: kbundle("inspect", tmp_path / f"{name}.kb", "--json").json for name in ("whole", "lean")}
    ids = {name: {v["id"] for op in one["ops"] for v in op["variants"]} for name, one in shown.items()}
    assert {one.split("/")[1].split("[")[0] for one in ids["whole"] - ids["lean"]} == {"behind"}
    assert "--lean" in kbundle("inspect", tmp_path / "lean.kb").out
    for operand in ("x=f32[4,33]", "x=f64[2,8]"):
        told = [kbundle("explain", tmp_path / f"{name}.kb", "tiny.scale", "--operand", operand, "--json").json["chosen"] for name in shown]
        assert told[0] == told[1]


def test_the_cache_folder_follows_flag_then_environment(kbundle, tiny, tmp_path):
    kbundle.build(tiny, tmp_path / "a.kb", "--cache", tmp_path / "flag")
    assert any((tmp_path / "flag").rglob("*")) and not (tmp_path / "cache").exists()
    kbundle.build(tiny, tmp_path / "a.kb", env={"KBUNDLE_CACHE": "", "XDG_CACHE_HOME": str(tmp_path / "xdg")})
    assert any((tmp_path / "xdg/kbundle").rglob("*"))


def test_a_foreign_toml_file_is_passed_over_with_a_note(kbundle, tiny, tmp_path):
    (tmp_path / "library" / "other").mkdir(parents=True)
    shutil.move(tiny.parent, tmp_path / "library" / "tiny")
    (tmp_path / "library" / "other" / "pyproject.toml").write_text('[project]\nname = "other"\n')
    done = kbundle.build(tmp_path / "library", tmp_path / "x.kb")
    assert done.code == 0 and "pyproject.toml has no [family] and is passed over" in done.out + done.err
    named = kbundle.build(tmp_path / "library" / "other" / "pyproject.toml", tmp_path / "y.kb")
    assert named.code == 1 and "family" in named.err
    alone = kbundle.build(tmp_path / "library" / "other", tmp_path / "y.kb")
    assert alone.code == 1 and "[family]" in alone.err and "pyproject.toml" in alone.err


def test_only_takes_what_extract_takes(kbundle, tiny):
    for name, variants in {"tiny.negate/loop": 2, "tiny.negate/loop@x86-64-v2": 1, "tiny.negate/loop[T=i32]": 2}.items():
        done = kbundle("build", tiny, "--only", name, "--target", HOST_TARGETS, "--json")
        assert done.code == 0 and done.json["variants"] == variants, done.err


def test_a_dry_run_in_json_lists_the_code_objects(kbundle, tiny):
    done = kbundle("build", tiny, "--dry-run", "--target", HOST_TARGETS, "--json")
    units = done.json["units"]
    assert done.code == 0 and len(units) == done.json["objects"] == 4 and all(unit["compile"] for unit in units)
    assert any("negate" in unit["unit"] for unit in units)
