"""A GPT's training step (forward, backward, SGD) by kbundle's functions beside plain JAX with cuDNN's attention, at configurations that no
manifest names: first step, steady step, losses, and where the time goes, kernel by kernel, from the profiler's trace of both.

Four programs: plain JAX; kbundle's attention, dense and mlp; kbundle's attention alone; and plain JAX again from parameters that were
rounded otherwise. Steps are timed in turns, by the host's clock. How far apart losses of right programs may be, any two of several
such runs of plain JAX say: training in 16 bits is chaotic, and one pair of runs may well be close by chance.
"""

import collections
import functools
import glob
import itertools
import os
import pathlib
import re
import sys
import tempfile
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp

import kbundle
import kbundle.jax as kbj
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
ROUNDS, STEPS, TRACED, SECONDS, LOSSES_WITHIN = 8, 5, 5, 300, 0.05
ROUNDED_OTHERWISE = (-1e-3, 2e-3, -2e-3)  # further runs of plain JAX; "again" is at 1e-3


class Sizes(NamedTuple):
    batch: int
    length: int
    width: int
    heads: int
    hidden: int
    layers: int = 4
    vocabulary: int = 16384


CONFIGURATIONS = [Sizes(3, 1280, 1536, 12, 6144), Sizes(8, 1024, 1024, 16, 4096), Sizes(1, 4096, 2048, 16, 8192),
                  Sizes(5, 777, 1280, 20, 5120), Sizes(2, 2048, 3072, 24, 8192)]


WAYS = ("jax", "kbundle", "attention", "again")


class Ways(NamedTuple):
    """What a layer is made of."""
    attention: callable
    dense: callable
    mlp: callable


def plain_dense(x, w, b):
    return x @ w + b


def plain_mlp(x, w1, b1, w2, b2):
    return jax.nn.gelu(x @ w1 + b1) @ w2 + b2


def ways(s):
    """cuDNN has no gradients for odd lengths."""
    jax_attention = functools.partial(jax.nn.dot_product_attention, is_causal=True, implementation="xla" if s.length % 2 else "cudnn")
    attention = functools.partial(kbj.dot_product_attention, is_causal=True)
    return {"jax": Ways(jax_attention, plain_dense, plain_mlp), "kbundle": Ways(attention, kbj.dense, kbj.mlp),
            "attention": Ways(attention, plain_dense, plain_mlp), "again": Ways(jax_attention, plain_dense, plain_mlp)}


def parameters(s, key, change):
    """change: a relative change of them, less than bf16 resolves."""
    def made(*shape):
        nonlocal key
        key, used = jax.random.split(key)
        return (jax.random.normal(used, shape, jnp.float32) * (shape[0] ** -0.5 * (1 + change))).astype(jnp.bfloat16)

    def layer():
        zero = functools.partial(jnp.zeros, dtype=jnp.bfloat16)
        return dict(qkv=made(s.width, 3 * s.width), qkv_bias=zero(3 * s.width), out=made(s.width, s.width), out_bias=zero(s.width),
                    w1=made(s.width, s.hidden), b1=zero(s.hidden), w2=made(s.hidden, s.width), b2=zero(s.width),
                    gain1=jnp.ones(s.width, jnp.bfloat16), gain2=jnp.ones(s.width, jnp.bfloat16))
    return dict(embed=made(s.vocabulary, s.width), layers=[layer() for _ in range(s.layers)], head=made(s.width, s.vocabulary))


def norm(x, gain):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)).astype(x.dtype) * gain


def loss(way, s, p, tokens):
    x = p["embed"][tokens]
    for layer in p["layers"]:
        qkv = way.dense(norm(x, layer["gain1"]), layer["qkv"], layer["qkv_bias"])
        q, k, v = (part.reshape(s.batch, s.length, s.heads, -1) for part in jnp.split(qkv, 3, -1))
        x = x + way.dense(way.attention(q, k, v).reshape(x.shape), layer["out"], layer["out_bias"])
        x = x + way.mlp(norm(x, layer["gain2"]), layer["w1"], layer["b1"], layer["w2"], layer["b2"])
    logits = (x @ p["head"]).astype(jnp.float32)[:, :-1]
    shares = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(shares, tokens[:, 1:, None], -1))


def step_of(way, s):
    @functools.partial(jax.jit, donate_argnums=0)
    def step(p, tokens):
        value, slopes = jax.value_and_grad(functools.partial(loss, way, s))(p, tokens)
        return jax.tree.map(lambda a, g: (a - 0.02 * g).astype(a.dtype), p, slopes), value
    return step


class Program:
    def __init__(self, step, s, tokens, change=0.0):
        self.step, self.tokens, self.losses, self.best = step, tokens, [], float("inf")
        self.parameters = jax.block_until_ready(parameters(s, jax.random.PRNGKey(0), change))
        start = time.perf_counter()
        self.run(1)
        self.first_ms = 1e3 * (time.perf_counter() - start)

    def run(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.parameters, value = self.step(self.parameters, self.tokens)
        self.losses.append(float(value))
        return 1e6 * (time.perf_counter() - start) / steps


def apart(one, other):
    return max(abs(a - b) for a, b in zip(one.losses, other.losses))


def noise_of(plain, again, s, tokens):
    """The largest distance of two runs of plain JAX that begin at the same parameters, rounded in ways of their own."""
    runs = [plain, again]
    for change in ROUNDED_OTHERWISE:
        runs.append(Program(again.step, s, tokens, change))
        for _ in range(ROUNDS):
            runs[-1].run(STEPS)
    return max(apart(one, other) for one, other in itertools.combinations(runs, 2))


def trace(program):
    """{kernel's name without its numbers: (microseconds, launches) of a step}."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            program.run(TRACED)
        found = collections.defaultdict(lambda: [0.0, 0])
        for path in glob.glob(folder + "/**/*.xplane.pb", recursive=True):
            for plane in jax.profiler.ProfileData.from_file(path).planes:
                if not plane.name.startswith("/device:GPU"):
                    continue
                for line in plane.lines:
                    if not line.name.startswith("Stream"):
                        continue
                    for event in line.events:
                        entry = found[re.sub(r"_\d+(?=$|_)", "", event.name)[:70]]
                        entry[0] += event.duration_ns / 1e3 / TRACED
                        entry[1] += 1 / TRACED
        return found


def configuration(report, s, traced):
    name = "B%d T%d D%d heads %d F%d" % s[:5]
    tokens = jax.random.randint(jax.random.PRNGKey(7), (s.batch, s.length), 0, s.vocabulary)
    programs = {who: Program(step_of(way, s), s, tokens, 1e-3 if who == "again" else 0.0) for who, way in ways(s).items()}
    for _ in range(ROUNDS):
        for program in programs.values():
            program.best = min(program.best, program.run(STEPS))
    plain = programs["jax"]
    spread, noise = apart(plain, programs["kbundle"]), noise_of(plain, programs["again"], s, tokens)
    report.bar(f"{name}: step by JAX's", programs["kbundle"].best / plain.best, 1.0)
    report.bar(f"{name}: first step by JAX's", programs["kbundle"].first_ms / plain.first_ms, 0.35)
    report.bar(f"{name}: losses apart", spread, max(LOSSES_WITHIN, noise))
    if traced:
        for who in ("jax", "kbundle"):
            kernels = sorted(trace(programs[who]).items(), key=lambda item: -item[1][0])
            report.table(f"{name}: kernels of a step, {who}: {sum(t for _, (t, _) in kernels):.0f} us in all",
                         ["kernel", "us", "launches"], [[k, f"{t:.1f}", f"{n:.0f}"] for k, (t, n) in kernels[:28]])
    return [name, *(f"{p.first_ms:.0f}" for p in programs.values()), *(f"{p.best:.0f}" for p in programs.values())]


def main():
    report = Report("unlisted_gpt")
    kbundle.use(str(ROOT / "build/kernels.kb"))
    started, rows = time.monotonic(), []
    for number, s in enumerate(CONFIGURATIONS[:int(os.environ.get("KB_COUNT", len(CONFIGURATIONS)))]):
        if time.monotonic() - started < SECONDS:
            rows.append(configuration(report, s, number < 2))
            print(*rows[-1], flush=True)
    report.table("Milliseconds of the first step, microseconds of a step", ["", *(f"first {w}" for w in WAYS), *WAYS], rows)
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
