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
def test_values_and_gradients(dtype, gated, biases):
    arrays, within = layer(dtype, gated, biases), 1e-4 if dtype == jnp.float32 else 0.04
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
