"""Promise: kbj.route, kbj.router_topk, kbj.router_scores and kbj.moe_aux_loss mean what plain JAX with lax.top_k says, gradients included,
under jit and vmap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import kbundle
import kbundle.jax as kbj

pytestmark = pytest.mark.usefixtures("platform", "kernels")
TOLERANCE = {np.dtype("float32"): 1e-5, np.dtype("float16"): 4e-3, np.dtype(jnp.bfloat16): 3e-2}
HOW = [{}, {"use_pre_softmax": True}, {"score_function": "sigmoid", "scaling_factor": 2.5}, {"num_groups": 4, "group_topk": 2},
       {"score_function": "sigmoid", "num_groups": 4, "group_topk": 2}]
IDS = ["softmax", "pre", "sigmoid", "groups", "sigmoid-groups"]


def plain_scores(x, score_function):
    x = x.astype(jnp.float32)
    if score_function == "softmax":
        return jax.nn.softmax(x, axis=-1)
    return jax.nn.sigmoid(x) / jax.nn.sigmoid(x).sum(-1, keepdims=True)


def plain(logits, k, *, score_function="softmax", use_pre_softmax=False, expert_bias=None, num_groups=1, group_topk=1, scaling_factor=1.0):
    """(probs, weights, indices) in float32."""
    x = logits.astype(jnp.float32)
    sigmoid = score_function == "sigmoid"
    scores = jax.nn.sigmoid(x) if sigmoid else jax.nn.softmax(x, axis=-1) if use_pre_softmax else x
    chosen_by = scores if expert_bias is None else scores + expert_bias
    if num_groups > 1:
        split = chosen_by.reshape(*x.shape[:-1], num_groups, -1)
        sums = jax.lax.top_k(split, k // group_topk)[0].sum(-1)
        kept = jax.nn.one_hot(jax.lax.top_k(sums, group_topk)[1], num_groups).sum(-2) > 0
        chosen_by = jnp.where(kept[..., None], split, -jnp.inf).reshape(x.shape)
    indices = jax.lax.top_k(chosen_by, k)[1]
    weights = jnp.take_along_axis(scores, indices, axis=-1)
    if not sigmoid and not use_pre_softmax:
        weights = jax.nn.softmax(weights, axis=-1)
    if sigmoid and k > 1:
        weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
    weights = weights * scaling_factor
    return (jax.nn.one_hot(indices, x.shape[-1]) * weights[..., None]).sum(-2), weights, indices


def logits_of(shape, dtype=jnp.float32):
    """Numbers of which no two of a token are near."""
    rng = np.random.default_rng(sum(shape))
    return jnp.asarray(rng.permuted(np.tile(np.linspace(-3, 3, shape[-1]), (*shape[:-1], 1)), axis=-1), dtype)


def close(found, wanted, dtype):
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted, rtol=TOLERANCE[np.dtype(dtype)], atol=TOLERANCE[np.dtype(dtype)])


@pytest.mark.parametrize("how", HOW, ids=IDS)
@pytest.mark.parametrize("shape", [(3, 5, 64), (7, 36), (1, 256), (40,)], ids=str)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16], ids=lambda dtype: np.dtype(dtype).name)
def test_values_and_gradients(how, shape, dtype):
    logits, k = logits_of(shape, dtype), 4
    probs, routing_map = jax.jit(lambda x: kbj.router_topk(x, k, **how))(logits)
    wanted, weights, indices = plain(logits, k, **how)
    assert (probs.dtype, routing_map.dtype) == (dtype, jnp.bool_)
    close(probs, wanted, dtype)
    np.testing.assert_array_equal(routing_map, jax.nn.one_hot(indices, shape[-1]).sum(-2) > 0)
    g = jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)
    found = jax.jit(jax.grad(lambda x: (kbj.router_topk(x, k, **how)[0].astype(jnp.float32) * g).sum()))(logits)
    assert found.dtype == dtype
    close(found, jax.grad(lambda x: (plain(x, k, **how)[0] * g).sum())(logits.astype(jnp.float32)), dtype)
    routing = jax.jit(lambda x: kbj.route(x, k, **how))(logits)
    flat = lambda a: a.reshape(-1, a.shape[-1])
    np.testing.assert_array_equal(routing.indices, flat(indices))
    close(routing.weights, flat(weights), dtype)
    gw = jnp.asarray(np.random.default_rng(1).standard_normal((flat(logits).shape[0], k)), jnp.float32)
    found = jax.jit(jax.grad(lambda x: (kbj.route(x, k, **how).weights.astype(jnp.float32) * gw).sum()))(logits)
    close(found, jax.grad(lambda x: (flat(plain(x, k, **how)[1]) * gw).sum())(logits.astype(jnp.float32)), dtype)


def test_a_bias_changes_the_choice_and_nothing_else():
    logits, bias = logits_of((9, 32)), jnp.asarray(np.random.default_rng(0).standard_normal(32), jnp.float32)
    how = {"score_function": "sigmoid", "expert_bias": bias}
    wanted, _, _ = plain(logits, 4, **how)
    assert (np.asarray(wanted > 0) != np.asarray(plain(logits, 4, score_function="sigmoid")[0] > 0)).any()
    close(kbj.router_topk(logits, 4, **how)[0], wanted, jnp.float32)
    loss = lambda x, b: (kbj.router_topk(x, 4, score_function="sigmoid", expert_bias=b)[0] ** 2).sum()
    dlogits, dbias = jax.grad(loss, (0, 1))(logits, bias)
    close(dlogits, jax.grad(lambda x: (plain(x, 4, **how)[0] ** 2).sum())(logits), jnp.float32)
    assert not np.asarray(dbias).any()


def test_equal_scores_go_to_the_lower_index_as_in_lax_top_k():
    """TransformerEngine's small k compares lanes through a tree: there expert 16 beats expert 1."""
    logits = jnp.asarray(np.random.default_rng(0).integers(-2, 3, (50, 96)), jnp.bfloat16)
    for k in (1, 8, 40):
        np.testing.assert_array_equal(kbj.route(logits, k).indices, jax.lax.top_k(logits, k)[1])
    logits = logits.at[3, 60].set(jnp.nan).at[3, 70].set(jnp.nan)
    np.testing.assert_array_equal(kbj.route(logits, 8).indices, jax.lax.top_k(logits, 8)[1])


def test_a_map_of_bits_holds_the_bytes():
    logits = logits_of((5, 37))
    as_bytes, as_bits = (kbj.router_topk(logits, 6, routing_map=form)[1] for form in ("bytes", "bits"))
    assert as_bits.shape == (5, 5) and kbj.router_topk(logits, 6, routing_map=None)[1] is None
    np.testing.assert_array_equal(np.unpackbits(np.asarray(as_bits), axis=-1, bitorder="little")[:, :37], as_bytes)


@pytest.mark.parametrize("align_size", [1, 16])
def test_rows_are_numbered_expert_by_expert(align_size):
    logits = logits_of((30, 12))
    routing = kbj.route(logits, 3, align_size=align_size)
    indices, sizes = np.asarray(routing.indices), np.asarray(routing.tokens_per_expert)
    np.testing.assert_array_equal(sizes, np.bincount(indices.reshape(-1), minlength=12))
    padded = -(-sizes // align_size) * align_size
    np.testing.assert_array_equal(routing.expert_offsets, np.concatenate([[0], np.cumsum(padded)]))
    for expert in range(12):
        token, slot = np.nonzero(indices == expert)
        rows = np.asarray(routing.row_id_map)[token, slot]
        np.testing.assert_array_equal(rows, routing.expert_offsets[expert] + np.arange(len(token)))


def test_permute_and_unpermute_take_its_map():
    """A layer of experts that scale: to the experts and back, with gradients, beside a dense formula."""
    logits, x = logits_of((30, 12)), jnp.asarray(np.random.default_rng(3).standard_normal((30, 8)), jnp.float32)
    scale = jnp.arange(1.0, 13.0)

    def ours(logits, x):
        routing = kbj.route(logits, 3, align_size=4)
        rows, weights, row_id_map = kbj.permute(x, None, 30 * 3 + 12 * 3, routing.weights, row_id_map=routing.row_id_map)
        by = jnp.repeat(scale, jnp.diff(routing.expert_offsets), total_repeat_length=rows.shape[0])
        return kbj.unpermute(rows * by[:, None], row_id_map, routing.weights), weights

    def dense(logits, x):
        return x * (plain(logits, 3)[0] * scale).sum(-1, keepdims=True)
    y, weights = jax.jit(ours)(logits, x)
    close(y, dense(logits, x), jnp.float32)
    np.testing.assert_allclose(weights.sum(), 30, rtol=1e-5)
    g = jnp.asarray(np.random.default_rng(4).standard_normal((30, 8)), jnp.float32)
    found = jax.jit(jax.grad(lambda *a: (ours(*a)[0] * g).sum(), (0, 1)))(logits, x)
    for one, right in zip(found, jax.grad(lambda *a: (dense(*a) * g).sum(), (0, 1))(logits, x)):
        np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-4)
    for wrong, says in ((dict(routing_map=jnp.ones((30, 12), bool)), "give one"), (dict(row_id_map=jnp.ones((30, 8), jnp.int32)), "2 . n . 1"),
                        (dict(probs=jnp.ones((30, 12))), r"must be \(30, 3\)")):
        given = dict(routing_map=None, row_id_map=kbj.route(logits, 3).row_id_map) | wrong
        with pytest.raises(ValueError, match=says):
            kbj.permute(x, given.pop("routing_map"), 90, **given)


@pytest.mark.parametrize("score_function", ["softmax", "sigmoid"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=lambda dtype: np.dtype(dtype).name)
def test_the_auxiliary_loss_and_its_gradient(score_function, dtype):
    """Scores are float32 whatever the logits are: TransformerEngine's JAX gives 16-bit logits a buffer of half the size."""
    logits = logits_of((4, 10, 32), dtype)

    def loss(logits, ours):
        scores, chosen = kbj.router_scores(logits, 4, score_function=score_function) if ours else (plain_scores(logits, score_function), None)
        chosen = plain(logits, 4)[0] > 0 if chosen is None else chosen
        assert scores.dtype == jnp.float32
        busy = chosen.reshape(-1, 32).sum(0)
        if ours:
            return kbj.moe_aux_loss(scores, busy, 4, 0.1)
        return 0.1 * 32 / (4 * 40 ** 2) * (scores.reshape(-1, 32).sum(0) * busy).sum()
    found, gradient = jax.jit(jax.value_and_grad(lambda x: loss(x, True)))(logits)
    wanted, right = jax.value_and_grad(lambda x: loss(x, False))(logits.astype(jnp.float32))
    np.testing.assert_allclose(found, wanted, rtol=2e-5)
    np.testing.assert_allclose(np.asarray(gradient, np.float32), right, rtol=0, atol=TOLERANCE[np.dtype(dtype)] * np.abs(right).max())


def test_gradients_are_those_of_differences():
    logits = logits_of((3, 16))
    check_grads(lambda x: kbj.router_topk(x, 4, routing_map=None)[0], (logits,), 1, modes=["rev"], atol=1e-2, rtol=1e-2, eps=1e-3)
    check_grads(lambda x: kbj.router_scores(x, 4, routing_map=None)[0], (logits,), 1, modes=["rev"], atol=1e-2, rtol=1e-2, eps=1e-3)


def test_vmap_is_a_loop():
    logits = logits_of((4, 6, 24))
    found = jax.vmap(lambda x: kbj.router_topk(x, 3))(logits)
    for one, whole in zip(found, kbj.router_topk(logits, 3)):
        np.testing.assert_array_equal(one, whole)
    for number, routing in enumerate(zip(*jax.vmap(lambda x: kbj.route(x, 3))(logits))):
        for one, alone in zip(routing, kbj.route(logits[number], 3)):
            np.testing.assert_array_equal(one, alone)


def test_no_tokens():
    logits = jnp.zeros((0, 8), jnp.bfloat16)
    assert kbj.router_topk(logits, 2)[0].shape == (0, 8)
    routing = kbj.route(logits, 2)
    assert not np.asarray(routing.expert_offsets).any() and not np.asarray(routing.tokens_per_expert).any()
    assert kbj.moe_aux_loss(logits, routing.tokens_per_expert, 2, 0.1) == 0
    assert jax.grad(lambda x: kbj.route(x, 2).weights.sum().astype(jnp.float32))(logits).shape == (0, 8)


@pytest.mark.parametrize("change, says", [
    (dict(k=9), "k is 9; it must be an integer from 1 to 8"), (dict(k=0), "k is 0"),
    (dict(logits=jnp.ones((2, 8), jnp.complex64)), "logits is complex64; it must be float32, float16 or bfloat16"),
    (dict(logits=jnp.ones(())), "needs at least the axis E"), (dict(logits=jnp.ones((2, 0)), k=1), "there must be 1 to 8192"),
    (dict(score_function="relu"), "score_function is 'relu'; it must be 'softmax' or 'sigmoid'"),
    (dict(expert_bias=jnp.ones(8)), "expert_bias is for score_function='sigmoid' only"),
    (dict(expert_bias=jnp.ones(9), score_function="sigmoid"), r"expert_bias has shape \(9,\); for logits of shape \(2, 8\) it must be \(8,\)"),
    (dict(num_groups=3, group_topk=1), "num_groups is 3; it must divide the 8 experts"),
    (dict(num_groups=4), "give both or none"), (dict(num_groups=4, group_topk=5), "group_topk is 5; it must be an integer from 1 to 4"),
    (dict(num_groups=4, group_topk=4, k=2), "k is 2; it must be a multiple of group_topk, 4"),
    (dict(num_groups=4, group_topk=1, k=3), "k is 3; 1 groups of 2 experts have 2"),
    (dict(scaling_factor=float("nan")), "scaling_factor is nan"),
    (dict(use_pre_softmax=1), "use_pre_softmax is 1; it must be True or False")], ids=str)
@pytest.mark.parametrize("function", [kbj.route, kbj.router_topk], ids=lambda function: function.__name__)
def test_a_wrong_argument_is_named(function, change, says):
    given = dict(logits=jnp.ones((2, 8)), k=2) | change
    with pytest.raises((ValueError, TypeError, kbundle.Error), match=says):
        function(given.pop("logits"), given.pop("k"), **given)


@pytest.mark.parametrize("probs, busy, says", [(jnp.ones((2, 8)), jnp.ones(8), "float32.8.; for probs of shape .2, 8. it must be integers.8."),
                                               (jnp.ones((2, 8), jnp.complex64), jnp.ones(8, jnp.int32), "probs is complex64")], ids=str)
def test_a_wrong_argument_of_the_loss_is_named(probs, busy, says):
    with pytest.raises((ValueError, TypeError), match=says):
        kbj.moe_aux_loss(probs, busy, 2, 0.1)
