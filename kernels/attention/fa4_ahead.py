"""FlashAttention-4 within windows that end elsewhere than at the diagonal, forward and backward: the kernels of fa4.py and fa4_backward.py that
know a window, with its right end as a number that a launch gives. Theirs is compiled in, 0.
"""
import fa4
import fa4_backward


def between(arguments, left, right):
    """FlashAttention-4's arguments, of which `right` follows `left`."""
    at = [one is left for one in arguments].index(True)
    return (*arguments[:at + 1], right, *arguments[at + 2:])


def forward(q, k, v, o, stats, scale, left, right, **tunables):
    kernel, arguments = fa4.forward(q, k, v, o, stats, scale, left, **tunables)
    return kernel, between(arguments, left, right)


def gradients(q, k, v, dout, stats2, products, dq_sum, dk, dv, scale, left, right, **tunables):
    kernel, arguments = fa4_backward.gradients(q, k, v, dout, stats2, products, dq_sum, dk, dv, scale, left, **tunables)
    return kernel, between(arguments, left, right)
