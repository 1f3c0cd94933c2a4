"""What the tests of attention under JAX share: a function beside a formula in float32, values and gradients."""

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from python.formula import value_and_gradients, wide

TOLERANCE = {np.dtype("float32"): 2e-5, np.dtype("float16"): 4e-3, np.dtype(jnp.bfloat16): 3e-2}


def near(found, wanted, tolerance):
    found, wanted = np.asarray(found, np.float32), np.asarray(wanted, np.float32)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(1.0, np.abs(wanted).max()))


def check(function, reference, *arrays, seen=None):
    """Value and gradients under jit against the reference in float32; seen: which queries count."""
    weights = wide(np.random.default_rng(9).normal(size=jax.eval_shape(reference, *arrays).shape))
    if seen is not None:
        weights = np.where(seen, weights, np.float32(0))
    tolerance = TOLERANCE[np.dtype(arrays[0].dtype)]
    found, (wanted, gradients) = jax.jit(function)(*arrays), value_and_gradients(reference, weights, *map(wide, arrays))
    assert found.dtype == arrays[0].dtype
    near(np.where(weights == 0, 0, wide(found)), np.where(weights == 0, 0, wanted), tolerance)
    loss = lambda *a: (function(*a).astype(jnp.float32) * weights).sum()
    for array, f, w in zip(arrays, jax.jit(jax.grad(loss, tuple(range(len(arrays)))))(*arrays), gradients):
        assert f.dtype == array.dtype and f.shape == array.shape
        near(f, w, 4 * tolerance)


def calls(jaxpr):
    """All calls of kbundle in a program."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "kbundle_call":
            yield eqn
        for inner in jax.extend.core.jaxprs_in_params(eqn.params):
            yield from calls(inner)
