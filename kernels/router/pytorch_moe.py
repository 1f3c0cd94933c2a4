"""A whole layer of experts as one function of PyTorch, with gradients: kbt.moe, where kbt is kbundle.torch.

It is made of `route`, `permute`, `grouped_matmul` twice and `unpermute`, each with kernels and gradients of its own. How many tokens an
expert has stays on the device, and no copy of a token is padded: nothing waits for the GPU, and a CUDA graph may hold all of it.
"""

import torch

from kbundle_kernels.pytorch.grouped import grouped_matmul
from kbundle_kernels.pytorch.permutation import permute, unpermute
from kbundle_kernels.pytorch.router import moe_aux_loss, route, router_scores

__all__ = ["moe"]

_ACTIVATIONS = {"silu": torch.nn.functional.silu, "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"), "relu": torch.relu}


def moe(x, router_logits, w_in, w_out, k, *, activation="silu", bias_in=None, bias_out=None, score_function="softmax", use_pre_softmax=False,
        expert_bias=None, num_groups=None, group_topk=None, scaling_factor=1.0, aux_loss_coefficient=None):
    """Each token of x[..., D] through its k best of E experts, by router_logits[..., E], summed by what they weigh: y[..., D].

    An expert is w_out of activation of w_in. w_in is [E, D, F], or gated [E, D, 2 * F]: the activation of the first F columns times the
    others; w_out is [E, F, D]; bias_in and bias_out are theirs without the middle axis. activation: "silu" (gated: swiglu), "gelu" (by tanh)
    or "relu", or a function of a tensor, called in float32. The router is that of `route`, whose arguments go by the same names.

    With aux_loss_coefficient (y, loss): what `moe_aux_loss` says of `router_scores`. Gradients flow to x, router_logits, weights and biases.
    x, weights and biases are float32, float16 or bfloat16; sums are float32."""
    gated = _is_gated(x, router_logits, w_in, w_out)
    if not callable(activation) and activation not in _ACTIVATIONS:
        raise ValueError("moe: activation is %r; it must be 'silu', 'gelu', 'relu' or a function" % (activation,))
    apply = activation if callable(activation) else _ACTIVATIONS[activation]
    tokens, logits = x.reshape(-1, x.shape[-1]), router_logits.reshape(-1, router_logits.shape[-1])
    routing = route(logits, k, score_function=score_function, use_pre_softmax=use_pre_softmax, expert_bias=expert_bias,
                    num_groups=num_groups, group_topk=group_topk, scaling_factor=scaling_factor)
    rows = permute(tokens, None, tokens.shape[0] * k, row_id_map=routing.row_id_map)[0]
    hidden = grouped_matmul(rows, w_in, routing.tokens_per_expert, bias=bias_in)
    out = grouped_matmul(_between(hidden, apply, gated), w_out, routing.tokens_per_expert, bias=bias_out)
    y = unpermute(out, routing.row_id_map, routing.weights.to(_probs_dtype(routing.weights))).reshape(x.shape)
    if aux_loss_coefficient is None:
        return y
    scores, _ = router_scores(logits, k, score_function=score_function, routing_map=None)
    return y, moe_aux_loss(scores, routing.tokens_per_expert, k, aux_loss_coefficient)


def _probs_dtype(weights):
    """What rows may be weighed by."""
    return torch.float32 if weights.dtype == torch.float16 else weights.dtype


def _between(hidden, apply, gated):
    """What of the first product goes into the second, in its dtype."""
    wide = hidden.float()
    if gated:
        gate, value = wide.chunk(2, -1)
        return (apply(gate) * value).to(hidden.dtype)
    return apply(wide).to(hidden.dtype)


def _is_gated(x, logits, w_in, w_out):
    """Whether w_in is, or an error that says which shape does not fit."""
    if x.dim() < 1 or w_in.dim() != 3 or w_out.dim() != 3 or w_in.shape[1] != x.shape[-1]:
        raise ValueError("moe: x has shape %s, w_in %s and w_out %s; they must be [..., D], [E, D, F or 2 * F] and [E, F, D]"
                         % (tuple(x.shape), tuple(w_in.shape), tuple(w_out.shape)))
    experts, depth = w_in.shape[0], w_out.shape[1]
    if w_out.shape != (experts, depth, x.shape[-1]) or w_in.shape[2] not in (depth, 2 * depth):
        raise ValueError("moe: w_in has shape %s and w_out %s; for x of shape %s they must be [E, %d, F or 2 * F] and [E, F, %d]"
                         % (tuple(w_in.shape), tuple(w_out.shape), tuple(x.shape), x.shape[-1], x.shape[-1]))
    if logits.shape != (*x.shape[:-1], experts):
        raise ValueError("moe: router_logits has shape %s; for x of shape %s and %d experts it must be %s"
                         % (tuple(logits.shape), tuple(x.shape), experts, (*x.shape[:-1], experts)))
    return w_in.shape[2] == 2 * depth
