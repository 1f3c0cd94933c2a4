"""Promise: under a plain jit a call is divided along what its manifest calls independent: results are right, and nothing is said
between devices that plain JAX would not say."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle.jax as kbj
from sharding.collectives import collectives
from sharding.plain import plain_loss, plain_norm
from sharding.problems import random

pytestmark = pytest.mark.usefixtures("kernels")


def loss_of(function, count):
    """Its value and gradients, of a loss that is no sum alone."""
    loss = lambda *arrays: (function(*arrays).astype(jnp.float32) ** 2).sum()
    return jax.value_and_grad(loss, tuple(range(count)))


def agree(ours, theirs, arrays, count=None):
    """The same numbers, and no other collectives than theirs."""
    for one, other in ((ours, theirs), (loss_of(ours, count or len(arrays)), loss_of(theirs, count or len(arrays)))):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-4), jax.jit(one)(*arrays), jax.jit(other)(*arrays))
        found, wanted = collectives(one, *arrays), collectives(other, *arrays)
        assert all(found[kind] <= wanted.get(kind, 0) for kind in found), (found, wanted)


X = random(8, 4, 16, 32)


@pytest.mark.parametrize("spec", [("data",), ("data", "model"), (("data", "model"),), (None, "model"), (None, None, "data")], ids=str)
def test_softmax_stays_where_its_rows_are(put, spec):
    agree(lambda x: kbj.scaled_softmax(x, 0.5), lambda x: jax.nn.softmax(0.5 * x), [put(X, *spec)])


@pytest.mark.parametrize("spec", [("data",), ("data", "model")], ids=str)
def test_masked_and_causal_softmax_stay_where_their_rows_are(put, spec):
    hidden = np.triu(np.ones((16, 16), bool), 1)
    causal = lambda x: jax.nn.softmax(jnp.where(hidden, -jnp.inf, 0.5 * x))
    agree(lambda x: kbj.scaled_causal_softmax(x, 0.5), causal, [put(random(8, 4, 16, 16), *spec)])
    mask = random(8, 1, 16, 32) > 0
    masked = lambda x, mask: jax.nn.softmax(jnp.where(mask, -10000., 0.5 * x))
    agree(lambda x, mask: kbj.scaled_masked_softmax(x, mask, 0.5), masked, [put(X, *spec), put(mask, "data")], count=1)


def test_a_softmax_over_a_sharded_axis_is_gathered_and_says_so_once(put):
    x = put(X, "data", None, None, "model")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for scale in (0.5, 0.25):
            np.testing.assert_allclose(jax.jit(lambda x: kbj.scaled_softmax(x, scale))(x), jax.nn.softmax(scale * X), rtol=1e-5, atol=1e-6)
    [warning] = [one for one in seen if one.category is kbj.GatheredWarning]
    for text in ("softmax.scaled_forward", "'x'", "'model'", "dim 3", "shard_map"):
        assert text in str(warning.message)
    assert collectives(kbj.scaled_softmax, x) == {"all-gather": 1}


def test_a_vmapped_and_a_scanned_call_are_divided_too(put):
    agree(jax.vmap(kbj.scaled_softmax), jax.vmap(jax.nn.softmax), [put(X, "data")])
    every = lambda one: lambda x: jax.lax.scan(lambda carry, _: (one(carry), None), x, length=3)[0]
    agree(every(kbj.scaled_softmax), every(jax.nn.softmax), [put(X, "data")])
    agree(jax.checkpoint(kbj.scaled_softmax), jax.checkpoint(jax.nn.softmax), [put(X, "data")])


@pytest.mark.parametrize("a_spec, b_spec", [
    (("data",), ()), (("data",), (None, "model")), (("data", "model"), ("model",)), ((None, "model"), ("model", None)),
    (("data",), ("data",)), ((), (None, "model"))], ids=str)
def test_a_product_says_what_plain_jax_says(put, a_spec, b_spec):
    agree(kbj.matmul, jnp.matmul, [put(random(32, 64), *a_spec), put(random(64, 48), *b_spec)])


def test_a_batched_product_stays_where_its_batch_is(put):
    agree(kbj.matmul, jnp.matmul, [put(random(8, 16, 24), "data"), put(random(8, 24, 32), "data")])


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("weights", [(), (None, "model")], ids=str)
def test_a_layer_of_sharded_rows_sums_its_gradients(put, activation, weights):
    plain = lambda x, w, bias: {None: lambda y: y, "relu": jax.nn.relu, "gelu": jax.nn.gelu}[activation](x @ w + bias)
    arrays = [put(random(8, 16, 32), "data"), put(random(32, 256), *weights), put(random(256), *weights[1:])]
    agree(lambda x, w, bias: kbj.dense(x, w, bias, activation), plain, arrays)


@pytest.mark.parametrize("spec", [("data",), ("data", "model"), (("data", "model"),)], ids=str)
def test_norms_stay_where_their_rows_are_and_sum_the_gradients_of_their_weights(put, spec):
    x, residual, gamma, beta = put(random(8, 4, 64), *spec), put(random(8, 4, 64, seed=1), *spec), put(random(64)), put(random(64, seed=1))
    agree(kbj.rms_norm, plain_norm, [x, gamma])
    agree(kbj.layer_norm, lambda x, gamma, beta: plain_norm(x, gamma, beta, layer=True), [x, gamma, beta])
    agree(lambda x, gamma, residual: sum(kbj.rms_norm(x, gamma, residual=residual)),
          lambda x, gamma, residual: plain_norm(x, gamma, residual=residual), [x, gamma, residual])


@pytest.mark.parametrize("spec", [("data",), ("data", "model"), (("data", "model"),)], ids=str)
def test_losses_stay_where_their_rows_are(put, spec):
    logits, labels = put(random(8, 4, 64), *spec), put(np.arange(32, dtype=np.int32).reshape(8, 4), *spec)
    agree(lambda logits: kbj.cross_entropy(logits, labels), lambda logits: plain_loss(logits, labels), [logits])


def test_a_bias_beside_a_divided_sum_counts_once(put):
    arrays = [put(random(8, 64), None, "model"), put(random(64, 32), "model"), put(random(32))]
    agree(kbj.dense, lambda x, w, bias: x @ w + bias, arrays)


@pytest.mark.parametrize("weights", [((), ()), ((None, "model"), ("model",))], ids=str)
def test_an_mlp_of_column_and_row_shards(put, weights):
    arrays = [put(random(16, 32), "data"), put(random(32, 256) / 8, *weights[0]), put(random(256), *weights[0][1:]),
              put(random(256, 32) / 8, *weights[1]), put(random(32))]
    agree(kbj.mlp, lambda x, w1, b1, w2, b2: jax.nn.gelu(x @ w1 + b1) @ w2 + b2, arrays)


@pytest.mark.parametrize("kv_heads, kv_spec", [(4, ("data", None, "model")), (2, ("data", None, "model")), (1, ("data",))], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_stays_where_batch_and_heads_are(put, kv_heads, kv_spec, causal):
    q, k, v = random(8, 16, 4, 8), random(8, 16, kv_heads, 8), random(8, 16, kv_heads, 8, seed=1)
    arrays = [put(q, "data", None, "model"), put(k, *kv_spec), put(v, *kv_spec)]
    agree(lambda *qkv: kbj.dot_product_attention(*qkv, is_causal=causal), lambda *qkv: jax.nn.dot_product_attention(*qkv, is_causal=causal),
          arrays)


def test_the_gradient_of_a_bias_that_all_batches_share_is_summed(put):
    q, k, v = (put(random(8, 16, 4, 8, seed=seed), "data", None, "model") for seed in range(3))
    for shape, spec in (((1, 4, 16, 16), (None, "model")), ((8, 1, 16, 16), ("data",)), ((1, 1, 16, 16), ())):
        agree(kbj.dot_product_attention, jax.nn.dot_product_attention, [q, k, v, put(random(*shape), *spec)])


def test_packed_attention_stays_where_its_batch_is(put):
    qkv = put(random(8, 16, 3, 4, 8), "data")
    agree(lambda qkv: kbj.packed_dot_product_attention(qkv, is_causal=True),
          lambda qkv: jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True), [qkv])


def test_ragged_attention_stays_where_its_heads_are(put):
    arrays = [random(16, 4, 8), random(16, 2, 8), random(16, 2, 8, seed=1)]
    offsets = np.array([0, 6, 16], np.int32)
    ragged = loss_of(lambda *qkv: kbj.ragged_dot_product_attention(*qkv, offsets, offsets, max_query_length=16, max_key_value_length=16), 3)
    sharded = [put(x, None, "model") for x in arrays]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), jax.jit(ragged)(*sharded), jax.jit(ragged)(*arrays))
    assert set(collectives(ragged, *sharded)) == {"all-reduce"}


def test_dropout_counts_elements_of_the_whole_and_so_is_gathered(put):
    q, k, v = (random(8, 16, 4, 8, seed=seed) for seed in range(3))
    dropped = jax.jit(lambda q, k, v: kbj.dot_product_attention(q, k, v, dropout_rate=0.5, dropout_seed=np.arange(2, dtype=np.uint32),
                                                                dropout_generator="own"))
    with pytest.warns(kbj.GatheredWarning, match="sdpa_forward.*'q'.*'data'"):
        found = dropped(*(put(x, "data") for x in (q, k, v)))
    np.testing.assert_allclose(found, dropped(q, k, v), rtol=1e-5, atol=1e-6)


def test_permute_means_all_tokens_wherever_they_lie(put):
    x, routing = random(16, 32), random(16, 4) > 0
    rows = int(routing.sum())
    whole = kbj.permute(x, routing, rows)
    with pytest.warns(kbj.GatheredWarning, match="row_id_map.*'routing_map'"):
        tokens = jax.jit(lambda x, r: kbj.permute(x, r, rows))(put(x, "data"), put(routing, "data"))
    hidden = jax.jit(lambda x, r: kbj.permute(x, r, rows))
    for found in (tokens, hidden(put(x, None, "model"), routing)):
        np.testing.assert_array_equal(found[0], whole[0])
        np.testing.assert_array_equal(found[2], whole[2])
    assert collectives(hidden, put(x, None, "model"), put(routing)) == {}
    back = lambda rows, where: kbj.unpermute(rows, where)
    np.testing.assert_allclose(jax.jit(back)(put(whole[0], None, "model"), put(whole[2], "data")), kbj.unpermute(whole[0], whole[2]), rtol=1e-6)
    assert collectives(back, put(whole[0], None, "model"), put(whole[2], "data")) == {}


def test_permute_inside_shard_map_means_each_devices_own_tokens(mesh):
    x, routing = random(16, 32), np.tile(np.eye(4, dtype=bool), (4, 1))
    P = jax.sharding.PartitionSpec
    local = jax.shard_map(lambda x, r: kbj.permute(x, r, 4)[0], mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    wanted = np.concatenate([kbj.permute(x[i:i + 4], routing[i:i + 4], 4)[0] for i in range(0, 16, 4)])
    np.testing.assert_array_equal(jax.jit(local)(x, routing), wanted)
    assert collectives(local, x, routing) == {}


def test_what_does_not_divide_evenly_is_gathered(put, mesh):
    """Three heads over two devices: one part would be larger."""
    heads, x = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "model")), random(8, 3, 16)
    uneven = lambda x: kbj.scaled_softmax(jax.lax.with_sharding_constraint(x, heads))
    np.testing.assert_allclose(jax.jit(uneven)(x), jax.nn.softmax(x), rtol=1e-5, atol=1e-6)


def test_a_program_without_a_mesh_and_one_device_are_left_alone():
    text = jax.jit(kbj.scaled_softmax).lower(X).as_text()
    assert "CustomSPMDPartitioning" not in text and "kbundle.call.v1" in text
