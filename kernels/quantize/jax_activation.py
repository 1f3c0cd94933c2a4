"""An activation in front of FP8 codes, as a JAX function: kbj.quantize_activation.

It runs the op of the first bundle that has it (kbundle.bundles). What it means, corner cases included, is in README.md beside
this file. All but arrays is part of the compiled program.
"""

import math

import jax.numpy as jnp

from kbundle_kernels.quantize import Quantized, fp8_dtype, no_gradient, one_number
from kbundle.jax import _arguments, call
from kbundle.jax._primitive import placed

__all__ = ["quantize_activation"]
# name: (the op's function, whether there is a gate)
ACTIVATIONS = {"gelu": ("gelu", False), "silu": ("silu", False), "relu": ("relu", False), "squared_relu": ("squared_relu", False),
               "geglu": ("gelu", True), "swiglu": ("silu", True), "reglu": ("relu", True), "clamped_swiglu": ("clamped_silu", True)}


def quantize_activation(x, activation, scale, dtype=jnp.float8_e4m3fn, *, rowwise=True, transposed=False, limit=7.0, alpha=1.702, offset=1.0):
    """The activation of x (float32, float16, bfloat16), computed in float32 and never written, times scale (f32 scalar) in float8_e4m3fn
    or float8_e5m2, as a Quantized without dbias; amax is that of the activation's result, for the next step's scale.

    activation: gelu (by tanh), silu, relu, squared_relu of x[..., H]; geglu, swiglu, reglu of x[..., 2, H], f(x[..., 0, :]) * x[..., 1, :];
    clamped_swiglu: m * sigmoid(alpha * m) * (clip(x[..., 1, :], -limit, limit) + offset) with m = min(x[..., 0, :], limit). data is
    [..., H]; `transposed` also gives the codes of the transpose of the matrix [M, H], rowwise=False that one alone. There is no
    gradient: asking for one is an error. Use it inside a jax.custom_vjp.
    """
    where = "quantize_activation"
    x, dtype = jnp.asarray(x), fp8_dtype(where, dtype)
    _arguments.choice(where, "activation", activation, tuple(ACTIVATIONS))
    function, gated = ACTIVATIONS[activation]
    how = dict(out_dtype=dtype, function=function, rowwise=_arguments.flag(where, "rowwise", rowwise),
               transposed=_arguments.flag(where, "transposed", transposed))
    for name, value in (("limit", limit), ("alpha", alpha), ("offset", offset)):
        how[name] = _arguments.number(where, name, value)
    if x.ndim < (2 if gated else 1) or (gated and x.shape[-2] != 2):
        raise ValueError("%s: x has shape %s; %s is of x[%s]" % (where, x.shape, activation, "..., 2, H" if gated else "..., H"))
    if not how["rowwise"] and not how["transposed"]:
        raise ValueError("%s: rowwise and transposed are both False; one of them must be True" % where)
    lead = x.shape[:-2] if gated else x.shape[:-1]
    wide = x.reshape(math.prod(lead), 2 if gated else 1, x.shape[-1])
    q, q_t, amax, scale_inv = no_gradient(where, _call, wide, one_number(where, "scale", scale), tuple(sorted(how.items())))
    return Quantized(None if q is None else q.reshape(*lead, x.shape[-1]), q_t, scale_inv.reshape(()), amax.reshape(()), None)


def _call(x, scale, how):
    how = dict(how)
    op = "quantize.per_tensor_activation"
    return call(None, op, *placed(None, op, x, scale, **how), **how)
