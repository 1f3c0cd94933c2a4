"""Bundles to call from Python, and the platforms to call them on.

KB_TEST_BUNDLES: a folder with probe.kb, other_probe.kb, demo.kb and kernels.kb built elsewhere; else they are built here.
JAX_PLATFORMS empty: every platform that JAX finds; tests of an absent one are skipped by name.
"""

import os
import pathlib

import bundles
import pytest

# Before any backend starts: shard_map needs devices.
_FLAG = "--xla_force_host_platform_device_count=4"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " " + _FLAG).strip()

# Tests start processes that want the GPU too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

_found = {}


def bundle_path(name, request):
    """The path of a test bundle, built once a session."""
    if name not in _found:
        prebuilt = os.environ.get("KB_TEST_BUNDLES")
        if prebuilt:
            path = pathlib.Path(prebuilt) / (name + ".kb")
            assert path.exists(), f"KB_TEST_BUNDLES is set, but there is no {path}"
        else:
            folder = request.getfixturevalue("tmp_path_factory").mktemp("bundles")
            path = bundles.build(request.getfixturevalue("command"), name, folder)
        _found[name] = path
    return _found[name]


def cuda_is_absent():
    import jax
    try:
        return not jax.devices("cuda")
    except RuntimeError:
        return True


@pytest.fixture(scope="session")
def probe_path(request):
    return bundle_path("probe", request)


@pytest.fixture(scope="session")
def probe(probe_path):
    import kbundle
    return kbundle.open(probe_path)


@pytest.fixture(scope="session")
def demo(request):
    import kbundle
    return kbundle.open(bundle_path("demo", request))


@pytest.fixture(scope="session")
def other_probe_path(request):
    """A file with the ops of probe and other content."""
    return bundle_path("other_probe", request)


@pytest.fixture(scope="session")
def demo_path(request):
    return bundle_path("demo", request)


@pytest.fixture(scope="session")
def kernels(request):
    import kbundle
    return kbundle.use(bundle_path("kernels", request))


@pytest.fixture(params=["cpu", "cuda"])
def platform(request):
    """Everything in the test runs on this platform."""
    import jax
    if request.param == "cuda" and cuda_is_absent():
        pytest.skip("cuda: JAX finds no such device here")
    with jax.default_device(jax.devices(request.param)[0]):
        yield request.param
