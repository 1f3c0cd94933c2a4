"""The rows of the demo: what kbundle computes, the formula that JAX compiles, and the same formula in float64.

A formula takes its array library, so that NumPy in float64 judges what jax.numpy and kbundle compute.
"""

import dataclasses
import typing

import jax
import jax.numpy as jnp
import numpy as np

import kbundle.jax as kbj

SCALE, CAP = 0.125, 30.0
EXPERTS, PER_TOKEN = 8, 2


@dataclasses.dataclass
class Row:
    work: str
    shape: str
    ours: typing.Callable
    formula: typing.Callable   # formula(jnp or np, *operands)
    operands: tuple
    bound: float               # largest error that passes, relative to the largest value of its row
    gpu: str                   # whose figures of GPUs belong beside it (demo_gpus.py)


def probabilities(xp, x):
    if xp is jnp:
        return jax.nn.softmax(x, axis=-1)
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def softmax(xp, x):
    return probabilities(xp, x * SCALE)


def causal_softmax(xp, x):
    return probabilities(xp, xp.where(np.tril(np.ones(x.shape[-2:], bool)), x * SCALE, -np.inf))


def softcap_attention(xp, q, k, v):
    s = xp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    return xp.einsum("bhqk,bkhd->bqhd", probabilities(xp, CAP * xp.tanh(s / CAP)), v)


def mlp(xp, x, w1, b1, w2, b2):
    y = x @ w1 + b1
    y = 0.5 * y * (1 + xp.tanh((2 / np.pi) ** 0.5 * (y + 0.044715 * y**3)))
    return y @ w2 + b2


def routed(xp, x, routing, weights):
    """Tokens to experts, row by row, and back, weighted."""
    experts, tokens = xp.nonzero(routing.T) if xp is np else xp.nonzero(routing.T, size=x.shape[0] * PER_TOKEN)
    rows = x[tokens] * weights[tokens, experts][:, None]
    if xp is jnp:
        return jnp.zeros_like(x).at[tokens].add(rows)
    y = np.zeros_like(x)
    np.add.at(y, tokens, rows)
    return y


def routed_by_kbundle(x, routing, weights):
    rows, _, row_id_map = kbj.permute(x, routing, x.shape[0] * PER_TOKEN)
    return kbj.unpermute(rows, row_id_map, weights)


def normal(random, dtype, *shape, scale=1.0):
    return jnp.asarray(random.standard_normal(shape, np.float32) * scale, dtype)


def rows():
    random = np.random.default_rng(0)
    yield Row("softmax", "bf16[2,8,256,256]", lambda x: kbj.scaled_softmax(x, SCALE), softmax,
              (normal(random, "bfloat16", 2, 8, 256, 256, scale=4),), 4e-3, "softmax")
    yield Row("causal softmax", "f32[1,1,2048,2048]", lambda x: kbj.scaled_causal_softmax(x, SCALE), causal_softmax,
              (normal(random, "float32", 1, 1, 2048, 2048, scale=4),), 2e-6, "causal softmax")
    yield Row("attention, softcap", "f32[1,512,8,64]",
              lambda q, k, v: kbj.dot_product_attention(q, k, v, score_mod="softcap", cap=CAP), softcap_attention,
              tuple(normal(random, "float32", 1, 512, 8, 64) for _ in range(3)), 1e-5, "attention, softcap")
    yield Row("MLP, gelu", "f32[256,512] x 2048", lambda *a: kbj.mlp(*a), mlp,
              (normal(random, "float32", 256, 512), normal(random, "float32", 512, 2048, scale=0.05),
               normal(random, "float32", 2048), normal(random, "float32", 2048, 512, scale=0.05),
               normal(random, "float32", 512)), 1e-5, "dense, gelu")
    tokens = 4096
    chosen = np.argsort(random.random((tokens, EXPERTS)), axis=1)[:, :PER_TOKEN]
    routing = np.zeros((tokens, EXPERTS), bool)
    np.put_along_axis(routing, chosen, True, axis=1)
    weights = jnp.asarray(routing * random.random((tokens, EXPERTS)), jnp.float32)
    yield Row("MoE permute, unpermute", f"f32[{tokens},512], {PER_TOKEN} of {EXPERTS}", routed_by_kbundle, routed,
              (normal(random, "float32", tokens, 512), jnp.asarray(routing), weights), 1e-6, "permute")


def in_float64(row):
    return row.formula(np, *(np.asarray(a, np.float64) if a.dtype != bool else np.asarray(a) for a in row.operands))


def by_jax(row):
    """The formula as a JAX user would write it: computed in float32, the result in the operands' dtype."""
    dtype = row.operands[0].dtype
    return jax.jit(lambda *a: row.formula(jnp, *(x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x for x in a)).astype(dtype))
