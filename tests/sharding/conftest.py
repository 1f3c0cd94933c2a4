"""tests/sharding/eight runs in a process of its own (test_eight_devices.py), since JAX decides once how many devices there are."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EIGHT = "--xla_force_host_platform_device_count=8"
collect_ignore = [] if EIGHT in os.environ.get("XLA_FLAGS", "") else ["eight"]


@pytest.fixture(scope="session")
def kernels_path(request):
    """The families of kernels/ for this machine's CPU. KB_TEST_BUNDLES: a folder that has kernels.kb already."""
    prebuilt = os.environ.get("KB_TEST_BUNDLES")
    if prebuilt:
        return pathlib.Path(prebuilt) / "kernels.kb"
    path = request.getfixturevalue("tmp_path_factory").mktemp("sharding") / "kernels.kb"
    subprocess.run([request.getfixturevalue("command"), "build", str(ROOT / "kernels"), "-o", str(path), "--provider", "host",
                    "--target", "x86-64-v3", "--name", "sharding_kernels"], check=True)
    return path


@pytest.fixture(scope="session")
def kernels(kernels_path):
    import kbundle
    return kbundle.use(kernels_path)
