"""Promise: `sinks` of kbj's attention functions are a score of no key in every softmax, gradients included, under jit, vmap and shard_map."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle.jax as kbj
from python.attention_check import check, near

pytestmark = pytest.mark.usefixtures("platform", "kernels")
SINKS = jnp.asarray([0.7, -1.5, 3.0, -jnp.inf])


def arrays(dtype=jnp.float32, batch=2, queries=9, keys=70, heads=4, kv_heads=2, depth=16):
    rng = np.random.default_rng(1)
    made = lambda tokens, heads: jnp.asarray(rng.normal(size=(batch, tokens, heads, depth)), dtype)
    return made(queries, heads), made(keys, kv_heads), made(keys, kv_heads)


def formula(q, k, v, sinks, seen=True, query_lengths=None):
    """One more key, of no value, whose score is the sink."""
    k, v = (jnp.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(seen, scores, -jnp.inf)
    last = jnp.broadcast_to(sinks.reshape(-1, 1, 1), (*scores.shape[:3], 1))
    shares = jax.nn.softmax(jnp.concatenate([scores, last.astype(scores.dtype)], axis=-1), axis=-1)[..., :-1]
    out = jnp.einsum("bhqk,bkhd->bqhd", shares, v)
    return out if query_lengths is None else jnp.where(jnp.arange(q.shape[1])[:, None, None] < query_lengths[:, None, None, None], out, 0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_sink_takes_its_share_of_every_softmax(dtype):
    check(lambda q, k, v, sinks: kbj.dot_product_attention(q, k, v, sinks=sinks), formula, *arrays(dtype), SINKS.astype(jnp.float32))


def test_a_row_that_sees_no_key_is_0_and_has_the_sink_alone():
    q, k, v = arrays(queries=9, keys=6)
    seen = jnp.arange(6) <= jnp.arange(9)[:, None] - 3
    sinks = SINKS[:3].at[2].set(40.0)
    sinks = jnp.concatenate([sinks, jnp.zeros(1)])
    ours = functools.partial(kbj.dot_product_attention, is_causal="bottom_right")
    check(lambda q, k, v, sinks: ours(q, k, v, sinks=sinks), functools.partial(formula, seen=seen), q, k, v, sinks)
    out, residual = ours(q, k, v, sinks=sinks, return_residual=True)
    assert (np.asarray(out[:, :3]) == 0).all()
    near(residual[:, :3], jnp.broadcast_to(sinks, (2, 3, 4)), 1e-6)


def test_an_offset_of_one_is_a_sink_of_0():
    q, k, v = arrays()
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, jnp.repeat(k, 2, axis=2)) / 4
    wanted = jnp.einsum("bhqk,bkhd->bqhd", jnp.exp(scores) / (1 + jnp.exp(scores).sum(-1, keepdims=True)), jnp.repeat(v, 2, axis=2))
    near(kbj.dot_product_attention(q, k, v, sinks=0.0), wanted, 2e-5)


def test_queries_past_their_length_take_no_part_whatever_their_gradient_is():
    q, k, v = arrays()
    lengths = jnp.array([5, 9])
    ours = lambda q, k, v, sinks: kbj.dot_product_attention(q, k, v, sinks=sinks, query_seq_lengths=lengths)
    check(ours, functools.partial(formula, query_lengths=lengths), q, k, v, SINKS)
    _, pull = jax.vjp(ours, q, k, v, SINKS)
    dout = jnp.ones_like(q).at[0, 5:].set(jnp.nan)
    assert all(np.isfinite(np.asarray(g)).all() for g in pull(dout)[1:])


@pytest.mark.parametrize("layout", ["BNTH", "packed"])
def test_the_other_layouts(layout):
    if layout == "packed":
        qkv = jnp.concatenate(arrays(queries=33, keys=33), axis=2)
        split = lambda qkv, sinks: formula(*jnp.split(qkv, [4, 6], axis=2), sinks)
        check(lambda qkv, sinks: kbj.packed_dot_product_attention(qkv, kv_heads=2, sinks=sinks), split, qkv, SINKS)
        return
    turned = lambda function: lambda q, k, v, sinks: jnp.swapaxes(function(*(jnp.swapaxes(x, 1, 2) for x in (q, k, v)), sinks), 1, 2)
    ours = lambda q, k, v, sinks: kbj.dot_product_attention(q, k, v, sinks=sinks, layout="BNTH")
    check(ours, turned(formula), *(jnp.swapaxes(x, 1, 2) for x in arrays()), SINKS)


def test_ragged_sequences_have_the_sinks_of_their_heads():
    q, k, v = arrays(batch=1, queries=60, keys=60)
    offsets = jnp.array([0, 20, 20, 51])
    row = jnp.arange(60)
    of = jnp.searchsorted(offsets, row, side="right")
    seen = (of[:, None] == of[None]) & (row[None] <= row[:, None])

    def wanted(q, k, v, sinks):
        return jnp.where((row < 51)[:, None, None], formula(q[None], k[None], v[None], sinks, seen)[0], 0)

    def ours(q, k, v, sinks):
        return kbj.ragged_dot_product_attention(q, k, v, offsets, offsets, max_query_length=31, max_key_value_length=31, is_causal=True,
                                                sinks=sinks)
    check(ours, wanted, q[0], k[0], v[0], SINKS)


def test_pages_of_keys():
    q, k, v = arrays(queries=1, keys=64)
    pages = lambda x: x.reshape(2 * 4, 16, *x.shape[2:])
    tables, lengths = jnp.arange(8).reshape(2, 4), jnp.array([64, 37])
    found, residual = kbj.paged_attention(q[:, 0] / 4, pages(k), pages(v), lengths, tables, layout="PSKH", sinks=SINKS, return_residual=True)
    seen = jnp.arange(64) < lengths[:, None, None, None]
    near(found, formula(q, k, v, SINKS, seen)[:, 0], 2e-5)
    without = kbj.paged_attention(q[:, 0] / 4, pages(k), pages(v), lengths, tables, layout="PSKH", return_residual=True)[1]
    near(residual, jnp.logaddexp(without, SINKS), 2e-5)


def test_vmap_maps_sinks():
    q, k, v = arrays(batch=4)
    both = jnp.arange(8.0).reshape(2, 4) - 4
    of_one = lambda q, sinks: kbj.dot_product_attention(q, k[:2], v[:2], sinks=sinks).sum()
    found = jax.vmap(jax.grad(of_one, 1))(q.reshape(2, 2, *q.shape[1:]), both)
    wanted = [jax.grad(lambda s, i=i: formula(q[2 * i:2 * i + 2], k[:2], v[:2], s).sum())(both[i]) for i in range(2)]
    near(found, jnp.stack(wanted), 1e-4)


def test_devices_with_some_heads_each_have_the_sinks_of_these():
    q, k, v = arrays(batch=4)
    mesh = jax.make_mesh((2, 2), ("b", "h"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    of = jax.sharding.PartitionSpec("b", None, "h")

    def loss(q, k, v, sinks):
        return (kbj.dot_product_attention(q, k, v, sinks=sinks) ** 2).sum()[None, None]

    def whole(q, k, v, sinks):
        places = (of, of, of, jax.sharding.PartitionSpec("h"))
        return jax.shard_map(loss, mesh=mesh, in_specs=places, out_specs=jax.sharding.PartitionSpec("b", "h"))(q, k, v, sinks).sum()
    found = jax.jit(jax.grad(whole, (0, 1, 2, 3)))(q, k, v, SINKS)
    wanted = jax.grad(lambda *a: (formula(*a) ** 2).sum(), (0, 1, 2, 3))(q, k, v, SINKS)
    for f, w in zip(found, wanted):
        near(f, w, 1e-4)


@pytest.mark.parametrize("sinks, says", [(jnp.zeros(3), r"float32\[3\]; it needs to be floats, one for each of the 4 query heads"),
                                         (jnp.zeros(4, jnp.int32), r"int32\[4\]"), (jnp.zeros((1, 4)), r"float32\[1, 4\]")])
def test_other_sinks_are_errors_that_say_what_is_wanted(sinks, says):
    with pytest.raises(ValueError, match=says):
        kbj.dot_product_attention(*arrays(), sinks=sinks)


def test_jax_nn_has_no_sinks():
    with pytest.raises(Exception, match="sinks"):
        kbj.dot_product_attention(*arrays(), sinks=SINKS, implementation="xla")
