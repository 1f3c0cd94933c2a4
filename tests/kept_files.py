"""Files of tests that passed pass again, without being run, while all that decides it is what it was (kept.py): the library, the bundles, the
Python sources, the packages, this machine. A change of the command alone, whose bundles are still the same bytes, decides nothing there.

Which files of the repository a test opens is heard from Python itself, so none is forgotten; what libkbundle opens are the bundles, which count
in any case. A file is run each time that starts a process, since what that one reads nobody hears; that draws its cases anew; that skips for
another reason than the machine; or of which some tests are asked for by name. Nothing is kept of a file with a failure, or of half a file.
What is kept is told apart: pytest counts it as `kept`, scripts/totals.py too.
"""

import ast
import functools
import importlib.metadata
import os
import pathlib
import re
import sys

import compiled
import kept
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("conformance", "python", "sharding")  # where tests use the library and not the command
BY_MACHINE = re.compile(r"(Skipped: )?(cuda: JAX finds no such device here$|.*cannot run on )")
DRAWS = "KB_" + "SEED"  # so that this file has not the word
READS = {"open", "os.listdir", "os.scandir", "ctypes.dlopen"}
STARTS = {"subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn"}
ELSEWHERE = (f"{ROOT}/.venv/", f"{ROOT}/.git/")  # packages count by their versions

_now = None  # what the running file has read and started so far
_session = set()  # what fixtures of the whole session have read: any file may use them


def _hear(event, arguments):
    if _now is None or event not in READS and event not in STARTS:
        return
    if event in STARTS:
        _now.starts = True
    elif arguments and isinstance(arguments[0], (str, os.PathLike)):
        path = os.path.abspath(os.fspath(arguments[0]))
        if path.startswith(f"{ROOT}/") and not path.startswith(ELSEWHERE):
            folder, compiled_from, name = path.partition("/__pycache__/")
            _now.reads.add(f"{folder}/{name.partition('.')[0]}.py" if compiled_from else path)


def bundles():
    folder = os.environ.get("KB_TEST_BUNDLES")
    return [*(sorted(pathlib.Path(folder).glob("*.kb")) if folder else []), pathlib.Path(os.environ.get("KB_BUNDLE", ROOT / "build/kernels.kb"))]


@functools.cache
def machine():
    packages = sorted(f"{one.metadata['Name']} {one.version}" for one in importlib.metadata.distributions())
    names = sorted(name for name in os.environ if name.startswith(("KB_", "KBUNDLE_", "JAX_", "XLA_", "OPENBLAS_", "OMP_", "CUDA_", "PYTHON")))
    places = {"JAX_COMPILATION_CACHE_DIR", "KBUNDLE_CACHE", "KB_TEST_BUNDLES", "KB_BUNDLE", "KB_BUILD", "KBUNDLE_LIBRARY"}  # their content counts
    return sys.version, os.cpu_count(), *compiled.cpu(), *packages, *(f"{name}={os.environ[name]}" for name in names if name not in places)


@functools.cache
def imports(path):
    """Files of tests/ that this one imports, at its top or in a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update([node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)])
    return {found for name in names if name and (found := ROOT / "tests" / (name.replace(".", "/") + ".py")).exists()}


def inputs(path):
    """What every test of this file may read, as far as it is known before it runs."""
    sources, new = set(), {path, *(folder / "conftest.py" for folder in path.parents if (folder / "conftest.py").exists())}
    while new:
        sources |= new
        new = set().union(*map(imports, new)) - sources
    sources |= {ROOT / "pytest.ini", *(ROOT / "tests").glob("*.py"), *(ROOT / "ffi/python").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")}
    return {str(one) for one in {*sources, pathlib.Path(os.environ["KBUNDLE_LIBRARY"]), *bundles()} if one.exists()}


class File:
    """One file of tests: what it reads, whether it passed before, and what of it has passed now."""

    def __init__(self):
        self.reads, self.starts, self.failed, self.before = set(), False, False, False
        self.left, self.skipped, self.passed = set(), {}, 0

    def expect(self, path, names, digest):
        self.inputs, self.left = inputs(path), set(names)
        places = sorted(one.removeprefix(f"{ROOT}/") for one in self.inputs)  # those of bundles and library as well, which others may stand for
        self.stamp = kept.Passed("a file of tests", path.relative_to(ROOT), *machine(), *names, *places, roots=(ROOT,))
        self.before = self.stamp.before(digest)
        self.contents = {one: digest(one) for one in self.inputs}
        return self

    def whole(self):
        return not (self.before or self.left or self.failed or self.starts) and self.passed

    def remember(self, digest):
        """Unless something was written meanwhile, or what it read is gone."""
        read = self.inputs | self.reads | _session
        if all(map(os.path.exists, read)) and all(digest(path) == content for path, content in self.contents.items()):
            self.stamp.now(read, self.skipped, digest)


class Plugin:
    def __init__(self):
        self.collected, self.files = {}, {}
        sys.addaudithook(_hear)

    def takes(self, path):
        """Bundles of its own a session would build at some time, with the command."""
        below = path.relative_to(ROOT / "tests").parts[0] if path.is_relative_to(ROOT / "tests") else ""
        return below in FOLDERS and (below == "conformance" or "KB_TEST_BUNDLES" in os.environ) and DRAWS not in path.read_text()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        global _now
        _now = self.collected.setdefault(collector.path, File()) if isinstance(collector, pytest.Module) else None
        try:
            return (yield)
        finally:
            _now = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        asked_for = config.option.keyword or config.option.markexpr or any("::" in argument for argument in config.args)
        if asked_for or os.environ.get("KB_TEST_ALL") == "1" or os.environ.get("JAX_PLATFORMS") != "cpu":
            return
        names, digest = {}, functools.cache(kept.digest)
        for item in items:
            names.setdefault(item.path, []).append(item.nodeid)
        self.files = {path: self.collected[path].expect(path, own, digest) for path, own in names.items() if self.takes(path)}
        for item in items:
            if (file := self.files.get(item.path)) and file.before:
                self.stand_in(item, file.stamp.about.get(item.nodeid))

    def stand_in(self, item, reason):
        """The test neither sets up nor runs anything; one that was skipped says why again."""
        item.user_properties.append(kept.PROPERTY)
        item.setup, item.runtest = lambda: None, lambda: reason and pytest.skip(reason)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        global _now
        _now = self.files.get(item.path)
        try:
            return (yield)
        finally:
            _now = None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        global _now
        if _now is None or fixturedef.scope != "session":
            return (yield)
        own, before = _now, set(_now.reads)
        try:
            return (yield)
        finally:
            _session.update(own.reads - before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        report = yield
        if file := self.files.get(item.path):
            file.failed |= report.failed
            if report.skipped:
                reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected to fail"
                file.skipped[item.nodeid] = reason.removeprefix("Skipped: ")
                file.failed |= not BY_MACHINE.match(reason)
            elif report.when == "call":
                file.passed += 1
            if report.when == "teardown":
                file.left.discard(item.nodeid)
        return report

    def pytest_sessionfinish(self):
        digest = functools.cache(kept.digest)
        for file in self.files.values():
            if file.whole():
                file.remember(digest)

    def pytest_report_teststatus(self, report):
        if report.passed and report.when == "call" and kept.PROPERTY in map(tuple, report.user_properties):
            return "kept", "k", "KEPT"
        return None
