"""What tests of gradients share: values and gradients of a function against a formula of the same numbers in float64."""

import torch

TOLERANCE = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def drawn(device, dtype, *shapes, seed=None):
    generator = torch.Generator().manual_seed(len(shapes) if seed is None else seed)
    return [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]


def attended(device):
    """The dtype in which attention is asked of a device: its kernels for GPUs take 16 bits, which TOLERANCE knows."""
    return torch.float16 if device.type == "cuda" else torch.float32


def check(function, formula, given, times=1, seed=0):
    """Values and gradients of all that is given, against the formula of the same numbers in float64."""
    dtype = given[0].dtype
    found, wanted = [], []
    for all_of, call, wide in ((found, function, dtype), (wanted, formula, torch.float64)):
        inputs = [x.detach().to(wide if x.dtype == dtype else torch.float64 if wide == torch.float64 else x.dtype).requires_grad_() for x in given]
        results = call(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        generator = torch.Generator().manual_seed(seed)
        weights = [torch.randn(result.shape, generator=generator).to(result.device, torch.float64) for result in results]
        total = sum((result.double() * weight).sum() for result, weight in zip(results, weights))
        all_of += [*results, *torch.autograd.grad(total, inputs)]
    for one, other, like in zip(found, wanted, [None] * (len(found) - len(given)) + list(given)):
        assert like is None or (one.dtype == like.dtype and one.shape == like.shape)
        scale = max(1.0, float(other.detach().abs().max())) if other.numel() else 1.0
        torch.testing.assert_close(one.double(), other, rtol=0, atol=times * TOLERANCE[dtype] * scale)
