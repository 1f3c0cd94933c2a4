"""An activation in front of FP8 codes and its gradient, as functions of PyTorch: kbt.quantize_activation, kbt.quantize_activation_gradient,
where kbt is kbundle.torch. They mean what they mean for JAX; README.md beside this file says it, corner cases included.
"""

import torch

from kbundle.torch import call
from kbundle_kernels.pytorch.quantize import Quantized, fp8_dtype, one_number

__all__ = ["quantize_activation", "quantize_activation_gradient"]

# name: (the op's function, whether there is a gate)
_ACTIVATIONS = {"gelu": ("gelu", False), "silu": ("silu", False), "relu": ("relu", False), "squared_relu": ("squared_relu", False),
                "geglu": ("gelu", True), "swiglu": ("silu", True), "reglu": ("relu", True), "clamped_swiglu": ("clamped_silu", True)}


def quantize_activation(x, activation, scale, dtype=torch.float8_e4m3fn, *, rowwise=True, transposed=False, limit=7.0, alpha=1.702, offset=1.0):
    """The activation of x (float32, float16, bfloat16), computed in float32 and never written, times scale (f32 scalar) in float8_e4m3fn or
    float8_e5m2, as a Quantized without dbias; amax is that of the activation's result, for the next step's scale.

    activation: gelu (by tanh), silu, relu, squared_relu of x[..., H]; geglu, swiglu, reglu of x[..., 2, H], f(x[..., 0, :]) * x[..., 1, :];
    clamped_swiglu: m * sigmoid(alpha * m) * (clip(x[..., 1, :], -limit, limit) + offset) with m = min(x[..., 0, :], limit). data is [..., H];
    `transposed` also gives the codes of the transpose of the matrix [M, H], rowwise=False that one alone. There is no gradient: use it
    inside a torch.autograd.Function, whose other half quantize_activation_gradient is."""
    where = "quantize_activation"
    flat, lead, how = operand(where, x, activation, dtype, rowwise, transposed, limit=limit, alpha=alpha, offset=offset)
    q, q_t, amax, scale_inv = call(None, "quantize.per_tensor_activation", flat, one_number(where, "scale", scale, x), **how)
    return Quantized(None if q is None else q.reshape(*lead, x.shape[-1]), q_t, scale_inv.reshape(()), amax.reshape(()), None)


def quantize_activation_gradient(dy, x, activation, scale, dtype=torch.float8_e5m2, *, rowwise=True, transposed=False, dbias=False, limit=7.0,
                                 alpha=1.702, offset=1.0):
    """The gradient by x of activation(x), of which dy[..., H] arrived, computed in float32 and never written, times scale (f32 scalar) in
    float8_e5m2 or float8_e4m3fn, as a Quantized; amax is that of the gradient, for the next step's scale.

    activation and its numbers are those of quantize_activation; dy and x have one dtype. data has x's shape; `transposed` also gives the
    codes of the transpose of the matrix x[M, H], of a gate x[M, 2 * H], rowwise=False that one alone; `dbias` the sums of its columns, [H] or
    [2, H], in x's dtype: what a bias in front of the activation gets. All in one pass over dy and x."""
    where = "quantize_activation_gradient"
    flat, lead, how = operand(where, x, activation, dtype, rowwise, transposed, limit=limit, alpha=alpha, offset=offset, dbias=dbias)
    q, q_t, amax, scale_inv, sums = call(None, "quantize.per_tensor_activation_gradient", gradient_operand(where, dy, x, lead), flat,
                                         one_number(where, "scale", scale, x), **how)
    return Quantized(None if q is None else q.reshape(x.shape), q_t, scale_inv.reshape(()), amax.reshape(()),
                     None if sums is None else sums.reshape(x.shape[len(lead):]))


def operand(where, x, activation, dtype, rowwise, transposed, **numbers):
    """x as [M, A, H], its leading axes, and the op's attributes."""
    if activation not in _ACTIVATIONS:
        raise ValueError("%s: activation is %r; it must be one of %s" % (where, activation, ", ".join(_ACTIVATIONS)))
    function, gated = _ACTIVATIONS[activation]
    if x.dim() < (2 if gated else 1) or (gated and x.shape[-2] != 2):
        raise ValueError("%s: x has shape %s; %s is of x[%s]" % (where, tuple(x.shape), activation, "..., 2, H" if gated else "..., H"))
    if not rowwise and not transposed:
        raise ValueError("%s: neither rowwise nor transposed codes are asked for; ask for one of them" % where)
    lead = x.shape[:-2] if gated else x.shape[:-1]
    how = {"out_dtype": fp8_dtype(where, dtype), "function": function, "rowwise": rowwise, "transposed": transposed, **numbers}
    return x.reshape(lead.numel(), 2 if gated else 1, x.shape[-1]), lead, how


def gradient_operand(where, dy, x, lead):
    """dy as [M, H]."""
    if dy.shape != (*lead, x.shape[-1]) or dy.dtype != x.dtype:
        raise ValueError("%s: dy is %s%s; for x of shape %s it needs to be %s%s"
                         % (where, dy.dtype, list(dy.shape), tuple(x.shape), x.dtype, [*lead, x.shape[-1]]))
    return dy.reshape(lead.numel(), x.shape[-1])
