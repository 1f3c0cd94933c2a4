"""Promise: functions of FP8 for PyTorch give the codes, scales and sums that their formulas say, of any view, and no gradient but that of
fake_quantize, which is the identity."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch: scripts/setup --torch installs it")

from pytorch.formulas import drawn  # noqa: E402

import kbundle  # noqa: E402
import kbundle.torch as kbt  # noqa: E402

F = torch.nn.functional
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LARGEST = {E4M3: 448.0, E5M2: 57344.0}
pytestmark = pytest.mark.usefixtures("kernels")


def same_codes(found, wanted):
    """Of numbers that may have been rounded one way or the other: the next code at most."""
    found, wanted = found.double(), wanted.double()
    assert found.shape == wanted.shape
    assert float((found - wanted).abs().sub(wanted.abs() / 4).max()) <= 2.0 ** -9 and float((found != wanted).double().mean()) < 0.01


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16], ids=str)
def test_one_scale(device, dtype, source):
    [x] = drawn(device, source, (3, 5, 64))
    made = kbt.quantize(x, dtype, transposed=True, dbias=True)
    scale = LARGEST[dtype] / x.abs().max().float()
    torch.testing.assert_close(made.amax, x.abs().max().float())
    torch.testing.assert_close(made.scale_inv, 1 / scale)
    same_codes(made.data, (x.float() * scale).to(dtype))
    assert torch.equal(made.transposed.view(torch.uint8), made.data.reshape(15, 64).view(torch.uint8).t())
    torch.testing.assert_close(made.dbias.float(), x.float().sum((0, 1)), rtol=1e-2, atol=1e-2)
    for alone in (kbt.quantize(x, dtype), kbt.quantize(x, dtype, 1 / made.scale_inv), kbt.quantize(x.mT.contiguous().mT, dtype)):
        same_codes(alone.data, made.data)
    torch.testing.assert_close(kbt.dequantize(made.data, made.scale_inv), made.data.float() * made.scale_inv)
    assert kbt.amax(x[0, 0, 0]).shape == () and kbt.amax(x) == made.amax


def test_fake_quantization_trains_through_itself(device):
    x = drawn(device, torch.float32, (4, 32))[0].requires_grad_()
    y = kbt.fake_quantize(x)
    made = kbt.quantize(x.detach())
    torch.testing.assert_close(y, kbt.dequantize(made.data, made.scale_inv))
    [dx] = torch.autograd.grad((y * 3).sum(), x)
    assert torch.equal(dx, torch.full_like(x, 3))


def test_codes_have_no_gradient_and_say_so(device):
    x = torch.ones(4, 32, device=device, requires_grad=True)
    made = kbt.quantize(x)
    for result, op in ((made.amax, "per_tensor"), (kbt.dequantize(made.data, made.scale_inv), "dequantize")):
        with pytest.raises(kbundle.Error, match="differentiating op 'quantize.%s'" % op):
            result.sum().backward()


def test_the_scale_of_the_next_step(device):
    history = torch.tensor([[0.0, 2, 8, 4], [0, 0, 0, 0]], device=device)
    new, scale, scale_inv = kbt.update_fp8_scale(history, torch.tensor([3.0, 0], device=device), torch.ones(2, device=device), margin=1)
    assert scale.tolist() == [448 / 8 / 2, 1] and torch.equal(scale_inv, 1 / scale) and new[0].tolist() == [0, 8, 4, 3]


ACTIVATIONS = {"gelu": functools.partial(F.gelu, approximate="tanh"), "silu": F.silu, "relu": F.relu, "squared_relu": lambda x: F.relu(x) ** 2}
GATES = {"geglu": "gelu", "swiglu": "silu", "reglu": "relu"}


@pytest.mark.parametrize("name", [*ACTIVATIONS, *GATES])
def test_an_activation_and_its_gradient(device, name):
    [x] = drawn(device, torch.float32, (3, 2, 128) if name in GATES else (3, 128))
    [dy] = drawn(device, torch.float32, (3, 128), seed=7)
    x.requires_grad_()
    value = ACTIVATIONS[GATES[name]](x[:, 0]) * x[:, 1] if name in GATES else ACTIVATIONS[name](x)
    [dx] = torch.autograd.grad(value, x, dy)
    x, value = x.detach(), value.detach()
    made = kbt.quantize_activation(x, name, 16.0)
    same_codes(made.data, (value * 16).to(E4M3))
    torch.testing.assert_close(made.amax, value.abs().max())
    gradient = kbt.quantize_activation_gradient(dy, x, name, 16.0, E4M3, transposed=True, dbias=True)
    same_codes(gradient.data, (dx * 16).to(E4M3))
    torch.testing.assert_close(gradient.dbias, dx.sum(0), rtol=1e-4, atol=1e-4)
    blocks = kbt.quantize_block_activation(x, name)
    same_codes(blocks.data, (value / blocks.scale_inv[:, :3].t()).to(E4M3))
    back = kbt.quantize_block_activation_gradient(dy, x, name, dbias=True)
    same_codes(back.data.reshape(3, -1, 128), (dx.reshape(3, -1, 128) / back.scale_inv[:, :3].t()[:, :, None]).to(E4M3))
    torch.testing.assert_close(back.dbias, dx.sum(0), rtol=1e-4, atol=1e-4)


def test_blocks_both_ways_are_those_of_the_matrix_and_of_its_transpose(device):
    [x] = drawn(device, torch.float32, (130, 260))
    both = kbt.quantize_block_transpose(x, rowwise="groups", transposed="tiles")
    data, scale_inv = kbt.quantize_blocks(x, scales="columns")
    tiles, tile_scales = kbt.quantize_blocks(x.t(), block=(128, 128))
    for found, wanted in ((both.data, data), (both.transposed, tiles)):
        assert torch.equal(found.view(torch.uint8), wanted.view(torch.uint8))
    assert torch.equal(both.scale_inv, scale_inv) and torch.equal(both.transposed_scale_inv, tile_scales)
    rows, of_rows = kbt.quantize_blocks(x)
    same_codes(rows, (x / of_rows.repeat_interleave(128, 1)[:, :260]).to(E4M3))


def test_mxfp8_has_a_power_of_two_for_each_32(device):
    [x] = drawn(device, torch.float32, (128, 128))
    made = kbt.quantize_mxfp8(x, columnwise=True)
    assert made.scales.dtype == torch.float8_e8m0fnu and made.column_data.shape == x.shape
    largest = x.reshape(128, 4, 32).abs().amax(-1) / 448
    exponents = torch.ceil(torch.log2(largest))
    same_codes(made.data, (x.reshape(128, 4, 32) / (2 ** exponents)[:, :, None]).reshape(128, 128).to(E4M3))


def test_groups_of_rows_have_a_scale_each(device):
    [x] = drawn(device, torch.float32, (9, 32))
    made = kbt.grouped_quantize(x, torch.tensor([4, 0, 3], device=device), transposed=True)
    torch.testing.assert_close(made.amax, torch.stack([x[:4].abs().max(), x.new_zeros(()), x[4:7].abs().max()]))
    same_codes(made.data[:4], (x[:4] / made.scale_inv[0]).to(E4M3))
    assert not made.data[7:].float().any() and torch.equal(made.transposed.view(torch.uint8), made.data.view(torch.uint8).t())


@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("groups", [False, True], ids=["one scale", "groups"])
def test_norms_into_fp8(device, norm, groups):
    x, gamma, residual = drawn(device, torch.float32, (3, 5, 256), (256,), (3, 5, 256))
    made = getattr(kbt, "quantize_" + norm)(x, gamma, residual=residual, **({"groups": True} if groups else {"scale": 32.0}))
    y, total = getattr(kbt, norm)(x, gamma, residual=residual)
    torch.testing.assert_close(made.sum, total)
    scale_inv = made.scale_inv.repeat_interleave(128, -1) if groups else made.scale_inv
    same_codes(made.data, (y / scale_inv).to(E4M3))
    assert (made.mu is None) == (norm == "rms_norm") and (made.amax is None) == groups


@pytest.mark.parametrize("words, call", [
    ("dtype is torch.float16; it must be torch.float8_e4m3fn", lambda x: kbt.quantize(x, torch.float16)),
    ("rowwise and transposed are both False", lambda x: kbt.quantize(x, rowwise=False)),
    ("scale has shape", lambda x: kbt.quantize(x, scale=torch.ones(2))),
    ("activation is 'tanh'; it must be one of gelu", lambda x: kbt.quantize_activation(x, "tanh", 1.0)),
    (r"swiglu is of x\[..., 2, H\]", lambda x: kbt.quantize_activation(x, "swiglu", 1.0)),
    ("needs to be torch.float32", lambda x: kbt.quantize_activation_gradient(x[:2], x, "gelu", 1.0)),
    ("block is", lambda x: kbt.quantize_blocks(x, block=(1, 64))),
    ("of a gated activation H must be a multiple of 128", lambda x: kbt.quantize_block_activation_gradient(x[:, :32], x.reshape(4, 2, 32), "swiglu")),
    ("no scale; give one", lambda x: kbt.quantize_rms_norm(x, torch.ones(64))),
    ("history has one axis more", lambda x: kbt.update_fp8_scale(x, x, x)),
])
def test_what_is_wrong_is_said(words, call):
    with pytest.raises((kbundle.Error, ValueError), match=words):
        call(torch.ones(4, 64))


def test_codes_stand_for_what_they_were_made_of(device):
    [x] = drawn(device, torch.float32, (70, 300))
    near = functools.partial(torch.testing.assert_close, expected=x, rtol=0.07, atol=0.02)
    near(kbt.dequantize_blocks(*kbt.quantize_blocks(x)))
    near(kbt.dequantize_blocks(*kbt.quantize_blocks(x, scales="columns"), scales="columns"))
    near(kbt.dequantize_blocks(*kbt.quantize_blocks(x, block=(128, 128)), block=(128, 128)))
    made = kbt.quantize_mxfp8(x, columnwise=True)
    near(kbt.dequantize_mxfp8(made.data, made.scales))
    near(kbt.dequantize_mxfp8(made.column_data, made.column_scales, columnwise=True))
    sizes = torch.tensor([30, 40], dtype=torch.int32, device=device)
    grouped = kbt.grouped_quantize(x, sizes)
    near(kbt.grouped_dequantize(grouped.data, sizes, grouped.scale_inv))


@pytest.mark.parametrize("columnwise", [False, True])
def test_mxfp8_of_every_power(device, columnwise):
    data = torch.arange(126, dtype=torch.uint8, device=device).view(E4M3).expand(256, 126).contiguous()
    scales = torch.arange(256, dtype=torch.uint8, device=device)
    scales = scales[:8, None].expand(8, 128) if columnwise else scales[:, None].expand(256, 4)
    found = kbt.dequantize_mxfp8(data, scales.contiguous().view(torch.float8_e8m0fnu), columnwise=columnwise)
    each = torch.arange(256, dtype=torch.float64, device=device)
    each = (each // 32 if columnwise else each) - 127
    wanted = (data.double() * torch.where(each == 128, torch.nan, 2.0 ** each)[:, None]).float()
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_groups_of_wrong_sizes(device):
    data = torch.ones(11, 8, device=device).to(E5M2)
    for sizes, wanted in (([3, 0, 5], [1] * 3 + [3] * 5 + [0] * 3), ([-4, 2], [2] * 2 + [0] * 9), ([100, 7], [1] * 11), ([], [0] * 11)):
        found = kbt.grouped_dequantize(data, torch.tensor(sizes, dtype=torch.int64, device=device),
                                       torch.arange(1, len(sizes) + 1, device=device, dtype=torch.float32), torch.float16)
        assert torch.equal(found, torch.tensor(wanted, dtype=torch.float16, device=device)[:, None].expand(11, 8))


@pytest.mark.parametrize("wrong, says", [
    (lambda d: kbt.dequantize_blocks(d, torch.ones(4, 2)), r"needs to be \(4, 1\)"),
    (lambda d: kbt.dequantize_blocks(d, torch.ones(1, 1), block=(128, 128), scales="columns"), "scales"),
    (lambda d: kbt.dequantize_mxfp8(d, torch.ones(128, 4)), "float8_e8m0fnu"),
    (lambda d: kbt.grouped_dequantize(d, torch.tensor([4.0]), torch.ones(1)), "int32"),
    (lambda d: kbt.dequantize_blocks(d, torch.ones(4, 1), dtype=torch.int8), "dtype"),
])
def test_scales_that_do_not_fit_are_said(wrong, says):
    with pytest.raises(ValueError, match=says):
        wrong(torch.ones(4, 128).to(E4M3))
