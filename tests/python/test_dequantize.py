"""Promise: kbj.dequantize_blocks, kbj.dequantize_mxfp8 and kbj.grouped_dequantize give the numbers that codes stand for, of any shape, with any
scales, and say what does not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj

pytestmark = pytest.mark.usefixtures("platform", "kernels")
E4M3, E5M2, E8M0 = jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e8m0fnu


def codes(*shape, dtype=E4M3, seed=0):
    """Of any bits but those of NaN and infinities."""
    bits = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    made = bits.view(np.dtype(dtype))
    return np.where(np.isfinite(made.astype(np.float32)), made, np.zeros((), made.dtype))


def powers(*shape, seed=1):
    """All of e8m0's but NaN."""
    return np.random.default_rng(seed).integers(0, 255, shape, np.uint8).view(np.dtype(E8M0))


def wide(array):
    return np.asarray(array).astype(np.float64)


def rounded(exact, dtype):
    with np.errstate(over="ignore"):
        return np.where(np.abs(exact) < float(jnp.finfo(jnp.float32).smallest_normal), 0, exact).astype(np.float32).astype(np.dtype(dtype))


def same(found, exact, dtype):
    """Numbers below the least normal one may be zero: XLA's CPU threads have none of these."""
    found, wanted = np.asarray(found), rounded(exact, dtype)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    least = float(jnp.finfo(jnp.dtype(dtype)).smallest_normal)
    normal = ~(np.abs(exact) < least)
    np.testing.assert_array_equal(found[normal], wanted[normal])
    assert (np.abs(found[~normal].astype(np.float64)) <= least).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("fp8", [E4M3, E5M2])
@pytest.mark.parametrize("shape", [(131, 264), (3, 5, 128), (1, 1), (0, 40), (256, 100)])
def test_codes_of_blocks(dtype, fp8, shape):
    data, rng = codes(*shape, dtype=fp8), np.random.default_rng(2)
    rows, columns = int(np.prod(shape[:-1])), shape[-1]
    for block, scales in (((1, 128), "rows"), ((1, 128), "columns"), ((128, 128), "rows")):
        scale_inv = rng.uniform(0.01, 2, (-(-rows // block[0]), -(-columns // 128))).astype(np.float32)
        each = np.repeat(np.repeat(scale_inv, block[0], 0), 128, 1)[:rows, :columns].reshape(shape)
        lying = scale_inv if scales == "rows" else np.pad(scale_inv.T, ((0, 0), (0, -rows % 4)), constant_values=np.nan)
        found = jax.jit(lambda d, s: kbj.dequantize_blocks(d, s, dtype, block, scales=scales))(data, lying)
        same(found, (wide(data).astype(np.float32) * each).astype(np.float64), dtype)


@pytest.mark.parametrize("columnwise", [False, True])
@pytest.mark.parametrize("fp8", [E4M3, E5M2])
@pytest.mark.parametrize("shape", [(131, 264), (2, 5, 40), (1, 1), (128, 128)])
def test_codes_of_mxfp8_with_every_power(columnwise, fp8, shape):
    data = codes(*shape, dtype=fp8)
    rows, columns = int(np.prod(shape[:-1])), shape[-1]
    up = lambda size, to: -(-size // to) * to
    scales = powers(up(-(-rows // 32), 4), up(columns, 128)) if columnwise else powers(up(rows, 128), up(-(-columns // 32), 4))
    each = np.repeat(scales, 32, 0 if columnwise else 1)[:rows, :columns].reshape(shape)
    for dtype in (jnp.float32, jnp.bfloat16):
        same(jax.jit(lambda d, s: kbj.dequantize_mxfp8(d, s, dtype, columnwise=columnwise))(data, scales), wide(data) * wide(each), dtype)
    scales.reshape(-1)[0] = np.nan
    found = np.asarray(kbj.dequantize_mxfp8(data, scales, columnwise=columnwise)).reshape(rows, columns)
    block = (min(rows, 32), 1) if columnwise else (1, min(columns, 32))
    assert np.isnan(found[:block[0], :block[1]]).all() and np.isnan(found).sum() == block[0] * block[1]


@pytest.mark.parametrize("sizes", [[3, 0, 5], [-4, 2], [100, 7], [2**31 - 1, 2**31 - 1, 5], [0], []])
def test_codes_of_groups_of_rows(sizes):
    data = codes(11, 24)
    scale_inv = np.arange(1, len(sizes) + 1, dtype=np.float32)
    wanted, row = np.zeros((11, 24)), 0
    for size, scale in zip(sizes, scale_inv):
        end = min(11, row + max(0, size))
        wanted[row:end] = wide(data[row:end]) * scale
        row = end
    same(jax.jit(kbj.grouped_dequantize)(data, np.array(sizes, np.int32), scale_inv), wanted, jnp.float32)


def test_they_undo_what_quantizes():
    x = jnp.asarray(np.random.default_rng(3).standard_normal((70, 300)), jnp.float32)
    near = lambda found: np.testing.assert_allclose(found, x, rtol=0.07, atol=0.02)
    near(kbj.dequantize_blocks(*kbj.quantize_blocks(x)))
    near(kbj.dequantize_blocks(*kbj.quantize_blocks(x, scales="columns"), scales="columns"))
    near(kbj.dequantize_blocks(*kbj.quantize_blocks(x, block=(128, 128)), block=(128, 128)))
    both = kbj.quantize_block_transpose(x)
    near(kbj.dequantize_blocks(both.transposed, both.transposed_scale_inv, scales="columns").T)
    made = kbj.quantize_mxfp8(x, columnwise=True)
    near(kbj.dequantize_mxfp8(made.data, made.scales))
    near(kbj.dequantize_mxfp8(made.column_data, made.column_scales, columnwise=True))
    grouped = kbj.grouped_quantize(x, jnp.array([30, 40], jnp.int32))
    near(kbj.grouped_dequantize(grouped.data, jnp.array([30, 40], jnp.int32), grouped.scale_inv))


def test_scales_have_gradients_and_codes_none():
    data, scale_inv = jnp.asarray(codes(4, 128)), jnp.ones((4, 1), jnp.float32)
    gradient = jax.grad(lambda s: kbj.dequantize_blocks(data, s).sum())(scale_inv)
    np.testing.assert_allclose(gradient[:, 0], wide(data).sum(1), rtol=1e-5)
    with pytest.raises(kbundle.Error, match="FP8 codes have no gradient"):
        jax.jvp(lambda d: kbj.dequantize_blocks(d, scale_inv), (data,), (data,))


@pytest.mark.parametrize("wrong, says", [
    (lambda d: kbj.dequantize_blocks(d, jnp.ones((4, 2))), r"scale_inv has shape \(4, 2\).*needs to be \(4, 1\)"),
    (lambda d: kbj.dequantize_blocks(d, jnp.ones((1, 1)), block=(64, 64)), r"block"),
    (lambda d: kbj.dequantize_blocks(d, jnp.ones((1, 1)), block=(128, 128), scales="columns"), "scales"),
    (lambda d: kbj.dequantize_blocks(d.astype(jnp.float32), jnp.ones((4, 1))), "float8_e4m3fn or float8_e5m2"),
    (lambda d: kbj.dequantize_blocks(d, jnp.ones((4, 1)), jnp.int8), "float32, float16 or bfloat16"),
    (lambda d: kbj.dequantize_mxfp8(d, jnp.ones((128, 4))), "float8_e8m0fnu"),
    (lambda d: kbj.dequantize_mxfp8(d, jnp.ones((4, 4), E8M0)), r"needs to be \(128, 4\)"),
    (lambda d: kbj.grouped_dequantize(d, jnp.array([4]), jnp.ones(2)), r"needs to be \(1,\)"),
    (lambda d: kbj.grouped_dequantize(d, jnp.array([4.0]), jnp.ones(1)), "int32"),
])
def test_what_does_not_fit_is_said(wrong, says):
    with pytest.raises((ValueError, TypeError, kbundle.Error), match=says):
        wrong(jnp.asarray(codes(4, 128)))
