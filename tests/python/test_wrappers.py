"""Promise: the wrappers that op families bring along are differentiable and mean what their formula says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj
from python.formula import same_partial, value_and_gradients, wide

pytestmark = pytest.mark.usefixtures("platform", "kernels")
TOLERANCE = {np.dtype("float32"): 2e-6, np.dtype("float16"): 2e-3, np.dtype(jnp.bfloat16): 1.6e-2}


def values(*shape, dtype=np.float32):
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape) * 3, dtype)


def plain(x, scale):
    return jax.nn.softmax(x.astype(jnp.float32) * scale, axis=-1)


def causal(x, scale):
    keep = jnp.tril(jnp.ones(x.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(keep, x.astype(jnp.float32) * scale, -jnp.inf), axis=-1)


def masked(x, mask, scale):
    logits = jnp.where(mask != 0, -10000.0, x.astype(jnp.float32) * scale)
    dead = jnp.max(logits, axis=-1, keepdims=True) == -10000.0
    return jnp.where(dead, 0.0, jax.nn.softmax(logits, axis=-1))


def check(function, formula, x):
    """Value and gradient against the plain formula in float32."""
    tolerance = TOLERANCE[np.dtype(x.dtype)]
    y = jax.jit(function)(x)
    assert y.dtype == x.dtype and y.shape == x.shape
    weight = wide(values(*x.shape))
    wanted, [expected] = value_and_gradients(formula, weight, wide(x))
    np.testing.assert_allclose(wide(y), wanted, rtol=tolerance, atol=tolerance)
    found = jax.jit(jax.grad(lambda x: (function(x).astype(jnp.float32) * weight).sum()))(x)
    np.testing.assert_allclose(wide(found), expected, rtol=4 * tolerance, atol=4 * tolerance)


def test_dir_shows_the_wrappers():
    assert {"scaled_softmax", "scaled_masked_softmax", "scaled_causal_softmax"} <= set(dir(kbj))
    with pytest.raises(AttributeError, match="scaled_softmax"):
        kbj.no_such_wrapper


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("shape", [(7,), (3, 33), (2, 3, 4, 128)])
def test_scaled_softmax(shape, dtype):
    check(lambda x: kbj.scaled_softmax(x, 0.5), same_partial(plain, scale=0.5), values(*shape, dtype=dtype))


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize("shape", [(17, 17), (2, 3, 32, 32)])
def test_scaled_causal_softmax(shape, dtype):
    check(lambda x: kbj.scaled_causal_softmax(x, 0.25), same_partial(causal, scale=0.25), values(*shape, dtype=dtype))


@pytest.mark.parametrize("shape, mask_shape", [
    ((2, 3, 4, 33), (2, 3, 4, 33)), ((2, 3, 4, 33), (2, 1, 4, 33)), ((2, 3, 4, 33), (1, 1, 4, 33)),
    ((2, 3, 4, 33), (33,)), ((2, 3, 4, 33), (2, 1, 1, 33)), ((4, 33), (4, 33)), ((3, 4, 33), (3, 4, 33)),
    ((3, 4, 33), (4, 33)), ((2, 2, 3, 4, 33), (2, 1, 3, 4, 33)), ((2, 2, 3, 4, 33), (1, 1, 3, 4, 33)),
])
@pytest.mark.parametrize("mask_dtype", [np.bool_, np.uint8, np.int32])
def test_scaled_masked_softmax(shape, mask_shape, mask_dtype):
    mask = np.random.default_rng(3).integers(0, 2, mask_shape).astype(mask_dtype)
    check(lambda x: kbj.scaled_masked_softmax(x, mask, 0.5), lambda x: masked(x, mask, 0.5), values(*shape))


def test_a_row_that_is_masked_throughout_is_zero_and_has_no_gradient():
    x, mask = values(1, 1, 2, 40), np.array([[1], [0]], np.uint8)
    y = kbj.scaled_masked_softmax(x, mask, 1.0)
    np.testing.assert_array_equal(y[0, 0, 0], 0)
    np.testing.assert_allclose(y[0, 0, 1].sum(), 1, rtol=1e-6)
    gradient = jax.grad(lambda x: kbj.scaled_masked_softmax(x, mask, 1.0)[..., 0].sum())(x)
    np.testing.assert_array_equal(gradient[0, 0, 0], 0)


def test_vmap_of_wrappers_and_of_their_gradients():
    x = values(3, 2, 5, 5)
    for function, formula in ((kbj.scaled_softmax, plain), (kbj.scaled_causal_softmax, causal)):
        loss = lambda f: lambda x: (f(x, 0.5) ** 2).sum()
        np.testing.assert_allclose(jax.vmap(lambda x: function(x, 0.5))(x), formula(x, 0.5), atol=2e-6)
        np.testing.assert_allclose(jax.vmap(jax.grad(loss(function)))(x), jax.vmap(jax.grad(loss(formula)))(x),
                                   atol=2e-6)
    mask = np.random.default_rng(3).integers(0, 2, (5, 5)).astype(np.uint8)
    np.testing.assert_allclose(jax.vmap(lambda x: kbj.scaled_masked_softmax(x, mask, 0.5))(x), masked(x, mask, 0.5),
                               atol=2e-6)


def test_a_large_output_survives_huge_page_advice():
    x = values(2100, 2048)  # 17 MB
    for _ in range(2):
        np.testing.assert_allclose(jax.jit(lambda x: kbj.scaled_softmax(x, 1.0))(x), plain(x, 1.0), atol=2e-6)


def test_attention_of_an_empty_batch_is_empty_and_no_keys_are_refused(kernels):
    kbundle.use(kernels)
    q = np.zeros((1, 4, 2, 8), np.float32)
    assert kbj.dot_product_attention(q[:0], q[:0], q[:0]).shape == (0, 4, 2, 8)
    with pytest.raises(kbundle.Error, match="want keys"):
        kbj.dot_product_attention(q, q[:, :0], q[:, :0])
