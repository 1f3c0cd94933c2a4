"""Promise: a transformer block trained 200 steps on kbundle, sharded over eight devices by a plain jit, has the losses of plain
JAX, and its devices say nothing to each other that plain JAX's do not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle.jax as kbj
from sharding.collectives import collectives
from sharding.problems import random

STEPS, BATCH, TOKENS, WIDTH, HEADS, VOCABULARY = 200, 8, 16, 32, 4, 64


def plain_dense(x, w, bias):
    return x @ w + bias


def plain_mlp(x, w1, bias1, w2, bias2):
    return jax.nn.gelu(x @ w1 + bias1) @ w2 + bias2


def attention(module, q, k, v):
    return module.dot_product_attention(q, k, v, is_causal=True)


LIBRARIES = {"kbundle": (kbj.dense, kbj.mlp, functools.partial(attention, kbj)),
             "plain": (plain_dense, plain_mlp, functools.partial(attention, jax.nn))}

# Where a parameter lies, as its author writes it: columns, then rows of the two halves of a layer.
SPECS = {"embedding": (), "qkv": (None, "model"), "qkv_bias": ("model",), "out": ("model",), "out_bias": (),
         "up": (None, "model"), "up_bias": ("model",), "down": ("model",), "down_bias": ()}


def parameters():
    shapes = {"embedding": (VOCABULARY, WIDTH), "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH),
              "down": (4 * WIDTH, WIDTH)}
    values = {name: random(*shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    return values | {name + "_bias": np.zeros(shapes[name][1], np.float32) for name in ("qkv", "out", "up", "down")}


def normal(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def loss(library, values, tokens):
    dense, mlp, attend = LIBRARIES[library]
    x = values["embedding"][tokens[:, :-1]]
    # Of each head its query, key and value beside each other: columns of one device belong to heads of one device.
    qkv = dense(normal(x), values["qkv"], values["qkv_bias"]).reshape(*x.shape[:2], HEADS, 3, WIDTH // HEADS)
    mixed = attend(qkv[..., 0, :], qkv[..., 1, :], qkv[..., 2, :]).reshape(x.shape)
    x = x + dense(mixed, values["out"], values["out_bias"])
    x = x + mlp(normal(x), values["up"], values["up_bias"], values["down"], values["down_bias"])
    scores = jax.nn.log_softmax(normal(x) @ values["embedding"].T)
    return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()


def step(library, values, tokens):
    value, gradients = jax.value_and_grad(functools.partial(loss, library))(values, tokens)
    return value, jax.tree.map(lambda v, g: v - 0.2 * g, values, gradients)


def batch(number):
    """Tokens that follow a rule with noise: something to learn."""
    generator = np.random.default_rng(number)
    first = generator.integers(0, VOCABULARY, (BATCH, 1))
    return ((first + 3 * np.arange(TOKENS + 1)) % VOCABULARY).astype(np.int32)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("names", [{}, SPECS], ids=["data", "data and model"])
def test_a_block_trains_as_in_plain_jax(put, names):
    start = {name: put(value, *names.get(name, ())) for name, value in parameters().items()}
    tokens = [put(batch(number), "data") for number in range(STEPS)]
    losses = {}
    for library in LIBRARIES:
        values, run = start, jax.jit(functools.partial(step, library))
        losses[library] = []
        for one in tokens:
            value, values = run(values, one)
            losses[library].append(float(value))
    np.testing.assert_allclose(losses["kbundle"], losses["plain"], rtol=5e-3)
    assert losses["plain"][-1] < 0.5 * losses["plain"][0]
    ours, theirs = (collectives(functools.partial(step, library), start, tokens[0]) for library in LIBRARIES)
    assert all(ours[kind] <= theirs.get(kind, 0) for kind in ours), (ours, theirs)
