"""Promise: windows that look ahead, or back without a causal mask, are jax.nn's local_window_size in all attention functions, gradients included;
and with bottom_right_diagonal TransformerEngine's window_size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import kbundle
import kbundle.jax as kbj
from python.attention_check import calls, check, near
from python.formula import same_partial

pytestmark = pytest.mark.usefixtures("platform", "kernels")


def inputs(seed=0, batch=2, queries=33, keys=33, heads=4, kv_heads=2, depth=16, dtype=jnp.float32):
    rng = np.random.default_rng(seed)
    made = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
    return made(batch, queries, heads, depth), made(batch, keys, kv_heads, depth), made(batch, keys, kv_heads, depth)


def between(queries, keys, left, right, shift=0):
    """Which keys a query sees, of a diagonal that is moved by `shift`; None: no bound."""
    ahead = np.arange(keys)[None, :] - np.arange(queries)[:, None] - shift
    return (ahead >= -(10**6 if left is None else left)) & (ahead <= (10**6 if right is None else right))


def masked(mask):
    return lambda q, k, v: jax.nn.dot_product_attention(q, k, v, mask=mask[None, None])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("window", [5, (7, 2), (0, 9), (3, 0), (0, 0), (100, 200), (4, 100)], ids=str)
def test_windows_are_those_of_jax_nn(window, dtype):
    ours = functools.partial(kbj.dot_product_attention, local_window_size=window)
    check(ours, same_partial(jax.nn.dot_product_attention, local_window_size=window), *inputs(dtype=dtype))


@pytest.mark.parametrize("heads, kv_heads, depth", [(1, 1, 3), (3, 3, 33), (6, 2, 64), (4, 1, 128)])
@pytest.mark.parametrize("queries, keys", [(1, 100), (70, 130), (140, 129)])
def test_shapes(queries, keys, heads, kv_heads, depth):
    ours = functools.partial(kbj.dot_product_attention, local_window_size=(60, 17))
    check(ours, functools.partial(jax.nn.dot_product_attention, local_window_size=(60, 17)),
          *inputs(queries=queries, keys=keys, heads=heads, kv_heads=kv_heads, depth=depth))


@pytest.mark.parametrize("window", [(None, 4), (6, None), (None, None), (None, 0)], ids=str)
@pytest.mark.parametrize("bottom_right", [False, True])
def test_a_side_without_a_bound(window, bottom_right):
    mask = between(33, 47, *window, shift=14 if bottom_right else 0)
    ours = functools.partial(kbj.dot_product_attention, local_window_size=window, bottom_right_diagonal=bottom_right)
    check(ours, masked(mask), *inputs(keys=47))


@pytest.mark.parametrize("window", [(3, 2), (0, 0), (50, 1), (2, 30)], ids=str)
def test_the_diagonal_may_end_at_the_last_query_and_the_last_key(window):
    ours = functools.partial(kbj.dot_product_attention, local_window_size=window, bottom_right_diagonal=True)
    check(ours, masked(between(20, 33, *window, shift=13)), *inputs(queries=20))
    few = functools.partial(kbj.dot_product_attention, local_window_size=(40, 30), bottom_right_diagonal=True)
    check(few, masked(between(47, 20, 40, 30, shift=-27)), *inputs(queries=47, keys=20))


def test_the_diagonal_ends_where_the_lengths_do():
    q, k, v = inputs(queries=20)
    queries, keys = np.array([20, 11], np.int32), np.array([25, 33], np.int32)
    out = kbj.dot_product_attention(q, k, v, query_seq_lengths=queries, key_value_seq_lengths=keys, local_window_size=(4, 3),
                                    bottom_right_diagonal=True)
    for b, (t, s) in enumerate(zip(queries, keys)):
        wanted = masked(between(t, s, 4, 3, shift=s - t))(q[b:b + 1, :t], k[b:b + 1, :s], v[b:b + 1, :s])
        near(out[b, :t], wanted[0], 2e-5)
        assert not out[b, t:].any()


def test_a_causal_mask_hides_what_is_ahead_whatever_the_window_says():
    q, k, v = inputs()
    wanted = kbj.dot_product_attention(q, k, v, is_causal=True, local_window_size=(5, 0))
    for more in (dict(is_causal=True, local_window_size=(5, 9)), dict(local_window_size=(5, 0)), dict(is_causal=True, local_window_size=5)):
        np.testing.assert_array_equal(kbj.dot_product_attention(q, k, v, **more), wanted)
    q, k, v = inputs(queries=20)
    wanted = kbj.dot_product_attention(q, k, v, is_causal="bottom_right", local_window_size=5)
    for more in (dict(is_causal=True, local_window_size=(5, 9)), dict(local_window_size=(5, 0))):
        np.testing.assert_array_equal(kbj.dot_product_attention(q, k, v, bottom_right_diagonal=True, **more), wanted)
    forward = [dict((name, value) for name, _, value in eqn.params["attributes"]) for eqn in calls(jax.make_jaxpr(functools.partial(
        kbj.dot_product_attention, is_causal=True, local_window_size=(5, 9)))(q, k, v).jaxpr)]
    assert forward[0].get("window_right", -1) == -1  # one problem, whatever it is called


def test_queries_without_keys_give_nothing_and_keys_without_queries_get_nothing():
    q, k, v = inputs(queries=40, keys=20)
    ours = functools.partial(kbj.dot_product_attention, local_window_size=(3, 2))
    assert not ours(q, k, v)[:, 23:].any() and ours(q, k, v)[:, :23].all(-1).all()
    dq, dk, dv = jax.grad(lambda *a: (ours(*a) ** 2).sum(), (0, 1, 2))(q, k, v)
    assert not dq[:, 23:].any() and all(np.isfinite(x).all() for x in (dq, dk, dv))
    q, k, v = inputs(queries=10, keys=20)
    dk, dv = jax.grad(lambda *a: (ours(*a) ** 2).sum(), (1, 2))(q, k, v)
    assert dk[:, :12].any((0, 2, 3)).all() and dv[:, :12].any((0, 2, 3)).all() and not dk[:, 12:].any() and not dv[:, 12:].any()


def test_gradients_are_finite_differences():
    q, k, v = inputs(batch=1, queries=6, keys=8, depth=3)
    bias = jnp.asarray(np.random.default_rng(1).normal(size=(1, 1, 6, 8)), jnp.float32)
    for more in (dict(local_window_size=(1, 2)), dict(local_window_size=(2, 1), bottom_right_diagonal=True)):
        check_grads(lambda *a: kbj.dot_product_attention(*a, **more), (q, k, v, bias), order=1, modes=["rev"], eps=1e-2, rtol=5e-3, atol=5e-3)


def test_vmap_scan_checkpoint():
    q, k, v = inputs()
    more = lambda x: jnp.stack([x, 2 * x, -x])
    ours = functools.partial(kbj.dot_product_attention, local_window_size=(3, 5))
    found = jax.jit(jax.vmap(ours, in_axes=(0, None, 0)))(more(q), k, more(v))
    for a, b, c in zip(found, more(q), more(v)):
        near(a, ours(b, k, c), 1e-6)
    layers = lambda step: lambda q: jax.lax.scan(lambda q, _: (step(q, k, v), None), q, length=3)[0].sum()
    wanted = jax.grad(layers(functools.partial(jax.nn.dot_product_attention, local_window_size=(3, 5))))(q)
    near(jax.jit(jax.grad(layers(jax.checkpoint(ours))))(q), wanted, 1e-4)


def test_a_modifier_and_sinks_within_a_window():
    def formula(q, k, v, sinks):
        k, v = jnp.repeat(k, 2, axis=2), jnp.repeat(v, 2, axis=2)
        s = 1.5 * jnp.tanh(jnp.einsum("bthd,bshd->bhts", q, k) / 4 / 1.5)
        s = jnp.where(between(33, 33, 5, 3), s, -1e30)
        s = jnp.concatenate([s, jnp.broadcast_to(sinks[None, :, None, None], s.shape[:3] + (1,))], axis=-1)
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(s)[..., :-1], v)
    ours = lambda q, k, v, sinks: kbj.dot_product_attention(q, k, v, score_mod="softcap", cap=1.5, local_window_size=(5, 3), sinks=sinks)
    check(ours, formula, *inputs(), jnp.asarray([0.5, -1.0, 0.0, 2.0], jnp.float32))


@pytest.mark.parametrize("window", [5, (7, 2), (0, 9), (100, 3)], ids=str)
def test_packed(window):
    qkv = jnp.asarray(np.random.default_rng(1).normal(size=(2, 70, 3, 4, 24)), jnp.float32)
    apart = lambda qkv: jax.nn.dot_product_attention(*jnp.moveaxis(qkv, 2, 0), local_window_size=window)
    check(functools.partial(kbj.packed_dot_product_attention, local_window_size=window), apart, qkv)


@pytest.mark.parametrize("window", [(5, 2), (0, 9), (None, 3)], ids=str)
@pytest.mark.parametrize("bottom_right", [False, True])
def test_ragged(window, bottom_right):
    """Each sequence by itself; in the last one queries see nothing, from the first key on or to the last."""
    queries, keys = [20, 0, 31, 40], [25, 8, 31, 26]
    ends = lambda lengths: np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    rng = np.random.default_rng(5)
    q, k, v = (jnp.asarray(rng.normal(size=(sum(of), heads, 16)), jnp.float32) for of, heads in ((queries, 4), (keys, 2), (keys, 2)))

    def ours(q, k, v):
        return kbj.ragged_dot_product_attention(q, k, v, ends(queries), ends(keys), max_query_length=40, max_key_value_length=31,
                                                local_window_size=window, bottom_right_diagonal=bottom_right)

    def each(q, k, v):
        made = []
        for b, (t, s) in enumerate(zip(queries, keys)):
            rows, of = slice(ends(queries)[b], ends(queries)[b + 1]), slice(ends(keys)[b], ends(keys)[b + 1])
            mask = between(t, s, *window, shift=s - t if bottom_right else 0)
            here = masked(mask)(q[None, rows], k[None, of], v[None, of])[0] if t else q[rows]
            made.append(here * mask.any(1)[:, None, None])
        return jnp.concatenate(made)
    check(ours, each, q, k, v)


def test_ragged_with_rows_of_no_sequence():
    """They hold NaN, and results and gradients are those without them."""
    queries, keys, gap = [20, 31, 7], [25, 31, 40], 3
    rng = np.random.default_rng(6)
    q, k, v = (rng.normal(size=(sum(of), heads, 16)).astype(np.float32) for of, heads in ((queries, 4), (keys, 2), (keys, 2)))
    ends = lambda lengths: np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    places = lambda lengths: np.concatenate([np.arange(n) + first + gap * b for b, (n, first) in enumerate(zip(lengths, ends(lengths)))])

    def spread(x, lengths):
        made = np.full((len(x) + gap * len(lengths), *x.shape[1:]), np.nan, np.float32)
        made[places(lengths)] = x
        return made

    def ours(gap, **lengths):
        return functools.partial(kbj.ragged_dot_product_attention, query_offsets=ends(np.add(queries, gap)), local_window_size=(9, 5),
                                 key_value_offsets=ends(np.add(keys, gap)), max_query_length=31, max_key_value_length=40, **lengths)
    dense, gapped = ours(0), ours(gap, query_lengths=np.int32(queries), key_value_lengths=np.int32(keys))
    out, pull = jax.vjp(dense, q, k, v)
    found, pull_found = jax.vjp(gapped, spread(q, queries), spread(k, keys), spread(v, keys))
    dout = rng.normal(size=out.shape).astype(np.float32)
    for a, b, of in zip((found, *pull_found(spread(dout, queries))), (out, *pull(dout)), (queries, queries, keys, keys)):
        near(a[places(of)], b, 1e-6)
        assert not np.delete(np.asarray(a), places(of), axis=0).any()


@pytest.mark.parametrize("window, message", [((1, 2, 3), "one size or two"), ((-1, 3), "local_window_size is -1; .*or None: no bound"),
                                             ((3, 2.5), "local_window_size is 2.5"), ("5", "local_window_size is '5'")], ids=str)
def test_windows_that_are_none_are_named(window, message):
    with pytest.raises(ValueError, match="^.*dot_product_attention: .*" + message):
        kbj.dot_product_attention(*inputs(), local_window_size=window)
    with pytest.raises(ValueError, match="bottom_right_diagonal is 1; it must be True or False"):
        kbj.dot_product_attention(*inputs(), bottom_right_diagonal=1)


def test_what_jax_nn_does_not_have_is_named():
    for more in (dict(local_window_size=(3, None)), dict(local_window_size=(3, 2), bottom_right_diagonal=True)):
        with pytest.raises(kbundle.Error, match="by jax.nn: it has no (bottom_right_diagonal|local_window_size without a bound)"):
            kbj.dot_product_attention(*inputs(), implementation="xla", **more)


def test_functions_whose_kernels_look_back_alone_say_so():
    q, k, v = (x.astype(jnp.float8_e4m3fn) for x in inputs())
    with pytest.raises(kbundle.Error, match=r"UNIMPLEMENTED.*fp8_dot_product_attention: local_window_size=\(3, 4\) looks ahead.*right size of 0"):
        kbj.fp8_dot_product_attention(q, k, v, query_descale=1.0, key_descale=1.0, value_descale=1.0, output_scale=1.0, local_window_size=(3, 4))
