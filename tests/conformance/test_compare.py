"""The judge of conformance can say no: wrong, unwritten, overwritten and misplaced values are all seen."""

import ml_dtypes
import numpy as np
import pytest

from conformance import capi, compare, devices, problems


def ratio(found, wanted, **tolerance):
    return compare.worst(np.asarray(found), np.asarray(wanted, np.float64), **tolerance)[0]


def test_half_a_unit_of_bf16_is_half_the_tolerance():
    found = np.array([1.0], ml_dtypes.bfloat16)
    assert ratio(found, [1.0 + 2.0**-8], ulps=1) == pytest.approx(0.5)
    assert ratio(found, [1.0 + 2.0**-6], ulps=1) == pytest.approx(2.0)


def test_smallest_numbers_of_f16_keep_their_own_spacing():
    tiny = np.array([2.0**-24], np.float16)
    assert ratio(tiny, [2.0**-24 * 1.5], ulps=1) == pytest.approx(0.5)
    assert ratio(np.zeros(1, np.float16), [3 * 2.0**-24], ulps=1) == pytest.approx(3.0)


def test_relative_is_to_the_rows_largest_magnitude():
    wanted = [[100.0, 1.0], [1.0, 0.5]]
    found = np.array(wanted, np.float32) + np.array([[0, 1e-4], [0, 1e-4]], np.float32)
    assert ratio(found[:1], wanted[:1], relative=2e-6) < 1 < ratio(found[1:], wanted[1:], relative=2e-6)


@pytest.mark.parametrize("found, wanted", [([np.nan], [1.0]), ([1.0], [np.nan]), ([np.inf], [-np.inf]), ([np.inf], [1.0])])
def test_other_nan_or_infinity_is_infinitely_wrong(found, wanted):
    assert ratio(np.array(found, np.float32), wanted, relative=1.0, ulps=100) == np.inf


def test_same_nan_and_infinity_are_right():
    assert ratio(np.array([np.nan, np.inf, 1], np.float32), [np.nan, np.inf, 1], relative=1e-6) == 0


def test_values_past_the_largest_become_infinite():
    assert ratio(np.array([np.inf], np.float16), [70000.0], ulps=1) == 0


def test_integers_must_be_equal():
    assert ratio(np.array([1, 2], np.int32), [1, 3]) == np.inf


def test_write_outside_a_buffer_is_seen():
    device = devices.Host()
    for offset in (0, 4):
        buffer = devices.Buffer(device, "f32", (5,), offset)
        assert buffer.address % 256 == offset and buffer.guards_whole()
        device.fill(buffer.address + buffer.size, 0, 1)
        assert not buffer.guards_whole()
        before = devices.Buffer(device, "f32", (5,), offset)
        device.fill(before.address - 1, 0, 1)
        assert not before.guards_whole()


def test_poison_is_a_nan_of_every_float():
    for dtype in ("f16", "bf16", "f32", "f64"):
        assert np.isnan(devices.Buffer(devices.Host(), dtype, (3,)).poison().get().astype(np.float64)).all()


def test_problems_keep_relations_and_reach_odd_sizes():
    op = {"name": "made.up", "types": [{"name": "T", "attribute": None}], "attributes": [],
          "operands": [{"name": "x", "shape": "T[rows.., Q, K]"}, {"name": "m", "shape": "u8[Q, K + 1]"}],
          "problems": [{"operands": [{"present": True, "dims": [4, 8, 64, 64]}, {"present": True, "dims": [64, 65]}],
                        "attributes": {}}]}
    found = problems.of_types(op, {"T": "f16"}, 0, problems.MAX_ELEMENTS)
    shapes = {(tuple(p.operands[0][1]), tuple(p.operands[1][1])) for p in found}
    assert ((4, 8, 64, 64), (64, 65)) in shapes
    assert any(x[-1] == x[-2] == 1000 for x, _ in shapes)
    assert any(x[-1] == 4097 and x[-2] == 3 for x, _ in shapes)
    assert any(x[0] == 300 for x, _ in shapes)
    assert all(m == (x[-2], x[-1] + 1) for x, m in shapes)
    assert all(isinstance(p, capi.Problem) and p.operands[0][0] == "f16" for p in found)
