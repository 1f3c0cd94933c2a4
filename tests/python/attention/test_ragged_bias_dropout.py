"""Promise: bias and dropout of kbj.ragged_dot_product_attention are those of kbj.dot_product_attention of the same sequences, each padded
to the bound: the same bias, the same elements dropped, wherever the sequences lie.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import kbundle
import kbundle.jax as kbj
from python.attention_check import calls

pytestmark = pytest.mark.usefixtures("platform", "kernels")
QUERIES, KEYS, HEADS = [30, 0, 7, 61], [40, 5, 7, 64], (4, 2)
BOUNDS = 64, 70  # above the longest
SEED = jnp.asarray([3, 4], jnp.uint32)
TOLERANCE = {np.dtype("float32"): 2e-5, np.dtype("float16"): 4e-3, np.dtype(jnp.bfloat16): 3e-2}


def padded_inputs(dtype, depth=24):
    rng = np.random.default_rng(0)
    within = lambda lengths, bound: np.arange(bound)[None, :, None, None] < np.reshape(lengths, (-1, 1, 1, 1))
    made = lambda lengths, bound, heads: jnp.asarray(within(lengths, bound) * rng.normal(size=(4, bound, heads, depth)), dtype)
    return [made(QUERIES, BOUNDS[0], HEADS[0]), made(KEYS, BOUNDS[1], HEADS[1]), made(KEYS, BOUNDS[1], HEADS[1])]


def in_rows(x, lengths, gaps):
    """The sequences of [B, bound, ..] one after another, each with rows behind it that are no numbers."""
    of_none = lambda row, gap: jnp.full((gap, *row.shape[1:]), jnp.nan, row.dtype)
    return jnp.concatenate([part for row, length, gap in zip(x, lengths, gaps) for part in (row[:length], of_none(row, gap))])


def offsets(lengths, gaps):
    return np.concatenate([[0], np.cumsum(np.add(lengths, gaps))])


def ragged(gaps, **options):
    """The ragged function of padded arrays, and back."""
    of_q, of_kv = ([5, 0, 9, 2], [0, 3, 1, 8]) if gaps else ([0] * 4, [0] * 4)
    lengths = dict(query_lengths=jnp.asarray(QUERIES), key_value_lengths=jnp.asarray(KEYS)) if gaps else {}
    starts = offsets(QUERIES, of_q), offsets(KEYS, of_kv)

    def function(q, k, v, bias=None):
        out = kbj.ragged_dot_product_attention(
            in_rows(q, QUERIES, of_q), in_rows(k, KEYS, of_kv), in_rows(v, KEYS, of_kv), *map(jnp.asarray, starts), bias=bias,
            max_query_length=BOUNDS[0], max_key_value_length=BOUNDS[1], **lengths, **options)
        parts = [jnp.pad(out[first:first + length], [(0, BOUNDS[0] - length), (0, 0), (0, 0)]) for first, length in zip(starts[0], QUERIES)]
        return jnp.stack(parts)
    return function


def dense(**options):
    options |= {"dropout_generator": "own"}
    return lambda q, k, v, bias=None: kbj.dot_product_attention(
        q, k, v, bias, query_seq_lengths=jnp.asarray(QUERIES), key_value_seq_lengths=jnp.asarray(KEYS), **options)


def near(found, wanted, tolerance):
    found, wanted = np.asarray(found, np.float32), np.asarray(wanted, np.float32)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(1.0, np.abs(wanted).max()))


def check(found, wanted, arrays):
    tolerance = TOLERANCE[np.dtype(arrays[0].dtype)]
    (f, pull), (w, pull_wanted) = jax.vjp(found, *arrays), jax.vjp(wanted, *arrays)
    near(f, w, tolerance)
    weights = jnp.asarray(np.random.default_rng(9).normal(size=w.shape), w.dtype)
    for x, f, w in zip(arrays, pull(weights), pull_wanted(weights), strict=True):
        assert f.shape == x.shape and f.dtype == x.dtype
        near(f, w, 4 * tolerance)


@pytest.mark.parametrize("gaps", [False, True], ids=["close", "gaps"])
@pytest.mark.parametrize("dtype, bias, options", [
    (np.float32, (4, 4), {}), (np.float32, None, {"dropout_rate": 0.5}), (jnp.bfloat16, (1, 4), {"dropout_rate": 0.3, "is_causal": True}),
    (np.float16, (4, 1), {"deterministic": False, "is_causal": "bottom_right"}),
    (np.float32, (1, 1), {"dropout_rate": 0.2, "is_causal": True, "local_window_size": 9, "score_mod": "softcap", "cap": 2.0,
                          "sinks": 0.5}),
    (jnp.bfloat16, (4, 4), {"dropout_rate": 1.0, "deterministic": True})], ids=str)
def test_they_are_those_of_padded_arrays(dtype, bias, options, gaps):
    arrays = padded_inputs(dtype)
    if "dropout_rate" in options:
        options = options | {"dropout_seed": SEED}
    if bias is not None:
        arrays.append(jnp.asarray(np.random.default_rng(1).normal(size=(*bias, *BOUNDS)), dtype))
    check(ragged(gaps, **options), dense(**options), arrays)


def test_a_bias_of_fewer_axes_is_broadcast():
    arrays = padded_inputs(np.float32)
    bias = jnp.asarray(np.random.default_rng(1).normal(size=BOUNDS[1]), jnp.float32)
    near(ragged(False)(*arrays, bias), dense()(*arrays, bias), 2e-5)
    near(ragged(False)(*arrays, 7.0), dense()(*arrays), 2e-5)  # the same for every key


def test_gradients_are_finite_differences():
    rng = np.random.default_rng(2)
    q, k, v, bias = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((6, 2, 3), (8, 1, 3), (8, 1, 3), (1, 2, 4, 6)))
    function = lambda q, k, v, bias: kbj.ragged_dot_product_attention(
        q, k, v, jnp.asarray([0, 4, 6]), jnp.asarray([0, 6, 8]), max_query_length=4, max_key_value_length=6, bias=bias, dropout_rate=0.4,
        dropout_seed=SEED, is_causal="bottom_right")
    check_grads(function, (q, k, v, bias), order=1, modes=["rev"], eps=1e-2, rtol=5e-3, atol=5e-3)


def test_the_gradient_of_bias_is_made_only_where_it_is_asked_for():
    arrays, bias = padded_inputs(np.float32), jnp.zeros((1, 1, *BOUNDS))
    loss = lambda q, bias: ragged(False)(q, *arrays[1:], bias).sum()
    flags = lambda argnums: [dict((name, value) for name, _, value in eqn.params["attributes"])["bias_gradient"]
                             for eqn in calls(jax.make_jaxpr(jax.grad(loss, argnums))(arrays[0], bias).jaxpr)
                             if "backward" in eqn.params["op"]]
    assert flags(0) == [False] and flags(1) == [True]


def test_dropout_follows_its_seed():
    arrays = [x[:1] for x in padded_inputs(np.float32)]
    drop = jax.jit(lambda seed: kbj.ragged_dot_product_attention(
        *(x[0, :30] for x in arrays), *[jnp.asarray([0, 30])] * 2, max_query_length=30, max_key_value_length=30, dropout_rate=0.3,
        dropout_seed=seed))
    one = drop(jnp.asarray([1, 2], jnp.uint32))
    np.testing.assert_array_equal(one, drop(jnp.asarray([1, 2, 0, 0], jnp.uint32)))
    assert np.abs(one - drop(jnp.asarray([1, 2, 1, 0], jnp.uint32))).max() > 0.1


@pytest.mark.parametrize("change, message", [
    ({"dropout_rate": 0.5}, "ragged_dot_product_attention: dropout_rate=0.5 needs a dropout_seed"),
    ({"dropout_rate": 1.5, "dropout_seed": SEED}, "dropout_rate is 1.5; it must be .* from 0 to 1"),
    ({"dropout_rate": 0.5, "dropout_seed": jnp.zeros(3, jnp.uint32)}, r"dropout_seed is uint32\[3\]"),
    ({"bias": jnp.zeros((3, 1, *BOUNDS))}, r"bias has shape \(3, 1, 64, 70\); it needs to broadcast to \(4, 4, 64, 70\)"),
    ({"bias": jnp.zeros((1, 1, 61, 64))}, r"bias has shape \(1, 1, 61, 64\)")], ids=lambda x: str(x)[:40])
def test_wrong_arguments_say_what_is_wrong(change, message):
    bias = change.pop("bias", None)
    with pytest.raises((ValueError, kbundle.Error), match=message):
        ragged(False, **change)(*padded_inputs(np.float32), bias)
