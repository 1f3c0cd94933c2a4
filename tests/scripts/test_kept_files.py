"""Promise: a file of tests that passed is run again as soon as anything that it read is another; one that failed, skipped for want of
something, started a process, drew its cases or was run in part is never kept; and what is kept is counted as such."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
ASKS = """
import pathlib
import pytest
from python import numbers
HERE = pathlib.Path(__file__).parent
def test_reads():
    (HERE.parents[2] / "ran").open("a").write("x")
    assert (HERE / "data.txt").read_text() == "right" and numbers.ONE == 1
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_device(device):
    if device == "cuda":
        pytest.skip("cuda: JAX finds no such device here")
"""


@pytest.fixture
def tree(tmp_path):
    """A repository with one file of tests."""
    (tmp_path / "repo/tests/python").mkdir(parents=True)
    root = tmp_path / "repo"
    for name in ("kept.py", "kept_files.py", "compiled.py"):
        shutil.copy(TESTS / name, root / "tests")
    (root / "tests/conftest.py").write_text(f"""
import sys
sys.path.insert(0, {str(root / 'tests')!r})
import kept_files
def pytest_configure(config):
    config.pluginmanager.register(kept_files.Plugin(), "kept files")
""")
    (root / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib -q -p no:cacheprovider\n")
    (root / "tests/python/numbers.py").write_text("ONE = 1\n")
    (root / "tests/python/data.txt").write_text("right")
    (root / "tests/python/test_it.py").write_text(ASKS)
    for name in ("library.so", "bundles/probe.kb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return root


def run(root, *arguments, **variables):
    """Its last line: how many passed, were kept, skipped and failed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "KB_", "JAX_"))}
    environment |= {"KBUNDLE_CACHE": str(root.parent / "cache"), "KBUNDLE_LIBRARY": str(root.parent / "library.so"), "JAX_PLATFORMS": "cpu",
                    "KB_TEST_BUNDLES": str(root.parent / "bundles")} | variables
    done = subprocess.run([sys.executable, "-m", "pytest", *(arguments or ["tests"])], cwd=root, env=environment, capture_output=True, text=True)
    return done.stdout.splitlines()[-1].split(" in ")[0]


def edit(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_what_passed_is_kept_told_apart_and_skips_as_before(tree):
    assert run(tree) == "2 passed, 1 skipped"
    assert run(tree) == run(tree, "-n2", "--dist", "loadfile") == "1 skipped, 2 kept"
    assert (tree.parent / "ran").read_text() == "x"


@pytest.mark.parametrize("path", ["tests/python/test_it.py", "tests/python/numbers.py", "tests/kept.py", "../library.so", "../bundles/probe.kb"])
def test_another_input_runs_it_again(tree, path):
    run(tree)
    (tree / path).write_text((tree / path).read_text() + "\n")
    assert run(tree) == "2 passed, 1 skipped"
    assert run(tree) == "1 skipped, 2 kept"


@pytest.mark.parametrize("name, path", [("KBUNDLE_LIBRARY", "other.so"), ("KB_BUNDLE", "other.kb")])
def test_another_place_of_an_input_runs_it_again(tree, name, path):
    (tree.parent / path).write_text("another")
    run(tree)
    assert run(tree, **{name: str(tree.parent / path)}) == "2 passed, 1 skipped"
    assert run(tree) == run(tree, **{name: str(tree.parent / path)}) == "1 skipped, 2 kept"


def test_data_that_it_opened_and_a_conftest_that_joins_run_it_again(tree):
    run(tree)
    (tree / "tests/python/data.txt").write_text("wrong")
    assert run(tree) == "1 failed, 1 passed, 1 skipped"
    (tree / "tests/python/data.txt").write_text("right")
    assert run(tree) == "1 skipped, 2 kept"
    (tree / "tests/python/conftest.py").write_text("")
    assert run(tree) == "2 passed, 1 skipped"


def test_who_asks_for_tests_or_for_all_gets_them_run(tree):
    run(tree)
    for asked in (["tests", "-k", "reads"], ["tests/python/test_it.py::test_reads"]):
        assert run(tree, *asked).startswith("1 passed"), asked
    assert run(tree, KB_TEST_ALL="1") == run(tree, KB_MORE="1") == "2 passed, 1 skipped"


@pytest.mark.parametrize("before, after, outcome", [
    ('== "right"', '== "wrong"', "1 failed, 1 passed, 1 skipped"),
    ("cuda: JAX finds no such device here", "no compiler", "2 passed, 1 skipped"),
    ("def test_reads():", "def test_reads():\n    import subprocess\n    subprocess.run(['true'])", "2 passed, 1 skipped"),
    ("import pathlib", "import os, pathlib\nos.environ.get('KB_SEED')", "2 passed, 1 skipped"),
    ("import pathlib", "import subprocess, pathlib\nsubprocess.run(['true'])", "2 passed, 1 skipped"),
    ('pytest.skip("cuda: JAX finds no such device here")', 'pytest.xfail("known")', "2 passed, 1 xfailed")])
def test_some_files_are_never_kept(tree, before, after, outcome):
    edit(tree / "tests/python/test_it.py", before, after)
    assert run(tree) == outcome
    assert run(tree) == outcome


def test_half_a_file_is_not_kept(tree):
    edit(tree / "tests/python/test_it.py", "def test_reads", "def test_first():\n    assert (HERE / 'first').exists()\ndef test_reads")
    assert run(tree, "tests", "-x") == "1 failed"
    (tree / "tests/python/first").write_text("")
    assert run(tree) == "3 passed, 1 skipped"


def test_a_file_elsewhere_is_not_kept(tree):
    (tree / "tests/cli").mkdir()
    shutil.copy(tree / "tests/python/test_it.py", tree / "tests/cli/test_more.py")
    shutil.copy(tree / "tests/python/data.txt", tree / "tests/cli")
    assert run(tree) == "4 passed, 2 skipped"
    assert run(tree) == "2 passed, 2 skipped, 2 kept"


def test_the_child_of_a_file_is_not_kept_in_its_name(tree):
    """Of what a program reads that a test starts nobody hears: however it is started, the file is run each time."""
    for start in ("os.system('true')", "os.posix_spawn('/bin/true', ['true'], {})"):
        edit(tree / "tests/python/test_it.py", "def test_reads():", f"def test_reads():\n    import os\n    {start}")
        assert run(tree) == run(tree) == "2 passed, 1 skipped", start
