"""The quantize ops in plain JAX, as a user writes them today: what kbundle is timed beside."""

import jax
import jax.numpy as jnp

MOST = 448.0  # of e4m3
MOST_E5M2 = 57344.0


def cast(x, scale, dtype=jnp.float8_e4m3fn, most=MOST):
    wide = x.astype(jnp.float32)
    return jnp.clip(wide * scale, -most, most).astype(dtype), jnp.max(jnp.abs(wide)), 1 / scale


def cast_transpose(x, scale):
    q, amax, scale_inv = cast(x, scale)
    return q, q.T, amax, scale_inv


def cast_transpose_dbias(x, scale):
    return *cast_transpose(x, scale), jnp.sum(x.astype(jnp.float32), axis=0).astype(x.dtype)


def current(x):
    amax = jnp.max(jnp.abs(x)).astype(jnp.float32)
    return cast(x, jnp.where((amax > 0) & jnp.isfinite(amax), MOST / amax, 1.0))


def dequantize(q, scale_inv):
    return (q.astype(jnp.float32) * scale_inv).astype(jnp.bfloat16)


def per_group(x):
    m, k = x.shape
    blocks = jnp.pad(x.astype(jnp.float32), ((0, 0), (0, -k % 128))).reshape(m, -1, 128)
    scale_inv = jnp.maximum(jnp.max(jnp.abs(blocks), axis=2), 1e-4) / MOST
    q = jnp.clip(blocks * (1 / scale_inv)[:, :, None], -MOST, MOST).astype(jnp.float8_e4m3fn)
    return q.reshape(m, -1)[:, :k], scale_inv


def per_tile(x):
    m, n = x.shape
    blocks = jnp.pad(x.astype(jnp.float32), ((0, -m % 128), (0, -n % 128))).reshape(-(-m // 128), 128, -(-n // 128), 128)
    scale_inv = jnp.maximum(jnp.max(jnp.abs(blocks), axis=(1, 3)), 1e-4) / MOST
    q = jnp.clip(blocks * (1 / scale_inv)[:, None, :, None], -MOST, MOST).astype(jnp.float8_e4m3fn)
    return q.reshape(-(-m // 128) * 128, -1)[:m, :n], scale_inv


def groups_both(x):
    return *per_group(x), *per_group(x.T)


def groups_and_tiles(x):
    codes, scales = per_tile(x)
    return *per_group(x), codes.T, scales.T


def tiles_both(x):
    codes, scales = per_tile(x)
    return codes, scales, codes.T, scales.T


def groups_both_dbias(x):
    return *groups_both(x), jnp.sum(x.astype(jnp.float32), axis=0).astype(x.dtype)


def gelu_blocks(x):
    return groups_and_tiles(jax.nn.gelu(x[:, 0].astype(jnp.float32)).astype(x.dtype))


def swiglu_blocks(x):
    wide = x.astype(jnp.float32)
    return groups_and_tiles((jax.nn.silu(wide[:, 0]) * wide[:, 1]).astype(x.dtype))


def dgelu_blocks(dy, x):
    return groups_both_dbias(through(jax.nn.gelu, dy, [x[:, 0]]))


def dswiglu_blocks(dy, x):
    return groups_both(through(lambda z, gate: jax.nn.silu(z) * gate, dy, [x[:, 0], x[:, 1]]))


def through(function, dy, halves):
    """The gradient by each half of x, beside one another, in dy's dtype."""
    made = jax.vjp(function, *[half.astype(jnp.float32) for half in halves])[1](dy.astype(jnp.float32))
    return jnp.concatenate(made, axis=1).astype(dy.dtype)


def mx(blocks, axis):
    """A power of two for each block, by the exponent: as good as rounding up from 2^-126 on."""
    _, exponent = jnp.frexp(jnp.max(jnp.abs(blocks), axis=axis, keepdims=True) * (1 / MOST))
    q = jnp.clip(jnp.ldexp(blocks, -exponent), -MOST, MOST).astype(jnp.float8_e4m3fn)
    return q, (exponent + 127).astype(jnp.uint8)


def mx_both(x):
    m, n = x.shape
    wide = jnp.pad(x.astype(jnp.float32), ((0, -m % 32), (0, -n % 32)))
    rows, row_scales = mx(wide.reshape(wide.shape[0], -1, 32), 2)
    columns, column_scales = mx(wide.reshape(-1, 32, wide.shape[1]), 1)
    return rows.reshape(wide.shape)[:m, :n], row_scales, columns.reshape(wide.shape)[:m, :n], column_scales


def swiglu(x, scale):
    wide = x.astype(jnp.float32)
    return cast(jax.nn.silu(wide[:, 0]) * wide[:, 1], scale)


def swiglu_transpose(x, scale):
    q, amax, scale_inv = swiglu(x, scale)
    return q, q.T, amax, scale_inv


def gradient(function, dy, halves, scale, dtype):
    """The gradient by each half of x, in FP8, and of its transpose, with its sums."""
    made = jax.vjp(function, *[half.astype(jnp.float32) for half in halves])[1](dy.astype(jnp.float32))
    dz = jnp.concatenate(made, axis=1)
    q, amax, scale_inv = cast(dz, scale, jnp.float8_e5m2, MOST_E5M2)
    return q, q.T, amax, scale_inv, jnp.sum(dz, axis=0).astype(dtype)


def dgelu_transpose_dbias(dy, x, scale):
    return gradient(jax.nn.gelu, dy, [x[:, 0]], scale, dy.dtype)


def dswiglu_transpose(dy, x, scale):
    return gradient(lambda z, gate: jax.nn.silu(z) * gate, dy, [x[:, 0], x[:, 1]], scale, dy.dtype)[:4]


def of_rows(numbers, sizes, rows):
    """Each row's number, 0 of rows of no group."""
    padded, counts = jnp.append(numbers, 0.0), jnp.append(sizes, rows - jnp.sum(sizes))
    return jnp.repeat(padded, counts, total_repeat_length=rows)[:, None]


def largest_of_groups(x, sizes):
    row_of = jnp.repeat(jnp.arange(len(sizes) + 1), jnp.append(sizes, len(x) - jnp.sum(sizes)), total_repeat_length=len(x))
    return jnp.maximum(jax.ops.segment_max(jnp.max(jnp.abs(x), axis=1).astype(jnp.float32), row_of, len(sizes) + 1)[:-1], 0)


def grouped(x, sizes, scale):
    q = jnp.clip(x.astype(jnp.float32) * of_rows(scale, sizes, len(x)), -MOST, MOST).astype(jnp.float8_e4m3fn)
    return q, largest_of_groups(x, sizes), 1 / scale


def grouped_transpose(x, sizes, scale):
    q, amax, scale_inv = grouped(x, sizes, scale)
    return q, q.T, amax, scale_inv


def grouped_current(x, sizes):
    amax = largest_of_groups(x, sizes)
    return grouped(x, sizes, jnp.where((amax > 0) & jnp.isfinite(amax), MOST / amax, 1.0))
