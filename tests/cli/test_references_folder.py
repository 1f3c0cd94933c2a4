"""Where `kbundle tune` and `test` keep inputs and expectations: a folder of this run alone, as long as it lives and no longer."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

PYTHON = {"KBUNDLE_PYTHON": sys.executable}
# Says where it runs, how that folder is guarded while it runs, and, in a slow one, waits to be killed.
WATCH = """
import fcntl, json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[0]).parent
held = False
owner = next((f for f in (folder, folder.parent) if (f / "lock").exists()), None)
if owner:
    with open(owner / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = True
seen = {"folder": str(owner or folder), "mode": os.stat(owner or folder).st_mode & 0o777, "held": held}
(pathlib.Path(__file__).parent / "seen.tmp").write_text(json.dumps(seen))
os.replace(pathlib.Path(__file__).parent / "seen.tmp", pathlib.Path(__file__).parent / "seen.json")
"""


def watched(tiny, slow=False):
    reference = tiny.parent / "reference.py"
    reference.write_text(reference.read_text() + WATCH + ("time.sleep(600)\n" if slow else ""))
    return tiny.parent / "seen.json"


def test_the_folder_is_private_and_its_owner_s_life_is_a_lock_not_a_process_id(kbundle, tiny):
    """Process ids mean nothing to a run in another container that shares /dev/shm: it would take a live run's files away."""
    seen = watched(tiny)
    done = kbundle("test", tiny, "--target", "host", env=PYTHON)
    assert done.code == 0, done.err
    found = json.loads(seen.read_text())
    assert found["held"] and found["mode"] == 0o700
    assert not os.path.exists(found["folder"])


def test_what_others_put_in_its_way_never_stops_a_run(kbundle, tiny, tmp_path):
    """In a folder that all users share, a name that can be foretold is anyone's to take: with a file, a link, a folder of theirs."""
    shared = ["/dev/shm", kbundle.environment["TMPDIR"]]
    line = "for f in {}; do ln -s {} $f/kbundle-tune-$$; done; echo $$ > {}; exec {} test {} --target host --json".format(
        " ".join(shared), tmp_path / "elsewhere", tmp_path / "pid", kbundle.path, tiny)
    try:
        done = subprocess.run(["sh", "-c", line], env=kbundle.environment | PYTHON, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["ok"] and not (tmp_path / "elsewhere").exists()
    finally:
        for folder in shared:
            (pathlib.Path(folder) / f"kbundle-tune-{(tmp_path / 'pid').read_text().strip()}").unlink(missing_ok=True)


def test_what_a_killed_run_left_is_removed_by_the_next(kbundle, tiny):
    seen = watched(tiny, slow=True)
    process = kbundle.start("test", tiny, "--target", "host", env=PYTHON)
    deadline = time.monotonic() + 60
    while not seen.exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = json.loads(seen.read_text())["folder"]
    assert os.path.exists(left)
    (tiny.parent / "reference.py").write_text((tiny.parent / "reference.py").read_text().replace("time.sleep(600)", ""))
    assert kbundle("test", tiny, "--target", "host", env=PYTHON).code == 0
    assert not os.path.exists(left)
