"""Promise: a wrapper refuses every argument of a wrong type or value, naming the wrapper, the argument, what was found and what is
allowed, before it looks at any bundle; nothing is taken for true, rounded or ignored."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj
from kbundle.jax import _primitive

Q = np.zeros((1, 4, 2, 8), np.float32)
QKV = np.zeros((1, 4, 3, 2, 8), np.float32)
ROWS = np.zeros((5, 2, 8), np.float32)
OFFSETS = np.array([0, 2, 5], np.int32)
CALLS = {
    "dot_product_attention": functools.partial(kbj.dot_product_attention, Q, Q, Q),
    "packed_dot_product_attention": functools.partial(kbj.packed_dot_product_attention, QKV),
    "ragged_dot_product_attention": lambda **more: kbj.ragged_dot_product_attention(
        ROWS, ROWS, ROWS, OFFSETS, OFFSETS, **{"max_query_length": 3, "max_key_value_length": 3, **more}),
    "fp8_dot_product_attention": lambda **more: kbj.fp8_dot_product_attention(
        *[Q.astype(jnp.float8_e4m3fn)] * 3, query_descale=1.0, key_descale=1.0, value_descale=1.0, output_scale=1.0, **more),
    "paged_attention": lambda **more: kbj.paged_attention(ROWS, *[np.zeros((2, 3, 4, 8), np.float32)] * 2, **{
        "lengths": np.zeros(5, np.int32), "page_indices": np.zeros((5, 2), np.int32), **more}),
    "matmul": functools.partial(kbj.matmul, np.zeros((2, 3), np.float32), np.zeros((3, 4), np.float32)),
    "dense": functools.partial(kbj.dense, np.zeros((2, 3), np.float32), np.zeros((3, 4), np.float32)),
    "scaled_softmax": functools.partial(kbj.scaled_softmax, np.zeros((2, 3), np.float32)),
    "scaled_causal_softmax": functools.partial(kbj.scaled_causal_softmax, np.zeros((3, 3), np.float32)),
    "scaled_masked_softmax": functools.partial(kbj.scaled_masked_softmax, np.zeros((2, 3), np.float32), np.zeros((2, 3), bool)),
    "permute": lambda num_out_tokens: kbj.permute(np.zeros((4, 8), np.float32), np.zeros((4, 2), bool), num_out_tokens),
    "sort_chunks": lambda split_sizes: kbj.sort_chunks(np.zeros((4, 8), np.float32), split_sizes, np.array([1, 0])),
}
ATTENTION = ["dot_product_attention", "packed_dot_product_attention", "ragged_dot_product_attention"]


@pytest.fixture(autouse=True)
def no_bundle(monkeypatch):
    """An argument that passes shows itself by asking for the bundle."""
    def asked(op):
        raise AssertionError("the arguments were accepted")
    for modules in (_primitive.__dict__, *(getattr(kbj, name).__globals__ for name in CALLS)):
        if "default_bundle" in modules:
            monkeypatch.setitem(modules, "default_bundle", asked)


@pytest.mark.parametrize("wrapper, name, values", [
    *[(wrapper, "is_causal", ["nonsense", 1, None, "causal"]) for wrapper in [*ATTENTION, "fp8_dot_product_attention", "paged_attention"]],
    ("packed_dot_product_attention", "is_causal", ["bottom_right", 0]),
    *[(wrapper, "deterministic", ["no", 1, None]) for wrapper in ATTENTION],
    *[(wrapper, "return_residual", ["no", 1, None]) for wrapper in [*ATTENTION, "paged_attention"]],
    *[(wrapper, "scale", ["big", True, np.nan, np.inf, 10**400, [1.0]]) for wrapper in [*ATTENTION, "scaled_softmax",
      "scaled_causal_softmax", "scaled_masked_softmax"]],
    *[(wrapper, "local_window_size", ["3", 1.5, (1, 2, 3), (1, -1), True, 2**40]) for wrapper in ATTENTION],
    *[(wrapper, "dropout_rate", ["0.5", True, -0.1, 1.1, np.nan, None]) for wrapper in ATTENTION[:2]],
    *[(wrapper, "dropout_generator", ["philox", True]) for wrapper in ATTENTION[:2]],
    ("packed_dot_product_attention", "kv_heads", [2.0, 0, True, "2"]),
    ("dot_product_attention", "layout", ["BHSD", None, 1]), ("fp8_dot_product_attention", "layout", ["BHSD", None]),
    ("dot_product_attention", "implementation", ["triton", True]), ("dot_product_attention", "fallback", ["xla", True]),
    ("ragged_dot_product_attention", "max_query_length", [0, 2.5, True, "3", None]),
    ("paged_attention", "layout", ["BTNH", None]), ("paged_attention", "attn_logits_soft_cap", ["30", True, np.nan]),
    ("paged_attention", "lengths", [np.zeros(4, np.int32), np.zeros(5), None]), ("paged_attention", "scale", ["big", np.inf]),
    ("matmul", "trans_a", ["T", 1, None]), ("matmul", "trans_b", ["N", 0]), ("matmul", "alpha", ["1", None, np.nan]),
    ("matmul", "fast_accumulation", [1, "yes"]), ("matmul", "out_dtype", ["f99", 3.5]),
    ("matmul", "precision", ["nonsense", 3]), ("dense", "precision", ["nonsense"]), ("dense", "activation", ["silu", 3, True]),
    ("permute", "num_out_tokens", [2.7, -1, True, "4", None, 2**63]),
    ("sort_chunks", "split_sizes", [np.array([1.5, 2.5]), np.zeros((2, 2), np.int32)]),
])
def test_wrong_values_are_refused(wrapper, name, values):
    for value in values:
        with pytest.raises(ValueError, match="^(.kbundle:INVALID_ARGUMENT. )?%s: .*%s" % (wrapper, name)):
            CALLS[wrapper](**{name: value})


@pytest.mark.parametrize("wrapper, name", [("dot_product_attention", "scale"), ("packed_dot_product_attention", "is_causal"),
                                           ("matmul", "alpha"), ("scaled_softmax", "scale"), ("permute", "num_out_tokens")])
def test_a_traced_value_is_refused_with_advice(wrapper, name):
    with pytest.raises(kbundle.Error, match="%s: %s is a traced value.*static_argnames" % (wrapper, name)):
        jax.jit(lambda value: CALLS[wrapper](**{name: value}))(1)


@pytest.mark.parametrize("wrapper, given", [
    ("scaled_softmax", dict(scale=np.float32(0.5))), ("scaled_softmax", dict(scale=2)), ("scaled_softmax", dict(scale=jnp.ones(()))),
    ("permute", dict(num_out_tokens=np.int64(4))), ("matmul", dict(precision="highest")), ("matmul", dict(precision=jax.lax.Precision.HIGH)),
    ("matmul", dict(precision="F32_F32_F32")), ("matmul", dict(trans_a=np.bool_(False), out_dtype="float32", alpha=2)),
    ("packed_dot_product_attention", dict(is_causal=np.bool_(True), local_window_size=(3, 0), scale=1)),
])
def test_numbers_and_flags_of_every_kind_are_taken(wrapper, given):
    with pytest.raises(AssertionError, match="accepted"):
        CALLS[wrapper](**given)
