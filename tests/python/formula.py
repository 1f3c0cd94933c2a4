"""What a plain formula gives, as one compiled program.

Called eagerly, JAX compiles every operation of a formula and of its derivative by itself, anew for each shape: ten times the work.
"""

import functools

import jax
import numpy as np

# functools.partial that gives the same object for the same arguments: a formula is compiled once for each object and shape.
same_partial = functools.cache(functools.partial)


def wide(array):
    """In float32, for the formula."""
    return np.asarray(array).astype(np.float32)


def value_and_gradients(formula, weights, *arrays):
    """The value at the arrays, and the gradients of sum(value * weights) in each of them; on the default device."""
    return jax.tree.map(np.asarray, _compiled(formula)(weights, *arrays))


@functools.cache
def _compiled(formula):
    def program(weights, *arrays):
        value, gradients = jax.vjp(formula, *arrays)
        return value, gradients(weights)
    return jax.jit(program)
