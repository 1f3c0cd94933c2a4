"""FP8 quantization as functions of PyTorch: kbt.quantize, kbt.dequantize, kbt.fake_quantize, kbt.amax, kbt.update_fp8_scale, where kbt is
kbundle.torch. They mean what they mean for JAX; README.md beside this file says it, corner cases included. Scales are numbers on the device.

FP8 codes have no gradient: asking for one is an error. Quantize inside a torch.autograd.Function, or train through fake_quantize.
"""

import typing

import torch

from kbundle.torch import call

__all__ = ["Quantized", "amax", "dequantize", "fake_quantize", "quantize", "update_fp8_scale"]

FORMATS = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}


class Quantized(typing.NamedTuple):
    """What `quantize` made. The number that a code stands for is code * scale_inv."""
    data: torch.Tensor | None  # x's shape, FP8
    transposed: torch.Tensor | None  # [N, M] of the [M, N] view of x, FP8
    scale_inv: torch.Tensor  # f32[]: 1 / scale
    amax: torch.Tensor  # f32[]: the largest magnitude of x, not scaled; NaN where x has one
    dbias: torch.Tensor | None  # x's last axis, x's dtype: sums over all others, added in float32


def quantize(x, dtype=torch.float8_e4m3fn, scale=None, *, rowwise=True, transposed=False, dbias=False):
    """x[..., N] (float32, float16, bfloat16) times scale (f32 scalar) in float8_e4m3fn or float8_e5m2, as a Quantized.

    Without a scale it is the one that brings the largest magnitude of x to the largest FP8 number (current scaling), found and used on the
    device. Magnitudes past that number, infinities too, become it; NaN stays NaN. `transposed` also gives the codes of the transpose of the
    matrix x[M, N], M all axes but the last; rowwise=False that one alone; `dbias` the sums of its columns: all in one pass over x."""
    where = "quantize"
    fp8_dtype(where, dtype)
    if not rowwise and not transposed:
        raise ValueError("%s: rowwise and transposed are both False; one of them must be True" % where)
    scale = None if scale is None else one_number(where, "scale", scale, x)
    if not transposed and not dbias:
        q, largest, scale_inv = call(None, "quantize.per_tensor", matrix(where, x), scale, out_dtype=dtype)
        return Quantized(q.reshape(x.shape), None, scale_inv.reshape(()), largest.reshape(()), None)
    q, q_t, largest, scale_inv, sums = call(None, "quantize.per_tensor_transpose", matrix(where, x), scale, out_dtype=dtype, rowwise=rowwise,
                                            transposed=transposed, dbias=dbias)
    return Quantized(None if q is None else q.reshape(x.shape), q_t, scale_inv.reshape(()), largest.reshape(()), sums)


def dequantize(data, scale_inv, dtype=torch.float32):
    """data (float8_e4m3fn or float8_e5m2, any shape) times scale_inv (f32 scalar) in float32, float16 or bfloat16, computed in float32."""
    fp8_dtype("dequantize", data.dtype)
    flat = data if data.dim() else data.reshape(1)
    return call(None, "quantize.dequantize", flat, one_number("dequantize", "scale_inv", scale_inv, data), out_dtype=dtype).reshape(data.shape)


def fake_quantize(x, dtype=torch.float8_e4m3fn, scale=None):
    """What is left of x in FP8: dequantize(quantize(x)), in x's dtype. Its gradient is the identity (straight through), so that what is
    trained sees the rounding and is not stopped by it. The scale gets no gradient."""
    with torch.no_grad():
        made = quantize(x if x.dim() else x.reshape(1), dtype, scale)
        rounded = dequantize(made.data, made.scale_inv, x.dtype).reshape(x.shape)
    return _Straight.apply(x, rounded)


class _Straight(torch.autograd.Function):
    """The second of both, with the gradient of the first."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, rounded):
        return rounded.view_as(rounded)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy, None


def amax(x):
    """The largest magnitude of x (float32, float16, bfloat16; any shape), f32[]; NaN where x has one."""
    return call(None, "quantize.amax", x if x.dim() else x.reshape(1)).reshape(())


def update_fp8_scale(history, amax, scale, dtype=torch.float8_e4m3fn, *, margin=0, algorithm="max"):
    """Delayed scaling: (history, scale, scale_inv) for the next step, of each tensor [...].

    history f32[..., L] is a ring: slot 0 waits for this step's amax f32[...], slot 1 is the oldest step. The next scale brings the largest
    of the history (algorithm="max") or amax alone ("most_recent") to the largest number of dtype / 2^margin; where that largest is 0 or not
    finite the scale stays."""
    where = "update_fp8_scale"
    if history.dim() < 1 or amax.shape != history.shape[:-1] or scale.shape != history.shape[:-1]:
        raise ValueError("%s: history has shape %s, amax %s, scale %s; history has one axis more than the others, its last"
                         % (where, tuple(history.shape), tuple(amax.shape), tuple(scale.shape)))
    return call(None, "quantize.update_scale", history.float(), amax.float(), scale.float(), format=FORMATS[fp8_dtype(where, dtype)],
                margin=margin, algorithm=algorithm)


def fp8_dtype(where, dtype):
    """One of the two FP8 dtypes."""
    if dtype not in FORMATS:
        raise ValueError("%s: dtype is %s; it must be torch.float8_e4m3fn or torch.float8_e5m2" % (where, dtype))
    return dtype


def one_number(where, name, value, beside):
    """f32[1], where the tensor beside it is."""
    value = torch.as_tensor(value, dtype=torch.float32, device=beside.device)
    if value.numel() != 1:
        raise ValueError("%s: %s has shape %s; it is one number" % (where, name, tuple(value.shape)))
    return value.reshape(1)


def matrix(where, x):
    """x[M, N], M all axes but the last."""
    if x.dim() < 1:
        raise ValueError("%s: x has shape (); it needs at least one axis" % where)
    return x if x.dim() == 2 else x.reshape(x.shape[:-1].numel(), x.shape[-1])
