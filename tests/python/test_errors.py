"""Promise: a wrong call is refused before anything runs, with a tag to tell errors apart by, and a message
that says what was found, what is allowed and what to try."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kbundle
import kbundle.jax as kbj


def refused(tag, *words):
    """A context that wants a kbundle error of this tag whose text has all the words."""
    return pytest.raises(kbundle.Error, match=rf"^\[kbundle:{tag}\](?s:.*)" + "".join(f"(?=(?s:.*){w})" for w in words))


X = np.ones((3, 5), np.float32)


def test_errors_know_their_tag_and_code():
    error = kbundle.Error("DATA_LOSS", "text")
    assert (error.tag, error.code, str(error)) == ("DATA_LOSS", 15, "[kbundle:DATA_LOSS] text")
    assert kbundle.tag_of(ValueError("x [kbundle:NOT_FOUND] y")) == "NOT_FOUND"
    assert kbundle.tag_of(ValueError("x")) is None


def test_missing_and_foreign_files():
    with refused("NOT_FOUND", "nowhere.kb"):
        kbundle.open("/nowhere.kb")
    with refused("DATA_LOSS", "not a kbundle file"):
        kbundle.open(__file__)


def test_a_truncated_file(probe_path, tmp_path):
    data = probe_path.read_bytes()
    for size in (0, 100, 128, len(data) // 2, len(data) - 1):
        (tmp_path / "short.kb").write_bytes(data[:size])
        with refused("DATA_LOSS"):
            kbundle.open(tmp_path / "short.kb", name="short")


def test_an_unknown_op_names_the_nearest(probe):
    with refused("NOT_FOUND", "probe.shfit", "probe.shift"):
        kbj.call(probe, "probe.shfit", X)


@pytest.mark.parametrize("operands, words", [
    ((), ["x"]),
    ((X, X), ["operand"]),
    ((X.astype(np.float16),), ["float16", "float32"]),
    ((np.float32(1),), ["x"]),
])
def test_wrong_operands(probe, operands, words):
    with refused("INVALID_ARGUMENT", "probe.shift", *words):
        kbj.call(probe, "probe.shift", *operands)


def test_shapes_that_do_not_fit_each_other(probe):
    with refused("INVALID_ARGUMENT", "probe.add_row", "row", "4", "5"):
        kbj.call(probe, "probe.add_row", X, np.ones(4, np.float32))


def test_a_rank_that_does_not_fit(probe):
    with refused("INVALID_ARGUMENT", "probe.unbatched", "x"):
        kbj.call(probe, "probe.unbatched", X)


@pytest.mark.parametrize("attributes, words", [
    (dict(list=[1]), ["count"]),
    (dict(count=1, list=[1], cuont=2), ["cuont", "count"]),
    (dict(count="three", list=[1]), ["count"]),
    (dict(count=1, list=[1], mode="wavy"), ["mode", "wavy", "plain"]),
    (dict(count=1, list=[1, 2, 3, 4, 5]), ["list", "4"]),
    (dict(count=1.5, list=[1]), ["count"]),
])
def test_wrong_attributes(probe, attributes, words):
    with refused("INVALID_ARGUMENT", *words):
        kbj.call(probe, "probe.attributes", **attributes)


def test_attributes_of_no_known_kind(probe):
    for value in (None, {}, [[1]], object(), 2**63):
        with refused("INVALID_ARGUMENT", "by"):
            kbj.call(probe, "probe.shift", X, by=value)


def test_a_traced_attribute(probe):
    with refused("INVALID_ARGUMENT", "by", "traced"):
        jax.jit(lambda x, by: kbj.call(probe, "probe.shift", x, by=by))(X, 3)


def test_a_dtype_no_op_can_have(probe):
    with refused("INVALID_ARGUMENT", "complex64"):
        kbj.call(probe, "probe.shift", X.astype(np.complex64))


def test_a_bundle_that_is_none(probe_path):
    with refused("INVALID_ARGUMENT", "kbundle.open"):
        kbj.call(str(probe_path), "probe.shift", X)


def test_other_content_of_an_op_under_a_taken_name(probe, other_probe_path):
    with refused("ALREADY_EXISTS", "probe.add_all", "other_probe.kb", "another name"):
        kbundle.open(other_probe_path, name=probe.name)


# ---- errors that XLA carries: what a program in the persistent cache or an export can meet ----

def raw_call(bundle, changes={}, *, op="probe.shift", operands=(X,), shapes=None):
    """The call that kbj.call would make for an op, with some attributes changed (None: left out)."""
    attributes = {"bundle": bundle.name, "op": op, "interface": bundle.op(op).interface,
                  "present": 1, "results": 1, "workspace_bytes": 0, **changes}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    call = jax.ffi.ffi_call("kbundle.call.v1", shapes or [jax.ShapeDtypeStruct(X.shape, X.dtype)])
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        return jax.block_until_ready(jax.jit(lambda *x: call(*x, **attributes))(*operands))


def refused_by_xla(tag, *words):
    return pytest.raises(Exception, match=rf"\[kbundle:{tag}\](?s:.*)" + "".join(f"(?=(?s:.*){w})" for w in words))


def test_the_raw_call_itself_is_right(probe):
    np.testing.assert_array_equal(raw_call(probe)[0], X + 1)


def test_a_bundle_that_is_not_open_here(probe):
    with refused_by_xla("NOT_FOUND", "elsewhere", probe.name):
        raw_call(probe, {"bundle": "elsewhere"})


def test_another_interface(probe):
    with refused_by_xla("FAILED_PRECONDITION", "0123456789abcdef", probe.op("probe.shift").interface, "trace"):
        raw_call(probe, {"interface": "0123456789abcdef"})


def test_an_op_the_bundle_does_not_have(probe):
    with refused_by_xla("NOT_FOUND", "probe.shitf", "probe.shift"):
        raw_call(probe, {"op": "probe.shitf"})


@pytest.mark.parametrize("changes, words", [
    ({"present": None}, ["missing"]),
    ({"present": 2}, ["masks"]),
    ({"results": 3}, ["masks"]),
    ({"bundle": 3}, ["bundle", "string"]),
    ({"workspace_bytes": -1}, ["negative"]),
    ({"workspace_bytes": "1"}, ["workspace_bytes", "int64"]),
    ({"extra": 1}, ["extra"]),
    ({"a.by": "one"}, ["by"]),
    ({"a.sideways": 1}, ["sideways"]),
])
def test_damaged_call_attributes(probe, changes, words):
    with refused_by_xla("INVALID_ARGUMENT", *words):
        raw_call(probe, changes)


def test_results_that_are_not_the_ops(probe):
    shape = jax.ShapeDtypeStruct
    with refused_by_xla("INVALID_ARGUMENT", "1", "2"):
        raw_call(probe, shapes=[shape(X.shape, X.dtype)] * 2)
    with refused_by_xla("INVALID_ARGUMENT", "result 0", r"f32\[3,4\]", r"f32\[3,5\]"):
        raw_call(probe, shapes=[shape((3, 4), X.dtype)])
    with refused_by_xla("INVALID_ARGUMENT", "result 0", "i32", "f32"):
        raw_call(probe, shapes=[shape(X.shape, jnp.int32)])
    with refused_by_xla("INVALID_ARGUMENT", "workspace", r"u8\[100\]"):
        raw_call(probe, {"workspace_bytes": 100}, shapes=[shape(X.shape, X.dtype), shape((99,), jnp.uint8)])


def test_a_workspace_too_small_for_every_variant(demo):
    with refused_by_xla("RESOURCE_EXHAUSTED", "1024"):
        raw_call(demo, op="demo.histogram_share", operands=(np.zeros(500, np.uint8),),
                 shapes=[jax.ShapeDtypeStruct((500,), np.float32)])


def test_an_error_leaves_the_process_usable(probe):
    for _ in range(3):
        with pytest.raises(Exception):
            raw_call(probe, {"bundle": "elsewhere"})
        np.testing.assert_array_equal(kbj.call(probe, "probe.shift", X), X + 1)
