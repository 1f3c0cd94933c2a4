"""Promise: on eight devices calls are divided as the manifests say (tests/sharding/eight, one process)."""

import os
import pathlib
import subprocess
import sys

from sharding.conftest import EIGHT


def test_calls_are_divided_on_eight_devices(kernels_path):
    environment = dict(os.environ, XLA_FLAGS=EIGHT, JAX_PLATFORMS="cpu", KB_TEST_BUNDLES=str(kernels_path.parent))
    eight = pathlib.Path(__file__).parent / "eight"
    done = subprocess.run([sys.executable, "-m", "pytest", "-x", str(eight)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
