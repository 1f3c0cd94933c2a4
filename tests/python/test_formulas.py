"""Promise: on a GPU a small call of a wrapper is left to XLA, and neither a large one, nor one in modes, nor any while a variant is forced or
denied or formulas are not allowed; nor on a CPU. Whatever JAX makes of the program, each call is judged by what one device has of it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj
from kbundle._bundle import HOST
from kbundle.jax import _formula

SMALL, LARGE = (4, 256), (4096, 2048)
GRADIENT = jax.grad(lambda x: (kbj.rms_norm(x, jnp.ones(x.shape[-1])) ** 2).sum())


@pytest.fixture(autouse=True)
def bundle(kernels):
    kbj.use(kernels)
    yield kernels
    kbundle.clear_policy()


def calls(function, *shapes, platform="cuda"):
    """Ops that the program calls, lowered for a platform that this machine need not have."""
    operands = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    text = jax.jit(lambda *given: function(*given)).trace(*operands).lower(lowering_platforms=(platform,)).as_text()
    return re.findall(r'op = "\w+\.(\w+)"', text)


def norm(x):
    return kbj.rms_norm(x, jnp.ones(x.shape[-1]))


def test_a_small_call_is_left_and_a_large_one_is_not():
    assert calls(norm, SMALL) == [] and calls(GRADIENT, SMALL) == []
    assert calls(norm, LARGE) == ["rmsnorm_forward"]
    assert calls(GRADIENT, LARGE) == ["rmsnorm_forward", "rmsnorm_backward"]
    assert calls(norm, SMALL, platform="cpu") == ["rmsnorm_forward"]


def test_both_passes_of_a_norm_that_is_differentiated_are_left_or_none():
    """One of them as a formula and the other as a kernel is slower than both as either."""
    layer = lambda x: kbj.layer_norm(x, jnp.ones(x.shape[-1]))
    gradient = jax.grad(lambda x: (layer(x) ** 2).sum())
    assert calls(layer, SMALL) == [] and calls(gradient, SMALL) == ["layernorm_forward", "layernorm_backward"]
    assert calls(gradient, (4, 255)) == []  # rows that begin anywhere
    assert calls(layer, (1, 256)) == ["layernorm_forward"] and calls(norm, (1, 256)) == []
    between = (1000, 2048)  # too large for formulas of gradients, not for one of a forward pass
    assert calls(norm, between) == [] and calls(GRADIENT, between) == ["rmsnorm_forward", "rmsnorm_backward"]
    assert calls(GRADIENT, (256, 8192)) == []  # as many, of few rows


@pytest.mark.parametrize("function", [kbj.scaled_softmax, kbj.scaled_causal_softmax, lambda x: kbj.scaled_masked_softmax(x, x > 0),
                                      lambda x: kbj.rms_norm(x, x[0]), lambda x: kbj.cross_entropy(x, jnp.arange(len(x)))],
                         ids=["softmax", "causal", "masked", "RMS norm", "cross entropy"])
def test_families_that_leave_small_calls(function):
    gradient = jax.grad(lambda x: jnp.sum(function(x)))
    assert calls(gradient, (64, 64)) == []
    assert calls(gradient, (4096, 4096))


def product(columns):
    return lambda x: kbj.matmul(x, jnp.ones((x.shape[1], columns)))


def by_rows(columns):
    return lambda x: kbj.matmul(x, jnp.ones((columns, x.shape[1])), trans_b=True)


def layer(columns, activation=None):
    return lambda x: kbj.dense(x, jnp.ones((x.shape[1], columns)), jnp.ones(columns), activation)


@pytest.mark.parametrize("function, shape, left", [
    (product(4096), (4096, 32), True),  # short sums
    (product(4096), (4096, 4096), False),
    (layer(4096), (4096, 32), False),  # with what cuBLASLt joins to it
    (layer(64, "relu"), (8, 32), True),  # few operations
    (product(8), (8, 4096), False),  # but sums that are shared by blocks
    (product(4095), (4096, 4096), True),  # rows that begin anywhere
    (product(4095), (8, 4096), False),
    (product(675), (8, 1000), True),  # of a b that is soon read
    (layer(424, "gelu"), (299, 624), True),
    (layer(424, "gelu"), (144, 624), False),
    (layer(64), (1209, 2472), True),  # few elements by long sums
    (layer(64), (1209, 496), False),
    (layer(1024, "gelu"), (299, 624), False),
    (by_rows(4096), (1, 1024), True),  # a sum for each row of b
    (by_rows(4096), (2, 1024), False),
    (by_rows(8192), (1, 1024), False)],
    ids=["short sums", "long sums", "a bias", "few operations", "few results", "unaligned", "unaligned, few rows", "unaligned, small", "tall",
         "not so tall", "deep", "not so deep", "wide", "one row", "two rows", "one row by many"])
def test_products_that_are_left(function, shape, left):
    assert calls(function, shape) == ([] if left else ["matmul"])


def trained(features):
    """A layer with its gradients."""
    def run(x):
        y, pull = jax.vjp(lambda x, w, b: kbj.dense(x, w, b, "gelu"), x, jnp.ones((x.shape[1], features)), jnp.ones(features))
        return y, pull(y)
    return run


@pytest.mark.parametrize("features, shape, called", [(32, (1, 2400), 0), (16, (2709, 288), 0), (1024, (2048, 1024), 3)],
                         ids=["few results", "a thin layer", "a large layer"])
def test_a_small_layer_is_left_with_its_gradients(features, shape, called):
    """Results that only gradients need are cuBLASLt's: the kernels for few results give none."""
    assert calls(trained(features), shape) == ["matmul"] * called


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("plain, ours", [
    (jnp.matmul, kbj.matmul), (lambda x, w: x @ w.reshape(8, -1).T, lambda x, w: kbj.matmul(x, w.reshape(8, -1), trans_b=True)),
    (lambda *given: jax.vjp(jnp.matmul, *given)[1](given[0][:, :8]), lambda *given: jax.vjp(kbj.matmul, *given)[1](given[0][:, :8]))],
    ids=["product", "by rows of b", "gradients"])
def test_a_product_alone_that_is_left_is_the_program_of_plain_jax(plain, ours, dtype):
    def text(function):
        operands = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((3, 448), (448, 8))]
        return jax.jit(lambda *given: function(*given)).trace(*operands).lower(lowering_platforms=("cuda",)).as_text()
    assert text(plain) == text(ours)


def test_the_gradients_of_a_small_layer_are_left_and_products_of_fp8_are_not():
    w1, w2 = jnp.ones((64, 128)), jnp.ones((128, 32))
    layer = lambda x: kbj.mlp(x, w1, w1[0], w2, w2[0], "gelu").sum()
    assert calls(jax.grad(layer), (8, 64)) == []
    fp8 = lambda x: kbj.matmul(x.astype(jnp.float8_e4m3fn), w1.T.astype(jnp.float8_e4m3fn), trans_b=True)
    assert calls(fp8, (16, 64)) == ["matmul"]


@pytest.mark.parametrize("function, called", [
    (lambda x: kbj.quantize(x, scale=2.0).data, ["per_tensor"]),
    (lambda x: kbj.quantize(x, scale=2.0, transposed=True).transposed, ["per_tensor_transpose"]),
    (lambda x: kbj.fake_quantize(x, scale=2.0), ["per_tensor", "dequantize"]),
    (kbj.amax, ["amax"])], ids=["quantize", "transposed", "fake", "amax"])
def test_quantization_by_one_scale_is_left(function, called):
    assert calls(function, SMALL) == []
    assert calls(function, (8192, 4096)) == called


def test_current_scaling_is_called():
    """One kernel finds the scale and uses it, where XLA makes two."""
    assert calls(lambda x: kbj.quantize(x).data, SMALL) == ["per_tensor"]


def test_an_op_called_by_name_is_called():
    assert calls(lambda x: kbj.call(None, "softmax.scaled_forward", x, scale=0.5), SMALL) == ["scaled_forward"]


def test_a_call_outside_any_program_is_called(bundle, monkeypatch):
    """XLA would have to compile a formula of each shape."""
    monkeypatch.setattr(_formula, "KINDS", {HOST})
    count = lambda: sum(one["count"] for one in bundle.stats()["chosen"] if one["op"] == "softmax.scaled_forward")
    before = count()
    kbj.scaled_softmax(jnp.ones((3, 77)))
    between = count()
    jax.jit(kbj.scaled_softmax)(jnp.ones((3, 78)))
    assert before < between == count()


def test_what_asks_for_a_kernel_has_it(bundle):
    def in_modes(x):
        with kbj.modes(deterministic=True):
            return norm(x)
    assert calls(in_modes, SMALL) == ["rmsnorm_forward"]
    chosen = bundle.explain("norm.rmsnorm_forward", "f32[4,256]", "f32[256]")["chosen"]
    for wish in (lambda: kbundle.allow_formulas(False), lambda: bundle.deny(chosen), lambda: bundle.force(chosen)):
        wish()
        assert calls(norm, SMALL) == ["rmsnorm_forward"]
        kbundle.clear_policy()
        assert calls(norm, SMALL) == []


def test_a_program_may_forbid_promotion():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        assert calls(lambda x, gamma: kbj.rms_norm(x, gamma), SMALL, SMALL[1:]) == []
        assert calls(lambda x: kbj.scaled_masked_softmax(x, jnp.ones(SMALL, bool)), SMALL) == []


def test_an_epsilon_that_float32_has_no_room_beside_is_not_left():
    assert calls(lambda x: kbj.rms_norm(x, x[0], epsilon=0.0), SMALL) == ["rmsnorm_forward"]


def test_a_batch_is_judged_as_a_whole():
    """vmap of a norm is a loop over small calls, of softmax one call with all rows."""
    assert calls(jax.vmap(kbj.scaled_softmax), (2, *SMALL)) == []
    assert calls(jax.vmap(kbj.scaled_softmax), (64, 64, 512)) == ["scaled_forward"]


def test_problems_that_are_left_are_recorded_all_the_same():
    """A proof holds whatever is allowed where the model runs."""
    problems = kbj.record_problems(norm, jax.ShapeDtypeStruct(SMALL, jnp.float32))
    assert [problem["op"] for problem in problems] == ["norm.rmsnorm_forward"]


def test_a_formula_computes_what_the_call_does(monkeypatch):
    """On this CPU, where nothing is left: under jit, grad, vmap, scan and remat, residual and all."""
    x, gamma = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5, 33)), jnp.bfloat16), jnp.linspace(0.5, 2, 33)

    def loss(x, gamma):
        y, total = jax.checkpoint(lambda x: kbj.rms_norm(x, gamma, residual=x, zero_centered_gamma=True))(x)
        _, z = jax.lax.scan(lambda carry, row: (carry, kbj.scaled_softmax(row, -0.7)), 0, y)
        return jax.vmap(lambda z, total: (z.astype(jnp.float32) * total).sum())(z, total).sum()
    found = []
    for kinds in ({HOST}, set()):
        monkeypatch.setattr(_formula, "KINDS", kinds)
        jax.clear_caches()
        program = jax.jit(jax.value_and_grad(loss, (0, 1)))
        assert ('op = "norm.' in program.lower(x, gamma).as_text()) == (not kinds)
        found.append(jax.tree.map(lambda a: np.asarray(a, np.float32), program(x, gamma)))
    jax.clear_caches()
    for left, called in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(left, called, rtol=2e-2, atol=2e-2)
