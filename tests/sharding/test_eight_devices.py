"""Promise: on eight devices calls are divided as the manifests say (tests/sharding/eight, one process)."""

import os
import pathlib
import subprocess
import sys

from sharding.conftest import EIGHT


def test_calls_are_divided_on_eight_devices(kernels_path, request):
    # Programs for eight devices have a folder of their own (tests/compiled.py).
    inherited = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment = dict(inherited, XLA_FLAGS=EIGHT, JAX_PLATFORMS="cpu", KB_TEST_BUNDLES=str(kernels_path.parent))
    eight = pathlib.Path(__file__).parent / "eight"
    done = subprocess.run([sys.executable, "-m", "pytest", "-x", str(eight)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    if " kept" in done.stdout.splitlines()[-1]:
        request.node.user_properties.append(("kept", done.stdout.splitlines()[-1]))
