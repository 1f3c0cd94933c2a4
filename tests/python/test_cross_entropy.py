"""Promise: kbj.cross_entropy means what a plain JAX formula says, gradients included, under jit, vmap, remat and scan; and its fused forms too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import kbundle
import kbundle.jax as kbj
from python.formula import wide

pytestmark = pytest.mark.usefixtures("platform", "kernels")
TOLERANCE = {np.dtype("float32"): 2e-6, np.dtype("float16"): 1e-3, np.dtype(jnp.bfloat16): 8e-3}
HOW = [{}, {"label_smoothing": 0.1, "z_loss": 1e-3}, {"ignore_index": 2, "reduction": "sum"}, {"label_smoothing": 0.3, "reduction": "none"}]


def formula(logits, labels, label_smoothing=0.0, ignore_index=-100, z_loss=0.0, reduction="mean"):
    logits = logits.astype(jnp.float32)
    lse = jax.nn.logsumexp(logits, axis=-1)
    picked = jnp.take_along_axis(logits, jnp.clip(labels, 0)[..., None], -1)[..., 0]
    loss = lse - (1 - label_smoothing) * picked - label_smoothing * logits.mean(-1) + z_loss * lse ** 2
    counts = labels != ignore_index
    loss = jnp.where(counts, loss, 0.0)
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / jnp.maximum(counts.sum(), 1)}[reduction]


def some(shape, dtype, ignore_index=-100, seed=0):
    rng = np.random.default_rng(seed + sum(shape))
    labels = rng.integers(0, shape[-1], shape[:-1])
    if labels.size > 1:
        labels.reshape(-1)[::5] = ignore_index
    return jnp.asarray(4 * rng.standard_normal(shape), dtype), jnp.asarray(labels, jnp.int32)


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 64), (7, 33), (40,), (2, 1000)], ids=str)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16], ids=lambda dtype: np.dtype(dtype).name)
def test_values_and_gradients(how, shape, dtype):
    logits, labels = some(shape, dtype, how.get("ignore_index", -100))
    weights = jnp.asarray(np.random.default_rng(5).random(shape[:-1] if how.get("reduction") == "none" else ()), jnp.float32)
    value = lambda function: lambda logits: (function(logits, labels, **how) * weights).sum()
    loss = jax.jit(lambda logits: kbj.cross_entropy(logits, labels, **how))(logits)
    assert loss.dtype == jnp.float32
    np.testing.assert_allclose(loss, formula(logits, labels, **how), rtol=3e-6, atol=3e-6)
    found, right = jax.jit(jax.grad(value(kbj.cross_entropy)))(logits), jax.grad(value(formula))(logits.astype(jnp.float32))
    assert found.dtype == dtype
    np.testing.assert_allclose(wide(found), right, rtol=TOLERANCE[np.dtype(dtype)], atol=2e-6)


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("in_place", [False, True])
def test_loss_and_gradient_at_once(how, in_place):
    logits, labels = some((6, 4, 130), jnp.float32, how.get("ignore_index", -100))
    both = jax.jit(lambda logits, dloss: kbj.cross_entropy_with_gradient(logits, labels, dloss, in_place=in_place, **how))
    loss, found = both(logits, 0.5)
    np.testing.assert_allclose(loss, formula(logits, labels, **how), rtol=3e-6, atol=3e-6)
    right = jax.grad(lambda logits: 0.5 * formula(logits, labels, **how).sum())(logits)
    np.testing.assert_allclose(found, right, rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(logits, some((6, 4, 130), jnp.float32)[0])  # what a caller still has is not overwritten


def test_gradients_are_those_of_differences():
    logits, labels = some((3, 9), jnp.float32)
    check_grads(lambda l: kbj.cross_entropy(l, labels, label_smoothing=0.1, z_loss=0.01), (logits,), 1, modes=["rev"], atol=1e-2, rtol=1e-2)


def test_labels_that_name_no_column_are_nan_and_nothing_else_is():
    logits, labels = some((4, 33), jnp.float32)[0], jnp.array([33, -1, 5, -100])
    loss, gradient = jax.value_and_grad(lambda l: jnp.nansum(kbj.cross_entropy(l, labels, reduction="none")))(logits)
    each = kbj.cross_entropy(logits, labels, reduction="none")
    assert np.isnan(each[:2]).all() and np.isfinite(each[2:]).all() and each[3] == 0 and np.isfinite(loss)
    gradient = jax.grad(lambda l: kbj.cross_entropy(l, labels, reduction="sum"))(logits)
    assert np.isnan(gradient[:2]).all() and np.isfinite(gradient[2]).all() and not gradient[3].any()


def test_wide_and_narrow_labels():
    logits, labels = some((20, 33), jnp.float32)
    wanted = kbj.cross_entropy(logits, labels)
    np.testing.assert_array_equal(kbj.cross_entropy(logits, labels.astype(jnp.int8)), wanted)
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        np.testing.assert_array_equal(kbj.cross_entropy(logits, labels.astype(jnp.int64)), wanted)
        far = labels.astype(jnp.int64).at[1].set(2**32)  # not label 0
        assert np.isnan(kbj.cross_entropy(logits, far, reduction="none")[1])


def test_all_rows_may_be_ignored_and_there_may_be_none():
    logits = jnp.ones((3, 8), jnp.bfloat16)
    loss, gradient = jax.value_and_grad(kbj.cross_entropy)(logits, jnp.full(3, -100))
    assert loss == 0 and not np.asarray(gradient, np.float32).any()
    loss, gradient = jax.jit(jax.value_and_grad(kbj.cross_entropy))(jnp.zeros((0, 8)), jnp.zeros(0, jnp.int32))
    assert loss == 0 and gradient.shape == (0, 8)


def test_vmap_scan_and_remat():
    logits, labels = some((5, 4, 32), jnp.float32)
    each = jax.vmap(kbj.cross_entropy)(logits, labels)
    np.testing.assert_allclose(each, [formula(a, b) for a, b in zip(logits, labels)], rtol=1e-6, atol=1e-6)
    gradient = jax.vmap(jax.grad(kbj.cross_entropy))(logits, labels)
    np.testing.assert_allclose(gradient, jax.vmap(jax.grad(formula))(logits, labels), rtol=1e-5, atol=1e-6)
    shared = jax.vmap(kbj.cross_entropy, (0, None))(logits, labels[0])
    np.testing.assert_allclose(shared, [formula(a, labels[0]) for a in logits], rtol=1e-6, atol=1e-6)

    def model(function, logits):
        step = jax.checkpoint(lambda total, pair: (total + function(jnp.tanh(pair[0]), pair[1]), None))
        return jax.lax.scan(step, 0.0, (logits, labels))[0]
    for found, right in zip(*(jax.jit(jax.value_and_grad(lambda l: model(f, l)))(logits) for f in (kbj.cross_entropy, formula))):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("change, says", [
    (dict(logits=jnp.ones((2, 8), jnp.complex64)), "logits is complex64; it must be float32, float16 or bfloat16"),
    (dict(labels=jnp.ones((3,), jnp.int32)), r"labels have shape \(3,\); for logits of shape \(2, 8\)"),
    (dict(labels=jnp.ones((2, 8))), "they must have the shape of the other axes"),
    (dict(labels=jnp.ones((2,))), "labels are float32; they must be integers"),
    (dict(logits=jnp.ones((2, 0))), "not empty"),
    (dict(label_smoothing=1.5), "label_smoothing is 1.5; it must be a finite number from 0 to 1"),
    (dict(z_loss=-1.0), "z_loss is -1.0; it must be a finite number from 0"),
    (dict(ignore_index=2**31), "ignore_index is 2147483648; it must be an integer from"),
    (dict(reduction="average"), "reduction is 'average'; it must be 'mean', 'sum' or 'none'"),
], ids=lambda value: value if isinstance(value, str) else None)
def test_what_is_wrong_is_said(change, says):
    given = dict(logits=jnp.ones((2, 8)), labels=jnp.zeros(2, jnp.int32)) | change
    with pytest.raises((TypeError, ValueError, kbundle.Error), match=says):
        kbj.cross_entropy(given.pop("logits"), given.pop("labels"), **given)
