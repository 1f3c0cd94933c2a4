"""Promise: no command replaces what it did not write, and neither a kill, another container nor a full or read-only
place costs more than the work in flight: the next build ends with the same bytes, and nothing is left behind."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest
from cli.command import HOST_TARGETS
from cli.test_build import wrapped_compiler
from cli.tiny import write_cuda

PYTHON = {"KBUNDLE_PYTHON": sys.executable}
root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and namespaces need root")


def in_namespace(kbundle, script, *arguments, flags="-m"):
    """Runs a shell script in namespaces of its own; "$0" is kbundle."""
    return subprocess.run(["unshare", *flags.split(), "sh", "-e", "-c", script, kbundle.path, *map(str, arguments)],
                          env=kbundle.environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("what", ["device", "pipe", "folder", "symlink to a device"])
def test_build_leaves_what_is_no_file_as_it_is(kbundle, tiny, tmp_path, what):
    output = tmp_path / "out"
    if what == "device":
        try:
            os.mknod(output, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("making a device needs root")
    elif what == "pipe":
        os.mkfifo(output)
    elif what == "folder":
        output.mkdir()
    else:
        output.symlink_to("/dev/null")
    before = os.lstat(output)
    for more in ([], ["--force"]):
        done = kbundle.build(tiny, output, *more)
        assert done.code == 1 and "a file would take its place" in done.err
    assert (os.lstat(output).st_ino, os.lstat(output).st_mode) == (before.st_ino, before.st_mode)


def test_build_replaces_bundles_and_empty_files_and_others_only_by_force(kbundle, tiny, tmp_path):
    source = tiny.parent / "scale.cc"
    text = source.read_text()
    for more in ([], ["--force"]):  # a source stays one, whatever is asked
        done = kbundle.build(tiny, source, *more)
        assert done.code == 1 and "no bundle" in done.err and source.read_text() == text
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    done = kbundle.build(tiny, notes)
    assert done.code == 1 and "--force" in done.err and notes.read_text() == "mine"
    assert kbundle.build(tiny, notes, "--force").code == 0
    assert kbundle.build(tiny, notes, "--name", "again").code == 0
    header = tiny.parent / "not_yet.h"  # an author's, though there is nothing in it
    header.touch()
    done = kbundle.build(tiny, header)
    assert done.code == 1 and "in the folder of" in done.err and not header.read_bytes()
    empty = tmp_path / "empty"
    empty.touch()
    assert kbundle.build(tiny, empty).code == 0
    assert not list(tmp_path.glob("*.tmp-*"))


def test_a_bundle_on_standard_output_is_refused_with_advice(kbundle, tiny, tmp_path):
    done = kbundle("build", tiny, "-o", "-", "--target", HOST_TARGETS, cwd=tmp_path)
    assert done.code == 1 and "needs a file" in done.err and not (tmp_path / "-").exists()


def test_extract_replaces_code_objects_and_others_only_by_force(kbundle, bundle, tmp_path):
    output = tmp_path / "code"
    for _ in range(2):
        assert kbundle("extract", bundle, "tiny.negate/loop@x86-64-v2", "-o", output).code == 0
    code = output.read_bytes()
    output.write_text("int main() {}")
    copy, program = tmp_path / "copy.kb", tmp_path / "program"
    shutil.copy(bundle, copy)
    shutil.copy("/bin/true", program)  # ELF too
    for victim in (output, copy, program):
        before = victim.read_bytes()
        done = kbundle("extract", copy, "tiny.negate/loop@x86-64-v2", "-o", victim)
        assert done.code == 1 and "--force" in done.err and victim.read_bytes() == before
    assert kbundle("extract", bundle, "tiny.negate/loop@x86-64-v2", "-o", output, "--force").code == 0
    assert output.read_bytes() == code


def test_the_command_that_shows_a_failure_again_names_no_output(kbundle, tmp_path):
    """It was -o /dev/null: without its --only that made a file of the device."""
    manifest = write_cuda(tmp_path / "gpu")
    (manifest.parent / "twice.cu").write_text("#error on purpose\n")
    done = kbundle("build", manifest, "-o", tmp_path / "x.kb", "--target", "sm_80", "-j", "1")
    [command] = re.findall(r"^to see it again: (.*)$", done.err, re.M)
    assert done.code == 1 and " --only " in command and " -o " not in command


def build_in_a_mounted_cache(kbundle, tiny, tmp_path, options, *more):
    """A build whose cache is a file system of these options: it ends well, with the bytes of another."""
    assert kbundle.build(tiny, tmp_path / "first.kb", "--name", "t").code == 0
    cache = tmp_path / "mounted"
    cache.mkdir()
    script = ['mount -t tmpfs -o', options, 'none "$1"; "$0" build "$2" -o "$3" --name t --cache "$1" --target', HOST_TARGETS, *more]
    done = in_namespace(kbundle, " ".join(script), cache, tiny, tmp_path / "second.kb")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "second.kb").read_bytes() == (tmp_path / "first.kb").read_bytes()
    return done


@root
def test_a_read_only_cache_is_one_warning_and_the_same_bytes(kbundle, tiny, tmp_path):
    done = build_in_a_mounted_cache(kbundle, tiny, tmp_path, "ro,size=4k", "--json")
    [warning] = json.loads(done.stdout)["warnings"]
    assert "Read-only file system" in warning and "--cache" in warning and "failed" not in done.stderr
    assert done.stderr.count("Read-only file system") == 1


@root
def test_a_temporary_folder_that_cannot_be_written_is_told_before_anything_is_compiled(kbundle, tiny, tmp_path):
    (tmp_path / "tmp").mkdir()
    done = in_namespace(kbundle, 'mount -t tmpfs -o ro,size=4k none "$1"; TMPDIR="$1" "$0" build "$2" -o "$3" --cache "$4"',
                        tmp_path / "tmp", tiny, tmp_path / "out.kb", tmp_path / "new cache")
    assert done.returncode == 3 and "set TMPDIR to a folder that can be written" in done.stderr, done.stderr
    assert "failed" not in done.stderr and not (tmp_path / "out.kb").exists()


@root
def test_a_full_cache_is_one_warning_and_the_same_bytes(kbundle, tiny, tmp_path):
    done = build_in_a_mounted_cache(kbundle, tiny, tmp_path, "size=16k")
    assert done.stderr.count("No space left on device") == 1 and "warning" in done.stderr


@root
def test_a_full_shared_cache_is_one_warning_and_the_same_bytes(kbundle, tiny, tmp_path):
    assert kbundle.build(tiny, tmp_path / "first.kb", "--name", "t").code == 0
    (tmp_path / "shared").mkdir()
    script = ('mount -t tmpfs -o size=16k none "$1"; "$0" build "$2" -o "$3" --name t --cache "$4" --shared-cache "$1" --target '
              f"{HOST_TARGETS}")
    done = in_namespace(kbundle, script, tmp_path / "shared", tiny, tmp_path / "second.kb", tmp_path / "new")
    assert done.returncode == 0 and done.stderr.count("No space left on device") == 1 and "shared cache" in done.stderr, done.stderr
    assert (tmp_path / "second.kb").read_bytes() == (tmp_path / "first.kb").read_bytes()


@root
def test_builds_in_two_pid_namespaces_share_an_output_and_a_cache(kbundle, tiny, tmp_path):
    """Both are process 1 of theirs: names made of process ids met."""
    line = ["unshare", "-p", "-f", "--mount-proc", kbundle.path, "build", tiny, "-o", tmp_path / "same.kb", "--target",
            HOST_TARGETS]
    for i in range(4):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        (tiny.parent / "rows.h").write_text(f"#define ROWS_ZERO {i}\n")
        both = [subprocess.Popen(list(map(str, line)), env=kbundle.environment, stderr=subprocess.PIPE) for _ in range(2)]
        errors = [process.communicate()[1] for process in both]
        assert [process.returncode for process in both] == [0, 0], errors
    bytes_of_both = (tmp_path / "same.kb").read_bytes()
    assert kbundle.build(tiny, tmp_path / "alone" / "same.kb").code == 0
    assert (tmp_path / "alone" / "same.kb").read_bytes() == bytes_of_both
    assert not list(tmp_path.rglob("*.tmp-*"))


def test_what_a_kill_left_is_swept_and_what_lives_is_not(kbundle, tiny, tmp_path):
    slow = wrapped_compiler(tmp_path, 'case "$*" in *.cc*) sleep 30;; esac')
    output, temporary = tmp_path / "tiny.kb", tmp_path / "home" / "tmp"
    stale = tmp_path / f"tiny.kb.tmp-{0x1234:016x}"
    stale.write_text("half")
    foreign = tmp_path / "tiny.kb.tmp-notes"
    foreign.write_text("mine")
    living = kbundle.start("build", tiny, "-o", output, "--target", HOST_TARGETS, env={"KBUNDLE_CXX": slow})
    killed = kbundle.start("build", tiny, "-o", tmp_path / "b.kb", "--target", HOST_TARGETS, env={"KBUNDLE_CXX": slow})
    try:
        wait_for(lambda: len(list(temporary.glob("kbundle-*/0"))) == 2)
        killed.kill()
        killed.communicate()
        assert len(list(temporary.glob("kbundle-*"))) == 2
        assert kbundle.build(tiny, output).code == 0
        [left] = temporary.glob("kbundle-*")
        assert (left / "0").is_dir() and not stale.exists() and foreign.exists()
    finally:
        living.kill()
        living.communicate()


def compilers_of(folder):
    """Processes that run with TMPDIR in this folder: compilers, their drivers and what those started."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"TMPDIR={folder}/kbundle-".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("ending", ["SIGKILL", "SIGHUP", "SIGINT SIGINT", "SIGTERM SIGTERM"])
def test_compilers_and_what_they_start_die_with_the_build(kbundle, tiny, tmp_path, ending):
    slow = wrapped_compiler(tmp_path, 'case "$*" in *.cc*) sleep 60 & sleep 61; wait;; esac')
    build = kbundle.start("build", tiny, "-o", tmp_path / "t.kb", "--target", HOST_TARGETS, "-j", "2",
                          env={"KBUNDLE_CXX": slow}, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    temporary = tmp_path / "home" / "tmp"
    wait_for(lambda: len(compilers_of(temporary)) >= 4)
    for name in ending.split():
        build.send_signal(getattr(signal, name))
        time.sleep(0.2)
    build.communicate(timeout=10)
    wait_for(lambda: not compilers_of(temporary), 5)
    assert kbundle.build(tiny, tmp_path / "t.kb").code == 0
    assert not list(temporary.iterdir())


def test_a_build_killed_at_any_moment_is_made_good_by_the_next(kbundle, tiny, tmp_path):
    calm = tmp_path / "calm" / "t.kb"
    start = time.monotonic()
    assert kbundle.build(tiny, calm).code == 0
    seconds, rng = time.monotonic() - start, random.Random(3)
    for i in range(6):
        shutil.rmtree(tmp_path / "cache")
        build = kbundle.start("build", tiny, "-o", tmp_path / "t.kb", "--target", HOST_TARGETS)
        time.sleep(rng.uniform(0, seconds))
        build.kill()
        build.communicate()
        done = kbundle.build(tiny, tmp_path / "t.kb")
        assert done.code == 0, done.err
        assert (tmp_path / "t.kb").read_bytes() == calm.read_bytes()
    # A build that is killed while it makes its folder leaves one without a lock, which another may be making: it goes after a minute.
    left = list((tmp_path / "home" / "tmp").iterdir())
    assert not [folder for folder in left if (folder / "lock").exists()] and not list(tmp_path.rglob("*.tmp-*"))
    for folder in left:
        os.utime(folder, (0, 0))
    shutil.rmtree(tmp_path / "cache")
    assert kbundle.build(tiny, tmp_path / "t.kb").code == 0
    assert not list((tmp_path / "home" / "tmp").iterdir())


def test_tuning_another_problem_loses_no_finished_one(kbundle, tiny, tmp_path):
    """The journal of a tune that was killed stays whole until its records are written."""
    manifest = tiny
    text = manifest.read_text()
    problems = ", ".join(f'{{ T = "i32", x = [{n}] }}' for n in range(100, 108))
    manifest.write_text(text.replace('problems  = [{ T = "i32", x = [100] }]', f"problems  = [{problems}]"))
    line = ["tune", manifest, "--target", "host", "--out", tmp_path / "out", "--replay", "1", "--op", "tiny.negate"]
    killed = kbundle.start(*line, env=PYTHON)
    try:
        wait_for(lambda: any('"done"' in p.read_text() for p in tmp_path.glob("out/*/*.journal")) or killed.poll() is not None)
    finally:
        killed.kill()
        killed.communicate()
    journals = list(tmp_path.glob("out/*/*.journal"))
    done = set() if not journals else finished_in(journals[0])
    other = json.dumps({"op": "tiny.negate", "operands": {"x": "i32[107]"}, "attributes": {}})
    assert kbundle(*line[:-2], "--problem", other, env=PYTHON).code == 0
    recorded = {json.dumps(json.loads(row)["problem"]["operands"]) for path in tmp_path.glob("out/*/*.jsonl")
                for row in path.read_text().splitlines()}
    assert done <= recorded and '{"x": "i32[107]"}' in recorded


def finished_in(journal):
    events = [json.loads(row) for row in journal.read_text().splitlines(keepends=True) if row.endswith("\n")]
    operands = {e["number"]: json.dumps(e["problem"]["operands"]) for e in events if e["event"] == "problem"}
    return {operands[e["number"]] for e in events if e["event"] == "done"}


@pytest.mark.parametrize("field, value", [("grain", "1 / (rows == 9 ? 0 : 1)"), ("range", "rows * (rows == 9 ? 9223372036854775807 : 1)")])
def test_verify_evaluates_what_a_plan_computes(kbundle, tiny, tmp_path, field, value):
    """Of a problem that the manifest does not list, where the build would have refused it."""
    text = tiny.read_text()
    tiny.write_text(re.sub(rf'{field} = "[^"]*"', f'{field} = "{value}"', text, count=1))
    assert kbundle.build(tiny, tmp_path / "t.kb").code == 0
    asked = tmp_path / "asked.jsonl"
    asked.write_text('{"op": "tiny.scale", "operands": {"x": "f64[3,3,8]"}}\n')
    for more in ([], ["--json"]):
        done = kbundle("verify", tmp_path / "t.kb", "--target", "x86-64-v3", "--problems", asked, *more)
        told = done.out + done.err
        assert done.code == 1 and "tiny.scale/even" in told and field in told and "[3,3,8]" in told
    assert kbundle("verify", tmp_path / "t.kb").code == 0  # its bytes are as written
