"""Promise: operands that are floats come as they come to jax.nn: whole numbers as float32, Python's numbers and lists, x64 on or off; what is
no array, or of a dtype without kernels, is a TypeError that reads like JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
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


WIDE = np.ones((4, 6), np.complex64)
FLOATS = np.ones((4, 6), np.float32)
REAL = {
    "gamma of rms_norm": lambda value: kbj.rms_norm(FLOATS, value[:1].reshape(6)),
    "beta of layer_norm": lambda value: kbj.layer_norm(FLOATS, ONES, value[:1].reshape(6)),
    "residual of layer_norm": lambda value: kbj.layer_norm(FLOATS, ONES, residual=value),
    "the bias of dense": lambda value: kbj.dense(FLOATS, np.eye(6, dtype=np.float32), value[:1].reshape(6)),
    "bias of grouped_matmul": lambda value: kbj.grouped_matmul(FLOATS, np.ones((4, 6, 6), np.float32), np.ones(4, np.int32), bias=value),
    "mask of scaled_masked_softmax": lambda value: kbj.scaled_masked_softmax(FLOATS, value),
    "routing_map of permute": lambda value: kbj.permute(FLOATS, value, 24),
    "router_logits of moe": lambda value: kbj.moe(FLOATS, value, np.ones((6, 6, 4), np.float32), np.ones((6, 4, 6), np.float32), 2),
}


@pytest.mark.parametrize("name", REAL)
def test_what_is_converted_is_real_and_loses_nothing(name):
    operand, _, function = name.rpartition(" of ")
    REAL[name](FLOATS)
    for value in (WIDE, jax.random.split(jax.random.key(0), 24).reshape(4, 6)):
        with pytest.raises(TypeError, match=f"{function}: {operand} is .*; it must be (real numbers|float32, float16 or bfloat16)"):
            REAL[name](value)
    with pytest.raises(TypeError, match=f"{function} requires ndarray or scalar arguments, got <class 'numpy.ndarray'> for {operand}"):
        REAL[name](np.full((4, 6), "a"))


@pytest.mark.parametrize("call, words", [
    (lambda: kbj.quantize_mxfp8(WHOLE), "op 'quantize.mxfp8' requires x of dtype float32, float16 or bfloat16, got int32"),
    (lambda: kbj.amax(WIDE), "op 'quantize.amax' requires x of dtype float32, float16 or bfloat16, got complex64"),
    (lambda: kbj.permute(FLOATS.astype(np.int32), FLOATS > 0, 24), "requires x of dtype float32, .* got int32"),
    (lambda: kbj.call(None, "softmax.scaled_backward", FLOATS, WHOLE.astype(np.int32)), "requires y of dtype .*, got int32"),
    (lambda: jax.jit(lambda x: kbj.call(None, "softmax.scaled_forward", x))(WHOLE), r", got int32\[4, 6\]; convert it with astype"),
])
def test_an_operand_that_an_op_does_not_take_is_a_type_error_and_still_ours(call, words):
    for kind in (TypeError, ValueError, kbundle.Error):
        with pytest.raises(kind, match=words):
            call()


def test_experts_take_logits_of_half_precision():
    weights = np.ones((6, 6, 4), np.float32) / 8, np.ones((6, 4, 6), np.float32) / 8
    logits = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    half = jax.jit(lambda logits: kbj.moe(FLOATS, logits, *weights, 2))(logits.astype(np.float16))
    np.testing.assert_allclose(half, kbj.moe(FLOATS, logits, *weights, 2), rtol=1e-2)
    loss = lambda logits: (kbj.moe(FLOATS, logits, *weights, 2) ** 2).sum()
    assert jax.grad(loss)(logits.astype(np.float16)).dtype == np.float16
