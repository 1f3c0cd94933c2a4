"""Promise: kbj.grouped_matmul is jax.lax.ragged_dot, gradients included, for any sizes and under every transform."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from jax.test_util import check_grads

import kbundle.jax as kbj
from python.grouped_check import formula, values

TOLERANCE = {np.dtype("float32"): 2e-5, np.dtype("float16"): 4e-3, np.dtype(jnp.bfloat16): 3e-2}


@pytest.fixture(autouse=True)
def exact_products(platform, kernels):
    with jax.default_matmul_precision("highest"):
        yield


def near(found, wanted, dtype):
    tolerance = TOLERANCE[np.dtype(dtype)]
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(1e-3, np.abs(wanted).max(initial=0)))


def check(function, formula, *arrays):
    """Value and gradients against the formula, with random cotangents."""
    weights = values(*jax.eval_shape(formula, *arrays).shape, seed=7)
    found = jax.jit(function)(*arrays)
    near(found, formula(*arrays), arrays[0].dtype)
    every = tuple(range(len(arrays)))
    of = lambda f: jax.jit(jax.grad(lambda *a: (f(*a).astype(jnp.float32) * weights).sum(), every))(*arrays)
    for array, found, wanted in zip(arrays, of(function), of(formula)):
        assert found.dtype == array.dtype
        near(found, wanted, array.dtype)


SIZES = [(5, 0, 11, 4), (20, 0, 0, 0), (3, 3, 3, 3), (0, 0, 0, 0)]
WRONG = [(9, 9, 9, 9), (-3, 7, -1, 5), (2 ** 31 - 1, 2 ** 31 - 1, 2 ** 31 - 1, 1)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("sizes", SIZES + WRONG)
@pytest.mark.parametrize("transpose", [False, True])
def test_any_sizes(sizes, transpose, dtype):
    lhs, rhs, bias = values(20, 24, dtype=dtype), values(4, 24, 40, dtype=dtype, seed=1), values(4, 40, dtype=dtype, seed=2)
    sizes = jnp.int32(sizes)
    given = jnp.swapaxes(rhs, 1, 2) if transpose else rhs
    turned = lambda rhs: jnp.swapaxes(rhs, 1, 2) if transpose else rhs
    check(lambda lhs, rhs: kbj.grouped_matmul(lhs, rhs, sizes, transpose_rhs=transpose), lambda lhs, rhs: formula(lhs, turned(rhs), sizes),
          lhs, given)
    check(lambda lhs, rhs, bias: kbj.grouped_matmul(lhs, rhs, sizes, bias=bias, transpose_rhs=transpose),
          lambda lhs, rhs, bias: formula(lhs, turned(rhs), sizes, bias), lhs, given, bias)


@pytest.mark.parametrize("sizes", SIZES)
def test_it_is_ragged_dot(sizes):
    lhs, rhs, sizes = values(20, 24), values(4, 24, 40, seed=1), jnp.int32(sizes)
    check(lambda lhs, rhs: kbj.grouped_matmul(lhs, rhs, sizes), lambda lhs, rhs: jax.lax.ragged_dot(lhs, rhs, sizes), lhs, rhs)


@pytest.mark.parametrize("rows, k, n, groups", [(1, 1, 1, 1), (7, 33, 5, 3), (0, 4, 3, 2), (5, 0, 3, 2), (5, 4, 0, 2), (70, 8, 130, 40)])
def test_shapes(rows, k, n, groups):
    sizes = jnp.full(groups, -(-rows // groups), jnp.int32)
    check(lambda lhs, rhs, bias: kbj.grouped_matmul(lhs, rhs, sizes, bias=bias),
          lambda lhs, rhs, bias: formula(lhs, rhs, sizes, bias), values(rows, k), values(groups, k, n, seed=1), values(groups, n, seed=2))


def test_the_result_may_be_float32():
    lhs, rhs, bias = values(20, 24, dtype=jnp.bfloat16), values(4, 24, 40, dtype=jnp.bfloat16, seed=1), values(4, 40, seed=2)
    sizes = jnp.int32((5, 0, 11, 4))
    call = lambda lhs, rhs, bias: kbj.grouped_matmul(lhs, rhs, sizes, preferred_element_type=jnp.float32, bias=bias)
    found = call(lhs, rhs, bias)
    assert found.dtype == jnp.float32
    near(found, formula(lhs, rhs, sizes, bias), np.float32)
    gradients = jax.grad(lambda *a: call(*a).sum(), (0, 1, 2))(lhs, rhs, bias)
    wanted = jax.grad(lambda *a: formula(*a[:2], sizes, a[2]).sum(), (0, 1, 2))(lhs, rhs, bias)
    for one, other in zip(gradients, wanted):
        near(one, other, jnp.bfloat16)
    near(gradients[2], jnp.broadcast_to(sizes[:, None], (4, 40)), np.float32)
    assert kbj.grouped_matmul(lhs, rhs.astype(jnp.float32), sizes).dtype == jnp.float32


def test_sizes_are_the_devices_own():
    """One program, whatever they are."""
    lhs, rhs = values(20, 24), values(4, 24, 40, seed=1)
    compiled = jax.jit(kbj.grouped_matmul)
    for sizes in SIZES:
        near(compiled(lhs, rhs, jnp.int32(sizes)), formula(lhs, rhs, jnp.int32(sizes)), np.float32)
    assert compiled._cache_size() == 1


def test_gradients_are_those_of_differences():
    lhs, rhs, sizes = values(6, 4), values(2, 4, 3, seed=1), jnp.int32((2, 3))
    check_grads(lambda lhs, rhs: kbj.grouped_matmul(lhs, rhs, sizes), (lhs, rhs), order=1, modes=["rev"], rtol=1e-2, atol=1e-2)


def test_vmap():
    lhs, rhs = values(3, 20, 24), values(4, 24, 40, seed=1)
    sizes = jnp.int32(SIZES[:3])
    found = jax.jit(jax.vmap(kbj.grouped_matmul, (0, None, 0)))(lhs, rhs, sizes)
    near(found, jnp.stack([formula(lhs[i], rhs, sizes[i]) for i in range(3)]), np.float32)
    loss = lambda rhs: (jax.vmap(kbj.grouped_matmul, (0, None, 0))(lhs, rhs, sizes) ** 2).sum()
    wanted = lambda rhs: sum((formula(lhs[i], rhs, sizes[i]) ** 2).sum() for i in range(3))
    near(jax.grad(loss)(rhs), jax.grad(wanted)(rhs), np.float32)


def test_experts_on_several_devices():
    """Each device has its experts and the rows that were sent to them."""
    devices = jax.devices()[:2]
    if len(devices) < 2:
        pytest.skip("one device")
    mesh = Mesh(np.array(devices), "e")
    lhs, rhs, sizes = values(2, 20, 24), values(4, 24, 40, seed=1), jnp.int32(((5, 9), (20, 0)))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=PartitionSpec("e"), out_specs=PartitionSpec("e"))
    def sharded(lhs, rhs, sizes):
        return kbj.grouped_matmul(lhs[0], rhs, sizes[0])[None]

    wanted = lambda lhs, rhs: jnp.stack([formula(lhs[i], rhs[2 * i:2 * i + 2], sizes[i]) for i in range(2)])
    near(sharded(lhs, rhs, sizes), wanted(lhs, rhs), np.float32)
    of = lambda f: jax.grad(lambda lhs, rhs: (f(lhs, rhs) ** 2).sum(), (0, 1))(lhs, rhs)
    for found, expected in zip(of(lambda lhs, rhs: sharded(lhs, rhs, sizes)), of(wanted)):
        near(found, expected, np.float32)


@pytest.mark.parametrize("change, error, words", [
    ({"lhs": values(20, 25)}, ValueError, "must be [M, K] and [G, K, N]"),
    ({"lhs": values(2, 10, 24)}, ValueError, "must be [M, K] and [G, K, N]"),
    ({"rhs": values(24, 40)}, ValueError, "must be [M, K] and [G, K, N]"),
    ({"group_sizes": jnp.int32([20])}, ValueError, "int32[4]"),
    ({"group_sizes": values(4)}, ValueError, "int32[4]"),
    ({"rhs": jnp.zeros((4, 24, 40), jnp.int32), "lhs": jnp.zeros((20, 24), jnp.int32)}, TypeError, "bfloat16, float16 or float32"),
    ({"bias": values(40)}, ValueError, "it must be (4, 40)"),
    ({"preferred_element_type": jnp.float16}, ValueError, "preferred_element_type"),
    ({"preferred_element_type": "no dtype"}, ValueError, "preferred_element_type"),
    ({"group_offset": jnp.int32([0])}, NotImplementedError, "group_offset"),
    ({"transpose_rhs": 3}, ValueError, "transpose_rhs"),
])
def test_what_does_not_fit_is_refused_by_name(change, error, words):
    given = {"lhs": values(20, 24), "rhs": values(4, 24, 40, seed=1), "group_sizes": jnp.int32((5, 0, 11, 4))} | change
    with pytest.raises(error) as raised:
        kbj.grouped_matmul(**given)
    assert words in str(raised.value)
