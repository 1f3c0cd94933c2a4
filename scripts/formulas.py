"""The softmax and norm ops as a JAX user would write them: what kbundle is compared with, and made-up inputs."""

import jax
import jax.numpy as jnp
import numpy as np

SCALE = 0.125


def scaled(x):
    return jax.nn.softmax(x.astype(jnp.float32) * SCALE, axis=-1).astype(x.dtype)


def masked(x, mask):
    logits = jnp.where(mask != 0, -10000.0, x.astype(jnp.float32) * SCALE)
    dropped = jnp.max(logits, axis=-1, keepdims=True) == -10000.0
    return jnp.where(dropped, 0.0, jax.nn.softmax(logits, axis=-1)).astype(x.dtype)


def causal(x):
    keep = jnp.tril(jnp.ones(x.shape[-2:], bool))
    logits = jnp.where(keep, x.astype(jnp.float32) * SCALE, -jnp.inf)
    return jax.nn.softmax(logits, axis=-1).astype(x.dtype)


def backward(dy, y):
    dy32, y32 = dy.astype(jnp.float32), y.astype(jnp.float32)
    dot = jnp.sum(dy32 * y32, axis=-1, keepdims=True)
    return (SCALE * y32 * (dy32 - dot)).astype(dy.dtype)


def causal_backward(dy, y):
    return backward(dy, y) * jnp.tril(jnp.ones(dy.shape[-2:], dy.dtype))


def rms_norm(x, gamma):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6) * gamma.astype(jnp.float32)).astype(x.dtype)


def layer_norm(x, gamma):
    wide = x.astype(jnp.float32)
    centered = wide - jnp.mean(wide, -1, keepdims=True)
    by = jax.lax.rsqrt(jnp.mean(centered * centered, -1, keepdims=True) + 1e-6)
    return (centered * by * gamma.astype(jnp.float32)).astype(x.dtype)


def gradients(function):
    """(value, gradients) of a function of x and gamma, at those and the gradient of its value."""
    def run(x, gamma, dy):
        y, pull = jax.vjp(function, x, gamma)
        return y, *pull(dy)
    return run


def inputs(kind, dtype, shape, seed=0):
    random = np.random.default_rng(seed)
    x = jnp.asarray(random.standard_normal(shape, np.float32) * 4, dtype)
    if kind.startswith("x gamma"):
        rest = [shape[-1:], *([shape] if kind.endswith("dy") else [])]
        return x, *(jnp.asarray(random.standard_normal(dims, np.float32) + 1, dtype) for dims in rest)
    if kind == "x":
        return (x,)
    if kind == "x mask":
        mask_shape = (shape[0], 1) + shape[2:]
        return x, jnp.asarray(random.random(mask_shape, np.float32) < 0.3, jnp.uint8)
    dy = jnp.asarray(random.standard_normal(shape, np.float32), dtype)
    return dy, (causal if kind == "dy y causal" else scaled)(x)


# op -> (plain formula, which operands)
OPS = {
    "softmax.scaled_forward": (scaled, "x"),
    "softmax.scaled_masked_forward": (masked, "x mask"),
    "softmax.scaled_causal_forward": (causal, "x"),
    "softmax.scaled_backward": (backward, "dy y"),
    "softmax.scaled_masked_backward": (backward, "dy y"),
    "softmax.scaled_causal_backward": (causal_backward, "dy y causal"),
}
