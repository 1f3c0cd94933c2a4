"""Promise: a libkbundle.so that this machine cannot load, or that is older than the package around it, is an error that names file and wheel,
what both are for, what this machine is, and what to install."""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

import pytest

import kbundle

PACKAGE = pathlib.Path(kbundle.__file__).resolve().parent
ARM = 183  # e_machine


@pytest.fixture
def wheel(tmp_path):
    """A folder into which a wheel of another platform was unpacked: kbundle 0.1.0 with these bytes as its library."""
    def install(library, tag="py3-none-manylinux_2_28_aarch64"):
        site = tmp_path / "site"
        shutil.copytree(PACKAGE, site / "kbundle", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        (site / "kbundle/libkbundle.so").write_bytes(library)
        about = site / "kbundle-0.1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: kbundle\nVersion: 0.1.0\n")
        (about / "WHEEL").write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        return site
    return install


def said(site, code="kbundle.bundles()\nkbundle.open('x.kb')"):
    done = subprocess.run([sys.executable, "-S", "-c", "import kbundle\n" + code], env={"PYTHONPATH": str(site), "PATH": os.environ["PATH"]},
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.splitlines()[-1]


def ours():
    return bytearray(pathlib.Path(kbundle.library_path()).read_bytes())


def test_a_library_of_another_machine(wheel):
    library = ours()
    library[18:20] = ARM.to_bytes(2, "little")
    site = wheel(library)
    line = said(site)
    for words in ("[kbundle:UNAVAILABLE]", f"{site}/kbundle/libkbundle.so", "of the wheel kbundle 0.1.0 (py3-none-manylinux_2_28_aarch64)",
                  "it is for Linux on aarch64", f"this is Linux on {platform.machine()}", "install the wheel of this platform",
                  "pip install --force-reinstall kbundle"):
        assert words in line, line


def test_a_library_for_a_newer_system(wheel):
    library = ours()
    newest = max(re.findall(rb"GLIBC_2\.(\d+)\0", library), key=int)
    library = library.replace(b"GLIBC_2." + newest + b"\0", b"GLIBC_9." + newest + b"\0")
    line = said(wheel(library, "py3-none-manylinux_9_1_x86_64"))
    for words in ("GLIBC_9." + newest.decode(), "not found", "manylinux_9_1_x86_64", f"it is for Linux on {platform.machine()}",
                  "with glibc " + platform.libc_ver()[1], "install the wheel of this platform"):
        assert words in line, line


@pytest.mark.parametrize("library, words", [(b"", "it is no library of Linux"), (b"MZ" + bytes(100), "it is no library of Linux"),
                                            (b"\x7fELF", "it is no library of Linux")], ids=["empty", "windows", "cut"])
def test_what_is_no_library(wheel, library, words):
    assert words in said(wheel(library, "py3-none-win_amd64"))


def test_without_a_wheel_it_is_built_again(tmp_path):
    (tmp_path / "libkbundle.so").write_bytes(b"nothing")
    line = said(PACKAGE.parent, f"import os; os.environ['KBUNDLE_LIBRARY'] = {str(tmp_path / 'libkbundle.so')!r}\nkbundle.open('x.kb')")
    assert f"{tmp_path}/libkbundle.so" in line and "build it here" in line and "of the wheel" not in line


def test_a_library_older_than_its_package(wheel, tmp_path):
    if not shutil.which("cc"):
        pytest.skip("cc: not on this machine")
    (tmp_path / "old.c").write_text("int kb_abi_version(void) { return 1; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "old.so", tmp_path / "old.c"], check=True)
    line = said(wheel((tmp_path / "old.so").read_bytes()))
    assert "[kbundle:UNIMPLEMENTED]" in line and re.search(r"it has no kb_\w+, which this package calls", line) and "one wheel" in line, line
