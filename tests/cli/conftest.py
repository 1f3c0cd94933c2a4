"""The command with a cache and a home of its own, a tiny op family, bundles of it, and a driver that stands in."""

import pathlib
import shutil
import subprocess

import pytest
from cli.command import Command
from cli.tiny import write_cuda, write_tiny

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def kbundle(command, tmp_path):
    """The command with a cache and a home of this test's own."""
    (tmp_path / "home").mkdir()
    return Command(command, tmp_path / "cache", tmp_path / "home")


@pytest.fixture
def tiny(tmp_path):
    """The manifest of a fresh copy of the tiny family."""
    return write_tiny(tmp_path / "tiny")


@pytest.fixture(scope="session")
def bundle(command, tmp_path_factory):
    """A bundle of the tiny family, built by the command. Not to be written to."""
    folder = tmp_path_factory.mktemp("tiny")
    run = Command(command, folder / "cache", folder)
    done = run.build(write_tiny(folder / "tiny"), folder / "tiny.kb")
    assert done.code == 0, done.err
    return folder / "tiny.kb"


@pytest.fixture(scope="session")
def gpu_bundle(command, tmp_path_factory):
    """A bundle of one CUDA kernel. Not to be written to."""
    folder = tmp_path_factory.mktemp("gpu")
    run = Command(command, folder / "cache", folder)
    if run("doctor").code != 0:
        pytest.skip("no CUDA toolkit: see kbundle doctor")
    done = run("build", write_cuda(folder / "gpu"), "-o", folder / "gpu.kb", "--target", "sm_80,sm_90a,portable")
    assert done.code == 0, done.err
    return folder / "gpu.kb"


@pytest.fixture(scope="session")
def driver(command, tmp_path_factory):
    """Environment in which the driver is the stand-in."""
    folder = tmp_path_factory.mktemp("driver")
    found = {f["part"]: f for f in Command(command, folder, folder)("doctor", "--json").json["findings"]}
    include = pathlib.Path(found["nvrtc"]["where"] or "/").parents[1] / "include"
    if not (include / "cuda.h").exists() or not shutil.which("cc"):
        pytest.skip("no cuda.h or no C compiler")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", f"-I{include}", "-o", folder / "libcuda.so.1",
                    HERE / "standin_driver.c"], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}
