"""Sinks of attention: for each head a score that belongs to no key, and takes its share of every softmax.

The ops compute attention without one, and say the log-sum-exp of each row's scores, which decides what a sink leaves of the row. The gradient
ops take rows and log-sum-exps as they are given: of those with the sink they make the gradients beside it. Statistics, of any op, count heads
along axis 1; `turned`: in results, heads come behind the rows instead.
"""

import jax
import jax.numpy as jnp

__all__ = []


def sinks_of(where, sinks, heads):
    """f32[heads], or None: a number stands for every head."""
    if sinks is None:
        return None
    sinks = jnp.asarray(sinks)
    if sinks.shape not in ((), (heads,)) or not jnp.issubdtype(sinks.dtype, jnp.floating):
        raise ValueError("%s: sinks is %s%s; it needs to be floats, one for each of the %d query heads or one for all of them"
                         % (where, sinks.dtype, list(sinks.shape), heads))
    return jnp.broadcast_to(sinks.astype(jnp.float32), (heads,))


def with_sinks(out, stats, sinks, turned):
    """Both with the sinks. A row that sees no key stays 0, and has its sink alone."""
    sinks = _along(sinks, stats)
    share = jnp.where(stats == -jnp.inf, 0.0, jax.nn.sigmoid(stats - sinks))
    share = jnp.swapaxes(share, 1, 2) if turned else share
    return (out * share[..., None]).astype(out.dtype), jnp.logaddexp(stats, sinks)


def gradient_of_sinks(out, dout, stats, sinks, turned):
    """By sinks: of out and stats with them, and the gradient by out."""
    sinks = _along(sinks, stats)
    by_row = jnp.sum(out.astype(jnp.float32) * dout.astype(jnp.float32), axis=-1)
    by_row = jnp.swapaxes(by_row, 1, 2) if turned else by_row
    by_row = jnp.where(stats == sinks, 0.0, jnp.exp(sinks - stats) * by_row)  # alone, a sink has all of its row, whatever it is
    return -jnp.sum(by_row, axis=[axis for axis in range(stats.ndim) if axis != 1])


def _along(sinks, stats):
    return jax.lax.expand_dims(sinks, range(1, stats.ndim - 1))
