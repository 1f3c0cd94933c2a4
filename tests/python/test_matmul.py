"""Promise: kbj.matmul, kbj.dense and kbj.mlp mean what plain JAX formulas say, gradients included, under every transform."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from jax.test_util import check_grads

import kbundle.jax as kbj
from python.formula import same_partial, value_and_gradients, wide

TOLERANCE = {np.dtype("float32"): 2e-5, np.dtype("float16"): 4e-3, np.dtype(jnp.bfloat16): 3e-2}
ACTIVATIONS = {None: lambda y: y, "relu": jax.nn.relu, "gelu": jax.nn.gelu}


@pytest.fixture(autouse=True)
def exact_products(platform, kernels):
    """Formulas and the op in float32, also where the default is TF32."""
    with jax.default_matmul_precision("highest"):
        yield


def values(*shape, seed=0, dtype=np.float32):
    rng = np.random.default_rng([seed, *shape])
    return jnp.asarray(rng.normal(size=shape) / np.sqrt(max(shape[-1:] or (1,))), dtype)


def near(found, wanted, dtype):
    """Within the dtype's tolerance, relative to the largest of all."""
    tolerance = TOLERANCE[np.dtype(dtype)]
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape
    scale = max(1e-3, np.abs(wanted).max()) if wanted.size else 1
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * scale)


def check(function, formula, *arrays):
    """Value and gradients against the formula in float32, with random cotangents."""
    weights = wide(values(*jax.eval_shape(formula, *arrays).shape, seed=7))
    found, (wanted, expected) = jax.jit(function)(*arrays), value_and_gradients(formula, weights, *map(wide, arrays))
    assert found.dtype == arrays[0].dtype
    near(found, wanted, found.dtype)
    loss = lambda *a: (function(*a).astype(jnp.float32) * weights).sum()
    for array, found, wanted in zip(arrays, jax.jit(jax.grad(loss, tuple(range(len(arrays)))))(*arrays), expected):
        assert found.dtype == array.dtype
        near(found, wanted, array.dtype)


def product(a, b, trans_a, trans_b):
    swapped = lambda trans, array: jnp.swapaxes(array, -1, -2) if trans else array
    return swapped(trans_a, a) @ swapped(trans_b, b)


def layer(x, w, b=0, activation=None):
    return ACTIVATIONS[activation](x @ w + b)


def two_layers(x, w, b, v, c, activation):
    return layer(x, w, b, activation) @ v + c


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("trans_a, trans_b", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("lead_a, lead_b", [((), ()), ((3,), (3,)), ((2, 3), ()), ((), (3,)), ((2, 1), (3,))])
def test_matmul(lead_a, lead_b, trans_a, trans_b, dtype):
    a = values(*lead_a, *((24, 16) if trans_a else (16, 24)), dtype=dtype)
    b = values(*lead_b, *((40, 24) if trans_b else (24, 40)), dtype=dtype, seed=1)
    check(lambda a, b: kbj.matmul(a, b, trans_a=trans_a, trans_b=trans_b),
          same_partial(product, trans_a=trans_a, trans_b=trans_b), a, b)


@pytest.mark.parametrize("a, b", [((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((2, 4, 5), (5,)), ((5,), (2, 5, 3)),
                                  ((1, 1), (1, 1)), ((33, 65), (65, 7)), ((0, 4), (4, 3)), ((2, 0), (0, 3)), ((0, 2, 3), (3, 4))])
def test_shapes_are_those_of_jnp_matmul(a, b):
    check(kbj.matmul, jnp.matmul, values(*a), values(*b, seed=1))


def test_alpha_promotion_and_out_dtype():
    a, b = values(8, 16), values(16, 24, seed=1)
    check(lambda a, b: kbj.matmul(a, b, alpha=-0.5), lambda a, b: -0.5 * (a @ b), a, b)
    narrow = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    found = kbj.matmul(*narrow, out_dtype=jnp.float32)
    assert found.dtype == jnp.float32
    near(found, narrow[0].astype(jnp.float32) @ narrow[1].astype(jnp.float32), jnp.float32)
    assert kbj.matmul(narrow[0], b).dtype == jnp.float32
    # Libraries write float32 sums of these: what is asked for is rounded once.
    for one, out in [(a, jnp.bfloat16), (a, jnp.float16), (narrow[0], jnp.float16)]:
        found, other = kbj.matmul(one, b.astype(one.dtype), out_dtype=out), kbj.matmul(one, b.astype(one.dtype), out_dtype=jnp.float32)
        assert found.dtype == out and (found == other.astype(out)).all()
        assert jax.grad(lambda one: kbj.matmul(one, b.astype(one.dtype), out_dtype=out).astype(jnp.float32).sum())(one).dtype == one.dtype
    gradient = jax.grad(lambda a: kbj.matmul(a, narrow[1], out_dtype=jnp.float32).sum())(narrow[0])
    near(gradient, jnp.broadcast_to(narrow[1].astype(jnp.float32).sum(1), (8, 16)), jnp.bfloat16)


@pytest.mark.parametrize("dtypes", [("float8_e4m3fn", "float8_e4m3fn"), ("float8_e5m2", "float8_e4m3fn")])
@pytest.mark.parametrize("fast", [False, True])
def test_fp8_with_scales_on_the_device(dtypes, fast):
    a, b = values(32, 64).astype(dtypes[0]), values(48, 64, seed=1).astype(dtypes[1])
    wanted = 3 * a.astype(jnp.float32) @ b.astype(jnp.float32).T
    call = lambda a, b, s: kbj.matmul(a, b, trans_b=True, a_scale=s, b_scale=2 * s, fast_accumulation=fast)
    found = jax.jit(call)(a, b, jnp.sqrt(jnp.float32(1.5)))
    assert found.dtype == jnp.bfloat16
    near(found, wanted, jnp.bfloat16)
    with pytest.raises(NotImplementedError, match="FP8"):
        jax.grad(lambda s: call(a, b, s).astype(jnp.float32).sum())(1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("shape, features", [((16, 32), 48), ((2, 3, 40), 136), ((8,), 8)])
def test_dense(shape, features, activation, dtype):
    x, w = values(*shape, dtype=dtype), values(shape[-1], features, dtype=dtype, seed=1)
    bias = values(features, dtype=dtype, seed=2)
    formula = same_partial(layer, activation=activation)
    check(lambda x, w: kbj.dense(x, w, activation=activation), formula, x, w)
    check(lambda x, w, b: kbj.dense(x, w, b, activation), formula, x, w, bias)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize("hidden", [64, 50])  # rows of whole vectors, and others
def test_mlp(hidden, activation, dtype):
    arrays = [values(2, 9, 32, dtype=dtype), values(32, hidden, dtype=dtype, seed=1), values(hidden, dtype=dtype, seed=2),
              values(hidden, 24, dtype=dtype, seed=3), values(24, dtype=dtype, seed=4)]
    check(lambda *a: kbj.mlp(*a, activation), same_partial(two_layers, activation=activation), *arrays)
    x, w, _, v, _ = arrays
    check(lambda x, w, v: kbj.mlp(x, w, None, v, None, activation), lambda x, w, v: two_layers(x, w, 0, v, 0, activation), x, w, v)


def test_layers_without_rows_or_features():
    for shape, weight in (((0, 4), (4, 3)), ((2, 0), (0, 3)), ((2, 4), (4, 0))):
        x, w, b = values(*shape), values(*weight), values(weight[1])
        check(lambda x, w, b: kbj.dense(x, w, b, "gelu"), lambda x, w, b: jax.nn.gelu(x @ w + b), x, w, b)


def test_gradients_are_finite_differences():
    x, w, b, v, c = values(6, 8), values(8, 16, seed=1), values(16, seed=2), values(16, 8, seed=3), values(8, seed=4)
    near_by = dict(order=1, modes=["rev"], eps=1e-2, rtol=5e-3, atol=5e-3)
    check_grads(lambda x, w: kbj.matmul(x, w), (x, w), **near_by)
    check_grads(lambda x, w, b: kbj.dense(x, w, b, "gelu"), (x, w, b), **near_by)
    check_grads(lambda *a: kbj.mlp(*a, "gelu"), (x, w, b, v, c), **near_by)


def test_vmap():
    x, w, b = values(3, 6, 8), values(3, 8, 16, seed=1), values(3, 16, seed=2)
    check(jax.vmap(kbj.matmul), jax.vmap(jnp.matmul), x, w)
    check(jax.vmap(kbj.matmul, (0, None)), jax.vmap(jnp.matmul, (0, None)), x, w[0])
    layer = lambda x, w, b: kbj.dense(x, w, b, "gelu")
    formula = lambda x, w, b: jax.nn.gelu(x @ w + b)
    check(jax.vmap(layer, (0, None, None)), jax.vmap(formula, (0, None, None)), x, w[0], b[0])
    check(jax.vmap(layer), jax.vmap(formula), x, w, b)
    check(jax.vmap(jax.vmap(layer, (0, None, None))), jax.vmap(jax.vmap(formula, (0, None, None))), x, w, b)


def two_devices():
    devices = jax.devices(jax.config.jax_default_device.platform)
    if len(devices) < 2:
        pytest.skip("two devices are needed")
    return Mesh(np.array(devices[:2]), ("d",))


def test_shard_map_over_rows_and_over_features():
    mesh, rows, columns, whole = two_devices(), PartitionSpec("d"), PartitionSpec(None, "d"), PartitionSpec()
    x, w, b = values(8, 16), values(16, 32, seed=1), values(32, seed=2)
    layer, formula = lambda x, w, b: kbj.dense(x, w, b, "gelu"), lambda x, w, b: jax.nn.gelu(x @ w + b)
    over = functools.partial(jax.shard_map, mesh=mesh)
    check(over(layer, in_specs=(rows, whole, whole), out_specs=rows), formula, x, w, b)
    check(over(layer, in_specs=(whole, columns, rows), out_specs=columns), formula, x, w, b)
    check(over(kbj.matmul, in_specs=(rows, whole), out_specs=rows), jnp.matmul, x, w)
    v = values(32, 8, seed=3)
    split = lambda x, w, b, v: jax.lax.psum(kbj.mlp(x, w, b, v, None), "d")  # its hidden features
    check(over(split, in_specs=(whole, columns, rows, rows), out_specs=whole),
          lambda x, w, b, v: formula(x, w, b) @ v, x, w, b, v)


def test_precision_is_part_of_the_call():
    a = values(4, 4)
    attributes = lambda **how: str(jax.make_jaxpr(lambda a: kbj.matmul(a, a, **how))(a))
    assert "ieee" in attributes() and "tf32" not in attributes()
    assert "tf32" in attributes(precision="tf32")
    assert "ieee" in attributes(precision=jax.lax.Precision.HIGHEST)
    with jax.default_matmul_precision("default"):
        assert "tf32" in attributes()


@pytest.mark.parametrize("call, error, words", [
    (lambda: kbj.matmul(values(2, 3), values(4, 5)), ValueError, r"3 columns and op\(b\) 4 rows"),
    (lambda: kbj.matmul(values(3), values(3, 2), trans_a=True), ValueError, "vector has no axes"),
    (lambda: kbj.matmul(np.float32(1), values(3, 2)), ValueError, "scalar"),
    (lambda: kbj.matmul(np.ones((2, 2), np.int32), np.ones((2, 2), np.int32)), TypeError, "int32.*astype"),
    (lambda: kbj.matmul(values(2, 2), values(2, 2), a_scale=2.0), TypeError, "scales are for FP8"),
    (lambda: kbj.matmul(values(16, 16).astype(jnp.float8_e5m2), values(16, 16)), TypeError, "both FP8"),
    (lambda: kbj.dense(values(2, 3), values(3, 4), activation="silu"), ValueError, "'silu'"),
    (lambda: kbj.dense(values(2, 3), values(3, 4), values(3)), ValueError, r"bias has shape \(3,\)"),
    (lambda: kbj.dense(values(2, 3), values(4, 4)), ValueError, "do not fit"),
    (lambda: kbj.mlp(values(2, 3), values(3, 4), None, values(5, 2), None), ValueError, "do not fit"),
    (lambda: kbj.mlp(values(2, 3), values(3, 4), None, values(4, 2), None, None), ValueError, "activation"),
])
def test_errors_say_what_does_not_fit(call, error, words):
    with pytest.raises(error, match=words):
        call()
