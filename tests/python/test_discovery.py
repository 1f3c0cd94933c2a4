"""Promise: an op is served by the first bundle that has it, of kbundle.use(), $KBUNDLE_PATH and installed packages, in this order;
nothing is looked for before it is needed; what is asked and cannot be read is an error that names its place, file and reason."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

import kbundle

PACKAGE = pathlib.Path(kbundle.__file__).resolve().parent


@pytest.fixture
def site(tmp_path):
    """A folder of installed packages with kbundle alone."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/kbundle").symlink_to(PACKAGE)
    return tmp_path / "site"


def install(site, name, module, *entry_points, version="1.2"):
    """A package of one module, and its lines of entry points."""
    (site / f"{name}.py").write_text(module)
    about = site / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text("\n".join(entry_points) + "\n")


def install_bundle(site, name, path):
    install(site, name, f"BUNDLE = {str(path)!r}", "[kbundle.bundles]", f"{name} = {name}:BUNDLE")


def child(site, code, *files, more=(), wrong=False):
    """What a new process prints that sees the packages of `site` only; files: $KBUNDLE_PATH."""
    words = ["-c", "import kbundle\n" + code] if code else ["-m", "kbundle"]
    environment = {"PYTHONPATH": os.pathsep.join([str(site), *more]), "KBUNDLE_LIBRARY": kbundle.library_path(), "JAX_PLATFORMS": "cpu"}
    if files:
        environment["KBUNDLE_PATH"] = os.pathsep.join(map(str, files))
    done = subprocess.run([sys.executable, "-S", *words], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode != 0) == wrong, done.stdout + done.stderr
    return done.stderr + done.stdout if wrong else done.stdout


SERVES = "print(kbundle.default_bundle('probe.shift').path)"


def test_the_callers_bundle_goes_before_the_path_and_that_before_packages(site, probe_path, other_probe_path, demo_path, tmp_path):
    third = shutil.copy(probe_path, tmp_path / "third.kb")
    install_bundle(site, "mylib", third)
    assert child(site, SERVES) == f"{third}\n"
    assert child(site, SERVES, other_probe_path) == f"{other_probe_path}\n"
    assert child(site, SERVES, demo_path, other_probe_path) == f"{other_probe_path}\n", "the first file lacks the op"
    assert child(site, f"kbundle.use({str(demo_path)!r}); {SERVES}") == f"{third}\n"
    assert child(site, f"kbundle.use({str(probe_path)!r}); {SERVES}", other_probe_path) == f"{probe_path}\n"
    assert child(site, "print(kbundle.default_bundle().path)", demo_path) == f"{demo_path}\n"


def test_packages_are_asked_by_the_names_of_their_entry_points(site, probe_path, other_probe_path):
    install_bundle(site, "b_lib", probe_path)
    install_bundle(site, "a_lib", other_probe_path)
    assert child(site, SERVES) == f"{other_probe_path}\n"


def test_all_places_are_listed_with_what_each_serves(site, probe_path, other_probe_path, demo_path):
    install_bundle(site, "a_lib", other_probe_path)
    install_bundle(site, "b_lib", demo_path)
    text = child(site, "", probe_path)
    assert f"1. $KBUNDLE_PATH {probe_path}\n" in text and f"2. a_lib 1.2 (entry point a_lib) {other_probe_path}\n" in text
    assert f"   probe.shift is taken from $KBUNDLE_PATH {probe_path}\n" in text
    assert "'python_other_probe', 0 ops" in text and "demo.affine" in text


def test_nothing_is_imported_or_read_before_it_is_needed(site, probe_path):
    install(site, "mylib", "raise RuntimeError('imported')", "[kbundle.bundles]", "mylib = mylib:BUNDLE")
    code = "import sys; kbundle.use(%r); kbundle.default_bundle('probe.shift'); print('importlib.metadata' in sys.modules)"
    assert child(site, code % str(probe_path), "/nowhere.kb") == "False\n"


@pytest.mark.parametrize("module, words", [
    ("raise RuntimeError('no licence')", ["FAILED_PRECONDITION", "mylib 1.2 (entry point mylib)", "mylib:BUNDLE", "RuntimeError: no licence"]),
    ("", ["FAILED_PRECONDITION", "mylib 1.2", "AttributeError"]), ("BUNDLE = 7", ["FAILED_PRECONDITION", "mylib 1.2", "TypeError"]),
    ("BUNDLE = '/nowhere/x.kb'", ["NOT_FOUND", "mylib 1.2", "/nowhere/x.kb", "install the package again"]),
    ("import sys; sys.exit('bye')", ["FAILED_PRECONDITION", "mylib 1.2", "SystemExit: bye"]),
    ("BUNDLE = __file__", ["DATA_LOSS", "mylib 1.2", "mylib.py", "not a bundle"]),
])
def test_a_package_that_is_broken_is_named_with_file_and_reason(site, probe_path, module, words):
    install(site, "mylib", module, "[kbundle.bundles]", "mylib = mylib:BUNDLE")
    install_bundle(site, "zlib_of_ours", probe_path)  # has the op, and does not hide what is broken before it
    said = child(site, SERVES, wrong=True)
    assert all(word in said for word in words), said
    listed = child(site, "", wrong=True)
    assert all(word in listed for word in words[1:]) and "2. zlib_of_ours" in listed


@pytest.mark.parametrize("value", ["", "mylib:BUNDLE [more", "a b:c"])
def test_an_entry_point_that_names_no_object_is_said_to_be_that(site, value):
    install(site, "mylib", "BUNDLE = 'x.kb'", "[kbundle.bundles]", f"mylib = {value}")
    for code in (SERVES, ""):
        said = child(site, code, wrong=True)
        assert all(word in said for word in ("FAILED_PRECONDITION", "mylib 1.2", value, "it must be package.module:name")), said


def test_a_damaged_file_of_a_package_is_named(site, probe_path, tmp_path):
    damaged = bytearray(probe_path.read_bytes())
    damaged[200] ^= 1
    (tmp_path / "damaged.kb").write_bytes(damaged)
    install_bundle(site, "mylib", tmp_path / "damaged.kb")
    said = child(site, SERVES, wrong=True)
    assert all(word in said for word in ("DATA_LOSS", "mylib 1.2", "damaged.kb")), said


def test_a_path_to_nothing_is_named(site, probe_path):
    said = child(site, SERVES, "/nowhere.kb", probe_path, wrong=True)
    assert all(word in said for word in ("NOT_FOUND", "$KBUNDLE_PATH", "/nowhere.kb")), said


def test_an_op_that_nobody_has_names_where_it_was_looked_for(site, probe_path, demo_path):
    said = child(site, "kbundle.default_bundle('x.y')", probe_path, demo_path, wrong=True)
    assert all(word in said for word in ("NOT_FOUND", "'x.y'", str(probe_path), str(demo_path), "kbundle.use(path)")), said
    assert "probe.shift" in child(site, "kbundle.default_bundle('probe.shfit')", probe_path, wrong=True)
    assert "kbundle-kernels" in child(site, "kbundle.default_bundle()", wrong=True)
    assert "no bundle: none is in $KBUNDLE_PATH" in child(site, "")


@pytest.mark.parametrize("module, words", [
    ("def twice(x): return 2 * x", "no __all__"), ("__all__ = ['twice']", "['twice']"), ("__all__ = 'twice'\ntwice = 2", "'twice'"),
    ("raise RuntimeError('boom')", "RuntimeError: boom"), ("raise SystemExit(3)", "SystemExit: 3"),
])
def test_a_module_of_functions_that_is_broken_is_named_and_not_passed_over(site, module, words):
    install(site, "mylib", module, "[kbundle.jax]", "mylib = mylib")
    # An AttributeError would be no error to hasattr and getattr with a default.
    said = child(site, "import kbundle.jax as kbj; hasattr(kbj, 'twice')", more=[sysconfig.get_path("purelib")], wrong=True)
    assert all(word in said for word in ("FAILED_PRECONDITION", "mylib 1.2", words)), said


WRAPPER = "__all__ = ['twice']\ndef twice(x):\n    return %d * x\n"


def test_functions_of_packages_are_those_of_kbundle_jax_and_two_of_a_name_are_an_error(site):
    install(site, "a_lib", WRAPPER % 2, "[kbundle.jax]", "a_lib = a_lib")
    libraries = [sysconfig.get_path("purelib")]
    code = "import kbundle.jax as kbj; print(kbj.twice(3), 'twice' in dir(kbj))"
    assert child(site, code, more=libraries) == "6 True\n"
    install(site, "b_lib", WRAPPER % 3, "[kbundle.jax]", "b_lib = b_lib")
    said = child(site, code, more=libraries, wrong=True)
    assert all(word in said for word in ("ALREADY_EXISTS", "a_lib 1.2", "b_lib 1.2", "'twice'")), said


def test_two_bundles_of_one_name_that_share_an_op_are_not_open_at_once(site, probe_path, other_probe_path):
    code = f"kbundle.open({str(other_probe_path)!r}, name='python_probe'); {SERVES}"
    said = child(site, code, probe_path, wrong=True)
    assert all(word in said for word in ("ALREADY_EXISTS", "$KBUNDLE_PATH", "python_probe", "probe.")), said
