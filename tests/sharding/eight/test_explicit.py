"""Promise: with explicit axes the type of a result says where it lies, gradients have the types of what they are gradients of, and
nothing is gathered that need not be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import kbundle.jax as kbj
from sharding.collectives import collectives
from sharding.problems import random

pytestmark = pytest.mark.usefixtures("kernels")


def spec_of(array):
    return jax.typeof(array).sharding.spec


def test_the_gradient_of_a_sharded_softmax_is_jax_nns(explicit):
    x = explicit(random(8, 4, 16), "data", "model")
    ours = jax.jit(jax.grad(lambda x: (kbj.scaled_softmax(x) ** 2).sum()))
    theirs = jax.jit(jax.grad(lambda x: (jax.nn.softmax(x) ** 2).sum()))
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-6)
    assert spec_of(ours(x)) == P("data", "model", None)
    assert collectives(ours, x) == {}


def test_norms_have_gradients_of_their_operands_types(explicit):
    x, residual = explicit(random(8, 4, 32), "data", "model"), explicit(random(8, 4, 32, seed=1), "data", "model")
    gamma, beta = explicit(random(32)), explicit(random(32, seed=1))
    loss = lambda x, residual, gamma, beta: sum((y ** 2).sum() for y in kbj.layer_norm(x, gamma, beta, residual=residual))
    found = jax.jit(jax.grad(loss, (0, 1, 2, 3)))(x, residual, gamma, beta)
    wanted = jax.grad(loss, (0, 1, 2, 3))(*map(np.asarray, (x, residual, gamma, beta)))
    for gradient, right, primal in zip(found, wanted, (x, residual, gamma, beta)):
        np.testing.assert_allclose(gradient, right, rtol=1e-4, atol=1e-4)
        assert spec_of(gradient) == spec_of(primal)


def test_results_are_typed_by_what_the_manifest_calls_independent(explicit):
    x = explicit(random(8, 4, 16, 16), "data", "model")
    for softmax in (kbj.scaled_softmax, kbj.scaled_causal_softmax):
        assert spec_of(jax.jit(softmax)(x)) == P("data", "model", None, None)
    a, b = explicit(random(8, 32), "data"), explicit(random(32, 16), None, "model")
    assert spec_of(jax.jit(kbj.matmul)(a, b)) == P("data", "model")


def test_an_axis_that_is_no_part_of_a_call_is_gathered_and_its_gradient_goes_back(explicit):
    x = explicit(random(8, 4, 16), "data", None, "model")
    with pytest.warns(kbj.GatheredWarning, match="'model'.*dim 2"):
        gradient = jax.jit(jax.grad(lambda x: (kbj.scaled_softmax(x) ** 2).sum()))(x)
    assert spec_of(gradient) == P("data", None, "model")
    wanted = jax.grad(lambda x: (jax.nn.softmax(x) ** 2).sum())(np.asarray(x))
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("w_spec", [(), (None, "model"), ("data",)], ids=str)
def test_layers_have_gradients_of_their_operands_types(explicit, w_spec):
    x, w, bias = explicit(random(8, 32), "data"), explicit(random(32, 64), *w_spec), explicit(random(64), *w_spec[1:])
    grad = jax.jit(jax.grad(lambda *arrays: (kbj.dense(*arrays, "gelu") ** 2).sum(), (0, 1, 2)))
    plain = jax.grad(lambda x, w, bias: (jax.nn.gelu(x @ w + bias) ** 2).sum(), (0, 1, 2))
    for found, wanted, primal in zip(grad(x, w, bias), plain(*map(np.asarray, (x, w, bias))), (x, w, bias)):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
        assert spec_of(found) == spec_of(primal)


def test_an_mlp_has_gradients_of_its_operands_types(explicit):
    arrays = [explicit(random(8, 32), "data"), explicit(random(32, 64) / 8, None, "model"), explicit(random(64), "model"),
              explicit(random(64, 32) / 8, "model"), explicit(random(32))]
    found = jax.jit(jax.grad(lambda *arrays: (kbj.mlp(*arrays) ** 2).sum(), tuple(range(5))))(*arrays)
    assert [spec_of(gradient) for gradient in found] == [spec_of(array) for array in arrays]


def test_attention_has_gradients_of_its_operands_types(explicit):
    q, k, v = (explicit(random(8, 16, heads, 8, seed=heads), "data", None, "model") for heads in (4, 2, 2))
    grad = lambda one: jax.jit(jax.grad(lambda *qkv: (one(*qkv) ** 2).sum(), (0, 1, 2)))
    ours = grad(lambda q, k, v: kbj.dot_product_attention(q, k, v, is_causal=True))
    assert collectives(ours, q, k, v) == {}
    plain = grad(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True))(*map(np.asarray, (q, k, v)))
    for found, wanted in zip(ours(q, k, v), plain):
        assert spec_of(found) == P("data", None, "model", None)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_permutation_has_gradients_of_its_operands_types(explicit):
    x, routing = explicit(random(16, 32), "data", "model"), explicit(random(16, 4) > 0, "data")
    probs = explicit(np.abs(random(16, 4)), "data")

    @jax.jit
    def gradients(x, probs):
        def loss(x, probs):
            rows, _, where = kbj.permute(x, routing, 40)
            return (kbj.unpermute(rows, where, probs) ** 2).sum()
        return jax.grad(loss, (0, 1))(x, probs)
    with pytest.warns(kbj.GatheredWarning):
        dx, dprobs = gradients(x, probs)
    assert spec_of(dx) == spec_of(x) and spec_of(dprobs) == spec_of(probs)
    assert np.isfinite(jnp.sum(dx)) and np.isfinite(jnp.sum(dprobs))


@pytest.mark.parametrize("axes", ["data", ("data", "model")], ids=str)
def test_a_vmap_that_is_a_loop_goes_over_each_devices_own_items(explicit, axes):
    x, gamma = explicit(random(8, 4, 32), axes), explicit(random(32))
    batch_of_gammas = explicit(random(8, 32, seed=1), axes)
    loss = lambda x, gamma: (kbj.rms_norm(x, gamma) ** 2).sum()
    for dims, weights in (((0, 0), batch_of_gammas), ((0, None), gamma)):
        norms, gradients = (jax.jit(jax.vmap(function, dims)) for function in (kbj.rms_norm, jax.grad(loss, (0, 1))))
        assert spec_of(norms(x, weights)) == P(axes, None, None)
        assert collectives(norms, x, weights) == {}
        wanted = [jax.grad(loss, (0, 1))(np.asarray(x)[i], np.asarray(weights)[i] if dims[1] == 0 else np.asarray(weights)) for i in range(8)]
        for found, right in zip(gradients(x, weights), zip(*wanted)):
            np.testing.assert_allclose(found, np.stack(right), rtol=1e-4, atol=1e-4)
            assert spec_of(found)[0] == axes


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_takes_labels_that_are_on_every_device(explicit, reduction):
    logits, labels = explicit(random(8, 40), ("data", "model")), np.arange(8)
    for own in (labels, explicit(labels)):
        loss = lambda logits: kbj.cross_entropy(logits, own, reduction=reduction).sum()
        for function in (loss, jax.jit(loss)):
            np.testing.assert_allclose(function(logits), loss(np.asarray(logits)), rtol=1e-5)
        assert spec_of(jax.jit(jax.grad(loss))(logits)) == spec_of(logits)
        both = jax.jit(lambda logits: kbj.cross_entropy_with_gradient(logits, own, reduction=reduction))(logits)
        np.testing.assert_allclose(both[1], jax.grad(loss)(np.asarray(logits)), rtol=1e-4, atol=1e-6)


def test_fake_quantization_has_a_gradient_of_its_operands_type(explicit):
    x = explicit(random(8, 32), "data")
    gradient = jax.jit(jax.grad(lambda x: (kbj.fake_quantize(x) ** 2).sum()))(x)
    assert spec_of(gradient) == spec_of(jax.jit(kbj.fake_quantize)(x)) == spec_of(x)
    np.testing.assert_array_equal(gradient, 2 * kbj.fake_quantize(np.asarray(x)))


OF_ROWS = [(("data", "model"), ()), ((("data", "model"), None), (None, "data")), ((None, None, "model"), ("model",)),
           (("data",), ("model", "data"))]


@pytest.mark.parametrize("reduction, rows, weight_spec", [*(("mean", *of) for of in OF_ROWS), ("sum", *OF_ROWS[2]), ("none", *OF_ROWS[3])], ids=str)
def test_the_loss_of_a_linear_layer_is_of_each_devices_own_rows(explicit, reduction, rows, weight_spec):
    hidden, weight = explicit(random(8, 4, 16), *rows), explicit(random(24, 16, seed=1), *weight_spec)
    tokens = np.arange(32).reshape(8, 4) % 24
    tokens[1, 2] = -100
    factor = np.asarray(random(8, 4, seed=2)) if reduction == "none" else 1.0
    ours = lambda h, w, l: (kbj.linear_cross_entropy(h, w, l, reduction=reduction, chunk_rows=3, z_loss=1e-3) * factor).sum()
    plain = lambda h, w: (kbj.cross_entropy(h @ w.T, tokens, reduction=reduction, z_loss=1e-3) * factor).sum()
    value, wanted = jax.value_and_grad(plain, (0, 1))(np.asarray(hidden), np.asarray(weight))
    for labels in (tokens, explicit(tokens, *rows[:2])):
        for function in (ours, jax.jit(ours)):
            np.testing.assert_allclose(function(hidden, weight, labels), value, rtol=1e-4)
        found = jax.jit(jax.grad(ours, (0, 1)))(hidden, weight, labels)
        for gradient, right, primal in zip(found, wanted, (hidden, weight)):
            np.testing.assert_allclose(gradient, right, rtol=1e-3, atol=1e-4)
            assert spec_of(gradient) == spec_of(primal)
    each = jax.jit(lambda h, w, l: kbj.linear_cross_entropy(h, w, l, reduction="none"))(hidden, weight, tokens)
    assert spec_of(each) == P(*rows[:2], *[None] * (2 - len(rows[:2])))
