"""What tests of kbundle.torch share. Without PyTorch, an extra of the set-up (scripts/setup --torch), each of them is skipped by name."""

import importlib.util

import pytest
from python.conftest import bundle_path

HAS_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore_glob = []


def pytest_report_header():
    return "" if HAS_TORCH else "pytorch: not installed (scripts/setup --torch): tests/pytorch is skipped"


def pytest_collection_modifyitems(items):
    for item in items:
        if not HAS_TORCH and "pytorch" in item.path.parts:
            item.add_marker(pytest.mark.skip(reason="no PyTorch: scripts/setup --torch installs it"))


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Where the test's tensors are; what a call leaves unwritten is NaN."""
    import torch
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("cuda: PyTorch finds no such device here")
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield torch.device(request.param)
    torch.use_deterministic_algorithms(False)


def opened(name, request):
    import kbundle
    return kbundle.open(bundle_path(name, request))


@pytest.fixture(scope="session")
def probe(request):
    return opened("probe", request)


@pytest.fixture(scope="session")
def demo(request):
    return opened("demo", request)


@pytest.fixture(scope="session")
def kernels(request):
    import kbundle
    return kbundle.use(bundle_path("kernels", request))
