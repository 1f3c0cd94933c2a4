"""What the tests of providers that compile in Python (Triton, Warp, CuTe DSL) share: a copy of the library that lies beside the test,
a cache for all tests of a session, and what each provider promises alike."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from cli.command import Command

PYTHON = os.environ.get("KBUNDLE_PYTHON", sys.executable)


def installed(package):
    """The version of a package that PYTHON has; "" where it has none."""
    ask = f"import importlib.metadata as m; print(m.version('{package}'))"
    return subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True).stdout.strip()


def needs(package, version):
    """The mark of tests that compile."""
    found = installed(package)
    return pytest.mark.skipif(found != version, reason=f"{PYTHON} has {package} {found or '(none)'}, not {version}")


@pytest.fixture
def library(request, tmp_path):
    return pathlib.Path(shutil.copytree(request.path.parent / "library", tmp_path / "library"))


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("shared_cache")


@pytest.fixture
def python():
    """The one that compiles."""
    return PYTHON


@pytest.fixture
def kbundle(command, shared_cache, python, tmp_path):
    """The command; what these tests compile they share, since a kernel's key is its content."""
    (tmp_path / "home").mkdir()
    run = Command(command, shared_cache, tmp_path / "home")
    run.environment["KBUNDLE_PYTHON"] = str(python)
    return run


def edit(path, *replacements):
    text = path.read_text()
    for before, after in replacements:
        assert before in text, f"{path.name} has no {before!r}"
        text = text.replace(before, after)
    path.write_text(text)


def builds_the_same_bytes_anywhere(build, library, name, foreign):
    """In two folders and with two caches; the second build compiles nothing, and nothing `foreign` is in the bundle."""
    parent = library.parent
    first = build(library, parent / f"{name}.kb", "--jobs", "2")
    assert first.code == 0, first.err
    again = build(library, parent / "again.kb", "--name", name)
    assert again.json["compiled"] == 0 and again.json["reused"] == first.json["objects"]
    away = shutil.copytree(library, parent / "somewhere/else")
    elsewhere = build(away, parent / "else.kb", "--name", name, "--cache", parent / "own_cache")
    assert elsewhere.json["compiled"] == first.json["objects"], elsewhere.err
    content = (parent / f"{name}.kb").read_bytes()
    assert content == (parent / "else.kb").read_bytes() == (parent / "again.kb").read_bytes()
    for text in foreign:
        assert text not in content


def asks_for_the_package(kbundle, build, library, part, package, version, older):
    """Where it is missing or of another version: exit code 3, and what to install; `kbundle doctor` says it too, at `part`."""
    folder = library.parent
    for number, (has, found) in enumerate((("", "has none"), (older, f"has {package} {older}"))):
        facts = {"python": "3.11.2", "version": has, "record": "00" if has else "", "files": []}
        python = folder / f"python{number}"
        python.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
        python.chmod(0o755)
        done = build(library, folder / "out.kb", "--python", python)
        assert done.code == 3
        for words in (found, f"{python} -m pip install {package}=={version}", "--python", "--provider cuda,host"):
            assert words in done.err
        rows = {f["part"]: f for f in kbundle("doctor", "--json", env={"KBUNDLE_PYTHON": str(python)}).json["findings"]}
        assert not rows[part]["found"] and found in rows[part]["advice"]


def needs_no_python_when_left_out(build, library):
    done = build(library, library.parent / "out.kb", "--provider", "cuda,host", "--python", library.parent / "nowhere")
    assert done.code == 1 and "no variant of these manifests" in done.err
