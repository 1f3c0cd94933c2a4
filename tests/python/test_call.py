"""Promise: kbj.call passes what it is given, all of it and nothing else, on every platform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle.jax as kbj

pytestmark = pytest.mark.usefixtures("platform")


def rows(*shape, dtype=np.float32):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def test_an_op_runs_eagerly_and_under_jit(probe):
    x = rows(3, 5)
    np.testing.assert_array_equal(kbj.call(probe, "probe.shift", x, by=2), x + 2)
    shift = jax.jit(lambda x: kbj.call(probe, "probe.shift", x, by=-3))
    np.testing.assert_array_equal(shift(x), x - 3)
    np.testing.assert_array_equal(shift(x + 1), x - 2)


def test_dtype_and_rank_choose_the_kernel(probe):
    for shape in [(7,), (2, 3), (2, 3, 4, 5)]:
        for dtype in (np.float32, np.int32):
            y = kbj.call(probe, "probe.shift", rows(*shape, dtype=dtype))
            assert y.dtype == dtype and y.shape == shape
            np.testing.assert_array_equal(y, rows(*shape, dtype=dtype) + 1)


def test_work_large_enough_for_several_threads_is_done_once_everywhere(probe):
    x = rows(1000, 4001)
    for _ in range(3):
        np.testing.assert_array_equal(jax.jit(lambda x: kbj.call(probe, "probe.shift", x, by=1))(x), x + 1)


def test_several_calls_in_one_program_keep_apart(probe):
    @jax.jit
    def f(x):
        for by in (1, 10, 100):
            x = kbj.call(probe, "probe.shift", x, by=by)
        return x
    np.testing.assert_array_equal(f(rows(4, 4)), rows(4, 4) + 111)


def test_two_results_come_as_a_tuple(demo):
    x = np.random.default_rng(0).normal(size=(3, 4, 33)).astype(np.float32)
    low, high = jax.jit(lambda x: kbj.call(demo, "demo.bounds", x))(x)
    np.testing.assert_array_equal(low, x.min(-1))
    np.testing.assert_array_equal(high, x.max(-1))


def test_an_optional_operand_may_be_none_left_out_or_given(demo):
    x, gain, bias = rows(5, 7), rows(7), rows(7) * 10
    for operands in [(x, gain), (x, gain, None)]:
        np.testing.assert_allclose(kbj.call(demo, "demo.affine", *operands), x * gain, rtol=1e-6)
    np.testing.assert_allclose(kbj.call(demo, "demo.affine", x, gain, bias), x * gain + bias, rtol=1e-6)


def test_a_result_that_is_not_there_is_none(probe):
    x, mask = rows(6), np.array([1, 0, 2, 0, 0, 1], np.uint8)
    y, kept = kbj.call(probe, "probe.keep", x)
    assert kept is None
    np.testing.assert_array_equal(y, x)
    y, kept = jax.jit(lambda x, mask: kbj.call(probe, "probe.keep", x, mask))(x, mask)
    np.testing.assert_array_equal(y, x * (mask != 0))
    np.testing.assert_array_equal(kept, mask != 0)


def test_an_in_out_operand_keeps_its_old_value_outside(demo):
    y, x = jnp.asarray(rows(4099)), jnp.ones(4099, np.float32)
    accumulate = jax.jit(lambda y, x: kbj.call(demo, "demo.accumulate", y, x, alpha=0.5))
    np.testing.assert_array_equal(accumulate(y, x), rows(4099) + 0.5)
    np.testing.assert_array_equal(y, rows(4099))


def test_an_in_out_operand_that_is_donated_is_written_in_place(demo):
    accumulate = jax.jit(lambda y, x: kbj.call(demo, "demo.accumulate", y, x, alpha=2.0), donate_argnums=0)
    y = jnp.array(rows(100000))
    address = y.unsafe_buffer_pointer()
    out = accumulate(y, jnp.ones(100000, np.float32))
    np.testing.assert_array_equal(out, rows(100000) + 2)
    assert out.unsafe_buffer_pointer() == address


def test_an_op_without_operands_takes_its_shape_from_attributes(demo):
    np.testing.assert_array_equal(kbj.call(demo, "demo.ramp", count=1000, first=-7), np.arange(1000) - 7)
    np.testing.assert_array_equal(jax.jit(lambda: kbj.call(demo, "demo.ramp", count=3))(), np.arange(3))


def test_a_list_attribute_arrives_in_order(demo):
    x = rows(101)
    for taps in ([0.5, 0.25, -0.125], (2.0,), np.array([1, 2, 3.5])):
        y = kbj.call(demo, "demo.filter", x, taps=taps)
        np.testing.assert_allclose(y, np.convolve(x, taps)[:101], rtol=1e-5)


def test_every_type_of_attribute_arrives(probe):
    seen = kbj.call(probe, "probe.attributes", flag=True, count=np.int64(3), mode="causal", list=[7, 8, 9],
                    number=0.25)
    np.testing.assert_array_equal(seen, [1, 3, 1, 3, 7, 250])
    seen = kbj.call(probe, "probe.attributes", count=-5, list=np.array([4]), number=2)
    np.testing.assert_array_equal(seen, [0, -5, 0, 1, 4, 2000])


def test_an_attribute_can_choose_the_dtype_of_the_result(probe):
    x = rows(9, dtype=np.uint8)
    for out_dtype in ("i32", "int32", jnp.int32, np.dtype("int32")):
        assert kbj.call(probe, "probe.cast", x, out_dtype=out_dtype).dtype == np.int32
    np.testing.assert_array_equal(kbj.call(probe, "probe.cast", x, out_dtype=jnp.float32), x.astype(np.float32))


def test_steps_that_talk_through_the_workspace(demo):
    x = np.random.default_rng(1).integers(0, 256, 50003).astype(np.uint8)
    share = jax.jit(lambda x: kbj.call(demo, "demo.histogram_share", x))
    expected = np.bincount(x, minlength=256)[x] / x.size
    for _ in range(2):  # the workspace of the second run is dirty
        np.testing.assert_allclose(share(x), expected, rtol=1e-6)


def test_zero_elements_are_no_call(probe, demo):
    for shape in [(0,), (3, 0), (0, 5)]:
        x = np.zeros(shape, np.float32)
        lowered = jax.jit(lambda x: kbj.call(probe, "probe.shift", x)).lower(x)
        assert "kbundle.call" not in lowered.as_text()
        assert kbj.call(probe, "probe.shift", x).shape == shape
    assert kbj.call(demo, "demo.ramp", count=0).shape == (0,)
    low, high = kbj.call(demo, "demo.bounds", np.zeros((0, 4), np.float32))
    assert low.shape == high.shape == (0,)
