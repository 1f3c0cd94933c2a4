"""Promise: kbj.quantize and its like give the codes, scales and sums that the formulas say, in any layout, under jit and vmap, and
say what they have no gradient of."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj

pytestmark = pytest.mark.usefixtures("platform", "kernels")
MOST = {jnp.float8_e4m3fn: 448.0, jnp.float8_e5m2: 57344.0}
FLOATS = [jnp.float32, jnp.float16, jnp.bfloat16]


def values(*shape, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 6, shape), dtype)


def codes(x, scale, dtype):
    """By NumPy: a product in float32, its bounds, and ml_dtypes' rounding."""
    product = np.asarray(x, np.float32) * np.float32(scale)
    return np.clip(product, -MOST[dtype], MOST[dtype]).astype(np.dtype(dtype)).view(np.uint8)


def current_scale(x, dtype):
    return np.float32(MOST[dtype]) / np.abs(np.asarray(x, np.float32)).max()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fp8", MOST)
@pytest.mark.parametrize("scale", [None, 3.7])
def test_every_layout_has_the_same_codes(dtype, fp8, scale):
    x = values(3, 5, 40, dtype=dtype)
    by = current_scale(x, fp8) if scale is None else scale
    wanted = codes(x, by, fp8)
    for layout in (dict(), dict(transposed=True), dict(transposed=True, rowwise=False), dict(dbias=True), dict(transposed=True, dbias=True)):
        found = jax.jit(lambda x: kbj.quantize(x, fp8, scale, **layout))(x)
        assert (found.data is None) == (layout.get("rowwise") is False)
        if found.data is not None:
            assert found.data.dtype == fp8
            np.testing.assert_array_equal(np.asarray(found.data).view(np.uint8), wanted)
        assert (found.transposed is None) == ("transposed" not in layout)
        if found.transposed is not None:
            np.testing.assert_array_equal(np.asarray(found.transposed).view(np.uint8), wanted.reshape(15, 40).T)
        assert found.amax.shape == found.scale_inv.shape == () and found.amax == np.abs(np.asarray(x, np.float32)).max()
        assert found.scale_inv == np.float32(1) / np.float32(by)
        assert (found.dbias is None) == ("dbias" not in layout)
        if found.dbias is not None:
            assert found.dbias.dtype == dtype
            sums = np.asarray(x, np.float64).reshape(15, 40).sum(axis=0)
            np.testing.assert_allclose(np.asarray(found.dbias, np.float64), sums, rtol=2 * float(jnp.finfo(dtype).eps), atol=1e-4)


def test_a_scale_may_come_from_the_device():
    x = values(4, 8)
    found = jax.jit(kbj.quantize, static_argnums=1)(x, jnp.float8_e4m3fn, jnp.full((1,), 2.0))
    np.testing.assert_array_equal(np.asarray(found.data).view(np.uint8), codes(x, 2.0, jnp.float8_e4m3fn))


@pytest.mark.parametrize("x, amax, scale_inv", [
    ([0.0, -0.0], 0.0, 1.0), ([1.0, np.inf], np.inf, 1.0), ([1.0, np.nan], np.nan, 1.0), ([1e-40, 0.0], None, None), ([3e38, 1.0], None, None)])
def test_strange_tensors_have_a_scale(x, amax, scale_inv):
    found = kbj.quantize(jnp.asarray(x, jnp.float32))
    if amax is not None:
        np.testing.assert_array_equal(found.amax, np.float32(amax))
        assert found.scale_inv == scale_inv
    assert np.isfinite(found.scale_inv) and found.scale_inv > 0
    back = np.asarray(kbj.dequantize(found.data, found.scale_inv))
    assert np.isnan(back[1]) == np.isnan(x[1])
    if np.isinf(x[1]):
        assert back[1] == 448


@pytest.mark.parametrize("rows, columns", [(0, 8), (8, 0), (1, 1), (17, 3)])
def test_any_size_is_taken(rows, columns):
    x = values(rows, columns, dtype=jnp.bfloat16)
    found = kbj.quantize(x, scale=1.0, transposed=True, dbias=True)
    assert found.data.shape == (rows, columns) and found.transposed.shape == (columns, rows) and found.dbias.shape == (columns,)
    np.testing.assert_array_equal(np.asarray(found.transposed, np.float32), np.asarray(found.data, np.float32).T)
    assert found.amax == np.abs(np.asarray(x, np.float32)).max(initial=0) and found.scale_inv == 1
    if rows == 0:
        assert not np.asarray(found.dbias, np.float32).any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fp8", MOST)
def test_all_codes_come_back(dtype, fp8):
    data = jnp.asarray(np.arange(256, dtype=np.uint8).view(np.dtype(fp8)).reshape(2, 128))
    found = jax.jit(lambda q: kbj.dequantize(q, 0.3, dtype))(data)
    wanted = (np.asarray(data, np.float32) * np.float32(0.3)).astype(np.dtype(dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found, np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_subnormal_numbers_count(dtype):
    """XLA's threads take them for 0; codes are the same on every platform and in every framework."""
    x = np.ldexp(np.arange(-20, 20, dtype=np.float32), -130).reshape(1, -1).astype(dtype)
    made = jax.jit(lambda x: kbj.quantize(x, scale=2.0 ** 126))(x)
    wanted = codes(x, 2.0 ** 126, jnp.float8_e4m3fn)
    np.testing.assert_array_equal(np.asarray(made.data).view(np.uint8), wanted)
    assert (wanted & 0x7f).any()


def test_a_batch_is_quantized_one_by_one():
    x = values(3, 4, 6)
    found = jax.vmap(lambda x: kbj.quantize(x, transposed=True))(x)
    for i in range(3):
        alone = kbj.quantize(x[i], transposed=True)
        for batched, single in zip(jax.tree.leaves(found), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(np.asarray(batched[i], np.float32), np.asarray(single, np.float32))
    back = jax.vmap(kbj.dequantize)(found.data, found.scale_inv)
    np.testing.assert_array_equal(back[1], kbj.dequantize(found.data[1], found.scale_inv[1]))


def test_straight_through_training_sees_the_rounding():
    x = values(5, 7, dtype=jnp.bfloat16)
    made = kbj.quantize(x)
    y, gradient = jax.value_and_grad(lambda x: (kbj.fake_quantize(x).astype(jnp.float32) * 2).sum())(x)
    rounded = kbj.dequantize(made.data, made.scale_inv, jnp.bfloat16)
    np.testing.assert_array_equal(np.asarray(kbj.fake_quantize(x)), np.asarray(rounded))
    np.testing.assert_allclose(y, 2 * np.asarray(rounded, np.float32).sum(), rtol=1e-5)
    assert gradient.dtype == x.dtype and (np.asarray(gradient, np.float32) == 2).all()
    assert jax.grad(lambda s: kbj.fake_quantize(x, scale=s).astype(jnp.float32).sum())(2.0) == 0


def test_what_has_no_gradient_says_so():
    for function in (lambda x: kbj.quantize(x).amax, lambda x: kbj.quantize(x, transposed=True).scale_inv):
        with pytest.raises(kbundle.Error, match="quantize: FP8 codes have no gradient.*fake_quantize"):
            jax.grad(function)(values(3, 4))


def test_the_largest_magnitude_of_any_shape():
    assert kbj.amax(jnp.float32(-3)) == 3
    assert jax.jit(kbj.amax)(values(2, 3, 50, dtype=jnp.float16)) == np.abs(np.asarray(values(2, 3, 50, dtype=jnp.float16), np.float32)).max()
    assert np.isnan(kbj.amax(jnp.asarray([1.0, np.nan, np.inf])))


@pytest.mark.parametrize("fp8", MOST)
@pytest.mark.parametrize("algorithm", ["max", "most_recent"])
def test_delayed_scaling_follows_a_history(fp8, algorithm):
    length, tensors, rng = 5, 3, np.random.default_rng(1)
    history, scale = jnp.zeros((tensors, length)), jnp.ones(tensors)
    step = jax.jit(lambda *state: kbj.update_fp8_scale(*state, fp8, margin=1, algorithm=algorithm))
    seen = []
    for number in range(9):
        now = np.abs(rng.standard_normal(tensors)).astype(np.float32) * np.array([1, 100, 0 if number else 1], np.float32)
        seen.append(now)
        before = np.asarray(scale)
        history, scale, scale_inv = step(history, jnp.asarray(now), scale)
        last = seen[-length:] if number >= length else seen
        largest = now if algorithm == "most_recent" else np.max(last, axis=0)
        with np.errstate(divide="ignore"):
            wanted = np.where(largest > 0, np.float32(MOST[fp8]) / largest / np.float32(2), before)
        np.testing.assert_array_equal(scale, wanted)
        np.testing.assert_array_equal(scale_inv, np.float32(1) / wanted)


def test_wrong_arguments_are_named():
    x = jnp.ones((2, 3))
    for wrong, message in ((lambda: kbj.quantize(x, jnp.int8), "quantize: dtype is .*float8_e4m3fn or float8_e5m2"),
                           (lambda: kbj.quantize(x, rowwise=False), "quantize: rowwise and transposed are both False"),
                           (lambda: kbj.quantize(x, scale=jnp.ones(2)), r"quantize: scale has shape \(2,\); it is one number"),
                           (lambda: kbj.quantize(1.0), r"quantize: x has shape \(\)"),
                           (lambda: kbj.quantize(x, transposed=1), "quantize: transposed is 1"),
                           (lambda: kbj.dequantize(x, 1.0), "dequantize: the dtype of data is 'float32'; it must be float8_e4m3fn or"),
                           (lambda: kbj.dequantize(x.astype(jnp.float8_e4m3fn), 1.0, "float"), "dequantize: dtype is 'float'; it must be float32, "),
                           (lambda: kbj.dequantize(x.astype(jnp.float8_e4m3fn), None), "dequantize: scale_inv is None; it must be one number"),
                           (lambda: kbj.quantize_activation(x, "gelu", None), "quantize_activation: scale is None; it must be one number"),
                           (lambda: kbj.update_fp8_scale(x, jnp.ones(3), jnp.ones(2)), "update_fp8_scale: history has shape"),
                           (lambda: kbj.update_fp8_scale(x, jnp.ones(2), jnp.ones(2), algorithm="mean"), "update_fp8_scale: algorithm")):
        with pytest.raises(ValueError, match=message):
            wrong()


def test_halves_round_to_the_even_code():
    """448 is the largest; between two codes a tie goes to the even one; half the smallest subnormal number to 0."""
    x = jnp.asarray([1.0625, 1.1875, 2.0**-10, 3 * 2.0**-10, 464.0, 1e9])
    found = np.asarray(kbj.quantize(x, scale=1.0).data, np.float32)
    np.testing.assert_array_equal(found, [1.0, 1.25, 0.0, 2 * 2.0**-9, 448.0, 448.0])
    assert ml_dtypes.finfo(jnp.float8_e4m3fn).max == 448
