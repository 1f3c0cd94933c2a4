"""Which Python compiles with Warp: KBUNDLE_PYTHON, or the one that runs the tests; where neither has warp-lang 1.19.0, one that
answers as Warp did when recorded.json was written (replay.py), which the header of the run says."""

import os
import pathlib
import shutil
import sys

import pytest
from cli.command import Command
from cli.python_provider import PYTHON, installed, kbundle, library, shared_cache  # noqa: F401

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = HERE / "library"
VERSION = installed("warp-lang")
HAS_WARP = VERSION == "1.19.0"
TARGETS = "sm_90a,x86-64-v2" if HAS_WARP else "x86-64-v2"  # cubins are not recorded


def pytest_report_header():
    return f"warp: {PYTHON} has {'warp-lang 1.19.0' if HAS_WARP else 'no warp-lang 1.19.0: its answers are replayed from recorded.json'}"


def pytest_configure(config):
    config.addinivalue_line("markers", "with_warp: needs warp-lang 1.19.0, since it asks what is not recorded")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("with_warp") and not HAS_WARP:
            item.add_marker(pytest.mark.skip(reason=f"{PYTHON} has warp-lang {VERSION or '(none)'}, not 1.19.0"))


def stand_in(path, *words):
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {HERE / 'replay.py'} {' '.join(map(str, words))} \"$@\"\n")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def replayed(tmp_path_factory):
    """A Python that answers what is recorded, Warp or no Warp."""
    return stand_in(tmp_path_factory.mktemp("replayed") / "python")


@pytest.fixture
def python(replayed):
    return PYTHON if HAS_WARP else replayed


@pytest.fixture(scope="session")
def bundle_path(request, tmp_path_factory, shared_cache):
    """The library, built away from the tree. KB_WARP_BUNDLE names one built elsewhere (the GPU check does so)."""
    given = os.environ.get("KB_WARP_BUNDLE")
    if given:
        return given
    command, replayed = request.getfixturevalue("command"), request.getfixturevalue("replayed")
    away = tmp_path_factory.mktemp("away")
    shutil.copytree(LIBRARY, away / "library")
    run = Command(command, shared_cache, away)
    run.environment["KBUNDLE_PYTHON"] = PYTHON if HAS_WARP else str(replayed)
    done = run("build", "library", "-o", "sim.kb", "--target", TARGETS, cwd=away, timeout=300)
    assert done.code == 0, done.out + done.err
    return str(away / "sim.kb")
