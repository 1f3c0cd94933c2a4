"""Norms whose result goes to FP8, as functions of PyTorch: kbt.quantize_rms_norm, kbt.quantize_layer_norm, where kbt is kbundle.torch. They
mean what they mean for JAX; README.md beside this file says it, corner cases included.
"""

import typing

import torch

from kbundle.torch import call
from kbundle_kernels.pytorch.norm import weights_like
from kbundle_kernels.pytorch.quantize import fp8_dtype, one_number

__all__ = ["QuantizedNorm", "quantize_layer_norm", "quantize_rms_norm"]


class QuantizedNorm(typing.NamedTuple):
    """What a norm made in FP8. The number that a code stands for is code * scale_inv, that of its group where there are groups."""
    data: torch.Tensor  # x's shape, FP8
    transposed: torch.Tensor | None  # [H, M] of the [M, H] view, FP8
    scale_inv: torch.Tensor  # f32[]: 1 / scale; or f32[..., ceil(H / 128)]
    amax: torch.Tensor | None  # f32[]: the largest magnitude of what the norm made; None with groups
    mu: torch.Tensor | None  # f32[...]: the means, of a layer norm
    rsigma: torch.Tensor  # f32[...]
    sum: torch.Tensor | None  # x + residual, where there is a residual


def quantize_rms_norm(x, gamma, scale=None, dtype=torch.float8_e4m3fn, *, groups=False, epsilon=1e-6, zero_centered_gamma=False, residual=None,
                      transposed=False, power_of_two=False, amax_epsilon=0.0):
    """rms_norm(x, gamma, ..) in float8_e4m3fn or float8_e5m2 as a QuantizedNorm; y itself is never written.

    By scale (f32 scalar): amax is for the next step's, and `transposed` also gives the codes of the transpose of the matrix [M, H]. Or, with
    groups=True and no scale, by a scale for each 128 elements of a row, as quantize_blocks makes them, `power_of_two` and `amax_epsilon`
    too. There is no gradient: use it inside a torch.autograd.Function; mu, rsigma and sum are what a backward pass needs."""
    return _quantized("quantize_rms_norm", x, gamma, None, scale, dtype, residual, groups, epsilon=epsilon, transposed=transposed,
                      zero_centered_gamma=zero_centered_gamma, power_of_two=power_of_two, amax_epsilon=amax_epsilon)


def quantize_layer_norm(x, gamma, beta=None, scale=None, dtype=torch.float8_e4m3fn, *, groups=False, epsilon=1e-6, zero_centered_gamma=False,
                        residual=None, transposed=False, power_of_two=False, amax_epsilon=0.0):
    """layer_norm(x, gamma, beta, ..) in FP8. All else is as in `quantize_rms_norm`."""
    return _quantized("quantize_layer_norm", x, gamma, beta, scale, dtype, residual, groups, epsilon=epsilon, transposed=transposed,
                      zero_centered_gamma=zero_centered_gamma, power_of_two=power_of_two, amax_epsilon=amax_epsilon)


def _quantized(where, x, gamma, beta, scale, dtype, residual, groups, **how):
    if groups == (scale is not None):
        raise ValueError("%s: %s" % (where, "a scale and groups=True are both given; groups have scales of their own" if groups else
                                     "no scale; give one (f32 scalar), or groups=True for a scale for each 128 elements"))
    if groups and how["transposed"]:
        raise ValueError("%s: transposed=True needs one scale; groups are of rows, and none of the transpose" % where)
    gamma, beta = weights_like(where, x, gamma, beta, residual)
    scale, layer = None if scale is None else one_number(where, "scale", scale, x), where == "quantize_layer_norm"
    operands = (x, gamma, beta, residual, scale) if layer else (x, gamma, residual, scale)
    op = "norm.layernorm_quantize" if layer else "norm.rmsnorm_quantize"
    q, q_t, amax, scale_inv, group_scale_inv, *moments, total = call(None, op, *operands, out_dtype=fp8_dtype(where, dtype), **how)
    mu, rsigma = moments if layer else (None, *moments)
    if groups:
        return QuantizedNorm(q, q_t, group_scale_inv, None, mu, rsigma, total)
    return QuantizedNorm(q, q_t, scale_inv.reshape(()), amax.reshape(()), mu, rsigma, total)
