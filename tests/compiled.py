"""What XLA compiled for the CPU in an earlier run of the tests is not compiled again: most of what tests of kbundle.jax do is small programs
whose compilation costs ten times what running them does.

JAX's own persistent cache keeps them, in a folder of kbundle's cache. A program's key is its text, the compiler's version and its options.
What else decides names the folder: this CPU, since code for another one must not be loaded; Python; and the Python sources of kbundle.jax,
which answer the compiler when it divides a program among devices, by callbacks that the text names by their addresses alone. Code of kbundle
is in no program: a call finds its handler when the program is loaded, and its kernels when it runs.

Kept for a month, the newest MOST of a folder: a program for several devices with a call of ours names its rule by an address, which in the
next process is another one, so that it is written each time and not found again. KB_TEST_ALL=1 compiles everything. A test that counts
compilations gives its programs a folder of its own (test_process.py).
"""

import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import sys
import time

import kept

MOST = 20_000
SOURCES = pathlib.Path(__file__).resolve().parents[1] / "ffi/python/kbundle"


def cpu():
    """What code for this machine may use. Systems that do not say are told apart by name alone."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.platform(), platform.processor()
    return sorted({line for line in lines if line.startswith(("flags", "model", "vendor_id", "cpu family", "Features", "CPU "))})


def name():
    decides = [*map(str, cpu()), sys.version, os.environ.get("XLA_FLAGS", "")]
    decides += [importlib.metadata.version(package) for package in ("jax", "jaxlib", "numpy", "ml_dtypes")]
    decides += [kept.digest(path) for path in sorted(SOURCES.rglob("*.py"))]
    return hashlib.sha256("\n".join(decides).encode()).hexdigest()[:16]


def keep(environment):
    """Has JAX keep what it compiles, in this process and those that it starts. Nothing where programs for a GPU may be compiled, where
    somebody has chosen a folder, and where all is to be done again."""
    if environment.get("KB_TEST_ALL") == "1" or environment.get("JAX_PLATFORMS") != "cpu" or "JAX_COMPILATION_CACHE_DIR" in environment:
        return
    folder = kept.folder().parent / "compiled" / name()
    environment.update(JAX_COMPILATION_CACHE_DIR=str(folder), JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
                       JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1")


def forget_old(folder=None):
    """Programs that were compiled a month ago, whether used or not, those beyond MOST, and folders that have none."""
    folder = folder or kept.folder().parent / "compiled"
    for programs in folder.glob("*/"):
        for newer, (age, path) in enumerate(sorted(ages(programs))):
            if newer >= MOST or age > kept.MONTH_SECONDS:
                remove(path)
    for age, path in ages(folder):
        if age > kept.MONTH_SECONDS:
            remove(path)


def ages(folder):
    """(seconds since it was written, path) of all that another process has not removed meanwhile."""
    for path in folder.glob("*"):
        with contextlib.suppress(OSError):
            yield time.time() - path.stat().st_mtime, path


def remove(path):
    with contextlib.suppress(OSError):  # another process has done so, or it is a folder that is not empty
        path.rmdir() if path.is_dir() else path.unlink()
