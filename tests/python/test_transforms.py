"""Promise: a call stands every transformation of JAX: vmap by the op's rule, grad through custom_vjp, scan,
cond, shard_map, export, and use from several threads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from at_once import at_once

import kbundle
import kbundle.jax as kbj

pytestmark = pytest.mark.usefixtures("platform")


def rows(*shape):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(np.float32)


def calls_in(function, *operands):
    """How many kbundle calls the program of a function has, and whether it has a loop."""
    text = jax.jit(function).lower(*operands).as_text()
    return text.count("@kbundle.call.v1"), "while" in text


def test_a_leading_batch_joins_the_rows_in_one_call(probe):
    shift = functools.partial(kbj.call, probe, "probe.shift", by=5)
    x = rows(2, 3, 4, 5)
    for axis in range(4):
        np.testing.assert_array_equal(jax.vmap(shift, in_axes=axis, out_axes=axis)(x), x + 5)
    twice = jax.vmap(jax.vmap(shift, in_axes=1), in_axes=0)
    assert calls_in(twice, x) == (1, False)
    np.testing.assert_array_equal(twice(x), x.transpose(0, 2, 1, 3) + 5)


def test_an_unbatched_operand_with_rows_is_repeated(probe):
    x, row = rows(3, 5), rows(4, 5)
    add = lambda x, row: kbj.call(probe, "probe.add_row", x, row)
    np.testing.assert_array_equal(jax.vmap(add, in_axes=(0, None))(rows(4, 3, 5), row[0]),
                                  rows(4, 3, 5) + row[0])
    np.testing.assert_array_equal(jax.vmap(add, in_axes=(None, 0))(x, row), x[None] + row[:, None])


def test_a_batched_operand_without_rows_makes_a_loop(probe):
    x, row = rows(4, 3, 5), rows(4, 5)
    add = jax.vmap(lambda x, row: kbj.call(probe, "probe.add_row", x, row))
    assert calls_in(add, x, row) == (1, True)
    np.testing.assert_array_equal(add(x, row), x + row[:, None])


def test_a_result_without_rows_makes_a_loop(probe):
    x = rows(4, 3, 5)
    total = jax.vmap(lambda x: kbj.call(probe, "probe.column_sum", x))
    np.testing.assert_array_equal(total(x), x.sum(axis=1))


@pytest.mark.parametrize("op, axes, joins", [
    ("probe.by_channel", [0], True), ("probe.by_channel", [1], True), ("probe.by_channel", [2], True),
    ("probe.add_all", [0, None], False), ("probe.add_all", [None, 0], False), ("probe.add_all", [0, 1], False),
    ("probe.count_rows", [0], False), ("probe.shift", [1], True),
])
def test_a_leading_batch_is_the_same_as_a_loop(probe, op, axes, joins):
    shapes = [(3, 5), (4, 5)][:len(axes)]
    operands = [rows(*shape) if axis is None else rows(*shape[:axis], 2, *shape[axis:])
                for shape, axis in zip(shapes, axes)]
    one = lambda *operands: kbj.call(probe, op, *operands)
    wanted = np.stack([one(*(x if axis is None else np.take(x, index, axis) for x, axis in zip(operands, axes)))
                       for index in range(2)])
    for out_axis in (0, 1, 2):
        batched = jax.vmap(one, in_axes=axes, out_axes=out_axis)
        np.testing.assert_array_equal(batched(*operands), np.moveaxis(wanted, 0, out_axis))
    assert calls_in(batched, *operands) == (1, not joins)


def test_two_batches_stand_where_the_ellipsis_is(probe):
    x = rows(2, 3, 4, 5)  # of batches 2 and 5: [3, 4] each
    channels = lambda x: kbj.call(probe, "probe.by_channel", x)
    twice = jax.vmap(jax.vmap(channels, in_axes=2), in_axes=0)
    assert calls_in(twice, x) == (1, False)
    wanted = x * np.arange(1, 4).reshape(1, 3, 1, 1)
    np.testing.assert_array_equal(twice(x), wanted.transpose(0, 3, 1, 2))


def test_the_loop_rule_handles_mixed_operands_and_two_results(probe, demo):
    x, gain, bias = rows(3, 5, 7), rows(7), rows(3, 7)
    affine = lambda x, bias: kbj.call(demo, "demo.affine", x, gain, bias)
    np.testing.assert_allclose(jax.vmap(affine)(x, bias), x * gain + bias[:, None], rtol=1e-6)
    mask = (rows(3, 5) % 2).astype(np.uint8)
    y, kept = jax.vmap(lambda mask: kbj.call(probe, "probe.keep", rows(5), mask))(mask)
    np.testing.assert_array_equal(y, rows(5) * mask)
    np.testing.assert_array_equal(kept, mask)


def test_a_batch_of_none_is_empty(probe):
    assert jax.vmap(lambda x: kbj.call(probe, "probe.shift", x))(np.zeros((0, 5), np.float32)).shape == (0, 5)
    total = jax.vmap(lambda x: kbj.call(probe, "probe.column_sum", x))
    assert total(np.zeros((0, 3, 5), np.float32)).shape == (0, 5)


def test_an_op_may_refuse_vmap(probe):
    with pytest.raises(NotImplementedError, match="unbatched.*vmap = \"none\""):
        jax.vmap(lambda x: kbj.call(probe, "probe.unbatched", x))(rows(2, 5))


def test_a_derivative_is_refused_with_advice(probe):
    with pytest.raises(kbundle.Error, match="UNIMPLEMENTED.*probe.shift.*custom_vjp"):
        jax.grad(lambda x: kbj.call(probe, "probe.shift", x).sum())(rows(2, 5))


def differentiable_shift(probe):
    @jax.custom_vjp
    def shift(x):
        return kbj.call(probe, "probe.shift", x, by=1)
    shift.defvjp(lambda x: (shift(x), None), lambda _, dy: (kbj.call(probe, "probe.shift", dy, by=10),))
    return shift


def test_grad_goes_through_custom_vjp_and_vmap(probe):
    shift = differentiable_shift(probe)
    loss = lambda x: (shift(x) * rows(2, 5)).sum()
    np.testing.assert_array_equal(jax.grad(loss)(rows(2, 5)), rows(2, 5) + 10)
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.grad(loss)))(rows(3, 2, 5)),
                                  np.broadcast_to(rows(2, 5) + 10, (3, 2, 5)))
    np.testing.assert_array_equal(jax.grad(jax.checkpoint(loss))(rows(2, 5)), rows(2, 5) + 10)


def test_scan_and_cond(probe):
    shift = functools.partial(kbj.call, probe, "probe.shift")
    total, each = jax.jit(lambda x: jax.lax.scan(lambda c, _: (shift(c, by=2), c.sum()), x, length=5))(rows(2, 2))
    np.testing.assert_array_equal(total, rows(2, 2) + 10)
    np.testing.assert_array_equal(each, rows(2, 2).sum() + 8 * np.arange(5))
    either = jax.jit(lambda flag, x: jax.lax.cond(flag, lambda x: shift(x, by=1), lambda x: shift(x, by=-1), x))
    np.testing.assert_array_equal(either(True, rows(3)), rows(3) + 1)
    np.testing.assert_array_equal(either(False, rows(3)), rows(3) - 1)


def mesh_of(platform):
    devices = jax.devices(platform)
    count = 4 if len(devices) >= 4 else 2
    if platform == "cuda" and len(devices) < 2:
        pytest.skip("cuda: shard_map needs two devices")
    return jax.sharding.Mesh(np.array(devices[:count]), ("i",)), count


@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map_calls_on_every_device_with_local_shapes(probe, platform, check_vma):
    mesh, count = mesh_of(platform)
    P = jax.sharding.PartitionSpec

    def local(x, row):  # one operand differs between devices, the other does not
        y = kbj.call(probe, "probe.add_row", x, row)
        assert y.shape == (2, 5)
        return kbj.call(probe, "probe.shift", y, by=jax.lax.axis_size("i"))
    x, row = rows(2 * count, 5), rows(5)
    mapped = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"),
                                   check_vma=check_vma))
    for _ in range(20):
        np.testing.assert_array_equal(mapped(x, row), x + row + count)


def test_shard_map_keeps_what_no_device_differs_in(probe, demo, platform):
    mesh, count = mesh_of(platform)
    P = jax.sharding.PartitionSpec

    def local(x):
        ramp = kbj.call(demo, "demo.ramp", count=5)  # no operand: the same on all devices
        return kbj.call(probe, "probe.shift", x, by=1), ramp
    y, ramp = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P(), out_specs=P()))(rows(3))
    np.testing.assert_array_equal(y, rows(3) + 1)
    np.testing.assert_array_equal(ramp, np.arange(5))


def test_grad_inside_shard_map(probe, platform):
    mesh, count = mesh_of(platform)
    P = jax.sharding.PartitionSpec
    shift = differentiable_shift(probe)
    local = jax.grad(lambda x: (shift(x) * 2).sum())
    mapped = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P("i"), out_specs=P("i")))
    np.testing.assert_array_equal(mapped(rows(4 * count, 3)), np.full((4 * count, 3), 12))


def test_sharded_operands_of_a_plain_jit_give_the_right_result(probe, platform):
    mesh, count = mesh_of(platform)
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    x = jax.device_put(rows(4 * count, 3), sharding)
    np.testing.assert_array_equal(jax.jit(lambda x: kbj.call(probe, "probe.shift", x))(x), rows(4 * count, 3) + 1)


def test_export_survives_a_round_trip(probe, demo, platform):
    def f(x):
        low, high = kbj.call(demo, "demo.bounds", kbj.call(probe, "probe.shift", x, by=3))
        return low + high
    x = rows(3, 5)
    with pytest.raises(ValueError, match="kbundle.call.v1"):
        jax.export.export(jax.jit(f))(x)
    exported = jax.export.export(jax.jit(f), disabled_checks=kbj.disabled_checks())(x)
    again = jax.export.deserialize(exported.serialize())
    np.testing.assert_array_equal(again.call(x), (x + 3).min(-1) + (x + 3).max(-1))


def test_export_for_both_platforms_needs_no_gpu(demo):
    share = jax.jit(lambda x: kbj.call(demo, "demo.histogram_share", x))
    exported = jax.export.export(share, platforms=["cpu", "cuda"], disabled_checks=kbj.disabled_checks())(
        jax.ShapeDtypeStruct((500,), np.uint8))
    x = np.zeros(500, np.uint8)
    np.testing.assert_array_equal(jax.export.deserialize(exported.serialize()).call(x), np.ones(500))


def test_symbolic_shapes_are_refused_with_advice(probe):
    shape = jax.export.symbolic_shape("b, 5")
    with pytest.raises(kbundle.Error, match="UNIMPLEMENTED.*symbolic"):
        jax.export.export(jax.jit(lambda x: kbj.call(probe, "probe.shift", x)),
                          disabled_checks=kbj.disabled_checks())(jax.ShapeDtypeStruct(shape, np.float32))


def test_eight_threads_compile_and_run_at_once(probe):
    def work(seed):
        for turn in range(6):
            x = rows(seed + 1, 3 + turn)
            shift = jax.jit(lambda x: kbj.call(probe, "probe.shift", x, by=seed))
            for _ in range(20):
                np.testing.assert_array_equal(shift(x), x + seed)
    at_once(work)
