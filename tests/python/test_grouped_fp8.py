"""Promise: kbj.scaled_grouped_matmul is the product of what codes and scales stand for, and kbj.fp8_grouped_matmul that of its operands
as they are rounded, with the gradients of the plain product within FP8's rounding, for any sizes and under every transform."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle.jax as kbj
from python.grouped_check import formula, values

SIZES = [(5, 0, 150, 4), (200, 0, 0, 0), (-3, 70, -1, 50), (2 ** 31 - 1, 2 ** 31 - 1, 2 ** 31 - 1, 1), (0, 0, 0, 0)]


@pytest.fixture(autouse=True)
def exact_products(platform, kernels):
    with jax.default_matmul_precision("highest"):
        yield


def near(found, wanted, within):
    """By the largest number of all."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=within * max(1e-3, np.abs(wanted).max(initial=0)))


def stretched(scales, axis, size):
    return jnp.take(jnp.repeat(scales, 128, axis), jnp.arange(size), axis)


@pytest.mark.parametrize("scales", ["rows", "columns", "tensor"])
@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2])
@pytest.mark.parametrize("m, k, n", [(200, 264, 136), (33, 130, 7), (6, 16, 8)])
def test_codes_with_scales(scales, dtype, m, k, n):
    sizes, groups = jnp.int32((m // 2, 0, m // 3)), 3
    lhs, rhs, bias = values(m, k).astype(dtype), values(groups, n, k, seed=1).astype(jnp.float8_e4m3fn), values(groups, n, seed=2)
    if scales == "tensor":
        of_lhs, of_rhs = jnp.float32(0.3), jnp.float32([0.2, 3, 1.5])
        wide_lhs, wide_rhs = of_lhs, of_rhs[:, None, None]
    else:
        of_lhs, of_rhs = jnp.abs(values(m, -(-k // 128))) + 0.1, jnp.abs(values(groups, -(-n // 128), -(-k // 128))) + 0.1
        wide_lhs, wide_rhs = stretched(of_lhs, 1, k), stretched(stretched(of_rhs, 1, n), 2, k)
        if scales == "columns":
            of_lhs = jnp.pad(of_lhs.T, ((0, 0), (0, -m % 4)), constant_values=jnp.nan)
    wanted = formula(lhs.astype(jnp.float32) * wide_lhs, jnp.swapaxes(rhs.astype(jnp.float32) * wide_rhs, 1, 2), sizes, bias)
    call = jax.jit(functools.partial(kbj.scaled_grouped_matmul, scales=scales, preferred_element_type=jnp.float32))
    near(call(lhs, rhs, sizes, of_lhs, of_rhs, bias=bias), wanted, 2e-6)
    narrow = kbj.scaled_grouped_matmul(lhs, rhs, sizes, of_lhs, of_rhs, scales=scales, bias=bias)
    assert narrow.dtype == jnp.bfloat16
    near(narrow, wanted, 8e-3)


def rounded(x, tile):
    """What x is once quantized by 128 elements of a row or tiles of 128 x 128."""
    q, scale = kbj.quantize_blocks(x, block=(128, 128) if tile else (1, 128))
    scale = stretched(scale, 1, x.shape[1])
    return q.astype(jnp.float32) * (stretched(scale, 0, x.shape[0]) if tile else scale)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_operands_are_rounded_to_fp8(sizes, transpose, dtype):
    m, k, n, sizes = 200, 144, 136, jnp.int32(sizes)
    lhs, rhs, bias = values(m, k, dtype=dtype), values(4, k, n, seed=1, dtype=dtype), values(4, n, seed=2, dtype=dtype)
    given = jnp.swapaxes(rhs, 1, 2) if transpose else rhs
    turned = lambda rhs: jnp.swapaxes(rhs, 1, 2) if transpose else rhs
    call = lambda lhs, rhs, bias: kbj.fp8_grouped_matmul(lhs, rhs, sizes, bias=bias, transpose_rhs=transpose)
    codes = jnp.stack([rounded(w, True) for w in rhs])
    found = jax.jit(call)(lhs, given, bias)
    assert found.dtype == dtype
    near(found, formula(rounded(lhs, False), codes, sizes, bias), 2e-6 if dtype == np.float32 else 8e-3)
    dy = values(m, n, seed=3, dtype=dtype)
    dlhs, drhs, dbias = jax.jit(lambda *a: jax.vjp(call, *a)[1](dy))(lhs, given, bias)
    plain = jax.vjp(lambda lhs, rhs, bias: formula(lhs, turned(rhs), sizes, bias).astype(dtype), lhs, given, bias)[1](dy)
    near(dlhs, formula(rounded(dy, False), jnp.swapaxes(codes, 1, 2), sizes), 2e-6 if dtype == np.float32 else 8e-3)
    near(dlhs, plain[0], 0.06)
    near(drhs, plain[1], 1e-5 if dtype == np.float32 else 2e-2)
    near(dbias, plain[2], 1e-5 if dtype == np.float32 else 2e-2)
    assert dlhs.dtype == drhs.dtype == dbias.dtype == dtype


def test_gradients_may_be_e5m2_and_results_float32():
    lhs, rhs, sizes = values(40, 128, dtype=jnp.bfloat16), values(2, 128, 64, seed=1, dtype=jnp.bfloat16), jnp.int32((30, 10))
    call = lambda lhs: kbj.fp8_grouped_matmul(lhs, rhs, sizes, jnp.float32, gradient_dtype=jnp.float8_e5m2, power_of_two=True)
    y, back = jax.vjp(call, lhs)
    assert y.dtype == jnp.float32
    near(y, formula(lhs, rhs, sizes), 0.06)
    near(back(y)[0], jax.vjp(lambda lhs: formula(lhs, rhs, sizes), lhs)[1](y)[0], 0.12)


@pytest.mark.parametrize("rows, k, n, groups", [(0, 4, 3, 2), (5, 0, 3, 2), (5, 4, 0, 2), (1, 1, 1, 1)])
def test_shapes(rows, k, n, groups):
    lhs, rhs, bias, sizes = values(rows, k), values(groups, k, n, seed=1), values(groups, n, seed=2), jnp.full(groups, rows, jnp.int32)
    near(kbj.fp8_grouped_matmul(lhs, rhs, sizes, bias=bias), formula(lhs, rhs, sizes, bias), 0.1)


def test_vmap_and_one_program_for_all_sizes():
    lhs, rhs = values(3, 20, 24), values(4, 24, 40, seed=1)
    sizes = jnp.int32([(5, 0, 11, 4), (20, 0, 0, 0), (0, 0, 0, 0)])
    call = jax.jit(kbj.fp8_grouped_matmul)
    near(jax.jit(jax.vmap(kbj.fp8_grouped_matmul, (0, None, 0)))(lhs, rhs, sizes),
         jnp.stack([call(lhs[i], rhs, sizes[i]) for i in range(3)]), 1e-6)
    assert call._cache_size() == 1


@pytest.mark.parametrize("change, error, words", [
    ({"lhs": values(20, 24)}, TypeError, "float8_e4m3fn or float8_e5m2"),
    ({"rhs": values(4, 40, 24).astype(jnp.float8_e5m2)}, TypeError, "rhs float8_e4m3fn"),
    ({"lhs_scale_inv": jnp.ones((20, 2))}, ValueError, "lhs_scale_inv has shape (20, 2); it must be (20, 1)"),
    ({"lhs_scale_inv": jnp.ones((20, 1)), "scales": "columns"}, ValueError, "must be (1, 20)"),
    ({"rhs_scale_inv": jnp.ones((4, 1, 2))}, ValueError, "rhs_scale_inv has shape (4, 1, 2); it must be (4, 1, 1)"),
    ({"rhs_scale_inv": jnp.ones(3), "lhs_scale_inv": 1.0, "scales": "tensor"}, ValueError, "it must be (4,)"),
    ({"scales": "tiles"}, ValueError, "'rows', 'columns' or 'tensor'"),
    ({"preferred_element_type": jnp.float16}, ValueError, "bfloat16 or float32"),
    ({"bias": jnp.ones((4, 24))}, ValueError, "it must be (4, 40)"),
    ({"group_sizes": jnp.int32([20])}, ValueError, "int32[4]"),
])
def test_what_does_not_fit_is_refused_by_name(change, error, words):
    given = {"lhs": values(20, 24).astype(jnp.float8_e4m3fn), "rhs": values(4, 40, 24).astype(jnp.float8_e4m3fn),
             "group_sizes": jnp.int32((5, 0, 11, 4)), "lhs_scale_inv": jnp.ones((20, 1)), "rhs_scale_inv": jnp.ones((4, 1, 1))} | change
    with pytest.raises(error) as raised:
        kbj.scaled_grouped_matmul(**given)
    assert words in str(raised.value)


def test_codes_have_no_gradient():
    lhs, rhs = values(20, 24).astype(jnp.float8_e4m3fn), values(4, 40, 24).astype(jnp.float8_e4m3fn)
    call = lambda scale: kbj.scaled_grouped_matmul(lhs, rhs, jnp.int32((5, 0, 11, 4)), scale, jnp.ones((4, 1, 1))).sum()
    with pytest.raises(Exception, match="FP8 codes have no gradient"):
        jax.grad(lambda s: call(s).astype(jnp.float32))(jnp.ones((20, 1)))
    with pytest.raises(TypeError, match="bfloat16 or float32"):
        kbj.fp8_grouped_matmul(values(20, 24, dtype=np.float16), values(4, 24, 40, dtype=np.float16), jnp.int32((5, 0, 11, 4)))
