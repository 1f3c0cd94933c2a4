"""Layer and RMS norms as differentiable JAX functions: kbj.layer_norm, kbj.rms_norm, where kbj is kbundle.jax.

They run the ops of the first bundle that has them (kbundle.bundles). What each op means, corner cases included, is in
README.md beside this file. epsilon and zero_centered_gamma are part of the compiled program: Python values, never traced ones.
"""

import functools

import jax
import jax.numpy as jnp

from kbundle.jax import _arguments, call
from kbundle.jax._primitive import like, placed
from kbundle_kernels import norm_formulas

__all__ = ["layer_norm", "rms_norm"]


def rms_norm(x, gamma, *, epsilon=1e-6, zero_centered_gamma=False, residual=None):
    """x / sqrt(mean(x ** 2) + epsilon) * gamma over the last axis of x[..., H], computed in float32; gamma[H] of x's dtype or
    float32, or gamma + 1 if zero_centered_gamma. x is float32, float16 or bfloat16, and so is the result.

    With a residual, of x's shape and dtype, what is normalized is x + residual: (y, x + residual) is returned, the second for
    the next layer. Gradients flow to x, gamma and residual.
    """
    return _norm("rms_norm", x, gamma, None, epsilon, zero_centered_gamma, residual)


def layer_norm(x, gamma, beta=None, *, epsilon=1e-6, zero_centered_gamma=False, residual=None):
    """(x - mean(x)) / sqrt(variance(x) + epsilon) * gamma + beta over the last axis of x[..., H], with the biased variance,
    computed in float32; gamma[H] and beta[H] (or None) of x's dtype or float32. All else is as in `rms_norm`."""
    return _norm("layer_norm", x, gamma, beta, epsilon, zero_centered_gamma, residual)


def _norm(function, x, gamma, beta, epsilon, zero_centered_gamma, residual):
    x, gamma = _arguments.floats(function, "x", x), _arguments.real(function, "gamma", gamma)
    beta = None if beta is None else _arguments.real(function, "beta", beta)
    residual = None if residual is None else _arguments.floats(function, "residual", residual)
    how = {"zero_centered_gamma": _arguments.flag(function, "zero_centered_gamma", zero_centered_gamma)}
    epsilon = _arguments.number(function, "epsilon", epsilon, least=0.0)
    for name, weight in (("gamma", gamma), ("beta", beta)):
        if weight is not None and (x.ndim < 1 or weight.shape != x.shape[-1:]):
            raise ValueError("%s: %s has shape %s; for x of shape %s it must be %s"
                             % (function, name, weight.shape, x.shape, x.shape[-1:] or "that of a last axis, which x lacks"))
    if residual is not None and (residual.shape, residual.dtype) != (x.shape, x.dtype):
        raise ValueError("%s: residual is %s%s; it must be as x, %s%s"
                         % (function, residual.dtype, list(residual.shape), x.dtype, list(x.shape)))
    wide = any(weight is not None and weight.dtype != x.dtype for weight in (gamma, beta))
    dtype = jnp.float32 if wide else x.dtype
    gamma, beta = gamma.astype(dtype), None if beta is None else beta.astype(dtype)
    if function == "rms_norm":
        operands = placed(None, "norm.rmsnorm_forward", x, gamma, residual, epsilon=epsilon, **how)
        y, total = _rms(*operands, epsilon, zero_centered_gamma)
    else:
        operands = placed(None, "norm.layernorm_forward", x, gamma, beta, residual, epsilon=epsilon, **how)
        y, total = _layer(*operands, epsilon, zero_centered_gamma)
    return y if residual is None else (y, total)


def _call(op, *operands, formula, **attributes):
    return call(None, "norm." + op, *operands, formula=formula, **attributes)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _rms(x, gamma, residual, epsilon, zero_centered_gamma):
    y, _, total = _call("rmsnorm_forward", x, gamma, residual, formula=norm_formulas.rmsnorm_forward, epsilon=epsilon,
                        zero_centered_gamma=zero_centered_gamma)
    return y, total


def _rms_forward(x, gamma, residual, epsilon, zero_centered_gamma):
    y, rsigma, total = _call("rmsnorm_forward", x, gamma, residual, formula=norm_formulas.rmsnorm_forward_of_gradient, epsilon=epsilon,
                             zero_centered_gamma=zero_centered_gamma)
    return (y, total), (x if residual is None else total, gamma, rsigma)


def _rms_backward(epsilon, zero_centered_gamma, saved, cotangents):
    x, gamma, rsigma = saved
    dy, dtotal = cotangents
    dx, dgamma = _call("rmsnorm_backward", dy, x, rsigma, gamma, dtotal, formula=norm_formulas.rmsnorm_backward,
                       zero_centered_gamma=zero_centered_gamma)
    return dx, like(dgamma, gamma), None if dtotal is None else dx


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _layer(x, gamma, beta, residual, epsilon, zero_centered_gamma):
    y, _, _, total = _call("layernorm_forward", x, gamma, beta, residual, formula=norm_formulas.layernorm_forward, epsilon=epsilon,
                           zero_centered_gamma=zero_centered_gamma)
    return y, total


def _layer_forward(x, gamma, beta, residual, epsilon, zero_centered_gamma):
    y, mu, rsigma, total = _call("layernorm_forward", x, gamma, beta, residual, formula=norm_formulas.layernorm_forward_of_gradient,
                                 epsilon=epsilon, zero_centered_gamma=zero_centered_gamma)
    return (y, total), (x if residual is None else total, gamma, beta, mu, rsigma)


def _layer_backward(epsilon, zero_centered_gamma, saved, cotangents):
    x, gamma, beta, mu, rsigma = saved
    dy, dtotal = cotangents
    dx, dgamma, dbeta = _call("layernorm_backward", dy, x, mu, rsigma, gamma, dtotal, formula=norm_formulas.layernorm_backward,
                              zero_centered_gamma=zero_centered_gamma)
    return dx, like(dgamma, gamma), None if beta is None else like(dbeta, beta), None if dtotal is None else dx


_rms.defvjp(_rms_forward, _rms_backward)
_layer.defvjp(_layer_forward, _layer_backward)
