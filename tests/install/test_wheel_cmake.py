"""Promise: `python -m kbundle --cmake-dir` of an installed wheel is where CMake finds all that C and C++ need of it, into whatever folder pip put
the wheel. The wheel here has this build's binaries in the layout of scripts/wheel; `scripts/wheel --check` does the same with the real one."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("KB_BUILD", ROOT / "build/release"))
sys.path.insert(0, str(ROOT / "scripts"))
import wheel_check  # noqa: E402
import wheel_file  # noqa: E402

VERSION = "0.1.0"
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    inside = wheel_file.of_command(ROOT / "ffi/python", VERSION, wheel_file.installed(BUILD, folder / "prefix"))
    return wheel_file.write(folder, "kbundle", VERSION, "py3-none-linux_x86_64", inside, wheel_file.metadata("kbundle", VERSION, "made by a test"),
                            programs=wheel_file.programs(VERSION))


def test_a_project_finds_the_wheel_of_an_environment(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    own = tmp_path / "env/bin/python"
    subprocess.run([sys.executable, "-m", "pip", "--python", own, *PIP[2:], wheel], check=True)
    wheel_check.check_cmake(own, wheel_check.PROJECT, tmp_path)
    cache = (tmp_path / "outside/CMakeCache.txt").read_text()
    assert f"kbundle_DIR:UNINITIALIZED={tmp_path}/env/lib/cmake/kbundle" in cache or f"kbundle_DIR:PATH={tmp_path}/env/lib/cmake/kbundle" in cache


def with_path(folder, where):
    """A program that is this Python, with the folder among its packages."""
    own = folder / "python"
    own.write_text(f'#!/bin/sh\nPYTHONPATH={where} exec {sys.executable} "$@"\n')
    own.chmod(0o755)
    return own


def test_a_project_finds_the_wheel_of_a_prefix(wheel, tmp_path):
    subprocess.run([sys.executable, *PIP, "--ignore-installed", "--prefix", tmp_path / "prefix", wheel], check=True)
    [packages] = (tmp_path / "prefix").glob("lib/python3*/site-packages")
    wheel_check.check_cmake(with_path(tmp_path, packages), wheel_check.PROJECT, tmp_path)


def test_what_pip_leaves_out_is_said(wheel, tmp_path):
    """pip install --target drops what a wheel has for lib/."""
    subprocess.run([sys.executable, *PIP, "--target", tmp_path / "vendored", wheel], check=True)
    own = with_path(tmp_path, tmp_path / "vendored")
    done = subprocess.run([own, "-m", "kbundle", "--cmake-dir"], capture_output=True, text=True)
    assert done.returncode == 1 and "--target" in done.stderr


@pytest.mark.parametrize("words, code, says", [(["--cmake-dir"], 1, "no installed wheel kbundle brought one"), (["--cmake"], 2, "--cmake-dir"),
                                               (["--help"], 0, "kbundleConfig.cmake")])
def test_a_checkout_says_that_it_has_none(words, code, says):
    done = subprocess.run([sys.executable, "-m", "kbundle", *words], capture_output=True, text=True,
                          env=dict(os.environ, PYTHONPATH=str(ROOT / "ffi/python")))
    assert done.returncode == code and says in done.stdout + done.stderr
