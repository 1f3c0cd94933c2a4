"""Files whose tests compare what a bundle computes with references, on inputs of fixed seeds, pass again while all that decides it is
what it was when they passed (tests/kept.py): the bundle, the library, the references, these files, this CPU. Then nothing is run.

Only files that ran whole are remembered, and tests that somebody asks for by name or word run in any case.
"""

import importlib.metadata
import os
import pathlib
import sys

import kept
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUNDLE = pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))
NAMES = {"test_accuracy.py", "test_attention.py", "test_host.py", "test_matmul.py", "test_permutation.py", "test_quantize.py"}


class File:
    """One of them: whether it passed before, and what of it has passed now."""

    def __init__(self, path, names):
        self.stamp = kept.Passed("conformance", path.name, *names, *machine(), roots=(ROOT,))
        self.before = self.stamp.before()
        self.left, self.failed = set(), False


def machine():
    flags = next((line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    return sys.version, *(importlib.metadata.version(name) for name in ("numpy", "ml_dtypes")), flags, os.cpu_count()


def inputs():
    return [BUNDLE, pathlib.Path(os.environ["KBUNDLE_LIBRARY"]), ROOT / "tests/kept.py", ROOT / "tests/conftest.py", *sorted(HERE.glob("*.py")),
            *sorted((ROOT / "kernels").glob("*/reference*.py"))]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    config.kept_files, config.kept_of = {}, {}
    asked_for = config.option.keyword or config.option.markexpr or any("::" in argument for argument in config.args)
    if asked_for or not all(path.exists() for path in inputs()):
        return
    config.kept_inputs = {path: kept.digest(path) for path in inputs()}
    names = [path.name for path in config.kept_inputs]
    for item in items:
        if item.path.parent == HERE and item.path.name in NAMES:
            if item.path not in config.kept_files:
                config.kept_files[item.path] = File(item.path, names)
            file = config.kept_of[item.nodeid] = config.kept_files[item.path]
            file.left.add(item.nodeid)
            if file.before:
                item.fixturenames.clear()
                item.user_properties.append(("passed before", "with these very files"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    file = pyfuncitem.config.kept_of.get(pyfuncitem.nodeid)
    return True if file and file.before else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if file := item.config.kept_of.get(item.nodeid):
        file.failed |= report.failed
        if report.when == "teardown":
            file.left.discard(item.nodeid)
    return report


def pytest_sessionfinish(session):
    for file in getattr(session.config, "kept_files", {}).values():
        whole = not (file.before or file.left or file.failed)
        if whole and all(kept.digest(path) == content for path, content in session.config.kept_inputs.items()):
            file.stamp.now(session.config.kept_inputs)
