"""Promise: programs that XLA compiled are taken from a folder of this CPU, this JAX and these sources alone; not where a GPU, another folder
or KB_TEST_ALL=1 is asked for; what is a month old is gone, and what is one too many; a program with a call of kbundle is among those found
again."""

import os
import pathlib
import subprocess
import sys
import time

import compiled
import kept
import pytest
from python.conftest import probe_path  # noqa: F401

PROGRAM = """
import jax, numpy as np, sys
import kbundle, kbundle.jax as kbj
found = []
jax.monitoring.register_event_listener(lambda event, **_: found.append(event) if "cache_hits" in event else None)
bundle = kbundle.open(sys.argv[1])
y = jax.jit(lambda x: kbj.call(bundle, "probe.shift", x, by=2))(np.ones((3, 5), np.float32))
assert (np.asarray(y) == 3).all()
print("found", len(found))
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KBUNDLE_CACHE", str(tmp_path))
    return {"JAX_PLATFORMS": "cpu"}


def test_a_program_with_a_call_is_found_in_the_next_process(environment, probe_path):  # noqa: F811
    compiled.keep(environment)
    variables = {name: value for name, value in os.environ.items() if name != "KB_TEST_ALL"} | environment
    variables["PYTHONPATH"] = str(compiled.SOURCES.parent)
    for hits in (0, 1):
        done = subprocess.run([sys.executable, "-c", PROGRAM, str(probe_path)], env=variables, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.strip() == f"found {hits}", done.stdout + done.stderr


@pytest.mark.parametrize("given", [{"KB_TEST_ALL": "1"}, {"JAX_PLATFORMS": ""}, {"JAX_PLATFORMS": "cuda"}, {"JAX_COMPILATION_CACHE_DIR": "/own"}])
def test_who_wants_none_gets_none(environment, given):
    environment |= given
    before = dict(environment)
    compiled.keep(environment)
    assert environment == before


def test_another_cpu_version_or_source_has_another_folder(environment, tmp_path, monkeypatch):
    first = compiled.name()
    with monkeypatch.context() as other:
        other.setattr(compiled, "cpu", lambda: ["flags: fewer"])
        second = compiled.name()
    with monkeypatch.context() as other:
        other.setattr(compiled.importlib.metadata, "version", lambda package: "0.0.1")
        third = compiled.name()
    (tmp_path / "it.py").write_text("changed")
    monkeypatch.setattr(compiled, "SOURCES", tmp_path)
    assert len({first, second, third, compiled.name()}) == 4


def test_what_is_a_month_old_goes(tmp_path):
    old, new = tmp_path / "a/old-cache", tmp_path / "b/new-cache"
    for path in (old, new):
        path.parent.mkdir()
        path.write_text("code")
    then = time.time() - kept.MONTH_SECONDS - 10
    os.utime(old, (then, then))
    compiled.forget_old(tmp_path)
    assert not old.exists() and new.exists()
    os.utime(old.parent, (then, then))
    compiled.forget_old(tmp_path)
    assert [path.name for path in pathlib.Path(tmp_path).iterdir()] == ["b"]


def test_of_more_programs_than_a_folder_may_have_the_newest_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "MOST", 2)
    (tmp_path / "a").mkdir()
    for age in (30, 10, 20):
        (tmp_path / f"a/{age}").touch()
        os.utime(tmp_path / f"a/{age}", (time.time() - age,) * 2)
    compiled.forget_old(tmp_path)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["10", "20"]
