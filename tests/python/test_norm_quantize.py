"""Promise: kbj.quantize_rms_norm and quantize_layer_norm give the codes that the plain formula and a cast give, but for numbers beside a
tie, by one scale and by groups, with what a backward pass needs; what has no gradient, or no scale, says so."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj
from python.test_quantize_activation import steps_apart

pytestmark = pytest.mark.usefixtures("platform", "kernels")


def made(dtype, *shape, kind="rms", residual=False):
    """Operands, and what the norm makes of them in float32."""
    rng = np.random.default_rng(sum(shape))
    draw = lambda *dims: jnp.asarray(rng.standard_normal(dims) + 0.5, dtype)
    x, gamma, beta, more = draw(*shape), draw(shape[-1]), draw(shape[-1]), draw(*shape)
    wide = x.astype(jnp.float32) + (more.astype(jnp.float32) if residual else 0)
    mu = wide.mean(-1, keepdims=True) if kind == "layer" else 0.0
    rsigma = jax.lax.rsqrt(((wide - mu) ** 2).mean(-1, keepdims=True) + 1e-6)
    y = (wide - mu) * rsigma * gamma.astype(jnp.float32) + (beta.astype(jnp.float32) if kind == "layer" else 0)
    return (x, gamma, *([beta] if kind == "layer" else [])), dict(residual=more) if residual else {}, np.asarray(y), np.asarray(rsigma)[..., 0]


def near(found, wanted):
    apart = steps_apart(found, wanted)
    assert found.shape == wanted.shape and apart.max() <= 1 and (apart != 0).mean() < 0.01


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("shape", [(3, 5, 136), (33, 77)], ids=str)
def test_codes_by_one_scale(kind, dtype, shape):
    arrays, how, y, rsigma = made(dtype, *shape, kind=kind, residual=len(shape) == 3)
    function = getattr(kbj, f"quantize_{kind}_norm")
    found = jax.jit(lambda *a: function(*a, scale=20.0, transposed=True, **how))(*arrays)
    wanted = np.clip(y * 20, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    near(found.data, wanted)
    near(found.transposed, wanted.reshape(-1, shape[-1]).T)
    np.testing.assert_allclose(found.amax, np.abs(y).max(), rtol=1e-5)
    np.testing.assert_allclose(found.rsigma, rsigma, rtol=1e-5)
    assert found.scale_inv == np.float32(1) / np.float32(20) and (found.mu is None) == (kind == "rms") and (found.sum is None) == (not how)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_codes_by_groups(kind):
    arrays, how, y, _ = made(jnp.bfloat16, 9, 300, kind=kind)
    found = jax.jit(lambda *a: getattr(kbj, f"quantize_{kind}_norm")(*a, dtype=jnp.float8_e5m2, groups=True))(*arrays)
    blocks = np.pad(y, ((0, 0), (0, 84))).reshape(9, 3, 128)
    scale_inv = np.abs(blocks).max(-1) / np.float32(57344)
    np.testing.assert_allclose(found.scale_inv, scale_inv, rtol=1e-5)
    near(found.data, (blocks / scale_inv[..., None]).reshape(9, 384)[:, :300].astype(ml_dtypes.float8_e5m2))
    assert found.amax is None and found.transposed is None
    powers = kbj.quantize_rms_norm(*arrays[:2], groups=True, power_of_two=True).scale_inv
    assert np.all(np.frexp(np.asarray(powers))[0] == 0.5)


def test_what_cannot_be_says_what_to_do():
    (x, gamma), _, _, _ = made(jnp.bfloat16, 4, 16)
    with pytest.raises(ValueError, match="no scale; give one .f32 scalar., or groups=True"):
        kbj.quantize_rms_norm(x, gamma)
    with pytest.raises(ValueError, match="groups have scales of their own"):
        kbj.quantize_rms_norm(x, gamma, 2.0, groups=True)
    with pytest.raises(ValueError, match="transposed=True needs one scale"):
        kbj.quantize_layer_norm(x, gamma, groups=True, transposed=True)
    with pytest.raises(ValueError, match=r"gamma has shape \(3,\); for x of shape \(4, 16\) it must be \(16,\)"):
        kbj.quantize_rms_norm(x, gamma[:3], 2.0)
    with pytest.raises(TypeError, match="x is int32"):
        kbj.quantize_rms_norm(x.astype(jnp.int32), gamma, 2.0)
    with pytest.raises(kbundle.Error, match="FP8 codes have no gradient"):
        jax.grad(lambda x: kbj.quantize_rms_norm(x, gamma, 2.0).rsigma.sum())(x)
