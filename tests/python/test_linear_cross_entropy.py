"""Promise: kbj.linear_cross_entropy is cross_entropy of a product, gradients included, whatever the chunks, and never holds all logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import kbundle
import kbundle.jax as kbj
from python.formula import wide
from python.test_cross_entropy import formula

pytestmark = pytest.mark.usefixtures("platform", "kernels")


def some(tokens, D, V, dtype=jnp.float32, last=False, weights=None):
    rng = np.random.default_rng(tokens + V)
    labels = rng.integers(0, V, tokens)
    labels[::7] = -100
    weight = rng.standard_normal((D, V) if last else (V, D)) / np.sqrt(D)
    return (jnp.asarray(2 * rng.standard_normal((tokens, D)), dtype), jnp.asarray(weight, weights or dtype), jnp.asarray(labels, jnp.int32))


def plain(hidden, weight, labels, vocabulary_last=False, **how):
    hidden, weight = (array.astype(jnp.float32) for array in (hidden, weight))
    return formula(hidden @ (weight if vocabulary_last else weight.T), labels, **how)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("chunk_rows", [None, 1, 16, 30, 300])
@pytest.mark.parametrize("last", [False, True])
def test_values_and_gradients(reduction, chunk_rows, last):
    hidden, weight, labels = some(67, 24, 50, last=last)
    how = dict(reduction=reduction, vocabulary_last=last, label_smoothing=0.1, z_loss=1e-3)
    factor = jnp.asarray(np.random.default_rng(1).random(67 if reduction == "none" else ()), jnp.float32)
    ours = lambda h, w: (kbj.linear_cross_entropy(h, w, labels, chunk_rows=chunk_rows, **how) * factor).sum()
    theirs = lambda h, w: (plain(h, w, labels, **how) * factor).sum()
    np.testing.assert_allclose(jax.jit(ours)(hidden, weight), theirs(hidden, weight), rtol=2e-5)
    found, right = jax.jit(jax.value_and_grad(ours, (0, 1)))(hidden, weight), jax.value_and_grad(theirs, (0, 1))(hidden, weight)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(right)):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5 * max(1, np.abs(b).max()))


@pytest.mark.parametrize("dtype, weights, accumulate", [
    (jnp.bfloat16, jnp.bfloat16, jnp.float32), (jnp.bfloat16, jnp.float32, jnp.float32), (jnp.bfloat16, jnp.bfloat16, jnp.bfloat16),
    (jnp.float16, jnp.float16, jnp.float32)], ids=str)
def test_narrow_dtypes(dtype, weights, accumulate):
    hidden, weight, labels = some(128, 32, 96, dtype, weights=weights)
    ours = lambda h, w: kbj.linear_cross_entropy(h, w, labels, chunk_rows=32, accumulate=accumulate)
    loss, found = jax.jit(jax.value_and_grad(ours, (0, 1)))(hidden, weight)
    right_loss, right = jax.value_and_grad(lambda h, w: plain(h, w, labels), (0, 1))(*(a.astype(jnp.float32) for a in (hidden, weight)))
    np.testing.assert_allclose(loss, right_loss, rtol=4e-3)
    for gradient, wanted, given in zip(found, right, (hidden, weight)):
        assert gradient.dtype == given.dtype
        np.testing.assert_allclose(wide(gradient), wanted, atol=0.02 * np.abs(wanted).max())


@pytest.mark.parametrize("dtype, last, chunk_rows, reduction", [
    (jnp.float32, False, None, "mean"), (jnp.float32, True, 256, "sum"), (jnp.bfloat16, True, None, "mean"),
    (jnp.bfloat16, False, 258, "none")], ids=str)
def test_a_vocabulary_whose_rows_are_not_aligned(dtype, last, chunk_rows, reduction):
    """Columns that are added behind it weigh nothing, and are nobody's label."""
    hidden, weight, labels = some(300, 24, 301, dtype, last=last)
    how = dict(reduction=reduction, vocabulary_last=last, z_loss=1e-3, ignore_index=305)
    labels = jnp.where(labels == -100, 5, labels).at[::9].set(305)
    factor = jnp.asarray(np.random.default_rng(1).random(300 if reduction == "none" else ()), jnp.float32)
    ours = lambda h, w, l: (kbj.linear_cross_entropy(h, w, l, chunk_rows=chunk_rows, **how) * factor).sum()
    found = jax.jit(jax.value_and_grad(ours, (0, 1)))(hidden, weight, labels)
    right = jax.value_and_grad(lambda h, w: (plain(h, w, labels, **how) * factor).sum(), (0, 1))(
        *(a.astype(jnp.float32) for a in (hidden, weight)))
    np.testing.assert_allclose(found[0], right[0], rtol=2e-5 if dtype == jnp.float32 else 4e-3)
    for a, b in zip(found[1], right[1]):
        np.testing.assert_allclose(wide(a), b, atol=(2e-5 if dtype == jnp.float32 else 0.02) * max(1, np.abs(b).max()))
    for label in (301, 319, -1):
        loss, (dhidden, dweight) = jax.jit(jax.value_and_grad(ours, (0, 1)))(hidden, weight, labels.at[3].set(label))
        assert np.isnan(loss) and np.isnan(dhidden[3]).all() and np.isfinite(wide(dhidden[4])).all() and np.isnan(dweight).all()


def test_gradients_are_those_of_differences():
    hidden, weight, labels = some(9, 5, 7)
    check_grads(lambda h, w: kbj.linear_cross_entropy(h, w, labels, chunk_rows=4), (hidden, weight), 1, modes=["rev"], atol=1e-2, rtol=1e-2)


def test_all_logits_are_never_there():
    """Temporary memory of the compiled step is that of a chunk, not of all rows."""
    hidden, weight, labels = some(2048, 16, 4096)
    step = jax.jit(jax.value_and_grad(lambda h, w: kbj.linear_cross_entropy(h, w, labels, chunk_rows=128), (0, 1)))
    memory = step.lower(hidden, weight).compile().memory_analysis()
    if memory is None:
        pytest.skip("this JAX does not say how much memory a program takes")
    assert memory.temp_size_in_bytes < 2048 * 4096 * 4 / 4


def test_leading_dims_vmap_and_no_rows():
    hidden, weight, labels = some(24, 8, 10)
    loss = lambda h, l: kbj.linear_cross_entropy(h, weight, l, chunk_rows=5)
    np.testing.assert_allclose(loss(hidden.reshape(2, 3, 4, 8), labels.reshape(2, 3, 4)), loss(hidden, labels), rtol=1e-6)
    each = kbj.linear_cross_entropy(hidden.reshape(4, 6, 8), weight, labels.reshape(4, 6), reduction="none")
    assert each.shape == (4, 6)
    found = jax.vmap(jax.grad(loss))(hidden.reshape(4, 6, 8), labels.reshape(4, 6))
    right = jnp.stack([jax.grad(loss)(h, l) for h, l in zip(hidden.reshape(4, 6, 8), labels.reshape(4, 6))])
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
    value, gradients = jax.value_and_grad(lambda h, w: kbj.linear_cross_entropy(h, w, labels[:0]), (0, 1))(hidden[:0], weight)
    assert value == 0 and gradients[0].shape == (0, 8) and not np.asarray(gradients[1]).any()


def test_rows_on_several_devices():
    hidden, weight, labels = some(64, 8, 20)
    mesh = jax.make_mesh((2,), ("data",), (jax.sharding.AxisType.Auto,), devices=jax.devices("cpu")[:2])
    rows = jax.sharding.PartitionSpec("data")

    def part(h, w, l):
        return jax.lax.psum(kbj.linear_cross_entropy(h, w, l, reduction="sum", chunk_rows=10), "data")
    with jax.default_device(jax.devices("cpu")[0]):
        step = jax.shard_map(part, mesh=mesh, in_specs=(rows, jax.sharding.PartitionSpec(), rows), out_specs=jax.sharding.PartitionSpec())
        found = jax.jit(jax.value_and_grad(step, (0, 1)))(hidden, weight, labels)
        right = jax.value_and_grad(lambda h, w: plain(h, w, labels, reduction="sum"), (0, 1))(hidden, weight)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(right)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("change, says", [
    (dict(weight=jnp.ones((7, 5))), r"hidden has shape \(2, 4\) and weight \(7, 5\); they must be \[.., D\] and \[V, D\]"),
    (dict(labels=jnp.ones((3,), jnp.int32)), r"labels have shape \(3,\); for hidden of shape \(2, 4\) they must have \(2,\)"),
    (dict(hidden=jnp.ones((2, 4), jnp.complex64)), "hidden is complex64"),
    (dict(accumulate=jnp.float16), "accumulate is .*; it must be float32, or the weight's dtype float32"),
    (dict(chunk_rows=0), "chunk_rows is 0; it must be an integer, 1 or more"),
], ids=lambda value: value if isinstance(value, str) else None)
def test_what_is_wrong_is_said(change, says):
    given = dict(hidden=jnp.ones((2, 4)), weight=jnp.ones((7, 4)), labels=jnp.zeros(2, jnp.int32)) | change
    with pytest.raises((TypeError, ValueError, kbundle.Error), match=says):
        kbj.linear_cross_entropy(given.pop("hidden"), given.pop("weight"), given.pop("labels"), **given)
