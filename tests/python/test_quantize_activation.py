"""Promise: kbj.quantize_activation gives the codes that jax.nn's activations and a cast give, but for numbers beside a tie, in any layout,
and the largest magnitude of what the activation made."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj

pytestmark = pytest.mark.usefixtures("platform", "kernels")
FORMULAS = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=True), "silu": jax.nn.silu, "relu": jax.nn.relu, "squared_relu": lambda x: jax.nn.relu(x) ** 2,
    "geglu": lambda x, g: jax.nn.gelu(x, approximate=True) * g, "swiglu": lambda x, g: jax.nn.silu(x) * g, "reglu": lambda x, g: jax.nn.relu(x) * g,
    "clamped_swiglu": lambda x, g: jnp.minimum(x, 2.0) * jax.nn.sigmoid(1.5 * jnp.minimum(x, 2.0)) * (jnp.clip(g, -2.0, 2.0) + 0.5)}
GATED = ("geglu", "swiglu", "reglu", "clamped_swiglu")
CLAMPED = dict(limit=2.0, alpha=1.5, offset=0.5)


def made(name, dtype, *lead):
    """x, and what the activation makes of it in float32."""
    shape = (*lead, 2, 72) if name in GATED else (*lead, 72)
    x = jnp.asarray(np.random.default_rng(0).standard_normal(shape) * 2, dtype)
    wide = x.astype(jnp.float32)
    return x, np.asarray(FORMULAS[name](wide[..., 0, :], wide[..., 1, :]) if name in GATED else FORMULAS[name](wide))


def steps_apart(found, wanted):
    """How many codes lie between FP8 numbers."""
    order = lambda codes: np.where(codes & 0x80, -(codes & 0x7f).astype(int), (codes & 0x7f).astype(int))
    return np.abs(order(np.asarray(found).view(np.uint8)) - order(np.asarray(wanted).view(np.uint8)))


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_codes_are_those_of_the_formula(name, dtype):
    x, y = made(name, dtype, 3, 11)
    wanted = np.clip(y * 20, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    for layout in (dict(), dict(transposed=True), dict(transposed=True, rowwise=False)):
        found = jax.jit(lambda x: kbj.quantize_activation(x, name, 20.0, **layout, **CLAMPED))(x)
        np.testing.assert_allclose(found.amax, np.abs(y).max(), rtol=1e-5)
        assert found.scale_inv == np.float32(1) / np.float32(20) and found.dbias is None
        assert (found.data is None) == ("rowwise" in layout) and (found.transposed is None) == (not layout)
        for codes, right in ((found.data, wanted), (found.transposed, wanted.reshape(33, 72).T)):
            if codes is not None:
                apart = steps_apart(codes, right)
                assert codes.shape == right.shape and apart.max() <= 1 and (apart != 0).mean() < 0.01


def test_the_other_format_and_any_size():
    x, y = made("swiglu", jnp.bfloat16, 5)
    found = kbj.quantize_activation(x, "swiglu", 3.0, jnp.float8_e5m2)
    assert found.data.dtype == jnp.float8_e5m2
    assert steps_apart(found.data, (y * 3).astype(ml_dtypes.float8_e5m2)).max() <= 1
    empty = kbj.quantize_activation(jnp.zeros((0, 2, 8)), "swiglu", 3.0)
    assert empty.data.shape == (0, 8) and empty.amax == 0


def test_nan_and_infinity_are_seen():
    x = jnp.asarray([[1.0, np.nan, np.inf, 2.0]])
    found = kbj.quantize_activation(x, "relu", 1.0)
    assert np.isnan(found.amax) and np.isnan(np.asarray(found.data, np.float32)[0, 1]) and float(found.data[0, 2]) == 448


def test_what_it_has_no_gradient_of_and_wrong_arguments_are_named():
    x = jnp.ones((4, 2, 8))
    with pytest.raises(kbundle.Error, match="quantize_activation: FP8 codes have no gradient"):
        jax.grad(lambda x: kbj.quantize_activation(x, "swiglu", 1.0).amax)(x)
    for wrong, message in ((lambda: kbj.quantize_activation(x, "tanh", 1.0), "quantize_activation: activation is 'tanh'"),
                           (lambda: kbj.quantize_activation(x[:, 0], "swiglu", 1.0), r"x has shape \(4, 8\); swiglu is of x\[..., 2, H\]"),
                           (lambda: kbj.quantize_activation(x, "gelu", jnp.ones(2)), "quantize_activation: scale has shape"),
                           (lambda: kbj.quantize_activation(x, "gelu", 1.0, limit="2"), "quantize_activation: limit"),
                           (lambda: kbj.quantize_activation(x, "gelu", 1.0, rowwise=False), "rowwise and transposed are both False")):
        with pytest.raises(ValueError, match=message):
            wrong()
