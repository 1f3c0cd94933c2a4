"""Layer and RMS norms as functions of PyTorch, with gradients: kbt.layer_norm, kbt.rms_norm, where kbt is kbundle.torch. They mean what
they mean for JAX; README.md beside this file says it, corner cases included.
"""

import torch

from kbundle.torch import Derivative, call, shortcut

__all__ = ["layer_norm", "rms_norm"]

# With a residual it is the sum that was normalized, and both of its terms have the same gradient.
_OF_SUM = {"operands": {"x": ("sum", "x")}, "results": {"residual": "dx"}}
DERIVATIVES = {"norm.rmsnorm_forward": Derivative("norm.rmsnorm_backward", **_OF_SUM),
               "norm.layernorm_forward": Derivative("norm.layernorm_backward", **_OF_SUM)}


@shortcut()
def rms_norm(x, gamma, *, epsilon=1e-6, zero_centered_gamma=False, residual=None):
    """x / sqrt(mean(x ** 2) + epsilon) * gamma over the last axis of x[..., H], computed in float32; gamma[H] of x's dtype or float32, or
    gamma + 1 if zero_centered_gamma. x is float32, float16 or bfloat16, and so is the result.

    With a residual, of x's shape and dtype, what is normalized is x + residual: (y, x + residual) is returned, the second for the next
    layer. Gradients flow to x, gamma and residual."""
    gamma, _ = weights_like("rms_norm", x, gamma, None, residual)
    y, _, total = call(None, "norm.rmsnorm_forward", x, gamma, residual, epsilon=epsilon, zero_centered_gamma=zero_centered_gamma)
    return y if residual is None else (y, total)


@shortcut()
def layer_norm(x, gamma, beta=None, *, epsilon=1e-6, zero_centered_gamma=False, residual=None):
    """(x - mean(x)) / sqrt(variance(x) + epsilon) * gamma + beta over the last axis of x[..., H], with the biased variance, computed in
    float32; gamma[H] and beta[H] (or None) of x's dtype or float32. All else is as in `rms_norm`."""
    gamma, beta = weights_like("layer_norm", x, gamma, beta, residual)
    y, _, _, total = call(None, "norm.layernorm_forward", x, gamma, beta, residual, epsilon=epsilon, zero_centered_gamma=zero_centered_gamma)
    return y if residual is None else (y, total)


def weights_like(function, x, gamma, beta, residual):
    """gamma and beta of one dtype; an error names what does not fit x."""
    last, dtype = x.shape[-1:], x.dtype
    if residual is None and last and gamma.shape == last and gamma.dtype is dtype and (
            beta is None or (beta.shape == last and beta.dtype is dtype)):
        return gamma, beta  # nearly always, and nothing is to be done
    for name, weight in (("gamma", gamma), ("beta", beta)):
        if weight is not None and (x.dim() < 1 or weight.shape != x.shape[-1:]):
            raise ValueError("%s: %s has shape %s; for x of shape %s it must be %s"
                             % (function, name, tuple(weight.shape), tuple(x.shape), tuple(x.shape[-1:]) or "that of a last axis, which x lacks"))
    if residual is not None and (residual.shape, residual.dtype) != (x.shape, x.dtype):
        raise ValueError("%s: residual is %s%s; it must be as x, %s%s"
                         % (function, residual.dtype, list(residual.shape), x.dtype, list(x.shape)))
    wide = any(weight is not None and weight.dtype != x.dtype for weight in (gamma, beta))
    dtype = torch.float32 if wide else x.dtype
    return gamma.to(dtype), None if beta is None else beta.to(dtype)
