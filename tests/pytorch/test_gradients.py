"""Promise: functions for PyTorch that families bring along mean what the formula says in float64, and so do their gradients."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

from pytorch.formulas import attended, check, drawn  # noqa: E402

import kbundle.torch as kbt  # noqa: E402

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("kernels")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)


@DTYPES
@pytest.mark.parametrize("shape", [(7,), (3, 33), (2, 3, 4, 128), (0, 5)], ids=str)
def test_softmax(device, dtype, shape):
    check(functools.partial(kbt.scaled_softmax, scale=0.5), lambda x: torch.softmax(x * 0.5, -1), drawn(device, dtype, shape))


@DTYPES
def test_causal_softmax(device, dtype):
    keep = torch.ones(17, 17, device=device).tril().bool()
    check(functools.partial(kbt.scaled_causal_softmax, scale=0.25),
          lambda x: torch.softmax((x * 0.25).masked_fill(~keep, -1e30), -1), drawn(device, dtype, (2, 3, 17, 17)))


@pytest.mark.parametrize("shape, mask_shape", [
    ((2, 3, 4, 33), (2, 3, 4, 33)), ((2, 3, 4, 33), (2, 1, 4, 33)), ((2, 3, 4, 33), (33,)), ((4, 33), (4, 33)), ((3, 4, 33), (4, 33)),
    ((2, 2, 3, 4, 33), (2, 1, 3, 4, 33)), ((2, 2, 3, 4, 33), (1, 1, 3, 4, 33))], ids=str)
@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.uint8, torch.int32], ids=str)
def test_masked_softmax(device, shape, mask_shape, mask_dtype):
    mask = torch.randint(0, 2, mask_shape, generator=torch.Generator().manual_seed(1)).to(device, mask_dtype)

    def formula(x):
        dead = (mask != 0).expand(x.shape).all(-1, keepdim=True)
        return torch.softmax((x * 0.5).masked_fill(mask != 0, -10000.0), -1).masked_fill(dead, 0)
    check(lambda x: kbt.scaled_masked_softmax(x, mask, 0.5), formula, drawn(device, torch.float32, shape))


@DTYPES
@pytest.mark.parametrize("wide", [False, True], ids=["weights of x's dtype", "float32 weights"])
@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm", "layer_norm without beta"])
def test_norms(device, dtype, wide, residual, norm):
    weights = 2 if norm == "layer_norm" else 1
    x, *rest = drawn(device, dtype, (5, 3, 77), *[(77,)] * weights, *[(5, 3, 77)] * residual)
    rest = [w.float() if wide and w.dim() == 1 else w for w in rest]

    def function(x, *rest):
        more = {"residual": rest[-1]} if residual else {}
        return getattr(kbt, norm.split()[0])(x, *rest[:weights], epsilon=1e-5, **more)

    def formula(x, *rest):
        total = x + rest[-1] if residual else x
        if residual:
            total = total + (total.to(dtype).double() - total).detach()  # as it is stored
        if norm == "rms_norm":
            y = F.rms_norm(total, (77,), rest[0], 1e-5)
        else:
            y = F.layer_norm(total, (77,), rest[0], rest[1] if weights == 2 else None, 1e-5)
        return (y, total) if residual else y
    check(function, formula, [x, *rest], times=3)


def test_only_one_of_two_results_need_be_used(device):
    x, gamma, residual = [t.requires_grad_() for t in drawn(device, torch.float32, (4, 33), (33,), (4, 33))]
    y, total = kbt.rms_norm(x, gamma, residual=residual)
    wanted = torch.autograd.grad(F.rms_norm(x + residual, (33,), gamma, 1e-6).sum(), (x, gamma, residual))
    for found, other in zip(torch.autograd.grad(y.sum(), (x, gamma, residual), retain_graph=True), wanted):
        torch.testing.assert_close(found, other, rtol=1e-5, atol=1e-5)
    dx, dresidual = torch.autograd.grad(total.sum(), (x, residual))
    assert torch.equal(dx, torch.ones_like(x)) and torch.equal(dresidual, dx)


def test_statistics_have_no_gradient_and_do_not_pretend_to(device):
    x, gamma = [t.requires_grad_() for t in drawn(device, torch.float32, (4, 8), (8,))]
    y, rsigma, _ = kbt.call(None, "norm.rmsnorm_forward", x, gamma)
    assert y.requires_grad and not rsigma.requires_grad


SHAPES = [((2, 4, 9, 16), (2, 4, 11, 16), (2, 4, 11, 16)), ((2, 4, 9, 16), (2, 2, 9, 16), (2, 2, 9, 16)), ((3, 17, 32), (3, 17, 32), (3, 17, 32))]


@DTYPES
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_attention(device, dtype, shapes, is_causal):
    if device.type == "cuda" and dtype == torch.float32:
        pytest.skip("cuda: no kernel takes attention in float32")
    more = dict(is_causal=is_causal, enable_gqa=True)
    check(functools.partial(kbt.scaled_dot_product_attention, **more), functools.partial(F.scaled_dot_product_attention, **more),
          drawn(device, dtype, *shapes), times=3)


@pytest.mark.parametrize("mask_shape", [(9, 11), (2, 1, 9, 11), (4, 9, 11), (1, 1, 1, 11)], ids=str)
def test_attention_with_a_mask_or_a_bias(device, mask_shape):
    q, k, v = drawn(device, attended(device), *SHAPES[0])
    [bias] = drawn(device, attended(device), mask_shape)
    see = bias > -1
    see[..., 0] = True
    check(lambda q, k, v: kbt.scaled_dot_product_attention(q, k, v, see), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, see), [q, k, v],
          times=3)
    if device.type == "cuda":  # where kernels for GPUs sum the gradient of a bias that is broadcast in any order, or not at all
        torch.use_deterministic_algorithms(False)
    check(kbt.scaled_dot_product_attention, F.scaled_dot_product_attention, [q, k, v, bias], times=3)


@pytest.mark.parametrize("window", [3, (2, 1), (0, 4), (None, 2), (5, None), (30, 30)], ids=str)
@pytest.mark.parametrize("bottom_right", [False, True], ids=["", "bottom right"])
def test_attention_within_a_window(device, window, bottom_right):
    if device.type == "cuda":
        pytest.skip("cuda: no kernel takes heads of 16 columns and a window that looks ahead")
    left, right = window if isinstance(window, tuple) else (window, window)
    far = torch.arange(11)[None, :] - torch.arange(9)[:, None] - 2 * bottom_right
    see = (far >= -(99 if left is None else left)) & (far <= (99 if right is None else right))
    more = dict(local_window_size=window, bottom_right_diagonal=bottom_right)
    check(functools.partial(kbt.scaled_dot_product_attention, **more), functools.partial(F.scaled_dot_product_attention, attn_mask=see),
          drawn(device, torch.float32, *SHAPES[0]))


def test_attention_of_tokens_before_heads_is_a_view_away(device):
    q, k, v = drawn(device, attended(device), *[(2, 9, 4, 16)] * 3)

    def turned(function):
        return lambda *x: function(*[one.transpose(1, 2) for one in x], is_causal=True).transpose(1, 2)
    check(turned(kbt.scaled_dot_product_attention), turned(F.scaled_dot_product_attention), [q, k, v], times=3)


def test_a_score_modifier(device):
    def formula(q, k, v):
        scores = 5 * torch.tanh(q @ k.transpose(-1, -2) / 4 / 5)
        return torch.softmax(scores.masked_fill(~torch.ones(9, 9, device=device).tril().bool(), -1e30), -1) @ v
    check(functools.partial(kbt.scaled_dot_product_attention, is_causal=True, score_mod="softcap", cap=5.0), formula,
          drawn(device, attended(device), *[(2, 4, 9, 16)] * 3), times=3)


def test_dropout_drops_as_often_as_it_says_and_by_torchs_generator(device):
    q = torch.zeros(2, 4, 64, 16, device=device, dtype=attended(device))
    v = torch.ones_like(q)
    torch.manual_seed(7)
    first = kbt.scaled_dot_product_attention(q, q, v, dropout_p=0.25)
    torch.manual_seed(7)
    again = kbt.scaled_dot_product_attention(q, q, v, dropout_p=0.25)
    other = kbt.scaled_dot_product_attention(q, q, v, dropout_p=0.25)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert abs(float(first.float().mean()) - 1) < 0.05


def test_a_derivative_of_ones_own(probe, device):
    kbt.register_derivative("probe.add_row", kbt.Derivative("probe.add_row", operands={"x": "dy", "row": "row"}, results={"x": "y"}))
    x, row = torch.ones(3, 5, device=device, requires_grad=True), torch.full((5,), 2.0, device=device)
    kbt.call(probe, "probe.add_row", x, row).sum().backward()
    assert torch.equal(x.grad, torch.full((3, 5), 3.0, device=device))  # what flows back, 1, plus the row: nonsense, and as told
