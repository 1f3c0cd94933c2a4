"""The softmax ops as functions of PyTorch, with gradients: kbt.scaled_softmax, kbt.scaled_masked_softmax, kbt.scaled_causal_softmax,
where kbt is kbundle.torch. They mean what they mean for JAX; README.md beside this file says it, corner cases included.
"""

import math

from kbundle.torch import Derivative, call, shortcut

__all__ = ["scaled_causal_softmax", "scaled_masked_softmax", "scaled_softmax"]

DERIVATIVES = {"softmax.%s_forward" % kind: Derivative("softmax.%s_backward" % kind) for kind in ("scaled", "scaled_causal", "scaled_masked")}


@shortcut()
def scaled_softmax(x, scale=1.0):
    """softmax(scale * x) over the last axis, computed in float32."""
    return call(None, "softmax.scaled_forward", x, scale=scale)


@shortcut()
def scaled_causal_softmax(x, scale=1.0):
    """softmax(scale * x) of x[..., Q, K] over the keys k <= q of each query q, 0 above the diagonal. Q must equal K."""
    return call(None, "softmax.scaled_causal_forward", x, scale=scale)


@shortcut()
def scaled_masked_softmax(x, mask, scale=1.0):
    """softmax(scale * x) over the last axis of x[..., Q, K], with logits of -10000 where mask is not 0; a row that is masked throughout
    becomes 0. mask broadcasts against x."""
    if x.dim() < 2:
        raise ValueError("scaled_masked_softmax: x has shape %s; it needs at least the axes Q and K" % (tuple(x.shape),))
    if str(mask.dtype) not in ("torch.bool", "torch.uint8"):
        mask = mask != 0
    lead, tail = tuple(x.shape[:-2]), tuple(x.shape[-2:])
    y = call(None, "softmax.scaled_masked_forward", x.reshape(_two(lead) + tail), _four_axes(mask, lead, tail), scale=scale)
    return y.reshape(x.shape)


def _two(lead):
    """Any number of leading dims as two: all but the last one joined."""
    lead = (1,) * (2 - len(lead)) + tuple(lead)
    return (math.prod(lead[:-1]), lead[-1])


def _four_axes(mask, lead, tail):
    """mask[B or 1, H or 1, Q, K], repeated only where the op cannot take a 1."""
    dims = (1,) * (len(lead) + 2 - mask.dim()) + tuple(mask.shape)
    batch, heads = dims[:-2][:-1], dims[:-2][-1:]
    if any(dim != 1 for dim in batch):  # dims that are joined are all there or all 1
        batch = lead[:-1]
    return mask.reshape(dims).expand(batch + heads + tail).reshape(_two(batch + heads) + tail)
