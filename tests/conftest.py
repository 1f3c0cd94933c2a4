"""Makes the folders of tests/ importable (conformance, gpu) and says which build is tested.

KB_BUILD: the build folder, by default build/release.
"""

import os
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("KB_BUILD", ROOT / "build/release"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# What XLA compiles for the CPU runs once, for a moment: it takes a sixth of the time where LLVM does not optimize it, in one part, and where
# fused loops are not made by way of MLIR.
QUICKLY = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false"
if os.environ["JAX_PLATFORMS"] == "cpu" and QUICKLY not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}".strip()
# References are of many small products, which one thread makes in half the time that two take to agree.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("KBUNDLE_LIBRARY", str(BUILD / "libkbundle.so"))
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "ffi/python"))

import compiled  # noqa: E402
import kept_files  # noqa: E402

compiled.keep(os.environ)


def pytest_configure(config):
    config.pluginmanager.register(kept_files.Plugin(), "kept files")
    if not hasattr(config, "workerinput"):
        compiled.forget_old()


@pytest.fixture(scope="session")
def command():
    """The path of the command `kbundle`."""
    path = BUILD / "kbundle"
    assert path.exists(), f"no {path}: run `cmake --preset release && cmake --build --preset release`"
    return str(path)


# Files of a minute and more: begun last, one of them would run while the other worker waits. scripts/check keeps this order.
LONG = ("conformance/test_attention.py", "conformance/test_host.py", "sharding/test_eight_devices.py", "conformance/test_norm.py",
        "kernels/test_on_cpu.py", "conformance/test_formulas.py", "cute/test_cute.py", "cute/test_fa4_ragged_launches.py",
        "starter/test_starter.py", "cute/test_fa4_launches.py", "docs/test_pages.py", "python/test_fp8_layers.py", "conformance/test_matmul.py",
        "cli/test_spread.py", "starter/test_families.py", "python/test_linear_cross_entropy.py", "warp/test_warp.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Two workers of pytest-xdist must find the same tests: what str() says of most objects is where they lie in memory."""
    placed = [item.nodeid for item in items if re.search(r" at 0x[0-9a-f]+", item.nodeid)]
    if placed:
        raise pytest.UsageError(f"these names hold an address, which is another in every process; name the cases by `ids`: {placed[:5]}")
    items.sort(key=lambda item: next((i for i, name in enumerate(LONG) if item.nodeid.startswith(f"tests/{name}")), len(LONG)))
