"""Promise: kbundle.torch.call passes what it is given, all of it and nothing else, on every device, and what is read was written."""

import functools

import pytest
from at_once import at_once

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

import kbundle  # noqa: E402
import kbundle.torch as kbt  # noqa: E402
from kbundle import _open_bundles  # noqa: E402


def rows(device, *shape, dtype=torch.float32):
    return torch.arange(int(torch.tensor(shape).prod()), device=device).reshape(shape).to(dtype)


def test_attributes_dtypes_and_ranks(probe, device):
    for shape in [(7,), (2, 3), (2, 3, 4, 5)]:
        for dtype in (torch.float32, torch.int32):
            x = rows(device, *shape, dtype=dtype)
            for by in ({}, {"by": 2}, {"by": -3}):
                y = kbt.call(probe, "probe.shift", x, **by)
                assert y.dtype == dtype and y.device == x.device
                assert torch.equal(y, x + by.get("by", 1))


def test_attributes_of_one_value_are_told_apart_by_their_names(kernels, device):
    a, b = torch.randn(4, 4, device=device), torch.randn(4, 4, device=device)
    kbt.register(kernels)
    for product in (functools.partial(kbt.call, kernels, "matmul.matmul"), torch.ops.kbundle.matmul_matmul):
        for given, wanted in (({"trans_a": True}, a.t() @ b), ({"trans_b": True}, a @ b.t())):
            for _ in range(2):
                torch.testing.assert_close(product(a, b, out_dtype="f32", precision="ieee", **given)[0], wanted)


def test_work_large_enough_for_several_threads_is_done_once_everywhere(probe, device):
    x = rows(device, 1000, 4001)
    for _ in range(3):
        assert torch.equal(kbt.call(probe, "probe.shift", x), x + 1)


def test_two_results_come_as_a_tuple(demo, device):
    x = torch.randn(3, 4, 33, device=device)
    low, high = kbt.call(demo, "demo.bounds", x)
    assert torch.equal(low, x.amin(-1)) and torch.equal(high, x.amax(-1))


def test_an_optional_operand_may_be_none_left_out_or_given(demo, device):
    x, gain, bias = rows(device, 5, 7), rows(device, 7), rows(device, 7) * 10
    for operands in [(x, gain), (x, gain, None)]:
        torch.testing.assert_close(kbt.call(demo, "demo.affine", *operands), x * gain)
    torch.testing.assert_close(kbt.call(demo, "demo.affine", x, gain, bias), x * gain + bias)


def test_a_result_that_is_absent_is_none(probe, device):
    x, mask = rows(device, 6), torch.tensor([1, 0, 1, 1, 0, 0], dtype=torch.uint8, device=device)
    y, kept = kbt.call(probe, "probe.keep", x)
    assert kept is None and torch.equal(y, x)
    y, kept = kbt.call(probe, "probe.keep", x, mask)
    assert kept is not None and torch.equal(y, x * mask)


def test_a_dtype_is_given_by_torch_or_by_name(probe, device):
    x = torch.tensor([0, 1, 200], dtype=torch.uint8, device=device)
    for dtype in (torch.float32, "f32"):
        assert torch.equal(kbt.call(probe, "probe.cast", x, out_dtype=dtype), x.float())


def test_a_result_that_is_written_over_an_operand_leaves_the_operand(demo, device):
    y, x = torch.randn(4099, device=device), torch.randn(4099, device=device)
    kept = y.clone()
    torch.testing.assert_close(kbt.call(demo, "demo.accumulate", y, x, alpha=0.5), y + 0.5 * x)
    assert torch.equal(y, kept)


@pytest.mark.parametrize("view", ["transposed", "every other", "expanded", "shifted by one element", "no rows", "one element"])
def test_views_of_any_kind(kernels, device, view):
    base = torch.randn(12, 33, device=device)
    x = {"transposed": base.t(), "every other": base[::2, 1::2], "expanded": base[:1].expand(5, 33),
         "shifted by one element": base.reshape(-1)[1:1 + 11 * 33].reshape(11, 33), "no rows": base[:0], "one element": base[:1, :1]}[view]
    torch.testing.assert_close(kbt.scaled_softmax(x, 0.5), torch.softmax(x * 0.5, -1))


def test_every_op_of_the_bundles_has_an_operator(probe, demo, kernels):
    for bundle in (probe, demo, kernels):
        kbt.register(bundle)
        for op in bundle.ops:
            packet = getattr(torch.ops.kbundle, op.name.replace(".", "_"))
            assert "i" + op.interface in packet.overloads()


def test_an_operator_itself_is_served_by_the_default_bundle(kernels, device):
    kbt.register(kernels)
    x = torch.randn(3, 5, device=device)
    torch.testing.assert_close(torch.ops.kbundle.softmax_scaled_forward(x, scale=2.0), torch.softmax(2 * x, -1))


def test_forcing_and_reloading_hold_from_the_next_call_on(probe, demo, device, kernels):
    x = torch.randn(64, 128, device=device)
    target = "cuda" if device.type == "cuda" else None
    wanted = [one["id"] for one in kernels.explain("softmax.scaled_forward", x, target=target)["candidates"] if one["legal"]][-1]
    before = kbt.scaled_softmax(x)
    try:
        kernels.force(wanted)
        torch.testing.assert_close(kbt.scaled_softmax(x), before)
        assert any(row["variant"] == wanted for row in kernels.stats()["chosen"])
    finally:
        kbundle.clear_policy()
    again = kbundle.open(kernels.path, "reloaded")
    assert torch.equal(kbt.call(again, "softmax.scaled_forward", x), before)
    again.close()
    with pytest.raises(kbundle.Error, match="NOT_FOUND|FAILED_PRECONDITION"):
        kbt.call(again, "softmax.scaled_forward", x)


def test_without_a_bundle_it_is_of_what_was_loaded_last(probe_path, other_probe_path, monkeypatch):
    monkeypatch.setattr(_open_bundles, "_default", None)
    old = kbundle.use(kbundle.open(probe_path, "pytorch reload"))
    x = torch.randn(3, 7)
    assert torch.equal(kbt.call(None, "probe.shift", x, by=83), x + 83)
    new = kbundle.open(other_probe_path, "pytorch reload", reload=True)
    assert torch.equal(kbt.call(None, "probe.shift", x, by=83), x + 83)
    ran = {row["content_id"] for row in kbundle.stats()["chosen"] if "by=83" in row["problem"]}
    assert ran == {old.content_id, new.content_id}


def test_many_threads_at_once(probe, device):
    wrong = []

    def work(seed):
        for i in range(50):
            x = torch.full((i % 7 + 1, 33), float(seed), device=device)
            if not torch.equal(kbt.call(probe, "probe.shift", x, by=i), x + i):
                wrong.append((seed, i))
    at_once(work)
    assert not wrong
