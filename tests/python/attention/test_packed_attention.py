"""Promise: kbj.packed_dot_product_attention is kbj.dot_product_attention of one array's parts, which nothing copies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle.jax as kbj
from python.attention_check import calls, check, near
from python.formula import same_partial

pytestmark = pytest.mark.usefixtures("platform", "kernels")


def apart(qkv, *more, heads, kv_heads, **options):
    """jax.nn's of the parts of one array."""
    return jax.nn.dot_product_attention(*jnp.split(qkv, [heads, heads + kv_heads], axis=2), *more, **options)


def packed_both(heads, kv_heads, partial=same_partial, **options):
    """(ours of one array, jax.nn's of its parts)."""
    ours = functools.partial(kbj.packed_dot_product_attention, kv_heads=kv_heads, **options)
    if "seq_lengths" in options:
        lengths = options.pop("seq_lengths")
        options |= {"query_seq_lengths": lengths, "key_value_seq_lengths": lengths}
    return ours, partial(apart, heads=heads, kv_heads=kv_heads, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"is_causal": True, "local_window_size": 5}], ids=str)
def test_packed_values_and_gradients(options, heads, kv_heads, dtype):
    qkv = jnp.asarray(np.random.default_rng(1).normal(size=(2, 33, heads + 2 * kv_heads, 16)), dtype)
    check(*packed_both(heads, kv_heads, **options), qkv)


def test_packed_with_bias_and_lengths():
    rng = np.random.default_rng(2)
    qkv, bias = jnp.asarray(rng.normal(size=(2, 33, 8, 24)), jnp.float32), jnp.asarray(rng.normal(size=(1, 4, 33, 33)), jnp.float32)
    check(*packed_both(4, 2), qkv, bias)
    lengths = np.asarray([33, 20], np.int32)
    check(*packed_both(4, 2, functools.partial, seq_lengths=lengths), qkv, seen=np.arange(33)[None, :, None, None] < lengths[:, None, None, None])


def test_packed_in_threes_is_one_call_of_that_very_array():
    qkv = jnp.asarray(np.random.default_rng(3).normal(size=(2, 33, 3, 4, 16)), jnp.float32)
    near(kbj.packed_dot_product_attention(qkv), kbj.dot_product_attention(*jnp.moveaxis(qkv, 2, 0)), 1e-6)
    jaxpr = jax.make_jaxpr(jax.grad(lambda x: kbj.packed_dot_product_attention(x, is_causal=True).sum()))(qkv)
    assert len(list(calls(jaxpr.jaxpr))) == 2
    assert not {"slice", "concatenate", "pad", "transpose"} & {eqn.primitive.name for eqn in jaxpr.jaxpr.eqns}
    gradient = jax.grad(lambda x: (kbj.packed_dot_product_attention(x, is_causal=True) ** 2).sum())(qkv)
    assert gradient.shape == qkv.shape


def test_packed_drops_what_the_same_arrays_apart_drop():
    qkv, seed = jnp.asarray(np.random.default_rng(4).normal(size=(2, 40, 3, 2, 8)), jnp.float32), jnp.asarray([1, 2], jnp.uint32)
    drop = dict(dropout_rate=0.4, dropout_seed=seed)
    near(kbj.packed_dot_product_attention(qkv, **drop), kbj.dot_product_attention(*jnp.moveaxis(qkv, 2, 0), **drop), 1e-6)
    near(kbj.packed_dot_product_attention(qkv, score_mod="softcap", cap=0.5),
         kbj.dot_product_attention(*jnp.moveaxis(qkv, 2, 0), score_mod="softcap", cap=0.5), 1e-6)


@pytest.mark.parametrize("shape, kv_heads", [((2, 33, 4, 16), None), ((2, 33, 4, 2, 16), None), ((2, 33, 7, 16), 2), ((2, 33, 4, 16), 2)])
def test_packed_shapes_that_do_not_fit_are_named(shape, kv_heads):
    with pytest.raises(ValueError, match="qkv has shape .*N a multiple of K"):
        kbj.packed_dot_product_attention(jnp.zeros(shape), kv_heads=kv_heads)
