"""An activation in front of FP8 codes and its gradient, as JAX functions: kbj.quantize_activation, kbj.quantize_activation_gradient.

They run the ops of the first bundle that has them (kbundle.bundles). What they mean, corner cases included, is in README.md beside
this file. All but arrays is part of the compiled program.
"""

import math

import jax.numpy as jnp

from kbundle_kernels import quantize_formulas as formulas
from kbundle_kernels.quantize import Quantized, fp8_dtype, no_gradient, one_number
from kbundle.jax import _arguments, call
from kbundle.jax._primitive import placed

__all__ = ["quantize_activation", "quantize_activation_gradient"]
# name: (the op's function, whether there is a gate)
ACTIVATIONS = {"gelu": ("gelu", False), "silu": ("silu", False), "relu": ("relu", False), "squared_relu": ("squared_relu", False),
               "geglu": ("gelu", True), "swiglu": ("silu", True), "reglu": ("relu", True), "clamped_swiglu": ("clamped_silu", True)}


def quantize_activation(x, activation, scale, dtype=jnp.float8_e4m3fn, *, rowwise=True, transposed=False, limit=7.0, alpha=1.702, offset=1.0):
    """The activation of x (float32, float16, bfloat16), computed in float32 and never written, times scale (f32 scalar) in float8_e4m3fn
    or float8_e5m2, as a Quantized without dbias; amax is that of the activation's result, for the next step's scale.

    activation: gelu (by tanh), silu, relu, squared_relu of x[..., H]; geglu, swiglu, reglu of x[..., 2, H], f(x[..., 0, :]) * x[..., 1, :];
    clamped_swiglu: m * sigmoid(alpha * m) * (clip(x[..., 1, :], -limit, limit) + offset) with m = min(x[..., 0, :], limit). data is
    [..., H]; `transposed` also gives the codes of the transpose of the matrix [M, H], rowwise=False that one alone. There is no
    gradient: asking for one is an error. Use it inside a jax.custom_vjp, whose other half quantize_activation_gradient is. Of two FP8
    products with gelu between them:

        def dot(a, a_scale, b, b_scale):                                      # a[M, K] b[N, K]^T
            return kbj.matmul(a, b, trans_b=True, a_scale=a_scale, b_scale=b_scale)

        @jax.custom_vjp
        def mlp(x, w1, w2):
            return forward(x, w1, w2)[0]

        def forward(x, w1, w2):
            x, w1, w2 = (kbj.quantize(a, transposed=True) for a in (x, w1, w2))
            z = dot(x.data, x.scale_inv, w1.transposed, w1.scale_inv)
            y = kbj.quantize_activation(z, "gelu", 16.0, transposed=True)
            return dot(y.data, y.scale_inv, w2.transposed, w2.scale_inv), (x, w1, w2, z, y)

        def backward(saved, d):
            x, w1, w2, z, y = saved
            d = kbj.quantize(d, jnp.float8_e5m2, transposed=True)
            dy = dot(d.data, d.scale_inv, w2.data, w2.scale_inv)
            dz = kbj.quantize_activation_gradient(dy, z, "gelu", 16.0, transposed=True)
            return (dot(dz.data, dz.scale_inv, w1.data, w1.scale_inv), dot(x.transposed, x.scale_inv, dz.transposed, dz.scale_inv),
                    dot(y.transposed, y.scale_inv, d.transposed, d.scale_inv))

        mlp.defvjp(forward, backward)
    """
    where = "quantize_activation"
    x, lead, how = _arguments_of(where, x, activation, dtype, rowwise=rowwise, transposed=transposed, limit=limit, alpha=alpha, offset=offset)
    q, q_t, amax, scale_inv = no_gradient(where, _call, "per_tensor_activation", how, x, one_number(where, "scale", scale))
    return Quantized(None if q is None else q.reshape(*lead, x.shape[-1]), q_t, scale_inv.reshape(()), amax.reshape(()), None)


def quantize_activation_gradient(dy, x, activation, scale, dtype=jnp.float8_e5m2, *, rowwise=True, transposed=False, dbias=False, limit=7.0,
                                 alpha=1.702, offset=1.0):
    """The gradient by x of activation(x), of which dy[..., H] arrived, computed in float32 and never written, times scale (f32 scalar)
    in float8_e5m2 or float8_e4m3fn, as a Quantized; amax is that of the gradient, for the next step's scale.

    activation and its numbers are those of quantize_activation; dy and x have one dtype. data has x's shape; `transposed` also gives
    the codes of the transpose of the matrix x[M, H], of a gate x[M, 2 * H], rowwise=False that one alone; `dbias` the sums of its
    columns, [H] or [2, H], in x's dtype: what a bias in front of the activation gets. All in one pass over dy and x.
    """
    where = "quantize_activation_gradient"
    shape = jnp.shape(x)
    x, lead, how = _arguments_of(where, x, activation, dtype, rowwise=rowwise, transposed=transposed, limit=limit, alpha=alpha, offset=offset,
                                 dbias=dbias)
    flat = gradient_operand(where, dy, x, lead, shape)
    made = no_gradient(where, _call, "per_tensor_activation_gradient", how, flat, x, one_number(where, "scale", scale))
    q, q_t, amax, scale_inv, sums = made
    return Quantized(None if q is None else q.reshape(shape), q_t, scale_inv.reshape(()), amax.reshape(()),
                     None if sums is None else sums.reshape(shape[len(lead):]))


def activation_operand(where, x, activation):
    """x as [M, A, H], its leading axes, and the op's name of the function."""
    x = jnp.asarray(x)
    _arguments.choice(where, "activation", activation, tuple(ACTIVATIONS))
    function, gated = ACTIVATIONS[activation]
    if x.ndim < (2 if gated else 1) or (gated and x.shape[-2] != 2):
        raise ValueError("%s: x has shape %s; %s is of x[%s]" % (where, x.shape, activation, "..., 2, H" if gated else "..., H"))
    lead = x.shape[:-2] if gated else x.shape[:-1]
    return x.reshape(math.prod(lead), 2 if gated else 1, x.shape[-1]), lead, function


def gradient_operand(where, dy, x, lead, shape):
    """dy as [M, H] for x[M, A, H], which was given with this shape."""
    dy = jnp.asarray(dy)
    if dy.shape != (*lead, x.shape[-1]) or dy.dtype != x.dtype:
        raise ValueError("%s: dy is %s%s; for x of shape %s it needs to be %s%s"
                         % (where, dy.dtype, list(dy.shape), shape, x.dtype, [*lead, x.shape[-1]]))
    return dy.reshape(x.shape[0], x.shape[-1])


def _arguments_of(where, x, activation, dtype, **given):
    """x as [M, A, H], its leading axes, and what is part of the program."""
    dtype = fp8_dtype(where, dtype)
    x, lead, function = activation_operand(where, x, activation)
    how = {"out_dtype": dtype, "function": function}
    for name, value in given.items():
        how[name] = (_arguments.number if name in ("limit", "alpha", "offset") else _arguments.flag)(where, name, value)
    if not how["rowwise"] and not how["transposed"]:
        raise ValueError("%s: rowwise and transposed are both False; one of them must be True" % where)
    return x, lead, tuple(sorted(how.items()))


def _call(op, how, *operands):
    how, formula, op = dict(how), getattr(formulas, op), f"quantize.{op}"
    return call(None, op, *placed(None, op, *operands, **how), formula=formula, **how)
