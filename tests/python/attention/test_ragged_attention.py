"""Promise: kbj.ragged_dot_product_attention is jax.nn.dot_product_attention of each sequence, gradients included."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj
from python.formula import same_partial, value_and_gradients, wide

pytestmark = pytest.mark.usefixtures("platform", "kernels")
TOLERANCE = {np.dtype("float32"): 2e-5, np.dtype("float16"): 4e-3, np.dtype(jnp.bfloat16): 3e-2}
LENGTHS = [30, 0, 7, 61], [40, 5, 7, 64]  # of queries and keys
P = jax.sharding.PartitionSpec


def offsets(lengths):
    return jnp.asarray(np.concatenate([[0], np.cumsum(lengths)]), jnp.int32)


def inputs(lengths=LENGTHS, heads=4, kv_heads=2, depth=16, dtype=jnp.float32, behind=3):
    rng = np.random.default_rng(0)
    made = lambda rows, heads: jnp.asarray(rng.normal(size=(rows, heads, depth)), dtype)
    rows, keys = (sum(of) + behind for of in lengths)
    return made(rows, heads), made(keys, kv_heads), made(keys, kv_heads)


def ours(lengths=LENGTHS, **options):
    given = {"query_offsets": offsets(lengths[0]), "key_value_offsets": offsets(lengths[1]),
             "max_query_length": max(1, *lengths[0]), "max_key_value_length": max(1, *lengths[1])}
    return functools.partial(kbj.ragged_dot_product_attention, **(given | options))


def one_by_one(q, k, v, lengths=LENGTHS, **options):
    """jax.nn's for each sequence, and zeros behind the last."""
    parts, begin = [], (0, 0)
    for queries, keys in zip(*lengths):
        rows, cols = slice(begin[0], begin[0] + queries), slice(begin[1], begin[1] + keys)
        begin = rows.stop, cols.stop
        parts.append(jax.nn.dot_product_attention(q[None, rows], k[None, cols], v[None, cols], **options)[0] if queries else q[:0])
    return jnp.concatenate([*parts, jnp.zeros_like(q[begin[0]:])])


def near(found, wanted, tolerance):
    found, wanted = np.asarray(found, np.float32), np.asarray(wanted, np.float32)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(1.0, np.abs(wanted).max()))


def check(function, reference, arrays):
    tolerance = TOLERANCE[np.dtype(arrays[0].dtype)]
    weights = wide(np.random.default_rng(9).normal(size=arrays[0].shape))
    found = jax.jit(function)(*arrays)
    assert found.dtype == arrays[0].dtype
    wanted, gradients = value_and_gradients(reference, weights, *map(wide, arrays))
    near(found, wanted, tolerance)
    loss = lambda *a: (function(*a).astype(jnp.float32) * weights).sum()
    for array, f, w in zip(arrays, jax.jit(jax.grad(loss, (0, 1, 2)))(*arrays), gradients):
        assert f.dtype == array.dtype and f.shape == array.shape
        near(f, w, 4 * tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"is_causal": True, "local_window_size": 5}], ids=str)
def test_values_and_gradients(options, dtype):
    check(ours(**options), same_partial(one_by_one, **options), inputs(dtype=dtype))


@pytest.mark.parametrize("lengths, heads, kv_heads, depth", [
    (([9], [70]), 1, 1, 1), (([1, 1, 1], [1, 100, 2]), 3, 3, 33), (([64, 65], [64, 65]), 6, 2, 64), (([9], [70]), 4, 1, 128),
    (([1, 1, 1], [1, 100, 2]), 6, 2, 64)], ids=str)
def test_shapes(lengths, heads, kv_heads, depth):
    check(ours(lengths), functools.partial(one_by_one, lengths=lengths),
          inputs(lengths, heads=heads, kv_heads=kv_heads, depth=depth, behind=0))


def test_bottom_right_lets_the_last_query_of_a_sequence_see_its_last_key():
    lengths = [5, 2], [9, 20]
    def wanted(q, k, v):
        parts = [one_by_one(q[a:b], k[c:d], v[c:d], ([b - a], [d - c]), mask=np.tril(np.ones((b - a, d - c), bool), d - c - b + a)[None, None])
                 for a, b, c, d in ((0, 5, 0, 9), (5, 7, 9, 29))]
        return jnp.concatenate(parts)
    check(ours(lengths, is_causal="bottom_right"), wanted, inputs(lengths, behind=0))


def test_padding_gives_and_takes_nothing():
    q, k, v = inputs(behind=40)
    behind = [x.at[-40:].set(jnp.nan) for x in (q, k, v)]
    function = ours(deterministic=True)
    loss = lambda f: lambda *a: (f(*a)[:-40] ** 2).sum()
    np.testing.assert_array_equal(function(*behind), function(q, k, v))
    for found, wanted in zip(jax.grad(loss(function), (0, 1, 2))(*behind), jax.grad(loss(function), (0, 1, 2))(q, k, v)):
        np.testing.assert_array_equal(found, wanted)
        assert not np.asarray(found)[-40:].any()


GAPS = [9, 4, 0, 20], [1, 0, 30, 6]  # rows behind each sequence that are of none


def spread(x, lengths, gaps, hold):
    """The rows of x, which lie one after another, with gaps that hold a number."""
    at = np.concatenate([[0], np.cumsum(lengths)])
    parts = [jnp.concatenate([x[a:b], jnp.full((gap, *x.shape[1:]), hold, x.dtype)]) for a, b, gap in zip(at, at[1:], gaps)]
    return jnp.concatenate(parts)


def with_gaps(lengths=LENGTHS, gaps=GAPS, **options):
    spans = [np.add(*of).tolist() for of in zip(lengths, gaps)]
    given = dict(query_lengths=jnp.asarray(lengths[0]), key_value_lengths=jnp.asarray(lengths[1]), max_query_length=max(1, *lengths[0]),
                 max_key_value_length=max(1, *lengths[1]))
    return ours(spans, **(given | options))


@pytest.mark.parametrize("dtype, depth, options", [
    (np.float32, 16, {}), (np.float32, 33, {"is_causal": "bottom_right", "local_window_size": 9}), (jnp.bfloat16, 64, {}),
    (jnp.bfloat16, 128, {"is_causal": True}), (jnp.bfloat16, 64, {"is_causal": True, "local_window_size": 17}),
    (jnp.bfloat16, 128, {"is_causal": "bottom_right", "deterministic": True}), (np.float16, 24, {"is_causal": True, "sinks": 0.5})], ids=str)
def test_what_lies_between_sequences_gives_and_takes_nothing(dtype, depth, options):
    """NaN and infinities there, in the arguments and in the gradient of the result."""
    close = inputs(dtype=dtype, depth=depth, behind=0)
    apart = [spread(x, LENGTHS[of], GAPS[of], hold) for x, of, hold in zip(close, (0, 1, 1), (jnp.nan, jnp.inf, jnp.nan))]
    found, pull = jax.vjp(with_gaps(**options), *apart)
    wanted, pull_close = jax.vjp(ours(LENGTHS, **options), *close)
    weights = jnp.asarray(np.random.default_rng(9).normal(size=wanted.shape), dtype)
    tolerance = TOLERANCE[np.dtype(dtype)]
    near(found, spread(wanted, LENGTHS[0], GAPS[0], 0), tolerance)
    for f, w, of in zip(pull(spread(weights, LENGTHS[0], GAPS[0], jnp.nan)), pull_close(weights), (0, 1, 1)):
        near(f, spread(w, LENGTHS[of], GAPS[of], 0), 4 * tolerance)


def test_lengths_of_one_side_are_enough():
    q, k, v = inputs(behind=0)
    apart = [spread(x, LENGTHS[1], GAPS[1], jnp.nan) for x in (k, v)]
    found = with_gaps(gaps=([0] * 4, GAPS[1]), query_lengths=None)(q, *apart)
    np.testing.assert_array_equal(found, ours()(q, k, v))


def test_a_length_reaches_neither_into_the_next_sequence_nor_below_zero():
    q, k, v = inputs(behind=0)
    everything = {"query_lengths": jnp.asarray([2**31 - 1] * 4), "key_value_lengths": jnp.asarray([2**31 - 1] * 4)}
    np.testing.assert_array_equal(ours(**everything)(q, k, v), ours()(q, k, v))
    none = {"query_lengths": jnp.asarray([-1, 0, -2**31, -7]), "key_value_lengths": jnp.asarray(LENGTHS[1])}
    loss = lambda *a: ours(**none)(*a).astype(jnp.float32).sum()
    assert not any(np.asarray(x).any() for x in (ours(**none)(q, k, v), *jax.grad(loss, (0, 1, 2))(q, k, v)))


def test_the_offsets_may_be_computed_in_the_program():
    q, k, v = inputs()
    bounds = {"max_query_length": 61, "max_key_value_length": 64}
    made = jax.jit(lambda q, k, v, *lengths: kbj.ragged_dot_product_attention(
        q, k, v, *(jnp.concatenate([jnp.zeros(1, of.dtype), jnp.cumsum(of)]) for of in lengths), **bounds))
    np.testing.assert_array_equal(made(q, k, v, *map(jnp.asarray, LENGTHS)), ours()(q, k, v))


def test_the_residual_is_the_log_of_the_sum_of_exponentials():
    q, k, v = inputs()
    out, residual = ours(return_residual=True)(q, k, v)
    assert residual.shape == q.shape[:2] and residual.dtype == jnp.float32
    scores = jnp.einsum("thd,shd->hts", q[:30], jnp.repeat(k[:40], 2, 1)) / 4
    near(residual[:30], jax.nn.logsumexp(scores, axis=-1).T, 2e-5)
    assert np.isneginf(np.asarray(residual)[sum(LENGTHS[0]):]).all()


def test_a_modifier_counts_within_each_sequence():
    lengths = [40, 7], [40, 7]
    slope = jnp.asarray([0.5, 0.25, 0.1, 0.05], jnp.float32)
    def wanted(q, k, v):
        distance = jnp.arange(40)[None, :] - jnp.arange(40)[:, None]
        bias = (slope[:, None, None] * distance)[None]
        parts = [jax.nn.dot_product_attention(q[None, a:b], k[None, a:b], v[None, a:b], bias[..., :b - a, :b - a])[0] for a, b in ((0, 40), (40, 47))]
        return jnp.concatenate(parts)
    check(ours(lengths, score_mod="alibi", slope=slope), wanted, inputs(lengths, behind=0))
    with pytest.raises(kbundle.Error, match="gradient of a tensor of score_mod='alibi' is not computed"):
        jax.grad(lambda slope: ours(lengths, score_mod="alibi", slope=slope)(*inputs(lengths, behind=0)).sum())(slope)


def test_each_device_of_a_mesh_has_its_heads(platform):
    q, k, v = inputs()
    devices = jax.devices(platform)
    if len(devices) < 2:
        pytest.skip("cuda: shard_map needs two devices")
    mesh = jax.sharding.Mesh(np.array(devices[:2]), ("x",))
    split = jax.shard_map(ours(deterministic=True), mesh=mesh, in_specs=P(None, "x"), out_specs=P(None, "x"))
    loss = lambda f: lambda *a: (f(*a) ** 2).sum()
    near(jax.jit(split)(q, k, v), ours()(q, k, v), 2e-6)
    for found, wanted in zip(jax.jit(jax.grad(loss(split), (0, 1, 2)))(q, k, v), jax.grad(loss(ours()), (0, 1, 2))(q, k, v)):
        near(found, wanted, 2e-5)


@pytest.mark.parametrize("change, message", [
    ({"max_query_length": 0}, "max_query_length is 0; it must be an integer, 1 or more"),
    ({"max_key_value_length": 2.5}, "max_key_value_length is 2.5"),
    ({"query_offsets": jnp.zeros((2, 2), jnp.int32)}, r"query_offsets is int32\[2, 2\]"),
    ({"key_value_offsets": jnp.zeros(5)}, r"key_value_offsets is float32\[5\]"),
    ({"query_offsets": jnp.zeros(4, jnp.int32)}, "query_offsets are of 3 sequences, key_value_offsets of 4"),
    ({"query_lengths": jnp.zeros(3, jnp.int32)}, r"query_lengths is int32\[3\]; it needs to be int32\[4\]"),
    ({"key_value_lengths": jnp.zeros(4)}, r"key_value_lengths is float32\[4\]"),
    ({"score_mod": "none such"}, "score_mod='none such'"),
    ({"local_window_size": (2, -2)}, "local_window_size is -2")], ids=lambda x: str(x)[:40])
def test_wrong_arguments_say_what_is_wrong(change, message):
    with pytest.raises((ValueError, kbundle.Error), match=message):
        ours(**change)(*inputs())


@pytest.mark.parametrize("shapes", [((5, 2, 8), (5, 2, 8), (6, 2, 8)), ((5, 3, 8), (5, 2, 8), (5, 2, 8)), ((5, 2, 8), (0, 2, 8), (0, 2, 8)),
                                    ((1, 5, 2, 8), (5, 2, 8), (5, 2, 8))], ids=str)
def test_wrong_shapes_are_named(shapes):
    with pytest.raises(ValueError, match="query .*, key .*, value "):
        ours(([5], [5]))(*(jnp.zeros(shape) for shape in shapes))
