"""Promise: what the Python package hands to C is what the caller said, to the last bit and character, or an error that names the
argument; nothing wraps, rounds or is cut short on the way."""

import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj


def refused(*words):
    """A kbundle error that is a ValueError too and has all the words."""
    return pytest.raises(ValueError, match=r"^\[kbundle:INVALID_ARGUMENT\](?s:.*)" + "".join(f"(?=(?s:.*){w})" for w in words))


@pytest.mark.parametrize("operand, word", [
    ("f32[18446744073709551619,4]", "18446744073709551619"), (("f32", (2**64 + 3, 4)), "18446744073709551619"),
    ("f32[9223372036854775808]", "2\\^63"), (("f32", (-1,)), "-1"), (("f32", (2.5,)), "2.5"),
    ("f32[%s]" % ("9" * 5000), "sizes are 0 to"), ("f32[1_0]", "1_0"), ("f32[3,,4]", "3,,4"), ("f32[3,]", "3,"), ("f32[1 0]", "1 0"),
    ("f32[\u0663]", "tensor"), ("f32[3]\0", "tensor"),
])
def test_sizes_of_operands(probe, operand, word):
    with refused("operand 0 of probe.shift", word):
        probe.explain("probe.shift", operand)


def test_the_largest_size_is_passed_as_it_is(probe):
    with pytest.raises(kbundle.Error, match="9223372036854775807|overflow"):
        probe.explain("probe.shift", "f32[9223372036854775807,4]")


@pytest.mark.parametrize("attributes, words", [
    (dict(count=1, list=[2**64 + 7]), ["'list'", "18446744073709551623"]), (dict(count=2**63, list=[1]), ["'count'"]),
    (dict(count=1, list=[True]), ["'list'"]), (dict(count=1, list=np.array([2**63], np.uint64)), ["'list'"]),
    (dict(count=True, list=[1]), ["'count'"]), (dict(count=1.0, list=[1]), ["'count'"]),
    (dict(count=1, list=[1], number=2**53 + 1), ["'number'", "exact"]), (dict(count=1, list=[1], flag=2), ["'flag'"]),
    (dict(count=1, list=[1], mode="plain\0x"), ["'mode'", "NUL"]), (dict(count=1, list=[1], mode="\ud800"), ["'mode'", "Unicode"]),
    (dict(count=1, list=[1], **{"fl\0ag": True}), ["NUL"]),
])
def test_values_of_attributes(probe, attributes, words):
    with refused(*words):
        probe.explain("probe.attributes", **attributes)
    with refused(*words):
        kbj.call(probe, "probe.attributes", **attributes)


def test_a_list_of_floats_takes_exact_integers_only():
    from kbundle import _spec
    assert _spec.attribute("a", [1, 2**53], "float[]")[2] == ("1.0", repr(2.0**53))
    for value in (2**53 + 1, 10**400):
        with refused("'a'", "exact"):
            _spec.attribute("a", [value], "float[]")


def test_flags_may_be_0_and_1_and_lists_may_be_empty(probe):
    seen = kbj.call(probe, "probe.attributes", flag=1, count=-5, list=[-7])
    assert list(seen)[:5] == [1, -5, 0, 1, -7]
    assert probe.explain("probe.attributes", flag=0, count=1, list=[1])["chosen"]
    with pytest.raises(Exception, match=r"OUT_OF_RANGE.*list=\[\]"):  # it arrives, and this op's kernel wants list[0]
        kbj.call(probe, "probe.attributes", count=1, list=())


@pytest.mark.parametrize("call, words", [
    (lambda probe: kbundle.open(probe.path, name=b"bytes"), "name is b'bytes'"),
    (lambda probe: kbundle.open(probe.path, name=""), "name is ''"),
    (lambda probe: probe.op(None), "None is no name"), (lambda probe: kbj.call(probe, b"probe.shift", np.ones(3)), "is no name"),
    (lambda probe: kbj.call(probe, ["probe.shift"], np.ones(3)), "is no name"),
    (lambda probe: probe.explain("probe.shift", ("f32", 5)), "its shape is 5"),
    (lambda probe: probe.explain("probe.shift", "f32[3]", target=5), "target is 5"),
])
def test_what_is_no_name_shape_or_target_is_refused_as_that(probe, call, words):
    with refused(words):
        call(probe)
    assert kbundle.find(probe.name) is probe


def test_explain_knows_the_host_by_name(probe):
    assert probe.explain("probe.shift", "f32[3]", target="host") == probe.explain("probe.shift", "f32[3]")


@pytest.mark.parametrize("call", [
    lambda probe: kbundle.open(probe.path + "\0.kb"), lambda probe: kbundle.open(probe.path, name="a\0b"),
    lambda probe: probe.force("probe.shift\0/x"), lambda probe: probe.deny("probe.shift\0/x"),
    lambda probe: probe.explain("probe.shift", "f32[3]", target="sm_90\0a"), lambda probe: probe.op("probe.shift\0x"),
])
def test_a_nul_character_is_refused_where_c_would_stop_reading(probe, call):
    with refused("NUL"):
        call(probe)


def test_explain_refuses_what_execute_refuses(probe):
    X = np.ones((3, 5), np.float32)
    verdict = probe.explain("probe.shift", X, by=2**40)
    assert verdict["chosen"] is None and "1099511627776" in verdict["error"]
    assert not any(candidate["legal"] for candidate in verdict["candidates"])
    with pytest.raises(Exception, match="1099511627776"):
        np.asarray(kbj.call(probe, "probe.shift", X, by=2**40))
    assert probe.explain("probe.shift", X, by=2**31 - 1)["chosen"]
