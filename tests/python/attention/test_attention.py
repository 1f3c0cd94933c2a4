"""Promise: kbj.dot_product_attention means what jax.nn.dot_product_attention means, gradients included."""

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
P = jax.sharding.PartitionSpec


def inputs(seed=0, batch=2, queries=33, keys=47, heads=4, kv_heads=2, depth=16, dtype=jnp.float32):
    rng = np.random.default_rng(seed)
    made = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
    return made(batch, queries, heads, depth), made(batch, keys, kv_heads, depth), made(batch, keys, kv_heads, depth)


def both(partial=functools.partial, **options):
    """(ours, jax.nn's) with the same arguments; partial: how jax.nn's are given to it."""
    return functools.partial(kbj.dot_product_attention, **options), partial(jax.nn.dot_product_attention, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("options", [
    {}, {"is_causal": True}, {"scale": 0.3}, {"is_causal": True, "local_window_size": 5}, {"local_window_size": (7, 0)},
    {"is_causal": True, "local_window_size": (3, 2)}], ids=str)
def test_values_and_gradients(options, dtype):
    check(*both(same_partial, **options), *inputs(dtype=dtype))


@pytest.mark.parametrize("heads, kv_heads, depth", [(1, 1, 1), (3, 3, 33), (6, 2, 64), (4, 1, 128)])
@pytest.mark.parametrize("queries, keys", [(1, 100), (70, 70), (5, 3)])
def test_shapes(queries, keys, heads, kv_heads, depth):
    check(*both(is_causal=queries == keys), *inputs(queries=queries, keys=keys, heads=heads, kv_heads=kv_heads, depth=depth))


def test_values_may_be_of_another_depth():
    q, k, _ = inputs(heads=2)
    v = inputs(5, heads=2, depth=24)[2]
    formula = lambda q, k, v: jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / 4), v)
    check(kbj.dot_product_attention, formula, q, k, v)


@pytest.mark.parametrize("lengths", [{"key_value_seq_lengths": [47, 13]}, {"query_seq_lengths": [20, 33]},
                                     {"query_seq_lengths": [33, 1], "key_value_seq_lengths": [5, 40]}], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_lengths(lengths, is_causal):
    given = {name: jnp.asarray(value, jnp.int32) for name, value in lengths.items()}
    seen = np.arange(33)[None, :] < np.asarray(lengths.get("query_seq_lengths", [33, 33]))[:, None]
    check(*both(is_causal=is_causal, **given), *inputs(), seen=seen[:, :, None, None])
    out = kbj.dot_product_attention(*inputs(), **given)
    assert not np.asarray(out)[~seen].any()


def test_bottom_right_lets_the_last_query_see_the_last_key():
    q, k, v = inputs(queries=5, keys=9)
    mask = np.tril(np.ones((5, 9), bool), 4)
    ours = functools.partial(kbj.dot_product_attention, is_causal="bottom_right")
    check(ours, lambda q, k, v: jax.nn.dot_product_attention(q, k, v, mask=mask[None, None]), q, k, v)


@pytest.mark.parametrize("shape", [(2, 4, 33, 47), (1, 4, 33, 47), (2, 1, 33, 47), (1, 1, 33, 47), (1, 4, 1, 47), (33, 47)], ids=str)
def test_bias_and_its_gradient(shape):
    bias = jnp.asarray(np.random.default_rng(3).normal(size=shape), jnp.float32)
    four_axes = lambda q, k, v, bias: jax.nn.dot_product_attention(q, k, v, bias.reshape((1,) * (4 - bias.ndim) + bias.shape))
    check(kbj.dot_product_attention, four_axes, *inputs(), bias)


def test_mask_and_bias_together():
    rng = np.random.default_rng(4)
    bias, mask = jnp.asarray(rng.normal(size=(2, 1, 33, 47)), jnp.float32), rng.random((1, 4, 33, 47)) < 0.4
    mask[..., 0] = True
    check(lambda q, k, v, bias: kbj.dot_product_attention(q, k, v, bias, mask, is_causal=True),
          lambda q, k, v, bias: jax.nn.dot_product_attention(q, k, v, bias, mask, is_causal=True), *inputs(), bias)
    for dtype in (jnp.float16, jnp.bfloat16):
        check(*both(mask=mask), *inputs(dtype=dtype))


def test_heads_before_sequences():
    swap = lambda x: jnp.swapaxes(x, 1, 2)
    ours = lambda q, k, v: swap(kbj.dot_product_attention(swap(q), swap(k), swap(v), layout="BNTH", is_causal=True))
    check(ours, functools.partial(jax.nn.dot_product_attention, is_causal=True), *inputs())


def test_without_a_batch():
    q, k, v = (x[0] for x in inputs())
    check(*both(is_causal=True), q, k, v)
    lengths = jnp.asarray([40], jnp.int32)
    out, residual = kbj.dot_product_attention(q, k, v, key_value_seq_lengths=lengths, return_residual=True)
    assert out.shape == q.shape and residual.shape == q.shape[:2]


def test_residual_is_the_log_sum_exp():
    q, k, v = inputs()
    out, residual = jax.jit(functools.partial(kbj.dot_product_attention, return_residual=True))(q, k, v)
    wanted, wanted_residual = jax.nn.dot_product_attention(q, k, v, return_residual=True)
    near(out, wanted, 2e-5)
    near(residual, wanted_residual, 2e-5)
    loss = lambda q: sum(x.sum() for x in kbj.dot_product_attention(q, k, v, return_residual=True))
    near(jax.grad(loss)(q), jax.grad(lambda q: kbj.dot_product_attention(q, k, v).sum())(q), 1e-6)


def test_gradients_are_finite_differences():
    q, k, v = inputs(batch=1, queries=5, keys=7, depth=3)
    bias = jnp.asarray(np.random.default_rng(1).normal(size=(1, 1, 5, 7)), jnp.float32)
    check_grads(lambda *a: kbj.dot_product_attention(*a, is_causal="bottom_right"), (q, k, v, bias), order=1, modes=["rev"], eps=1e-2,
                rtol=5e-3, atol=5e-3)


def test_the_gradient_of_bias_is_made_only_where_it_is_asked_for():
    q, k, v = inputs()
    bias = jnp.zeros((1, 1, 33, 47))
    loss = lambda q, bias: kbj.dot_product_attention(q, k, v, bias).sum()
    flags = lambda argnums: [dict((name, value) for name, _, value in eqn.params["attributes"])["bias_gradient"]
                             for eqn in calls(jax.make_jaxpr(jax.grad(loss, argnums))(q, bias).jaxpr) if "backward" in eqn.params["op"]]
    assert flags(0) == [False] and flags(1) == [True]


def test_dropout_follows_its_seed():
    q, k, v = inputs(queries=64, keys=64)
    drop = jax.jit(lambda q, k, v, seed: kbj.dot_product_attention(q, k, v, dropout_rate=0.3, dropout_seed=seed))
    one, two = jnp.asarray([1, 2], jnp.uint32), jnp.asarray([1, 3], jnp.uint32)
    np.testing.assert_array_equal(drop(q, k, v, one), drop(q, k, v, jnp.asarray([1, 2, 0, 0], jnp.uint32)))
    assert np.abs(drop(q, k, v, one) - drop(q, k, v, two)).max() > 0.1
    many = jnp.stack([drop(q, k, v, jax.random.key(seed)) for seed in range(300)])
    assert np.abs(many.mean(0) - kbj.dot_product_attention(q, k, v)).mean() < 0.02


def test_gradients_go_through_dropout():
    q, k, v = inputs(batch=1, queries=5, keys=7, depth=3)
    seed = jnp.asarray([5, 6], jnp.uint32)
    check_grads(lambda *a: kbj.dot_product_attention(*a, dropout_rate=0.4, dropout_seed=seed), (q, k, v), order=1, modes=["rev"],
                eps=1e-2, rtol=5e-3, atol=5e-3)


def generators(function, *arrays):
    """Of dropout, in the calls of a traced program and its gradient."""
    gradient = jax.grad(lambda *a: function(*a).astype(jnp.float32).sum())
    return [dict((name, value) for name, _, value in eqn.params["attributes"]).get("generator", "own")
            for eqn in calls(jax.make_jaxpr(gradient)(*arrays).jaxpr)]


def test_dropout_is_cudnns_where_both_ways_have_a_plan():
    """On CUDA, that is: a program for another platform in the same trace has our own."""
    seed = jnp.asarray([1, 2], jnp.uint32)
    drop = lambda rate=0.25, **more: lambda q: kbj.dot_product_attention(q, q, q, dropout_rate=rate, dropout_seed=seed, **more)
    planned, other = jnp.ones((2, 256, 4, 64), jnp.bfloat16), jnp.ones((2, 250, 4, 64), jnp.bfloat16)
    both = generators(drop(), planned)
    assert both.count("cudnn") == both.count("own") == 2
    for function, q in [(drop(), other), (drop(0.3), planned), (drop(deterministic=True), planned), (drop(is_causal=True), planned),
                        (drop(dropout_generator="own"), planned)]:
        assert generators(function, q) == ["own", "own"]
    assert generators(drop(dropout_generator="cudnn"), planned) == ["cudnn", "cudnn"]
    with pytest.raises(kbundle.Error, match="NOT_FOUND"):
        generators(drop(dropout_generator="cudnn"), other)
    with pytest.raises(ValueError, match="dropout_generator is 'philox'"):
        drop(dropout_generator="philox")(other)


@pytest.mark.parametrize("dtype, close", [(jnp.float8_e4m3fn, 0.1), (jnp.float8_e5m2, 0.2)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"is_causal": True, "local_window_size": 5}], ids=str)
def test_fp8_is_attention_of_what_the_arrays_stand_for(options, dtype, close):
    q, k, v = ((8 * x).astype(dtype) for x in inputs())
    scales = dict(query_descale=0.125, key_descale=jnp.float32(0.125), value_descale=0.25, output_scale=16)
    out, largest_p, largest_o = jax.jit(lambda *a: kbj.fp8_dot_product_attention(*a, **scales, **options))(q, k, v)
    assert out.dtype == dtype and largest_p.shape == largest_o.shape == ()
    wanted = jax.nn.dot_product_attention(*(x.astype(jnp.float32) * by for x, by in ((q, 0.125), (k, 0.125), (v, 0.25))), **options)
    assert np.abs(out.astype(jnp.float32) / 16 - wanted).max() < close * np.abs(wanted).max()
    assert abs(largest_o - np.abs(wanted).max()) < close * largest_o
    assert 0 < largest_p <= 1 + 1e-6


def test_fp8_has_no_gradient():
    q, k, v = (x.astype(jnp.float8_e4m3fn) for x in inputs())
    scales = dict(query_descale=1.0, key_descale=1.0, output_scale=1.0)
    with pytest.raises(kbundle.Error, match="differentiating fp8_dot_product_attention"):
        jax.grad(lambda by: kbj.fp8_dot_product_attention(q, k, v, value_descale=by, **scales)[1])(1.0)
    with pytest.raises(kbundle.Error, match="UNIMPLEMENTED.*float32; the kernels take float8_e4m3fn, float8_e5m2"):
        kbj.fp8_dot_product_attention(*inputs(), value_descale=1.0, **scales)


def test_vmap_scan_checkpoint():
    q, k, v = inputs()
    more = lambda x: jnp.stack([x, 2 * x, -x])
    ours = lambda q, k, v: kbj.dot_product_attention(q, k, v, is_causal=True)
    found = jax.jit(jax.vmap(ours, in_axes=(0, None, 0)))(more(q), k, more(v))
    for a, b, c in zip(found, more(q), more(v)):
        near(a, ours(b, k, c), 1e-6)
    layers = lambda step: lambda q: jax.lax.scan(lambda q, _: (step(q, k, v), None), q, length=3)[0].sum()
    wanted = jax.grad(layers(functools.partial(jax.nn.dot_product_attention, is_causal=True)))(q)
    near(jax.jit(jax.grad(layers(jax.checkpoint(ours))))(q), wanted, 1e-4)


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("over", ["batch", "heads"])
def test_shard_map(over, check_vma, platform):
    devices = jax.devices(platform)
    if len(devices) < 2:
        pytest.skip("cuda: shard_map needs two devices")
    mesh = jax.sharding.Mesh(np.array(devices[:2]), ("i",))
    spec = P("i") if over == "batch" else P(None, None, "i")
    bias_spec = P() if over == "batch" else P(None, "i")
    bias = jnp.asarray(np.random.default_rng(2).normal(size=(1, 4, 33, 47)), jnp.float32)
    lengths = jnp.asarray([47, 20], jnp.int32)
    local = lambda q, k, v, bias, lengths: kbj.dot_product_attention(q, k, v, bias, is_causal=True, key_value_seq_lengths=lengths)
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(spec, spec, spec, bias_spec, P("i") if over == "batch" else P()), out_specs=spec,
                           check_vma=check_vma)
    whole = lambda q, k, v, bias: jax.nn.dot_product_attention(q, k, v, bias, is_causal=True, key_value_seq_lengths=lengths)
    check(lambda q, k, v, bias: mapped(q, k, v, bias, lengths), whole, *inputs(), bias)


def test_gradient_inside_shard_map(platform):
    devices = jax.devices(platform)
    if len(devices) < 2:
        pytest.skip("cuda: shard_map needs two devices")
    mesh = jax.sharding.Mesh(np.array(devices[:2]), ("i",))
    loss = lambda f: jax.grad(lambda q, k, v: (f(q, k, v) ** 2).sum(), (0, 1, 2))
    local = jax.shard_map(loss(kbj.dot_product_attention), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    for found, wanted in zip(jax.jit(local)(*inputs()), loss(jax.nn.dot_product_attention)(*inputs())):
        near(found, wanted, 1e-4)


def test_what_no_kernel_takes_is_an_error_or_jax():
    q, k, v = inputs()
    with jax.enable_x64(True):
        wide = [jnp.asarray(x, jnp.float64) for x in (q, k, v)]
        with pytest.raises(kbundle.Error, match="UNIMPLEMENTED.*query is float64; the kernels take float32.*fallback"):
            kbj.dot_product_attention(*wide)
        near(kbj.dot_product_attention(*wide, fallback="jax"), jax.nn.dot_product_attention(*wide), 1e-6)
        with pytest.raises(kbundle.Error, match="jax.nn.*dropout_rate"):
            kbj.dot_product_attention(*wide, fallback="jax", dropout_rate=0.5, dropout_seed=jnp.zeros(2, jnp.uint32))
        with pytest.raises(kbundle.Error, match="jax.nn.*score_mod"):
            kbj.dot_product_attention(*wide, score_mod="softcap", cap=1.0, fallback="jax")
    check(functools.partial(kbj.dot_product_attention, fallback="jax"), jax.nn.dot_product_attention, q, k, v)
    ahead = dict(local_window_size=(3, 4))  # of float32 there is a kernel on the CPU alone
    check(functools.partial(kbj.dot_product_attention, fallback="jax", **ahead), functools.partial(jax.nn.dot_product_attention, **ahead), q, k, v)
    near(kbj.dot_product_attention(q, k, v, implementation="xla"), jax.nn.dot_product_attention(q, k, v), 1e-6)


def test_a_query_that_sees_nothing_gives_nothing():
    q, k, v = inputs()
    lengths = jnp.asarray([0, 47], jnp.int32)
    out = kbj.dot_product_attention(q, k, v, key_value_seq_lengths=lengths)
    assert not out[0].any() and out[1].any()
    gradient = jax.grad(lambda q: kbj.dot_product_attention(q, k, v, key_value_seq_lengths=lengths).sum())(q)
    assert np.isfinite(gradient).all() and not gradient[0].any()


def test_queries_past_their_length_have_a_gradient_of_0_whatever_flows_into_them():
    q, k, v = inputs()
    lengths = jnp.asarray([20, 33], jnp.int32)
    _, pull = jax.vjp(lambda q, k, v: kbj.dot_product_attention(q, k, v, query_seq_lengths=lengths), q, k, v)
    clean, wild = pull(jnp.ones_like(q)), pull(jnp.ones_like(q).at[0, 20:].set(jnp.nan))
    assert not wild[0][0, 20:].any() and all((a == b).all() for a, b in zip(clean, wild))


@pytest.mark.parametrize("change, message", [
    (lambda q, k, v: (q, k, v[:, :-1]), "key and value differ"),
    (lambda q, k, v: (q[:, :, :3], k, v), "multiple of key heads"),
    (lambda q, k, v: (q[0], k, v), "four axes"),
    (lambda q, k, v: (q, k, v, jnp.zeros((3, 1, 1, 1))), "bias has shape .3, 1, 1, 1."),
    (lambda q, k, v: (q, k, v, None, jnp.zeros((1, 1, 1, 47))), "mask is float32"),
])
def test_shapes_that_do_not_fit_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        kbj.dot_product_attention(*change(*inputs()))


@pytest.mark.parametrize("options, message", [
    ({"key_value_seq_lengths": np.zeros(3, np.int32)}, "key_value_seq_lengths is int32.3."),
    ({"dropout_rate": 0.5}, "needs a dropout_seed"),
    ({"dropout_rate": 1.5, "dropout_seed": 1}, "from 0 to 1"),
    ({"dropout_rate": 0.5, "dropout_seed": np.zeros(3, np.uint32)}, "uint32.3."),
    ({"layout": "BHSD"}, "BTNH"), ({"fallback": "xla"}, "fallback"), ({"is_causal": "left"}, "bottom_right"),
    ({"local_window_size": -1}, "local_window_size is -1"),
])
def test_options_that_do_not_fit_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        kbj.dot_product_attention(*inputs(), **options)


def plain_attention(modify, q, k, v):
    """The formula, with a modifier of s[b, h, q, k], over all heads of q."""
    k, v = (jnp.repeat(x, q.shape[2] // k.shape[2], axis=2) for x in (k, v))
    s = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
    h, t, j = (jnp.arange(n).reshape(shape) for n, shape in zip(s.shape[1:], [(1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]))
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(modify(s, h, t, j)), v)


SLOPES = np.array([0.5, 0.25, 0.1, 0.05], np.float32)
FORMULAS = {
    "causal": (lambda s, h, q, k: jnp.where(k <= q, s, -1e9), {}),
    "relative": (lambda s, h, q, k: s + (q - k), {}),
    "softcap": (lambda s, h, q, k: 0.8 * jnp.tanh(s / 0.8), {"cap": 0.8}),
    "alibi": (lambda s, h, q, k: s + SLOPES.reshape(1, 4, 1, 1) * (k - q), {"slope": SLOPES}),
    "sliding_window": (lambda s, h, q, k: jnp.where(q - k <= 4, s, -1e9), {"left": 4}),
    "tanh_scaled": (lambda s, h, q, k: 2 * jnp.tanh(0.5 * s), {"gain": 2, "rate": 0.5}),
    "softcap_alibi_causal": (lambda s, h, q, k: jnp.where(k <= q, 0.8 * jnp.tanh(s / 0.8) + SLOPES.reshape(1, 4, 1, 1) * (k - q), -1e9),
                             {"cap": 0.8, "slope": SLOPES}),
}


@pytest.mark.parametrize("score_mod", FORMULAS)
def test_score_modifiers(score_mod):
    modify, values = FORMULAS[score_mod]
    check(lambda q, k, v: kbj.dot_product_attention(q, k, v, score_mod=score_mod, **values),
          functools.partial(plain_attention, modify), *inputs())


def test_every_modifier_of_the_bundle_is_tested(kernels):
    described = kernels.op("attention.sdpa_forward").expressions
    assert [mod["name"] for mod in described] == list(FORMULAS)
    for mod in described:
        assert {*mod["scalars"], *(tensor["name"] for tensor in mod["tensors"])} == set(FORMULAS[mod["name"]][1])


def test_gradients_of_what_a_modifier_names_are_errors():
    q, k, v = inputs()
    alibi = lambda q, slope: kbj.dot_product_attention(q, k, v, score_mod="alibi", slope=slope).sum()
    softcap = lambda cap: kbj.dot_product_attention(q, k, v, score_mod="softcap", cap=cap).sum()
    assert np.isfinite(jax.jit(jax.grad(alibi))(q, SLOPES)).all()
    with pytest.raises(kbundle.Error, match="gradient of a tensor of score_mod='alibi'"):
        jax.grad(alibi, 1)(q, SLOPES)
    with pytest.raises(kbundle.Error, match="cap of score_mod='softcap' is a traced value"):
        jax.grad(softcap)(0.8)


def test_modifiers_want_exactly_what_they_name():
    q, k, v = inputs()
    with pytest.raises(TypeError, match="takes cap, given are gain"):
        kbj.dot_product_attention(q, k, v, score_mod="softcap", gain=1.0)
    with pytest.raises(ValueError, match="softcat.*causal, relative, softcap"):
        kbj.dot_product_attention(q, k, v, score_mod="softcat", cap=1.0)
    with pytest.raises(kbundle.Error, match="INVALID_ARGUMENT"):
        kbj.dot_product_attention(q, k, v, score_mod="alibi", slope=np.ones(3, np.float32))


def test_unknown_names_are_errors():
    with pytest.raises(TypeError, match="cap"):
        kbj.dot_product_attention(*inputs(), cap=3.0)
