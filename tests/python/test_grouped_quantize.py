"""Promise: kbj.grouped_quantize gives each group of rows the codes, the scale and the largest magnitude that kbj.quantize gives the group
alone, whatever the sizes on the device are, and one compiled program serves all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj

pytestmark = pytest.mark.usefixtures("platform", "kernels")
ROWS = 150


def given(dtype, columns=72):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.standard_normal((ROWS, columns)) * 2.0 ** rng.integers(-9, 9, (ROWS, 1)), dtype)


def bits(codes):
    return np.asarray(codes).view(np.uint8)


def check(x, sizes, scale, found, dtype=jnp.float8_e4m3fn):
    first, data = 0, np.zeros(x.shape, np.uint8)
    for group, size in enumerate(np.maximum(np.asarray(sizes, np.int64), 0)):
        last = min(first + size, ROWS)
        alone = kbj.quantize(x[first:last], dtype, None if scale is None else scale[group])
        data[first:last] = bits(alone.data)
        assert found.amax[group] == alone.amax and found.scale_inv[group] == alone.scale_inv
        first = last
    for codes, right in ((found.data, data), (found.transposed, data.T)):
        if codes is not None:
            assert codes.dtype == dtype
            np.testing.assert_array_equal(bits(codes), right)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("columns", [72, 7])
def test_each_group_is_quantized_as_if_alone(dtype, columns):
    x = given(dtype, columns)
    scale = jnp.asarray([0.5, 3.0, 20.0, 1.0], jnp.float32)
    for by in (None, scale):
        program = jax.jit(lambda x, sizes: kbj.grouped_quantize(x, sizes, by, transposed=True))
        for sizes in ([40, 0, 61, 49], [ROWS, 0, 0, 0], [10, 20, 30, 40], [-7, 100, 2**31 - 1, 5], [0, 0, 0, 0]):
            check(x, sizes, by, program(x, jnp.asarray(sizes, jnp.int32)))
        assert program._cache_size() == 1


def test_layouts_and_the_other_format():
    x, sizes = given(jnp.bfloat16), jnp.asarray([33, 60, 50])
    for layout, absent in ((dict(), "transposed"), (dict(transposed=True, rowwise=False), "data")):
        found = kbj.grouped_quantize(x, sizes, None, jnp.float8_e5m2, **layout)
        assert getattr(found, absent) is None
        check(x, sizes, None, found, jnp.float8_e5m2)


def test_nothing_is_no_trouble():
    for shape, groups in (((0, 8), 3), ((8, 0), 3), ((8, 8), 0)):
        found = kbj.grouped_quantize(jnp.ones(shape), jnp.zeros(groups, jnp.int32), transposed=True)
        assert found.data.shape == shape and found.transposed.shape == shape[::-1] and found.amax.shape == (groups,)
        assert not np.any(bits(found.data)) and not np.any(np.asarray(found.amax)) and np.all(np.asarray(found.scale_inv) == 1)


def test_codes_are_operands_of_grouped_products():
    """x in FP8 by groups, times matrices in FP8, is near to the product of what was quantized."""
    rng = np.random.default_rng(1)
    x, w = jnp.asarray(rng.standard_normal((ROWS, 64)), jnp.bfloat16), jnp.asarray(rng.standard_normal((3, 64, 32)), jnp.bfloat16)
    sizes = jnp.asarray([50, 0, 80], jnp.int32)
    made = kbj.grouped_quantize(x, sizes)
    scales = made.scale_inv[jnp.repeat(jnp.arange(3), sizes, total_repeat_length=ROWS)][:, None]
    y = jax.lax.ragged_dot(made.data.astype(jnp.float32) * scales, w.astype(jnp.float32), sizes)
    right = jax.lax.ragged_dot(x.astype(jnp.float32), w.astype(jnp.float32), sizes)
    assert jnp.linalg.norm(y - right) < 0.04 * jnp.linalg.norm(right)


def test_what_it_has_no_gradient_of_and_wrong_arguments_are_named():
    x, sizes = jnp.ones((4, 8)), jnp.asarray([1, 3])
    with pytest.raises(kbundle.Error, match="grouped_quantize: FP8 codes have no gradient"):
        jax.grad(lambda x: kbj.grouped_quantize(x, sizes).amax.sum())(x)
    for wrong, message in ((lambda: kbj.grouped_quantize(x[0], sizes), r"grouped_quantize: x has shape \(8,\); it needs to be \[M, N\]"),
                           (lambda: kbj.grouped_quantize(x, sizes * 1.0), r"group_sizes is float32\[2\]; it needs to be int32\[G\]"),
                           (lambda: kbj.grouped_quantize(x, sizes, 1.0), r"scale has shape \(\); for 2 groups it needs to be \(2,\)"),
                           (lambda: kbj.grouped_quantize(x, sizes, None, jnp.int8), "grouped_quantize: dtype"),
                           (lambda: kbj.grouped_quantize(x, sizes, transposed=1), "grouped_quantize: transposed"),
                           (lambda: kbj.grouped_quantize(x, sizes, rowwise=False), "rowwise and transposed are both False")):
        with pytest.raises(ValueError, match=message):
            wrong()
