"""kbj.moe on this GPU: a layer of 64 experts and its gradients beside plain JAX with jax.lax.ragged_dot, in bf16, in turns.

First results and gradients, of sizes that nothing else names, against experts one after another in float32. Then the time of forward and
backward of 16384 tokens with k 8 of 64 experts. Where plain JAX has not the memory for so many tokens, half as many, and so on: how many
is in the table, and the bar is of the most that it could.
"""

import random

import jax
import jax.numpy as jnp

import kbundle
import kbundle.jax as kbj
from layers.router import BUNDLE
from report import Report
from unlisted import chain, drawn

TOKENS, EXPERTS, K, WIDTH, HIDDEN = 16384, 64, 8, 2048, 1024
LEAST_TOKENS, TIMES_AHEAD, WITHIN = 1024, 20.0, 2e-2
NAMES = ("y", "dx", "dlogits", "dw_in", "dw_out")


def ours(x, logits, w_in, w_out, k):
    return kbj.moe(x, logits, w_in, w_out, k)


def plain(x, logits, w_in, w_out, k):
    """As it is written where nothing but JAX is at hand."""
    experts = logits.shape[-1]
    values, indices = jax.lax.top_k(logits.astype(jnp.float32), k)
    weights, flat = jax.nn.softmax(values, axis=-1), indices.reshape(-1)
    order = jnp.argsort(flat, stable=True)
    sizes = jnp.bincount(flat, length=experts)
    hidden = jax.lax.ragged_dot(x[order // k], w_in, sizes)
    gate, value = jnp.split(hidden.astype(jnp.float32), 2, axis=-1)
    out = jax.lax.ragged_dot((jax.nn.silu(gate) * value).astype(x.dtype), w_out, sizes)
    back = jnp.zeros_like(out).at[order].set(out).reshape(*indices.shape, -1)
    return (back.astype(jnp.float32) * weights[..., None]).sum(axis=1).astype(x.dtype)


def exact(x, logits, w_in, w_out, k):
    """Every expert over every token, in float32."""
    wide = lambda *arrays: (a.astype(jnp.float32) for a in arrays)
    values, indices = jax.lax.top_k(logits.astype(jnp.float32), k)
    weights = jnp.zeros(logits.shape, jnp.float32).at[jnp.arange(len(x))[:, None], indices].set(jax.nn.softmax(values, axis=-1))
    def add(y, expert):
        first, second, weight = expert
        gate, value = jnp.split(x.astype(jnp.float32) @ first, 2, axis=-1)
        return y + weight[:, None] * ((jax.nn.silu(gate) * value) @ second), None
    with jax.default_matmul_precision("highest"):
        return jax.lax.scan(add, jnp.zeros(x.shape, jnp.float32), (*wide(w_in, w_out), weights.T))[0].astype(x.dtype)


def with_gradients(layer, k):
    def run(x, logits, w_in, w_out, dy):
        y, pull = jax.vjp(lambda *arrays: layer(*arrays, k), x, logits, w_in, w_out)
        return y, *pull(dy)
    return run


def operands(seed, tokens, experts, width, hidden):
    keys = jax.random.split(jax.random.PRNGKey(seed), 5)
    normal = lambda key, *shape: jax.random.normal(key, shape, jnp.bfloat16)
    return (normal(keys[0], tokens, width), normal(keys[1], tokens, experts), normal(keys[2], experts, width, 2 * hidden) * width ** -0.5,
            normal(keys[3], experts, hidden, width) * hidden ** -0.5, normal(keys[4], tokens, width))


def check(report, chance):
    for number in range(4):
        experts = chance.choice([5, 8, 60])
        tokens, width, hidden, k = chance.randrange(1, 900), 8 * chance.randrange(4, 80), 8 * chance.randrange(4, 80), chance.randrange(1, 6)
        given = operands(number, tokens, experts, width, hidden)
        pairs = zip(*(jax.jit(with_gradients(layer, k))(*given) for layer in (ours, exact)))
        wide = [(a.astype(jnp.float32), b.astype(jnp.float32)) for a, b in pairs]
        errors = {name: float(jnp.linalg.norm(a - b) / (jnp.linalg.norm(b) + 1e-9)) for name, (a, b) in zip(NAMES, wide)}
        report.hold(f"{tokens} tokens x {width}, k {k} of {experts} experts of {hidden}: within {WITHIN} of float32",
                    max(errors.values()) <= WITHIN, str(errors))


def times(report):
    """Ours at TOKENS and at as many as plain JAX has memory for."""
    rows, tokens, ahead = [], TOKENS, None
    while ahead is None and tokens >= LEAST_TOKENS:
        given = operands(7, tokens, EXPERTS, WIDTH, HIDDEN)
        us = chain.in_turns({"ours": chain.chained(with_gradients(ours, K), 2)}, given, calls=2, rounds=5)
        try:
            us |= chain.in_turns({"jax": chain.chained(with_gradients(plain, K), 1)}, given, calls=1, rounds=3)
            ahead = us["jax"] / us["ours"]
        except jax.errors.JaxRuntimeError as error:
            report.fact(f"plain JAX at {tokens} tokens", str(error).split("\n")[0][:160])
        rows.append([tokens, f"{us['ours'] / 1e3:.2f}", f"{us['jax'] / 1e3:.2f}" if ahead else "-", f"{ahead:.1f}" if ahead else "-"])
        print(*rows[-1], flush=True)
        tokens //= 2
    report.table(f"ms of forward and backward, k {K} of {EXPERTS} experts, {WIDTH} x {HIDDEN} gated, bf16",
                 ["tokens", "kbj.moe", "plain JAX", "ahead"], rows)
    report.bar("plain JAX's time by ours", ahead or 0.0, TIMES_AHEAD, at_least=True)


def main():
    report, seed = Report("moe"), drawn.seed()
    report.fact("seed", seed)
    kbundle.use(str(BUNDLE))
    check(report, random.Random(seed))
    times(report)
    report.finish()


if __name__ == "__main__":
    main()
