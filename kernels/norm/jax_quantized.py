"""Norms whose result goes to FP8, as JAX functions: kbj.quantize_rms_norm, kbj.quantize_layer_norm.

They run the ops of the first bundle that has them (kbundle.bundles). What each means, corner cases included, is in README.md
beside this file. All but arrays is part of the compiled program.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from kbundle_kernels.quantize import fp8_dtype, no_gradient, one_number
from kbundle.jax import _arguments, call
from kbundle.jax._primitive import placed

__all__ = ["QuantizedNorm", "quantize_layer_norm", "quantize_rms_norm"]


class QuantizedNorm(NamedTuple):
    """What a norm made in FP8. The number that a code stands for is code * scale_inv, that of its group where there are groups."""
    data: jax.Array  # x's shape, FP8
    transposed: jax.Array | None  # [H, M] of the [M, H] view, FP8
    scale_inv: jax.Array  # f32[]: 1 / scale; or f32[..., ceil(H / 128)]
    amax: jax.Array | None  # f32[]: the largest magnitude of what the norm made; None with groups
    mu: jax.Array | None  # f32[...]: the means, of a layer norm
    rsigma: jax.Array  # f32[...]
    sum: jax.Array | None  # x + residual, where there is a residual


def quantize_rms_norm(x, gamma, scale=None, dtype=jnp.float8_e4m3fn, *, groups=False, epsilon=1e-6, zero_centered_gamma=False, residual=None,
                      transposed=False, power_of_two=False, amax_epsilon=0.0):
    """kbj.rms_norm(x, gamma, ..) in float8_e4m3fn or float8_e5m2 as a QuantizedNorm; y itself is never written.

    By scale (f32 scalar): amax is for the next step's, and `transposed` also gives the codes of the transpose of the matrix
    [M, H]. Or, with groups=True and no scale, by a scale for each 128 elements of a row, as kbj.quantize_blocks makes them,
    `power_of_two` and `amax_epsilon` too. There is no gradient: asking for one is an error. Use it inside a jax.custom_vjp;
    mu, rsigma and sum are what a backward pass needs.
    """
    return _quantized("quantize_rms_norm", x, gamma, None, scale, dtype, groups, epsilon, zero_centered_gamma, residual, transposed,
                      power_of_two, amax_epsilon)


def quantize_layer_norm(x, gamma, beta=None, scale=None, dtype=jnp.float8_e4m3fn, *, groups=False, epsilon=1e-6, zero_centered_gamma=False,
                        residual=None, transposed=False, power_of_two=False, amax_epsilon=0.0):
    """kbj.layer_norm(x, gamma, beta, ..) in FP8. All else is as in `quantize_rms_norm`."""
    return _quantized("quantize_layer_norm", x, gamma, beta, scale, dtype, groups, epsilon, zero_centered_gamma, residual, transposed,
                      power_of_two, amax_epsilon)


def _quantized(where, x, gamma, beta, scale, dtype, groups, epsilon, zero_centered_gamma, residual, transposed, power_of_two, amax_epsilon):
    x, dtype = jnp.asarray(x), fp8_dtype(where, dtype)
    gamma, beta, residual = (None if a is None else jnp.asarray(a) for a in (gamma, beta, residual))
    flags = {name: _arguments.flag(where, name, value) for name, value in (
        ("zero_centered_gamma", zero_centered_gamma), ("transposed", transposed), ("power_of_two", power_of_two))}
    if _arguments.flag(where, "groups", groups) == (scale is not None):
        raise ValueError("%s: %s" % (where, "a scale and groups=True are both given; groups have scales of their own" if groups else
                                     "no scale; give one (f32 scalar), or groups=True for a scale for each 128 elements"))
    if groups and transposed:
        raise ValueError("%s: transposed=True needs one scale; groups are of rows, and none of the transpose" % where)
    if x.dtype not in (jnp.float32, jnp.float16, jnp.bfloat16):
        raise TypeError("%s: x is %s; it must be float32, float16 or bfloat16; convert it with astype" % (where, x.dtype))
    for name, weight in (("gamma", gamma), ("beta", beta)):
        if weight is not None and (x.ndim < 1 or weight.shape != x.shape[-1:]):
            raise ValueError("%s: %s has shape %s; for x of shape %s it must be %s"
                             % (where, name, weight.shape, x.shape, x.shape[-1:] or "that of a last axis, which x lacks"))
    if residual is not None and (residual.shape, residual.dtype) != (x.shape, x.dtype):
        raise ValueError("%s: residual is %s%s; it must be as x, %s%s"
                         % (where, residual.dtype, list(residual.shape), x.dtype, list(x.shape)))
    wide = jnp.float32 if any(w is not None and w.dtype != x.dtype for w in (gamma, beta)) else x.dtype
    gamma, beta = gamma.astype(wide), None if beta is None else beta.astype(wide)
    scale = None if scale is None else one_number(where, "scale", scale)
    how = dict(flags, out_dtype=dtype, epsilon=_arguments.number(where, "epsilon", epsilon, least=0.0),
               amax_epsilon=_arguments.number(where, "amax_epsilon", amax_epsilon, least=0.0))
    layer = where == "quantize_layer_norm"
    operands = (x, gamma, beta, residual, scale) if layer else (x, gamma, residual, scale)
    q, q_t, amax, scale_inv, group_scale_inv, *moments, total = no_gradient(where, _call, layer, tuple(sorted(how.items())), *operands)
    mu, rsigma = moments if layer else (None, *moments)
    if groups:
        return QuantizedNorm(q, q_t, group_scale_inv, None, mu, rsigma, total)
    return QuantizedNorm(q, q_t, scale_inv.reshape(()), amax.reshape(()), mu, rsigma, total)


def _call(layer, how, *operands):
    how = dict(how)
    op = "norm.layernorm_quantize" if layer else "norm.rmsnorm_quantize"
    return call(None, op, *placed(None, op, *operands, **how), **how)
