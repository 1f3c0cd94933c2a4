"""Promise: the demo compiles while the second half of set-up goes on; whichever of the two fails ends it, and nothing of it stays behind."""

import os
import pathlib
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STANDINS = {
    "scripts/setup": 'echo "setup $*"; [[ -n "$*" ]] && exit 0; sleep "$SET_UP_SECONDS"; echo "set up"; exit "$SET_UP_CODE"',
    "bin/cmake": 'echo "cmake $1"; echo "$1" >>cmake.log; [[ $1 != --build ]] || exit "$BUILD_CODE"',
    "build/release/kbundle": 'echo "kbundle $*"',
    ".venv/bin/python": 'echo "python $*"',
}


@pytest.fixture
def demo(tmp_path):
    """The demo of a checkout in which each program only says that it ran."""
    for name, text in STANDINS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)
    script = tmp_path / "scripts/demo"
    script.write_text((ROOT / "scripts/demo").read_text())
    script.chmod(0o755)

    def run(seconds="1", set_up=0, build=0):
        env = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SET_UP_SECONDS": seconds, "SET_UP_CODE": str(set_up),
                            "BUILD_CODE": str(build)}
        return subprocess.run([script, "--seconds", "1"], env=env, capture_output=True, text=True, timeout=60)

    return run


def test_compiling_does_not_wait_for_what_it_needs_not(demo):
    done = demo()
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[0] == "setup --to-compile" and lines[-1] == "python scripts/demo.py --seconds 1"
    [packed] = [number for number, line in enumerate(lines) if line.startswith("kbundle build kernels --target ")]
    assert lines.index("cmake --build") < packed < lines.index("set up") == len(lines) - 2


@pytest.mark.parametrize("rules, configured", [("", 2), ("build kb_planner: phony", 1)])
def test_what_came_while_it_compiled_is_configured_too(demo, tmp_path, rules, configured):
    (tmp_path / "build/release/build.ninja").write_text(rules)
    assert demo().returncode == 0
    assert (tmp_path / "cmake.log").read_text().split().count("--preset") == configured


@pytest.mark.parametrize("codes, code", [({"set_up": 4}, 4), ({"build": 9}, 9)])
def test_what_fails_ends_it(demo, codes, code):
    done = demo(**codes)
    assert done.returncode == code and "python scripts/demo.py" not in done.stdout


def test_nothing_of_a_failed_one_stays_behind(demo):
    seconds = f"300.{os.getpid()}"
    assert demo(seconds, build=9).returncode == 9
    deadline = time.monotonic() + 10
    while subprocess.run(["pgrep", "-f", f"sleep {seconds}"], capture_output=True).returncode == 0:
        assert time.monotonic() < deadline, "set-up goes on"
        time.sleep(0.05)
