"""Promise: kbj.quantize_activation_gradient gives the codes that jax.vjp of jax.nn's activations and a cast give, but for numbers beside a
tie, in any layout, the sums of their columns and their largest magnitude; and the example of quantize_activation trains."""

import inspect
import textwrap

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj
from python.test_quantize_activation import CLAMPED, FORMULAS, GATED, steps_apart

pytestmark = pytest.mark.usefixtures("platform", "kernels")


def made(name, dtype, *lead):
    """dy, x, and the gradient by x in float32. No x is at a limit, where JAX takes the mean of both sides."""
    rng = np.random.default_rng(0)
    shape = (*lead, 2, 72) if name in GATED else (*lead, 72)
    x, dy = jnp.asarray(rng.standard_normal(shape) * 2, dtype), jnp.asarray(rng.standard_normal((*lead, 72)), dtype)
    x = jnp.where(jnp.abs(x) == CLAMPED["limit"], jnp.ones_like(x), x)
    wide = x.astype(jnp.float32)
    halves = [wide[..., 0, :], wide[..., 1, :]] if name in GATED else [wide]
    gradients = jax.vjp(FORMULAS[name], *halves)[1](dy.astype(jnp.float32))
    return dy, x, np.asarray(jnp.stack(gradients, -2) if name in GATED else gradients[0])


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_codes_are_those_of_the_derivative(name, dtype):
    dy, x, dz = made(name, dtype, 3, 11)
    wanted = np.clip(dz * 20, -57344, 57344).astype(ml_dtypes.float8_e5m2)
    far = np.abs(dz) > 1e-3  # nearer to 0 the formula of gelu cancels in float32
    for layout in (dict(), dict(transposed=True, dbias=True), dict(transposed=True, rowwise=False)):
        found = jax.jit(lambda dy, x: kbj.quantize_activation_gradient(dy, x, name, 20.0, **layout, **CLAMPED))(dy, x)
        np.testing.assert_allclose(found.amax, np.abs(dz).max(), rtol=1e-5)
        assert found.scale_inv == np.float32(1) / np.float32(20)
        assert [a is None for a in (found.data, found.transposed, found.dbias)] == ["rowwise" in layout, not layout, "dbias" not in layout]
        for codes, turned in ((found.data, lambda a: a), (found.transposed, lambda a: a.reshape(33, -1).T)):
            if codes is not None:
                apart = steps_apart(codes, turned(wanted)) * turned(far)
                assert codes.shape == turned(wanted).shape and apart.max() <= 1 and (apart != 0).mean() < 0.01
        if found.dbias is not None:
            assert found.dbias.dtype == dtype and found.dbias.shape == x.shape[2:]
            np.testing.assert_allclose(np.asarray(found.dbias, np.float32), dz.sum((0, 1)), rtol=1e-2, atol=2e-3 if dtype != jnp.float32 else 1e-4)


def test_the_other_format_and_any_size():
    dy, x, dz = made("swiglu", jnp.bfloat16, 5)
    found = kbj.quantize_activation_gradient(dy, x, "swiglu", 3.0, jnp.float8_e4m3fn)
    assert found.data.dtype == jnp.float8_e4m3fn
    assert steps_apart(found.data, (dz * 3).astype(ml_dtypes.float8_e4m3fn)).max() <= 1
    for rows, columns in ((0, 8), (3, 0)):
        dy, x = jnp.zeros((rows, columns)), jnp.zeros((rows, 2, columns))
        empty = kbj.quantize_activation_gradient(dy, x, "swiglu", 3.0, transposed=True, dbias=True)
        assert empty.data.shape == (rows, 2, columns) and empty.transposed.shape == (2 * columns, rows) and empty.amax == 0
        assert empty.dbias.shape == (2, columns) and not np.any(np.asarray(empty.dbias))


def test_nan_and_infinity_are_seen():
    x, dy = jnp.asarray([[1.0, 2.0, -1.0, 3.0]]), jnp.asarray([[1.0, np.nan, 5.0, np.inf]])
    found = kbj.quantize_activation_gradient(dy, x, "relu", 1.0, jnp.float8_e4m3fn)
    assert np.isnan(found.amax)
    np.testing.assert_array_equal(np.asarray(found.data, np.float32)[0], [1.0, np.nan, 0.0, 448.0])


def test_far_out_a_derivative_is_0_or_1():
    x = jnp.asarray([[1e4, -1e4, 1e20, -1e20, np.inf, -np.inf]])
    for name in ("gelu", "silu", "relu"):
        found = kbj.quantize_activation_gradient(jnp.ones_like(x), x, name, 1.0)
        np.testing.assert_array_equal(np.asarray(found.data, np.float32), [[1, 0, 1, 0, 1, 0]])


def test_the_example_of_quantize_activation_trains():
    """Its derivatives are those of the layer in float32, as near as FP8 of 3 and 2 bits is."""
    text = inspect.getdoc(kbj.quantize_activation)
    example = {"kbj": kbj, "jax": jax, "jnp": jnp}
    exec(textwrap.dedent(text[text.index("    def dot"):]), example)
    rng = np.random.default_rng(1)
    x, w1, w2 = (jnp.asarray(rng.standard_normal(shape), jnp.bfloat16) * size for shape, size in (((64, 32), 1), ((32, 96), 0.2), ((96, 16), 0.1)))
    plain = lambda x, w1, w2: jax.nn.gelu(x @ w1) @ w2
    d = jnp.asarray(rng.standard_normal((64, 16)), jnp.bfloat16)
    wide = [a.astype(jnp.float32) for a in (x, w1, w2)]
    for found, right in zip(jax.vjp(example["mlp"], x, w1, w2)[1](d), jax.vjp(plain, *wide)[1](d.astype(jnp.float32))):
        assert found.shape == right.shape
        assert jnp.linalg.norm(found.astype(jnp.float32) - right) < 0.12 * jnp.linalg.norm(right)


def test_what_it_has_no_gradient_of_and_wrong_arguments_are_named():
    dy, x = jnp.ones((4, 8)), jnp.ones((4, 2, 8))
    where = kbj.quantize_activation_gradient
    with pytest.raises(kbundle.Error, match="quantize_activation_gradient: FP8 codes have no gradient"):
        jax.grad(lambda dy: where(dy, x, "swiglu", 1.0).amax)(dy)
    for wrong, message in ((lambda: where(dy, x, "tanh", 1.0), "quantize_activation_gradient: activation is 'tanh'"),
                           (lambda: where(dy, x, "gelu", 1.0), r"dy is float32\[4, 8\]; for x of shape \(4, 2, 8\) it needs .* float32\[4, 2, 8\]"),
                           (lambda: where(dy.astype(jnp.bfloat16), x, "swiglu", 1.0), r"dy is bfloat16\[4, 8\]; .* needs to be float32\[4, 8\]"),
                           (lambda: where(dy, dy, "swiglu", 1.0), r"x has shape \(4, 8\); swiglu is of x\[..., 2, H\]"),
                           (lambda: where(dy, x, "swiglu", jnp.ones(2)), "quantize_activation_gradient: scale has shape"),
                           (lambda: where(dy, x, "swiglu", 1.0, dbias=1), "quantize_activation_gradient: dbias"),
                           (lambda: where(dy, x, "swiglu", 1.0, rowwise=False), "rowwise and transposed are both False")):
        with pytest.raises(ValueError, match=message):
            wrong()
