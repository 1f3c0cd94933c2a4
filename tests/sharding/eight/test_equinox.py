"""Promise: a model of Equinox whose layers call kbundle trains 200 steps as its twin of plain JAX does, sharded over eight devices
by Equinox's own jit, and adds nothing to what devices say to each other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle.jax as kbj
from sharding.collectives import collectives
from sharding.eight.test_training import HEADS, STEPS, VOCABULARY, WIDTH, batch
from sharding.plain import plain_norm

RATE = 0.2


class Norm(eqx.Module):
    gamma: jax.Array
    ours: bool = eqx.field(static=True)

    def __call__(self, x):
        return kbj.rms_norm(x, self.gamma, epsilon=1e-5) if self.ours else plain_norm(x, self.gamma, epsilon=1e-5)


class Attention(eqx.Module):
    into: eqx.nn.Linear
    out: eqx.nn.Linear
    ours: bool = eqx.field(static=True)

    def __call__(self, x):
        q, k, v = jnp.split(jax.vmap(jax.vmap(self.into))(x).reshape(*x.shape[:2], HEADS, -1), 3, -1)
        mixed = (kbj if self.ours else jax.nn).dot_product_attention(q, k, v, is_causal=True)
        return jax.vmap(jax.vmap(self.out))(mixed.reshape(x.shape))


class FeedForward(eqx.Module):
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    ours: bool = eqx.field(static=True)

    def __call__(self, x):
        if self.ours:
            return kbj.mlp(x, self.up.weight.T, self.up.bias, self.down.weight.T, self.down.bias)
        return jax.vmap(jax.vmap(self.down))(jax.nn.gelu(jax.vmap(jax.vmap(self.up))(x)))


class Model(eqx.Module):
    embedding: eqx.nn.Embedding
    attention: Attention
    feed_forward: FeedForward
    norms: list

    def __init__(self, ours, key):
        keys = iter(jax.random.split(key, 5))
        self.embedding = eqx.nn.Embedding(VOCABULARY, WIDTH, key=next(keys))
        self.attention = Attention(eqx.nn.Linear(WIDTH, 3 * WIDTH, key=next(keys)), eqx.nn.Linear(WIDTH, WIDTH, key=next(keys)), ours)
        self.feed_forward = FeedForward(eqx.nn.Linear(WIDTH, 4 * WIDTH, key=next(keys)), eqx.nn.Linear(4 * WIDTH, WIDTH, key=next(keys)), ours)
        self.norms = [Norm(jnp.ones(WIDTH), ours) for _ in range(3)]

    def __call__(self, tokens):
        x = self.embedding.weight[tokens]
        x = x + self.attention(self.norms[0](x))
        x = x + self.feed_forward(self.norms[1](x))
        return self.norms[2](x) @ self.embedding.weight.T


def loss(model, tokens):
    scores = jax.nn.log_softmax(model(tokens[:, :-1]))
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()


def step(model, tokens):
    value, gradients = eqx.filter_value_and_grad(loss)(model, tokens)
    return value, eqx.apply_updates(model, jax.tree.map(lambda g: -RATE * g, gradients))


@pytest.mark.usefixtures("kernels")
def test_a_model_of_equinox_trains_as_its_plain_twin(put):
    tokens = [put(batch(number), "data") for number in range(STEPS)]
    losses, said = {}, {}
    for ours in (True, False):
        model = jax.tree.map(put, Model(ours, jax.random.key(5)))
        arrays, rest = eqx.partition(model, eqx.is_array)
        said[ours] = collectives(lambda arrays, one, rest=rest: step(eqx.combine(arrays, rest), one), arrays, tokens[0])
        run, losses[ours] = eqx.filter_jit(step), []
        for one in tokens:
            value, model = run(model, one)
            losses[ours].append(float(value))
    np.testing.assert_allclose(losses[True], losses[False], rtol=5e-3)
    assert losses[False][-1] < 0.5 * losses[False][0]
    assert all(said[True][kind] <= said[False].get(kind, 0) for kind in said[True]), said
