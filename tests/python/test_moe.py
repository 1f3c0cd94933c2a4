"""Promise: kbj.moe is a layer of experts as plain JAX says it, token by token, with its gradients, under jit and divided among devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import kbundle
import kbundle.jax as kbj
from python.attention_check import near

pytestmark = pytest.mark.usefixtures("platform", "kernels")
D, F, E = 24, 40, 8


def layer(dtype=jnp.float32, gated=True, biases=False, tokens=(3, 7), seed=0):
    rng = np.random.default_rng(seed)
    made = lambda *shape: jnp.asarray(rng.normal(size=shape) / np.sqrt(shape[-2] if len(shape) > 2 else 1), dtype)
    width = 2 * F if gated else F
    logits = jnp.asarray(rng.permuted(np.tile(np.linspace(-2, 2, E), (*tokens, 1)), axis=-1), jnp.float32)
    return (made(*tokens, D), logits, made(E, D, width), made(E, F, D), *((made(E, width), made(E, D)) if biases else ()))


def plain(x, logits, w_in, w_out, bias_in=None, bias_out=None, *, k=2, act=jax.nn.silu):
    """Every expert on every token, and then the weights of the chosen."""
    wide = lambda a: a.astype(jnp.float32)
    best, who = jax.lax.top_k(logits, k)
    weights = (jax.nn.one_hot(who, logits.shape[-1]) * jax.nn.softmax(best)[..., None]).sum(-2)
    h = jnp.einsum("...d,edf->...ef", wide(x), wide(w_in)) + (0 if bias_in is None else wide(bias_in))
    h = act(h[..., :F]) * h[..., F:] if w_in.shape[2] == 2 * F else act(h)
    y = jnp.einsum("...ef,efd->...ed", h, wide(w_out)) + (0 if bias_out is None else wide(bias_out))
    return jnp.einsum("...ed,...e->...d", y, weights)


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "plain"])
@pytest.mark.parametrize("biases", [True, False], ids=["biases", "none"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("tokens", [(3, 7), (1,)], ids=["tokens", "one token"])
def test_values_and_gradients(tokens, dtype, gated, biases):
    arrays, within = layer(dtype, gated, biases, tokens), 1e-4 if dtype == jnp.float32 else 0.04
    ours = lambda x, logits, a, b, *bias: kbj.moe(x, logits, a, b, 2, **dict(zip(("bias_in", "bias_out"), bias)))
    found, wanted = jax.jit(ours)(*arrays), plain(*arrays)
    assert found.dtype == dtype and found.shape == arrays[0].shape
    near(found, wanted, within)
    weight = jnp.asarray(np.random.default_rng(5).normal(size=found.shape), jnp.float32)
    slopes = lambda f: jax.jit(jax.grad(lambda *a: (f(*a).astype(jnp.float32) * weight).sum(), range(len(arrays))))(*arrays)
    for mine, theirs, array in zip(slopes(ours), slopes(plain), arrays):
        assert mine.dtype == array.dtype and mine.shape == array.shape
        near(mine, theirs, 10 * within)


def test_the_routers_arguments_and_the_auxiliary_loss():
    arrays = layer()
    how = {"score_function": "sigmoid", "num_groups": 4, "group_topk": 2, "scaling_factor": 2.5, "use_pre_softmax": False}
    y, loss = kbj.moe(*arrays, 2, aux_loss_coefficient=0.01, **how)
    weights = kbj.router_topk(arrays[1], 2, **how)[0]
    x, logits, w_in, w_out = arrays
    h = jnp.einsum("...d,edf->...ef", x, w_in)
    wanted = jnp.einsum("...ef,efd,...e->...d", jax.nn.silu(h[..., :F]) * h[..., F:], w_out, weights)
    near(y, wanted, 1e-4)
    counts = kbj.route(logits, 2, **how).tokens_per_expert
    scores = jax.nn.sigmoid(logits) / jax.nn.sigmoid(logits).sum(-1, keepdims=True)
    near(loss, 0.01 * E / (2 * 21 ** 2) * (scores.reshape(-1, E).sum(0) * counts).sum(), 1e-6)
    slope = jax.grad(lambda logits: kbj.moe(x, logits, w_in, w_out, 2, aux_loss_coefficient=1.0)[1])(logits)
    assert np.asarray(slope).any()


@pytest.mark.parametrize("activation, act", [("gelu", jax.nn.gelu), ("relu", jax.nn.relu), (jnp.tanh, jnp.tanh)], ids=["gelu", "relu", "own"])
def test_activations(activation, act):
    arrays = layer(gated=False)
    near(kbj.moe(*arrays, 3, activation=activation), plain(*arrays, k=3, act=act), 1e-4)


def test_no_tokens_and_experts_without_tokens():
    x, logits, w_in, w_out = layer(tokens=(5,))
    assert kbj.moe(x[:0], logits[:0], w_in, w_out, 2).shape == (0, D)
    logits = jnp.full_like(logits, -9.0).at[:, 3].set(1.0).at[:, 6].set(0.0)
    near(kbj.moe(x, logits, w_in, w_out, 2), plain(x, logits, w_in, w_out), 1e-4)
    dw = jax.grad(lambda w: kbj.moe(x, logits, w, w_out, 2).sum())(w_in)
    assert np.asarray(dw)[[3, 6]].any() and not np.asarray(dw)[[0, 1, 2, 4, 5, 7]].any()


def test_experts_divided_among_devices():
    """Over as many devices as there are; tests/sharding/eight has eight."""
    arrays = layer(biases=True)
    mesh = Mesh(np.array(jax.local_devices(backend=jax.devices()[0].platform)[:1]), ("experts",))
    split = P("experts")

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(), P(), split, split, split, split), out_specs=P())
    def divided(x, logits, w_in, w_out, bias_in, bias_out):
        return kbj.moe(x, logits, w_in, w_out, 2, bias_in=bias_in, bias_out=bias_out, axis_name="experts")

    near(jax.jit(divided)(*arrays), plain(*arrays), 1e-4)


# ---- with a recipe ----

def rounded(x, *block, power_of_two=False):
    """What FP8 codes of x[.., N] by blocks stand for, from an op that has tests of its own."""
    flat = x.reshape(-1, x.shape[-1])
    codes, scales = kbj.quantize_blocks(flat, block=block, power_of_two=power_of_two)
    scales = jnp.repeat(jnp.repeat(scales, block[0], 0)[:len(flat)], block[1], 1)[:, :x.shape[-1]]
    return (codes.astype(jnp.float32) * scales).reshape(x.shape)


def plain_fp8(x, logits, w_in, w_out, bias_in, bias_out, power_of_two):
    """Every expert on every token, with all operands of products rounded, and to x's dtype what lies in memory."""
    kept = lambda wide: wide.astype(x.dtype).astype(jnp.float32)
    best, who = jax.lax.top_k(logits, 2)
    weights = (jax.nn.one_hot(who, logits.shape[-1]) * jax.nn.softmax(best)[..., None]).sum(-2)
    tiles = lambda w: jnp.stack([rounded(one, 128, 128, power_of_two=power_of_two) for one in w])
    h = jnp.einsum("...d,edf->...ef", rounded(x, 1, 128, power_of_two=power_of_two), tiles(w_in)) + kept(bias_in)
    first, second = jnp.split(kept(h), 2, -1)
    h = rounded(kept(jax.nn.silu(first) * second), 1, 128, power_of_two=power_of_two)
    return jnp.einsum("...ed,...e->...d", jnp.einsum("...ef,efd->...ed", h, tiles(w_out)) + kept(bias_out), weights)


def wide_layer(dtype, w_dtype):
    """Of more than one block, and of parts of one."""
    rng, width, hidden = np.random.default_rng(7), 144, 136
    made = lambda *shape, scale=1.0, of=w_dtype: jnp.asarray(scale * rng.normal(size=shape), of)
    return (made(3, 13, width, of=dtype), made(3, 13, E, of=jnp.float32), made(E, width, 2 * hidden, scale=width ** -0.5),
            made(E, hidden, width, scale=hidden ** -0.5), made(E, 2 * hidden), made(E, width))


def off(found, wanted):
    """By the root of the mean square."""
    found, wanted = np.asarray(found.astype(jnp.float32), np.float64), np.asarray(wanted.astype(jnp.float32), np.float64)
    assert found.shape == wanted.shape
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("recipe", [kbj.BlockScaling(), kbj.BlockScaling(power_of_two=True, gradient_dtype=jnp.float8_e5m2)], ids=["block", "e5m2"])
@pytest.mark.parametrize("dtype, w_dtype", [(jnp.float32, jnp.float32), (jnp.bfloat16, jnp.float32), (jnp.bfloat16, jnp.bfloat16),
                                            (jnp.float32, jnp.bfloat16)])
def test_a_recipe_rounds_the_products_operands(dtype, w_dtype, recipe):
    arrays = wide_layer(dtype, w_dtype)
    ours = lambda recipe: lambda x, l, a, b, c, d: kbj.moe(x, l, a, b, 2, bias_in=c, bias_out=d, recipe=recipe)
    found, pull = jax.vjp(jax.jit(ours(recipe)), *arrays)
    assert found.dtype == dtype
    assert off(found, plain_fp8(*arrays, recipe.power_of_two)) < (5e-3 if dtype == jnp.float32 else 1e-2)
    wanted, exact_pull = jax.vjp(jax.jit(ours(None)), *(array.astype(jnp.float32) for array in arrays))
    assert 1e-3 < off(found, wanted) < 0.08, "FP8 rounds by up to 1/16"
    dy = jnp.asarray(np.random.default_rng(8).normal(size=found.shape), jnp.float32)
    for gradient, right, array in zip(pull(dy.astype(dtype)), exact_pull(dy), arrays):
        assert gradient.dtype == array.dtype
        assert off(gradient, right) < 0.15


def test_a_recipe_with_experts_divided_among_devices():
    devices = jax.local_devices(backend=jax.devices()[0].platform)
    if len(devices) < 4:
        pytest.skip("needs four devices")
    arrays, recipe = wide_layer(jnp.bfloat16, jnp.float32), kbj.BlockScaling()
    split = P("experts")
    layer = lambda axis: lambda x, l, a, b, c, d: kbj.moe(x, l, a, b, 2, bias_in=c, bias_out=d, recipe=recipe, axis_name=axis)
    divided = jax.shard_map(layer("experts"), mesh=Mesh(np.array(devices[:4]), ("experts",)), in_specs=(P(), P(), *[split] * 4), out_specs=P())
    slope = lambda f: jax.jit(jax.value_and_grad(lambda *a: (f(*a).astype(jnp.float32) ** 2).sum(), tuple(range(6))))(*arrays)
    (mine, gradients), (whole, wanted) = slope(divided), slope(layer(None))
    assert abs(mine - whole) < 1e-2 * whole
    for one, other in zip(gradients, wanted):
        assert off(one, other) < 3e-2


def test_a_recipe_for_no_tokens_and_experts_without_tokens():
    x, logits, w_in, w_out, _, _ = wide_layer(jnp.float32, jnp.float32)
    assert kbj.moe(x[:0], logits[:0], w_in, w_out, 2, recipe=kbj.BlockScaling()).shape == (0, *x.shape[1:])
    logits = jnp.full_like(logits, -9.0).at[..., 3].set(1.0).at[..., 6].set(0.0)
    dw = jax.grad(lambda w: kbj.moe(x, logits, w, w_out, 2, recipe=kbj.BlockScaling()).sum())(w_in)
    assert np.asarray(dw)[[3, 6]].any() and not np.asarray(dw)[[0, 1, 2, 4, 5, 7]].any()


def test_what_no_recipe_of_experts_takes_is_named():
    with pytest.raises(kbundle.InvalidArgument, match="recipe is .*BlockScaling"):
        kbj.moe(*layer(), 2, recipe=kbj.CurrentScaling())
    with pytest.raises(TypeError, match="x is float16; with a recipe"):
        kbj.moe(*layer(jnp.float16), 2, recipe=kbj.BlockScaling())
    with pytest.raises(ValueError, match="a bias has shape"):
        kbj.moe(*layer(), 2, recipe=kbj.BlockScaling(), bias_in=jnp.zeros((E, F)))


@pytest.mark.parametrize("change, message", [
    (lambda x, l, a, b: (x, l[..., :-1], a, b), "router_logits has shape"), (lambda x, l, a, b: (x, l, a[:, :-1], b), "w_in"),
    (lambda x, l, a, b: (x, l, a[..., :-1], b), "F or 2"), (lambda x, l, a, b: (x, l, a, b[:-1]), "w_out")])
def test_shapes_that_do_not_fit_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        kbj.moe(*change(*layer()), 2)


def test_words_that_are_none_are_named():
    with pytest.raises(kbundle.InvalidArgument, match="activation.*silu"):
        kbj.moe(*layer(), 2, activation="swish")
    with pytest.raises(kbundle.InvalidArgument, match="k is 9"):
        kbj.moe(*layer(), 9)
