"""Each section of scripts/gpu_check, by name: passes where there is a GPU, a skip with its reason elsewhere. What a section takes from a module
of the tests is there, which is seen without a GPU."""

import ast
import functools
import pathlib
import subprocess
import symtable
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("section", run.SECTIONS)
def test_gpu_section_passes(section, tmp_path):
    count = len(run.devices()[0])
    if count < run.SECTIONS[section][2]:
        pytest.skip(f"needs {run.SECTIONS[section][2]} CUDA device(s), there is {count}: run scripts/gpu_check on such a machine")
    ran = subprocess.run([str(ROOT / "scripts/gpu_check"), section, "--out", str(tmp_path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:]


@functools.cache
def names_of(path):
    """What a module defines, or imports, at its top."""
    symbols = symtable.symtable(path.read_text(), str(path), "exec").get_symbols()
    return {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()}


def module_of(name):
    places = [folder / (name.replace(".", "/") + ".py") for folder in (ROOT / "tests/gpu", ROOT / "tests", ROOT / "scripts")]
    return next((place for place in places if place.exists()), None)


@pytest.mark.parametrize("path", sorted((ROOT / "tests/gpu").rglob("*.py")), ids=lambda path: path.stem)
def test_what_a_module_takes_from_another_is_there(path):
    missing = []
    for node in ast.walk(ast.parse(path.read_text())):
        other = module_of(node.module) if isinstance(node, ast.ImportFrom) and node.module else None
        if other is not None:
            missing += [f"{node.module}.{alias.name}" for alias in node.names
                        if alias.name not in names_of(other) and module_of(f"{node.module}.{alias.name}") is None]
    assert not missing
