"""Promise: the library of docs/whole-library.md is complete: as printed it builds, its vector variant is chosen, every variant of it is right."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/whole-library.md"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaky")
    for _, name, text in BLOCK.findall(PAGE.read_text()):
        if name:
            (folder / name).write_text(text)
    assert {p.name for p in folder.iterdir()} == {"leaky.toml", "leaky.cu", "leaky_host.cc", "reference.py", "use_leaky.py"}
    return folder


@pytest.fixture(scope="module")
def built(library, command):
    """The page's shell commands, in order, with the command that was built."""
    env = dict(os.environ, PATH=f"{pathlib.Path(command).parent}{os.pathsep}{os.environ['PATH']}")
    shell = next(text for language, _, text in BLOCK.findall(PAGE.read_text()) if language == "sh")
    ran = subprocess.run(["bash", "-euc", shell], cwd=library, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_explain_chooses_the_vector_variant(built):
    assert "vector4" in built


def test_the_program_runs(library, built):
    env = dict(os.environ, PYTHONPATH=str(ROOT / "ffi/python"), JAX_PLATFORMS="cpu")
    ran = subprocess.run([sys.executable, "use_leaky.py"], cwd=library, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "simd" in ran.stdout


def test_every_variant_is_right_when_forced(library, built):
    from conformance import devices, runner
    conformance = runner.Conformance(library / "leaky.kb", devices.Host(), [library])
    outcomes = [conformance.run(op, v) for op in conformance.ops() for v, why in conformance.variants(op) if not why]
    assert outcomes and not [o.reason() for o in outcomes if not o.passed]
