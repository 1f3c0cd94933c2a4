"""Promise: sizes of groups, lengths, pages and offsets of 64 bits that int32 has no room for stay out of bounds in functions for PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

import kbundle.torch as kbt  # noqa: E402
from kbundle.torch._dtypes import int32  # noqa: E402

pytestmark = pytest.mark.usefixtures("kernels")
WRAPPED = 2**32 + 1  # its low 32 bits are 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint32, torch.uint64, torch.int32, torch.uint8], ids=str)
def test_the_nearest_number_of_int32(dtype):
    given = [0, 5, 200] + ([2**32 - 1] if dtype in (torch.int64, torch.uint32, torch.uint64) else [])
    found = int32(torch.tensor(given, dtype=dtype))
    assert found.dtype == torch.int32 and found.tolist() == [min(one, 2**31 - 1) for one in given]
    if dtype == torch.int64:
        assert int32(torch.tensor([-2**40, WRAPPED])).tolist() == [-2**31, 2**31 - 1]


def test_low_bits_are_no_size_length_or_page(device):
    x, w = torch.ones(4, 8, device=device), torch.ones(2, 8, 3, device=device)
    w[0] = 9
    sizes = torch.tensor([-2**32 + 1, WRAPPED], device=device)  # none, and all rows
    assert torch.equal(kbt.grouped_matmul(x, w, sizes), torch.full((4, 3), 8.0, device=device))
    assert kbt.grouped_quantize(x, sizes).amax.tolist() == [0, 1]
    pages, one = torch.randn(1, 4, 2, 8, device=device), torch.ones(1, 1, 8, device=device)
    at = lambda *numbers: torch.tensor(numbers, device=device)
    assert torch.equal(kbt.paged_attention(one, pages, pages, at(2), at(WRAPPED)[None]), torch.zeros(1, 1, 8, device=device))
    assert torch.equal(kbt.paged_attention(one, pages, pages, at(WRAPPED), at(1)[None]), kbt.paged_attention(one, pages, pages, at(2), at(1)[None]))
