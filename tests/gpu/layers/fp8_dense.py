"""kbj.dense, kbj.mlp and kbj.moe by FP8 recipes on this GPU: results and gradients beside float64 products of what the codes stand for, at
shapes that no manifest lists; then a step of a feed-forward block, forward and backward, with gelu and with swiglu, beside jax.jit in bfloat16
and in FP8 as plain JAX has it (codes by the largest magnitude, jax.lax.dot_general of codes), and a step of a layer of experts beside the same
in bfloat16, each in one run and in turns (chain.py).

KB_FP8: "tokens,features,hidden" of the block, 16384,4096,14336 by default.
"""

import functools
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import kbundle
import kbundle.jax as kbj
from layers import moe
from report import Report
from unlisted import chain, drawn

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "build/kernels.kb"
BLOCK = tuple(int(size) for size in os.environ.get("KB_FP8", "16384,4096,14336").split(","))
AHEAD = 1.5  # of bfloat16 under jax.jit, for a step of the block
EXPERTS_AHEAD = 1.0  # of kbj.moe in bfloat16: two of three products of a weight are in FP8, of the third nothing
E4M3, E5M2 = jnp.float8_e4m3fn, jnp.float8_e5m2
RECIPES = {"current": kbj.CurrentScaling(), "delayed": kbj.DelayedScaling(history=16), "block": kbj.BlockScaling()}
ROUNDS = 5


def state_of(recipe, x, w, dy):
    """A state as training would have left it, for tensors like these; None of recipes without one."""
    if not isinstance(recipe, kbj.DelayedScaling):
        return None
    amax = lambda array: jnp.abs(array).max().astype(jnp.float32)
    empty = recipe.init()
    return kbj.ScalingState(empty.history.at[:, 1].set(jnp.stack([amax(x), amax(w)])), 448 / jnp.stack([amax(x), amax(w)]),
                            empty.gradient_history.at[1].set(amax(dy)), 57344 / amax(dy))


# ---- right ----

def float64(array):
    return np.asarray(array.astype(jnp.float32), np.float64)


def by_tensor(x, dtype=E4M3, scale=None):
    """What codes of x stand for, by one scale."""
    made = kbj.quantize(x, dtype, scale)
    return float64(made.data) * float(made.scale_inv)


def by_blocks(x, *block):
    """The same by a scale for each block."""
    codes, scales = kbj.quantize_blocks(x, block=block)
    scales = float64(scales).repeat(block[0], 0)[:x.shape[0]].repeat(block[1], 1)[:, :x.shape[1]]
    return float64(codes) * scales


def wanted_products(recipe, x, w, dy, state):
    """(y, dx, dw) in float64."""
    if isinstance(recipe, kbj.BlockScaling):
        q_w = by_blocks(w, 128, 128)
        return by_blocks(x, 1, 128) @ q_w, by_blocks(dy, 1, 128) @ q_w.T, by_blocks(x, 128, 128).T @ by_blocks(dy.T, 1, 128).T
    of_x, of_w, of_dy = (None, None, None) if state is None else (*state.scale, state.gradient_scale)
    q_x, q_w, q_dy = by_tensor(x, E4M3, of_x), by_tensor(w, E4M3, of_w), by_tensor(dy, E5M2, of_dy)
    return q_x @ q_w, q_dy @ q_w.T, q_x.T @ q_dy


def check_dense(report, name, recipe, shape, dtype):
    """y, dx, dw and dbias of a layer."""
    rows, inner, outer = shape
    keys = jax.random.split(jax.random.PRNGKey(rows), 4)
    x, dy = jax.random.normal(keys[0], (rows, inner), dtype), jax.random.normal(keys[1], (rows, outer), dtype) * 0.01
    w, bias = jax.random.normal(keys[2], (inner, outer), jnp.float32) * 0.05, jax.random.normal(keys[3], (outer,), dtype)
    state = state_of(recipe, x, w, dy)
    y, pull = jax.vjp(jax.jit(lambda x, w, b: kbj.dense(x, w, b, recipe=recipe, state=state)), x, w, bias)
    dx, dw, dbias = jax.jit(pull)(dy)
    of_y, of_dx, of_dw = wanted_products(recipe, x, w, dy, state)
    wanted = {"y": (y, of_y + float64(bias)), "dx": (dx, of_dx), "dw": (dw, of_dw), "dbias": (dbias, float64(dy).sum(0))}
    off = {key: float(np.abs(float64(found) - right).max() / np.abs(right).max()) for key, (found, right) in wanted.items()}
    report.hold(f"dense {name} {list(shape)} {jnp.dtype(dtype).name}", all(value < 1e-2 for value in off.values()), str(off))
    return off


def check_layers(report):
    rows = []
    for name, recipe in RECIPES.items():
        for shape, dtype in (((1000, 512, 768), jnp.bfloat16), ((17, 80, 48), jnp.float16), ((2048, 1072, 2736), jnp.bfloat16),
                             ((333, 4096, 144), jnp.float32)):
            try:
                off = check_dense(report, name, recipe, shape, dtype)
                rows.append([name, f"{shape} {jnp.dtype(dtype).name}", *(f"{off[key]:.1e}" for key in ("y", "dx", "dw", "dbias"))])
            except Exception as error:  # the others are still worth knowing
                report.hold(f"dense {name} {list(shape)} {jnp.dtype(dtype).name}", False, str(error)[:2000])
    report.table("Largest error by the largest result", ["recipe", "rows, K, N", "y", "dx", "dw", "dbias"], rows)


def near_float32(report, name, function, plain_function, arrays, dy, within):
    """Results and gradients by the root of the mean square, beside a formula in float32."""
    try:
        y, pull = jax.vjp(jax.jit(function), *arrays)
        with jax.default_matmul_precision("highest"):
            right, right_pull = jax.vjp(jax.jit(plain_function), *(array.astype(jnp.float32) for array in arrays))
            pairs = zip((y, *jax.jit(pull)(dy.astype(y.dtype))), (right, *jax.jit(right_pull)(dy.astype(right.dtype))))
            off = [float(jnp.linalg.norm(a.astype(jnp.float32) - b) / jnp.linalg.norm(b)) for a, b in pairs]
        report.hold(name, max(off) < within, str(off))
    except Exception as error:  # the others are still worth knowing
        report.hold(name, False, str(error)[:2000])


def check_gates_and_experts(report):
    keys = jax.random.split(jax.random.PRNGKey(3), 6)
    bf16 = lambda key, scale, *shape: (jax.random.normal(key, shape, jnp.float32) * scale).astype(jnp.bfloat16)
    arrays = (bf16(keys[0], 1.0, 1000, 528), bf16(keys[1], 528 ** -0.5, 528, 2 * 752), bf16(keys[2], 1.0, 2 * 752),
              bf16(keys[3], 752 ** -0.5, 752, 272), bf16(keys[4], 1.0, 272))
    dy = bf16(keys[5], 1.0, 1000, 272)
    for name, recipe in {"none": None, **RECIPES}.items():
        states = None
        if name == "delayed":
            states = state_of(recipe, arrays[0], arrays[1], dy), state_of(recipe, 4 * arrays[0], arrays[3], dy)
        ours = functools.partial(kbj.mlp, activation="swiglu", recipe=recipe, state=states)
        near_float32(report, f"mlp swiglu {name}", ours, plain_swiglu, arrays, dy, 0.15 if recipe else 0.02)
    x, logits, w_in, w_out, dy = moe.operands(4, 700, 12, 272, 400)
    ours = lambda x, a, b: kbj.moe(x, logits, a, b, 3, recipe=kbj.BlockScaling())
    near_float32(report, "moe block", ours, lambda x, a, b: moe.exact(x, logits, a, b, 3), (x, w_in, w_out), dy, 0.15)


# ---- fast ----

def plain(x, w1, b1, w2, b2):
    return jax.nn.gelu(x @ w1 + b1) @ w2 + b2


def plain_swiglu(x, w1, b1, w2, b2):
    gate, value = jnp.split(x @ w1 + b1, 2, -1)
    return (jax.nn.silu(gate) * value) @ w2 + b2


def coded(x, dtype):
    """(codes, scale) by the largest magnitude."""
    largest = jnp.finfo(dtype).max.astype(jnp.float32)
    scale = jnp.maximum(jnp.abs(x).max().astype(jnp.float32), 1e-30) / largest
    return jnp.clip(x.astype(jnp.float32) / scale, -largest, largest).astype(dtype), scale


def fp8_dot(x, y, contract):
    """A product of codes as XLA takes it; with both scales at once behind it."""
    d = jax.lax.dot_general(x[0], y[0], (contract, ((), ())), preferred_element_type=jnp.bfloat16)
    return d * (x[1] * y[1]).astype(d.dtype)


@jax.custom_vjp
def plain_product(x, w):
    return fp8_dot(coded(x, E4M3), coded(w, E4M3), ((1,), (0,)))


def _plain_product_forward(x, w):
    x, w = coded(x, E4M3), coded(w, E4M3)
    return fp8_dot(x, w, ((1,), (0,))), (x, w)


def _plain_product_backward(saved, dy):
    x, w = saved
    dy = coded(dy, E5M2)
    return fp8_dot(dy, w, ((1,), (1,))), fp8_dot(x, dy, ((0,), (0,)))


plain_product.defvjp(_plain_product_forward, _plain_product_backward)


def plain_fp8(x, w1, b1, w2, b2):
    return plain_product(jax.nn.gelu(plain_product(x, w1) + b1), w2) + b2


def stepped(function, with_state):
    """Result and every gradient, the next state among them."""
    def step(x, w1, b1, w2, b2, dy, states):
        call = (lambda *a: function(*a[:5], state=a[5])) if with_state else (lambda *a: function(*a[:5]))
        y, pull = jax.vjp(call, x, w1, b1, w2, b2, states)
        return y, pull(dy)
    return step


def block_step(report, activation="gelu"):
    tokens, features, hidden = BLOCK
    wide = hidden if activation == "gelu" else 2 * hidden
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    bf16 = lambda key, scale, *shape: (jax.random.normal(key, shape, jnp.float32) * scale).astype(jnp.bfloat16)
    x, dy = bf16(keys[0], 1.0, tokens, features), bf16(keys[1], 1e-3, tokens, features)
    w1, w2 = bf16(keys[2], features ** -0.5, features, wide), bf16(keys[3], hidden ** -0.5, hidden, features)
    arrays = [x, w1, jnp.zeros(wide, jnp.bfloat16), w2, jnp.zeros(features, jnp.bfloat16), dy]
    delayed = RECIPES["delayed"]
    states = state_of(delayed, x, w1, dy), state_of(delayed, x, w2, dy)
    ours = functools.partial(kbj.mlp, activation=activation)
    if activation == "gelu":
        sides = {"jax.jit bf16": stepped(plain, False), "jax.jit fp8": stepped(plain_fp8, False), "kbj bf16": stepped(ours, False)}
    else:
        sides = {"jax.jit bf16": stepped(plain_swiglu, False), "kbj bf16": stepped(ours, False)}
    for name, recipe in RECIPES.items():
        sides["kbj " + name] = stepped(functools.partial(ours, recipe=recipe), name == "delayed")
    chains, results = {}, {}
    for name, step in sides.items():
        try:
            results[name] = jax.block_until_ready(jax.jit(step)(*arrays, states)[1][1][:64].astype(jnp.float32))
            chains[name] = chain.chained(step)
            jax.block_until_ready(chains[name](*arrays, states))
        except Exception as error:
            chains.pop(name, None)
            report.hold(f"step {activation} {name}", False, str(error)[:2000])
    times = chain.in_turns(chains, [*arrays, states], rounds=ROUNDS)
    work, base = 6 * tokens * features * (wide + hidden), times["jax.jit bf16"]
    off = lambda name: float(jnp.linalg.norm(results[name] - results["jax.jit bf16"]) / jnp.linalg.norm(results["jax.jit bf16"]))
    report.table(f"A step of mlp with {activation}, {tokens} x {features} x {hidden}, forward and backward",
                 ["by", "ms", "PFLOP/s of the products", "times jax.jit's speed in bf16", "dw1 off jax.jit's, root of the mean square"],
                 [[name, f"{us / 1e3:.2f}", f"{work / us / 1e9:.3f}", f"{base / us:.2f}", f"{off(name):.1e}"] for name, us in times.items()])
    for name in RECIPES:
        if "kbj " + name in times:
            report.bar(f"step with {activation} by recipe {name}, ahead of jax.jit in bf16", base / times["kbj " + name], AHEAD, at_least=True)


def experts_step(report):
    """A layer of experts in FP8 beside itself in bfloat16."""
    given = moe.operands(7, moe.TOKENS, moe.EXPERTS, moe.WIDTH, moe.HIDDEN)
    in_fp8 = lambda x, logits, w_in, w_out, k: kbj.moe(x, logits, w_in, w_out, k, recipe=kbj.BlockScaling())
    sides = {"bf16": moe.ours, "block": in_fp8}
    us = chain.in_turns({name: chain.chained(moe.with_gradients(layer, moe.K), 2) for name, layer in sides.items()}, given, calls=2, rounds=ROUNDS)
    report.table(f"ms of forward and backward of kbj.moe, {moe.TOKENS} tokens, k {moe.K} of {moe.EXPERTS} experts, {moe.WIDTH} x {moe.HIDDEN} gated",
                 ["by", "ms", "times the speed of bf16"], [[name, f"{one / 1e3:.2f}", f"{us['bf16'] / one:.2f}"] for name, one in us.items()])
    report.bar("moe by recipe block, ahead of itself in bf16", us["bf16"] / us["block"], EXPERTS_AHEAD, at_least=True)


def main():
    report = Report("fp8_dense")
    report.fact("seed", drawn.seed())
    kbundle.use(str(BUNDLE))
    check_layers(report)
    check_gates_and_experts(report)
    block_step(report)
    block_step(report, "swiglu")
    experts_step(report)
    report.finish()


if __name__ == "__main__":
    main()
