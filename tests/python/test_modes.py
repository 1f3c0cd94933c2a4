"""Promise: kbj.modes and modes= ask for variants that promise it, in what is compiled already too, and an op that has none says so."""

import jax
import jax.numpy as jnp
import kbundle
import kbundle.jax as kbj
import numpy as np
import pytest


def product(rows, bundle, **how):
    a = jax.random.normal(jax.random.key(0), (64, 96))[:rows]
    b = jax.random.normal(jax.random.key(1), (96, 80))
    return kbj.call(bundle, "matmul.matmul", a, b, out_dtype="float32", **how)[0]


def test_rows_of_a_product_have_the_same_bits_in_every_batch(kernels):
    with kbj.modes(batch_invariant=True):
        whole = np.asarray(product(64, kernels))
        for rows in (1, 2, 7, 13):
            assert np.asarray(product(rows, kernels)).tobytes() == whole[:rows].tobytes()
    kernels = kbundle.default_bundle("matmul.matmul")
    before = kernels.explain("matmul.matmul", "f32[1,96]", "f32[96,80]", out_dtype="f32")["chosen"]
    after = kernels.explain("matmul.matmul", "f32[1,96]", "f32[96,80]", out_dtype="f32", modes="batch_invariant")["chosen"]
    assert "few_rows" in before and "blocked" in after


def test_a_compiled_function_is_traced_anew_under_other_modes(kernels):
    traced = []

    @jax.jit
    def f(x):
        traced.append(x.shape)
        return kbj.call(kernels, "softmax.scaled_forward", x)
    x = jnp.ones((4, 64))
    f(x), f(x)
    with kbj.modes(deterministic=True):
        assert "modes = 1 : i64" in f.lower(x).as_text()
        f(x), f(x)
        with kbj.modes(batch_invariant=True):
            assert "modes = 3 : i64" in f.lower(x).as_text()
        with kbj.modes(deterministic=False):
            assert "modes" not in f.lower(x).as_text()
    assert "modes" not in f.lower(x).as_text()
    assert 2 <= len(traced) <= 4


def test_one_call_has_modes_of_its_own(kernels):
    call = lambda x: kbj.call(kernels, "softmax.scaled_forward", x, modes=("deterministic", "batch_invariant"))
    assert "modes = 3 : i64" in jax.jit(call).lower(jnp.ones((4, 64))).as_text()
    assert "modes = 3 : i64" in jax.jit(jax.vmap(call)).lower(jnp.ones((2, 4, 64))).as_text()
    exported = jax.export.export(jax.jit(call), disabled_checks=kbj.disabled_checks())(jnp.ones((4, 64)))
    x = jax.random.normal(jax.random.key(2), (4, 64))
    np.testing.assert_array_equal(jax.export.deserialize(exported.serialize()).call(x), call(x))


def test_gradients_are_asked_for_too(kernels):
    with kbj.modes(deterministic=True):
        text = jax.jit(jax.grad(lambda x: kbj.rms_norm(x, jnp.ones(64)).sum())).lower(jnp.ones((4, 64))).as_text()
    assert text.count("modes = 1 : i64") == text.count("@kbundle.call.v1") == 2  # forward and backward


def test_an_op_of_which_nothing_promises_it_says_so(probe):
    for op in probe.ops:
        assert op.variants and not any(variant.deterministic for variant in op.variants)
    with pytest.raises(Exception, match="does not promise to be deterministic") as refused:
        kbj.call(probe, "probe.shift", jnp.ones((4, 64)), modes="deterministic")
    assert kbundle.tag_of(refused.value) == "NOT_FOUND"


@pytest.mark.parametrize("given", ["fast", ("deterministic", 1), 3])
def test_words_that_are_no_modes_are_named(kernels, given):
    with pytest.raises(kbundle.InvalidArgument, match="modes is .*'deterministic', 'batch_invariant'"):
        kbj.call(kernels, "softmax.scaled_forward", jnp.ones((4, 64)), modes=given)
    with pytest.raises(kbundle.InvalidArgument, match="must be True, False, or None"):
        kbj.modes(deterministic="yes")
