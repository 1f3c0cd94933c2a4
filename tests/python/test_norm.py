"""Promise: kbj.rms_norm and kbj.layer_norm mean what plain JAX formulas say, gradients included, under jit, vmap, remat and scan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import kbundle
import kbundle.jax as kbj
from python.formula import same_partial, value_and_gradients, wide

pytestmark = pytest.mark.usefixtures("platform", "kernels")
TOLERANCE = {np.dtype("float32"): 2e-5, np.dtype("float16"): 4e-3, np.dtype(jnp.bfloat16): 3e-2}
NORMS = [kbj.rms_norm, kbj.layer_norm]


def formula(*arrays, kind="rms_norm", residual=False, beta=True, epsilon=1e-6, zero_centered_gamma=False):
    """In float32: x, gamma, beta of a layer norm, and the residual."""
    x, gamma, *more = arrays
    x = x + more[-1] if residual else x
    centered = x - x.mean(-1, keepdims=True) if kind == "layer_norm" else x
    y = centered * jax.lax.rsqrt((centered * centered).mean(-1, keepdims=True) + epsilon) * (gamma + 1 if zero_centered_gamma else gamma)
    y = y + more[0] if kind == "layer_norm" and beta else y
    return (y, x) if residual else (y,)


def ours(*arrays, kind="rms_norm", residual=False, beta=True, **how):
    x, gamma, *more = arrays
    how = how | ({"residual": more[-1]} if residual else {})
    y = getattr(kbj, kind)(x, gamma, *([more[0]] if kind == "layer_norm" and beta else []), **how)
    return y if residual else (y,)


def arrays_of(shape, dtype, kind, residual=False, beta=True, weights=None):
    rng = np.random.default_rng(sum(shape))
    made = lambda *dims, of=dtype: jnp.asarray(rng.normal(size=dims) + 0.5, of)
    return [made(*shape), *(made(shape[-1], of=weights or dtype) for _ in range(2 if kind == "layer_norm" and beta else 1)),
            *([made(*shape)] if residual else [])]


def check(arrays, **how):
    """Values and gradients against the formula in float32."""
    tolerance = max(TOLERANCE[np.dtype(array.dtype)] for array in arrays)
    plain, function = same_partial(formula, **how), same_partial(ours, **how)
    rng = np.random.default_rng(5)
    weights = jax.tree.map(lambda y: wide(rng.normal(size=y.shape)), jax.eval_shape(plain, *map(wide, arrays)))
    wanted, expected = value_and_gradients(plain, weights, *map(wide, arrays))
    for found, right in zip(jax.jit(function)(*arrays), wanted, strict=True):
        assert found.dtype == arrays[0].dtype
        np.testing.assert_allclose(wide(found), right, rtol=tolerance, atol=tolerance)
    loss = lambda *a: sum((y.astype(jnp.float32) * w).sum() for y, w in zip(function(*a), weights))
    gradients = jax.jit(jax.grad(loss, tuple(range(len(arrays)))))(*arrays)
    for array, found, right in zip(arrays, gradients, expected):
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(wide(found), right, rtol=tolerance, atol=tolerance * max(1.0, np.abs(right).max()))


@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("shape", [(3, 5, 64), (7, 33), (1, 1024), (40,), (2, 3, 2, 136)], ids=str)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16], ids=lambda dtype: np.dtype(dtype).name)
def test_values_and_gradients(kind, shape, dtype):
    check(arrays_of(shape, dtype, kind), kind=kind)


@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=lambda dtype: np.dtype(dtype).name)
def test_a_residual_is_added_and_differentiated(kind, dtype):
    check(arrays_of((4, 6, 48), dtype, kind, residual=True), kind=kind, residual=True, epsilon=0.01, zero_centered_gamma=True)


def test_weights_may_be_float32_and_beta_none():
    check(arrays_of((6, 40), jnp.bfloat16, "layer_norm", beta=False, weights=jnp.float32), kind="layer_norm", beta=False)
    check(arrays_of((6, 40), jnp.float16, "rms_norm", weights=jnp.float32), zero_centered_gamma=True)
    check(arrays_of((6, 40), jnp.float32, "rms_norm", weights=jnp.bfloat16))  # widened


@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_gradients_are_those_of_differences(kind):
    x, *weights = arrays_of((3, 24), jnp.float32, kind)
    check_grads(lambda *a: getattr(kbj, kind)(*a, epsilon=0.1), (x, *weights), 1, modes=["rev"], atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("kind", ["rms_norm", "layer_norm"])
def test_vmap_is_a_loop(kind):
    x, *weights = arrays_of((5, 4, 32), jnp.float32, kind)
    function = getattr(kbj, kind)
    np.testing.assert_allclose(jax.vmap(lambda row: function(row, *weights))(x), function(x, *weights), rtol=1e-6, atol=1e-6)
    each = jnp.stack([weights[0] + i for i in range(5)])
    wanted = jnp.stack([function(a, g, *weights[1:]) for a, g in zip(x, each)])
    np.testing.assert_allclose(jax.vmap(lambda a, g: function(a, g, *weights[1:]))(x, each), wanted, rtol=1e-6, atol=1e-6)
    loss = lambda a, g: (function(a, g, *weights[1:]) ** 3).sum()
    found = jax.vmap(jax.grad(loss, (0, 1)))(x, each)
    for number, pair in enumerate(zip(*found)):
        for got, right in zip(pair, jax.grad(loss, (0, 1))(x[number], each[number])):
            np.testing.assert_allclose(got, right, rtol=2e-5, atol=2e-5)


def test_layers_under_scan_and_remat():
    """A stack of layers with a residual stream, as models have it."""
    x, gamma, residual = arrays_of((4, 64), jnp.float32, "rms_norm", residual=True)

    def model(norm, x, gamma):
        def layer(carry, scale):
            y, stream = norm(carry[0] * scale, gamma, carry[1])
            return (jnp.tanh(y), stream), None
        (y, stream), _ = jax.lax.scan(jax.checkpoint(layer), (x, residual), jnp.arange(1.0, 4.0))
        return (y * stream).sum()
    by_us = jax.jit(jax.value_and_grad(lambda *a: model(lambda x, g, r: kbj.rms_norm(x, g, residual=r), *a), (0, 1)))
    plain = jax.jit(jax.value_and_grad(lambda *a: model(lambda x, g, r: formula(x, g, r, residual=True), *a), (0, 1)))
    for found, right in zip(jax.tree.leaves(by_us(x, gamma)), jax.tree.leaves(plain(x, gamma))):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


def test_the_same_gradient_twice_is_the_same_bits():
    x, gamma, beta = arrays_of((3000, 72), jnp.float32, "layer_norm")
    gradient = jax.jit(jax.grad(lambda x, g, b: (kbj.layer_norm(x, g, b) ** 3).sum(), (0, 1, 2)))
    for one, other in zip(gradient(x, gamma, beta), gradient(x, gamma, beta)):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("function", NORMS, ids=lambda function: function.__name__)
def test_no_rows_have_gradients_of_zero(function):
    x, gamma = jnp.zeros((0, 16), jnp.bfloat16), jnp.ones(16, jnp.bfloat16)
    assert function(x, gamma).shape == (0, 16)
    dx, dgamma = jax.jit(jax.grad(lambda x, g: function(x, g).astype(jnp.float32).sum(), (0, 1)))(x, gamma)
    assert dx.shape == (0, 16) and not np.asarray(dgamma, np.float32).any()


@pytest.mark.parametrize("change, says", [
    (dict(gamma=jnp.ones(9)), r"gamma has shape \(9,\); for x of shape \(2, 8\) it must be \(8,\)"),
    (dict(x=jnp.ones((2, 8), jnp.complex64)), "x is complex64; it must be float32, float16 or bfloat16"),
    (dict(x=jnp.ones(()), gamma=jnp.ones(())), "which x lacks"),
    (dict(residual=jnp.ones((2, 7))), r"residual is float32\[2, 7\]; it must be as x, float32\[2, 8\]"),
    (dict(epsilon=-1.0), "epsilon is -1.0; it must be a finite number from 0"),
    (dict(zero_centered_gamma=1), "zero_centered_gamma is 1; it must be True or False")], ids=str)
@pytest.mark.parametrize("function", NORMS, ids=lambda function: function.__name__)
def test_a_wrong_argument_is_named(function, change, says):
    given = dict(x=jnp.ones((2, 8)), gamma=jnp.ones(8)) | change
    with pytest.raises((ValueError, TypeError, kbundle.Error), match=function.__name__ + ": " + says if "lacks" not in says else says):
        function(given.pop("x"), given.pop("gamma"), **given)
