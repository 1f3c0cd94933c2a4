"""Calls under torch.func.grad, vjp, jacrev and what is made of them, and under forward derivatives.

torch's rule for the gradient of an operator that a package brings along is refused by functorch, and it has none at all for forward
derivatives: what such an operator gives has no tangent, as if it depended on nothing. So under the former a call is an autograd.Function in the
form that functorch knows, of the operator and of the same rules; the latter is an error.
"""

from typing import NamedTuple

import torch
from torch.autograd import forward_ad

from kbundle._errors import Error

_FUNCTIONALIZE = torch._C._functorch.TransformType.Functionalize
_level = getattr(forward_ad, "_current_level", None)  # a number that torch changes; where there is none, tensors are asked each time


class Call(NamedTuple):
    """Of the operator of a _operators._Kernel, with the bundle's name and attributes as its schema spells them."""
    kernel: object
    named: dict


class _Function(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(call, *tensors):
        return call.kernel.overload(*tensors, **call.named)

    @staticmethod
    def setup_context(ctx, inputs, output):
        call, *tensors = inputs
        ctx.call = call
        call.kernel.remember(ctx, ctx.needs_input_grad[1:], tensors, call.named, output)

    @staticmethod
    def backward(ctx, *cotangents):
        return (None, *ctx.call.kernel.gradients(ctx, ctx.needs_input_grad[1:], cotangents)[:len(ctx.needs_input_grad) - 1])


def differentiated():
    """Whether gradients may be taken here through transforms of torch.func: by one of them, or of tensors for which others stand that do not
    say so, as those of a vmap do."""
    return torch._C._are_functorch_transforms_active() and torch.is_grad_enabled() and not any(
        transform.key() == _FUNCTIONALIZE for transform in torch._C._functorch.get_interpreter_stack() or ())  # which knows no autograd.Function


def call(call, tensors):
    """What the operator gives, and torch.func can differentiate."""
    return _Function.apply(call, *tensors)


def refuse_tangents(op, tensors):
    """An error where a forward derivative would come out as zero. tensors: None where what stands for them does not say whether they have one."""
    if (_level is not None and forward_ad._current_level < 0) or not torch._C._is_fwd_grad_enabled():
        return
    if tensors is None or any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise Error("UNIMPLEMENTED", "calling op %r under torch.func.jvp, jacfwd or forward_ad: ops have gradients, and no forward derivatives; "
                    "use torch.func.vjp, jacrev or torch.autograd.grad" % op)
