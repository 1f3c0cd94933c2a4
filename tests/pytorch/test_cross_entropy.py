"""Promise: kbt.cross_entropy is one op whatever the labels' type and the reduction, means what float64 says, and gives the same bits each time."""

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

import kbundle.torch as kbt  # noqa: E402

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("kernels")
REDUCTIONS = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
SHAPES = pytest.mark.parametrize("shape", [(5, 33), (3, 2, 1000), (9001, 5), (7,)], ids=str)
FAR = [2**31, -2**31 - 1, 2**32, 2**32 - 100, -2**63, 2**63 - 1]  # none of them is what is left of it in 32 bits


def drawn(device, shape, dtype=torch.int64, ignored=-100):
    random = torch.Generator().manual_seed(sum(shape))
    labels = torch.randint(0, min(shape[-1], 100), shape[:-1], generator=random)
    if labels.numel() > 1:
        labels.view(-1)[::3] = ignored
    return (3 * torch.randn(shape, generator=random)).to(device), labels.to(device, dtype)


def wanted(logits, labels, reduction, dloss=1.0):
    """Loss and gradient in float64."""
    wide = logits.double().reshape(-1, logits.shape[-1]).requires_grad_()
    loss = F.cross_entropy(wide, labels.reshape(-1).long(), reduction="none").reshape(labels.shape)
    count = max(1, int((labels != -100).sum()))
    loss = {"mean": loss.sum() / count, "sum": loss.sum(), "none": loss}[reduction]
    return loss.detach(), torch.autograd.grad((loss * dloss).sum(), wide)[0].reshape(logits.shape)


def near(found, right):
    torch.testing.assert_close(found.double(), right, rtol=3e-6, atol=3e-6)


@SHAPES
@REDUCTIONS
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16], ids=str)
def test_loss_and_gradient_are_those_of_float64(device, shape, reduction, dtype):
    logits, labels = drawn(device, shape, dtype)
    right, slope = wanted(logits, labels, reduction)
    for logits in (logits, logits.clone().requires_grad_()):
        for _ in range(3):  # the long way, then the short ones
            loss = kbt.cross_entropy(logits, labels, reduction=reduction)
            near(loss, right)
            if logits.requires_grad:
                near(torch.autograd.grad(loss.sum(), logits)[0], slope)


@SHAPES
@REDUCTIONS
@pytest.mark.parametrize("dloss", ["none", "number", "tensor", "of every row"])
def test_both_at_once_for_every_kind_of_gradient(device, shape, reduction, dloss):
    logits, labels = drawn(device, shape)
    given = {"none": None, "number": 0.5, "tensor": torch.tensor(0.5, device=device),
             "of every row": torch.rand(labels.shape, generator=torch.Generator().manual_seed(1)).to(device)}[dloss]
    if dloss == "of every row" and reduction != "none" and labels.dim():
        with pytest.raises(ValueError, match="it must be a number"):
            kbt.cross_entropy_with_gradient(logits, labels, given, reduction=reduction)
        return
    right = wanted(logits, labels, reduction, 1.0 if given is None else given)
    for _ in range(3):
        for found, one in zip(kbt.cross_entropy_with_gradient(logits, labels, given, reduction=reduction), right):
            near(found, one)


@REDUCTIONS
def test_of_no_rows_and_of_none_that_count_all_is_zero(device, reduction):
    for logits, labels in ((torch.ones(0, 5), torch.zeros(0)), (torch.ones(4, 5), torch.full((4,), -100)), (torch.ones(5), torch.tensor(-100))):
        logits, labels = logits.to(device).requires_grad_(), labels.to(device, torch.int64)
        for _ in range(3):
            loss = kbt.cross_entropy(logits, labels, reduction=reduction)
            assert loss.shape == (labels.shape if reduction == "none" else ()) and not loss.any()
            assert not torch.autograd.grad(loss.sum(), logits)[0].any()
            loss, gradient = kbt.cross_entropy_with_gradient(logits.detach(), labels, reduction=reduction)
            assert not loss.any() and gradient.shape == logits.shape and not gradient.any()


@pytest.mark.parametrize("label", FAR)
def test_a_label_that_int32_has_no_room_for_is_wrong(device, label):
    logits, labels = drawn(device, (4, 33), ignored=5)
    labels[2] = label
    losses = kbt.cross_entropy(logits, labels, reduction="none")
    assert losses.isnan().tolist() == [False, False, True, False]
    logits.requires_grad_()
    for reduction in ("mean", "sum"):
        loss = kbt.cross_entropy(logits, labels, reduction=reduction)
        assert loss.isnan()
        assert torch.autograd.grad(loss, logits)[0].isnan().all(-1).tolist() == [False, False, True, False]


def test_a_label_of_uint64_that_int64_has_no_room_for_is_wrong():
    logits, labels = drawn("cpu", (4, 33), ignored=5)
    labels[2] = -100  # as uint64 a large number, which is not to be ignored
    assert kbt.cross_entropy(logits, labels.view(torch.uint64), reduction="none").isnan().tolist() == [False, False, True, False]
    near(kbt.cross_entropy(logits[:2], labels[:2].view(torch.uint64)), wanted(logits[:2], labels[:2], "mean")[0])


def test_another_label_may_be_ignored(device):
    logits, labels = drawn(device, (6, 9))
    other = torch.where(labels == -100, 4, torch.where(labels == 4, 3, labels))
    right = wanted(logits, torch.where(other == 4, -100, other), "mean")[0]
    near(kbt.cross_entropy(logits, other, ignore_index=4), right)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_same_losses_give_the_same_bits(device, reduction):
    logits, labels = drawn(device, (40001, 7))
    made, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            x = logits.clone().requires_grad_()
            loss = kbt.cross_entropy(x, labels, reduction=reduction)
            made.append((loss.detach(), torch.autograd.grad(loss, x)[0]))
    finally:
        torch.set_num_threads(before)
    for again in made[1:]:
        assert all(torch.equal(one, other) for one, other in zip(made[0], again))


def test_a_cuda_graph_reduces_what_labels_say_when_it_runs(device):
    if device.type != "cuda":
        pytest.skip("graphs are of CUDA")
    logits, labels = drawn(device, (40, 1000))
    both = lambda: kbt.cross_entropy_with_gradient(logits, labels)
    both()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = both()
    for ignored in (3, 40, 0):
        labels.copy_(torch.arange(40, device=device))
        labels[:ignored] = -100
        graph.replay()
        for found, right in zip(made, wanted(logits, labels, "mean")):
            near(found, right)
