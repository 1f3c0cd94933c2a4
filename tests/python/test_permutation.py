"""Promise: kbj.permute, kbj.unpermute and kbj.sort_chunks mean what plain JAX formulas say, gradients included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import kbundle.jax as kbj
from python.formula import value_and_gradients, wide

pytestmark = pytest.mark.usefixtures("platform", "kernels")
TOLERANCE = {np.dtype("float32"): 1e-5, np.dtype("float16"): 2e-3, np.dtype(jnp.bfloat16): 1.6e-2}


def values(rng, *shape, dtype=np.float32):
    return jnp.asarray(rng.normal(size=shape), dtype)


def routing(rng, tokens, experts, k):
    """k experts for each token; one expert gets nothing where that is possible, token 1 is dropped."""
    order = rng.random((tokens, experts))
    if experts > k:
        order[:, 0] = 2
    chosen = np.argsort(order, axis=1)[:, :k]
    routed = np.zeros((tokens, experts), bool)
    np.put_along_axis(routed, chosen, True, axis=1)
    routed[1:2] = False
    return routed


def permuted(x, routed, rows, probs=None):
    """The formula of permute, in float32."""
    expert, token = np.nonzero(np.asarray(routed).T)
    expert, token = expert[:rows], token[:rows]
    out = jnp.zeros((rows, x.shape[-1])).at[:len(token)].set(x.astype(jnp.float32)[token])
    if probs is None:
        return out, None
    weights = jnp.zeros(rows).at[:len(token)].set(probs.astype(jnp.float32)[token, expert])
    return jnp.where(weights[:, None] == 0, 0, out), weights


def unpermuted(x, routed, probs=None):
    expert, token = np.nonzero(np.asarray(routed).T)
    expert, token = expert[:len(x)], token[:len(x)]
    weights = 1 if probs is None else probs.astype(jnp.float32)[token, expert][:, None]
    return jnp.zeros((len(routed), x.shape[-1])).at[token].add(x.astype(jnp.float32)[:len(token)] * weights)


def check(function, formula, *arrays):
    """Value and gradients against the plain formula in float32, with random cotangents."""
    tolerance = max(TOLERANCE[np.dtype(a.dtype)] for a in arrays)
    rng = np.random.default_rng(5)
    weights = jax.tree.map(lambda y: wide(rng.normal(size=y.shape)), jax.eval_shape(formula, *map(wide, arrays)))
    wanted, expected = value_and_gradients(formula, weights, *map(wide, arrays))
    for f, w in zip(jax.tree.leaves(jax.jit(function)(*arrays)), jax.tree.leaves(wanted), strict=True):
        assert f.dtype in (arrays[0].dtype, arrays[-1].dtype)
        np.testing.assert_allclose(wide(f), w, rtol=tolerance, atol=tolerance)
    loss = lambda *a: sum((y.astype(jnp.float32) * w).sum() for y, w in zip(jax.tree.leaves(function(*a)), jax.tree.leaves(weights)))
    for array, f, w in zip(arrays, jax.jit(jax.grad(loss, tuple(range(len(arrays)))))(*arrays), expected):
        assert f.dtype == array.dtype
        scale = max(1.0, np.abs(w).max())
        np.testing.assert_allclose(wide(f), w, rtol=8 * tolerance, atol=8 * tolerance * scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("tokens, hidden, experts, k, rows", [
    (40, 7, 8, 1, 40), (33, 128, 8, 8, 264), (20, 4096, 64, 8, 160), (12, 1, 3, 2, 7), (1, 5, 1, 1, 4)])
def test_permute_and_unpermute(tokens, hidden, experts, k, rows, dtype):
    rng = np.random.default_rng(tokens)
    routed = routing(rng, tokens, experts, k)
    x, y = values(rng, tokens, hidden, dtype=dtype), values(rng, rows, hidden, dtype=dtype)
    check(lambda x: kbj.permute(x, routed, rows)[0], lambda x: permuted(x, routed, rows)[0], x)
    row_id_map = kbj.permute(x, routed, rows)[2]
    check(lambda y: kbj.unpermute(y, row_id_map), lambda y: unpermuted(y, routed), y)
    for probs_dtype in {jnp.dtype(np.float32), jnp.dtype(jnp.bfloat16)}:
        probs = jnp.asarray(rng.random((tokens, experts)) * (rng.random((tokens, experts)) < 0.8), probs_dtype)
        check(lambda x, probs: kbj.permute(x, routed, rows, probs)[:2], lambda x, probs: permuted(x, routed, rows, probs), x, probs)
        check(lambda y, probs: kbj.unpermute(y, row_id_map, probs), lambda y, probs: unpermuted(y, routed, probs), y, probs)


def test_gradients_are_finite_differences():
    rng = np.random.default_rng(3)
    routed = routing(rng, 6, 4, 2)
    x, y, probs = values(rng, 6, 3), values(rng, 12, 3), jnp.asarray(rng.random((6, 4)) + 0.5, jnp.float32)
    row_id_map = kbj.permute(x, routed, 12)[2]
    near = dict(order=1, modes=["rev"], eps=1e-2, rtol=2e-3, atol=2e-3)
    check_grads(lambda x, p: kbj.permute(x, routed, 12, p)[:2], (x, probs), **near)
    check_grads(lambda y, p: kbj.unpermute(y, row_id_map, p), (y, probs), **near)
    check_grads(lambda y, p: kbj.sort_chunks(y, [3, 0, 9], [2, 0, 1], p)[:2], (y, y[:, 0]), **near)


@pytest.mark.parametrize("padding", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_what_comes_back_for_padding_counts_for_nothing(dtype, padding):
    """An expert may give any number for a row of probability 0, which permute wrote as 0: the gradient of x does not see it."""
    rng = np.random.default_rng(6)
    routed = routing(rng, 20, 8, 4)
    x, probs = values(rng, 20, 24, dtype=dtype), jnp.asarray(rng.random((20, 8)) * (rng.random((20, 8)) < 0.6), jnp.float32)
    (out, weights, _), back = jax.vjp(lambda x, probs: kbj.permute(x, routed, 76, probs), x, probs)
    assert (weights == 0).any()
    dout, dweights = values(rng, *out.shape, dtype=dtype), values(rng, 76)
    no_map = np.zeros((20, 17), jax.dtypes.float0)
    wanted = back((jnp.where(weights[:, None] == 0, 0, dout), dweights, no_map))
    found = back((jnp.where(weights[:, None] == 0, jnp.asarray(padding, dtype), dout), dweights, no_map))
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(wide(f), wide(w))


def test_experts_in_the_middle_of_a_layer():
    """permute, an expert that doubles, unpermute: each token 2 * (sum of its probabilities) times itself."""
    rng = np.random.default_rng(4)
    routed = routing(rng, 24, 8, 2).reshape(2, 12, 8)
    x, probs = values(rng, 2, 12, 16), jnp.asarray(rng.random((2, 12, 8)), jnp.float32)

    def layer(x, probs):
        out, _, row_id_map = kbj.permute(x, routed, 48)
        return kbj.unpermute(2 * out, row_id_map, probs).reshape(x.shape)

    formula = lambda x, probs: 2 * x * (probs * routed).sum(-1, keepdims=True)
    check(layer, formula, x, probs)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize("sizes, order", [([5], [0]), ([3, 0, 4, 5], [2, 1, 3, 0]), ([1, 2, 3], [2, 1, 0])])
def test_sort_chunks(sizes, order, dtype):
    rng = np.random.default_rng(len(sizes))
    tokens = sum(sizes)
    x, probs = values(rng, tokens, 7, dtype=dtype), values(rng, tokens, dtype=dtype)
    starts = np.cumsum([0, *sizes])
    source = np.concatenate([np.arange(starts[c], starts[c + 1]) for c in order])
    check(lambda x: kbj.sort_chunks(x, sizes, order)[0], lambda x: x[source], x)
    check(lambda x, p: kbj.sort_chunks(x, sizes, order, p)[:2], lambda x, p: (x[source], p[source]), x, probs)
    row_id_map = kbj.sort_chunks(x, sizes, order)[2]
    np.testing.assert_array_equal(np.asarray(row_id_map)[source], np.arange(tokens))


def test_bytes_of_fp8_travel_too():
    rng = np.random.default_rng(1)
    x, routed = values(rng, 10, 32, dtype=jnp.float8_e4m3fn), routing(rng, 10, 4, 2)
    out, _, _ = kbj.permute(x, routed, 20)
    np.testing.assert_array_equal(np.asarray(out, np.float32), permuted(x, routed, 20)[0])
    moved, _, _ = kbj.sort_chunks(x, [4, 6], [1, 0])
    np.testing.assert_array_equal(np.asarray(moved, np.float32), np.roll(np.asarray(x, np.float32), 6, axis=0))


def test_vmap_and_counted_masks():
    rng = np.random.default_rng(2)
    routed = np.stack([routing(rng, 10, 4, 2) for _ in range(3)])
    x = values(rng, 3, 10, 5)
    found = jax.vmap(lambda x, r: kbj.permute(x, r, 20)[0])(x, routed.astype(np.int32) * 256)
    np.testing.assert_array_equal(found, np.stack([permuted(a, r, 20)[0] for a, r in zip(x, routed)]))


def test_nothing_to_route():
    x = jnp.zeros((0, 4))
    out, _, row_id_map = kbj.permute(x, np.zeros((0, 3), bool), 5)
    assert out.shape == (5, 4) and row_id_map.shape == (0, 7) and not out.any()
    assert kbj.unpermute(out, row_id_map).shape == (0, 4)


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="last axis"):
        kbj.permute(jnp.zeros((4, 8)), np.zeros((5, 2), bool), 4)
    with pytest.raises(ValueError, match="probs has shape"):
        kbj.permute(jnp.zeros((4, 8)), np.zeros((4, 2), bool), 4, jnp.zeros((4, 3)))
