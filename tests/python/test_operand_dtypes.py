"""Promise: operands that are floats come as they come to jax.nn: whole numbers as float32, Python's numbers and lists, x64 on or off; what is
no array, or of a dtype without kernels, is a TypeError that reads like JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle.jax as kbj

pytestmark = pytest.mark.usefixtures("platform", "kernels")
WHOLE = np.arange(24).reshape(4, 6) % 7
ONES = np.ones(6, np.float32)
LABELS = np.array([0, 5, 2, 3])
CALLS = {
    "scaled_softmax": (kbj.scaled_softmax, lambda x: jax.nn.softmax(x, -1)),
    "scaled_masked_softmax": (lambda x: kbj.scaled_masked_softmax(x, WHOLE > 5), lambda x: jax.nn.softmax(jnp.where(WHOLE > 5, -jnp.inf, x), -1)),
    "rms_norm": (lambda x: kbj.rms_norm(x, ONES), lambda x: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)),
    "layer_norm": (lambda x: kbj.layer_norm(x, ONES), lambda x: jax.nn.standardize(x, -1, epsilon=1e-6)),
    "cross_entropy": (lambda x: kbj.cross_entropy(x, LABELS), lambda x: -jax.nn.log_softmax(x, -1)[np.arange(4), LABELS].mean()),
    "linear_cross_entropy": (lambda x: kbj.linear_cross_entropy(x, np.eye(6, dtype=np.float32), LABELS),
                             lambda x: -jax.nn.log_softmax(x, -1)[np.arange(4), LABELS].mean()),
    "router_scores": (lambda x: kbj.router_scores(x, 2)[0], lambda x: jax.nn.softmax(x, -1)),
}


def x64():
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64, bool])
def test_whole_numbers_are_float32(name, dtype):
    ours, plain = CALLS[name]
    x = WHOLE.astype(dtype)
    wanted = np.asarray(plain(jnp.asarray(x, jnp.float32)))
    for found in (ours(x), jax.jit(ours)(jnp.asarray(x))):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CALLS)
def test_x64_changes_nothing_but_refuses_what_it_alone_has(name):
    ours, _ = CALLS[name]
    alone = np.asarray(ours(WHOLE.astype(np.float32)))
    with x64():
        for x in (WHOLE.astype(np.float32), WHOLE):  # int64 here
            found = jax.jit(ours)(jnp.asarray(x))
            assert found.dtype == jnp.float32
            np.testing.assert_array_equal(found, alone)
        with pytest.raises(TypeError, match="is float64; it must be float32, float16 or bfloat16; convert it with astype"):
            ours(jnp.asarray(WHOLE, jnp.float64))


def test_indices_of_64_bits_keep_what_32_have_no_room_for():
    """Their low 32 bits would be a size, a length and a page that are right."""
    x, w = jnp.ones((4, 8)), jnp.ones((2, 8, 3))
    pages = jnp.asarray(np.random.default_rng(0).standard_normal((1, 4, 2, 8)), jnp.float32)
    one = jnp.ones((1, 1, 8))
    with x64():
        sizes = jnp.asarray([-2**32 + 1, 2**32 + 1])  # none, and all rows
        np.testing.assert_array_equal(kbj.grouped_matmul(x, w.at[0].set(9), sizes), np.full((4, 3), 8))
        assert float(kbj.grouped_quantize(x, sizes).amax[1]) == 1 and float(kbj.grouped_quantize(x, sizes).amax[0]) == 0
        unseen = kbj.paged_attention(one, pages, pages, jnp.asarray([2]), jnp.asarray([[2**32 + 1]]))
        np.testing.assert_array_equal(unseen, np.zeros((1, 1, 8)))
        long = kbj.paged_attention(one, pages, pages, jnp.asarray([2**32 + 1]), jnp.asarray([[1]]))
        np.testing.assert_array_equal(long, kbj.paged_attention(one, pages, pages, jnp.asarray([2]), jnp.asarray([[1]])))
    unsigned = kbj.grouped_matmul(x, w, jnp.asarray([2**31 + 5, 0], jnp.uint32))
    np.testing.assert_array_equal(unsigned, np.full((4, 3), 8))


def test_lists_and_weak_types_are_arrays():
    np.testing.assert_allclose(kbj.scaled_softmax([[1.0, 2], [3, 4]]), jax.nn.softmax(jnp.asarray([[1.0, 2], [3, 4]]), -1), rtol=1e-6)
    weak = jnp.broadcast_to(jnp.asarray(2.0), (3,))
    assert kbj.scaled_softmax(weak).dtype == jnp.float32


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", ["text", None, {"x": 1.0}, object()])
def test_what_is_no_array_is_refused_in_jaxs_words(name, value):
    with pytest.raises(TypeError, match=r"%s requires ndarray or scalar arguments, got <class '.*'> for (x|logits|hidden)" % name):
        CALLS[name][0](value)


@pytest.mark.parametrize("name", CALLS)
def test_keys_and_complex_numbers_are_refused_by_name(name):
    for value in (jnp.ones((4, 6), jnp.complex64), jax.random.split(jax.random.key(0), 4)):
        with pytest.raises(TypeError, match="it must be float32, float16 or bfloat16"):
            CALLS[name][0](value)
