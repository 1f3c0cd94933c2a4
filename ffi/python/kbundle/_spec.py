"""Requests: operands and attributes in the forms people write, and as the C structs.

An operand is described by (dtype name, shape) or None where it is absent; an attribute by
(name, kind, value) with a value that hashes and compares exactly (floats as their repr, so that 0.0
and -0.0 differ and NaN equals itself).
"""

import ctypes
import re

from kbundle._errors import Error
from kbundle._library import Attribute, ProblemSpec, Tensor

# kbundle's name: number (dtype.h), then the names NumPy and JAX use.
_DTYPES = {
    "bool": (1, "bool_"), "u8": (2, "uint8"), "i8": (3, "int8"), "u16": (4, "uint16"),
    "i16": (5, "int16"), "u32": (6, "uint32"), "i32": (7, "int32"), "u64": (8, "uint64"),
    "i64": (9, "int64"), "f16": (10, "float16"), "bf16": (11, "bfloat16"), "f32": (12, "float32"),
    "f64": (13, "float64"), "e4m3": (14, "float8_e4m3fn"), "e5m2": (15, "float8_e5m2"),
    "e8m0": (16, "float8_e8m0fnu"),
}
_NAMES = {}
for _name, (_number, _long) in _DTYPES.items():
    _NAMES[_name] = _NAMES[_long] = _name
# kbundle's name -> the name that jax.numpy.dtype understands
LONG_NAMES = {name: long.rstrip("_") for name, (_, long) in _DTYPES.items()}

_TEXT_SPEC = re.compile(r"^\s*([a-z0-9_]+)\s*\[([\d\s,]*)\]\s*$")

BOOL, INT, FLOAT, TEXT, INT_ARRAY, FLOAT_ARRAY = range(6)


def dtype_name(dtype):
    """kbundle's name of a dtype given as text, NumPy or JAX dtype, or scalar type."""
    for name in (dtype if isinstance(dtype, str) else None, getattr(dtype, "name", None),
                 getattr(getattr(dtype, "dtype", None), "name", None),
                 getattr(dtype, "__name__", None)):
        if isinstance(name, str) and name in _NAMES:
            return _NAMES[name]
    raise Error("INVALID_ARGUMENT", "reading a dtype: %r is none that an op can have; known are %s"
                % (dtype, ", ".join(_DTYPES)))


def operand(spec):
    """(dtype name, shape) of "bf16[4,8]", of a (dtype, shape) pair, or of anything with shape and
    dtype; None of None."""
    if spec is None:
        return None
    if isinstance(spec, str):
        match = _TEXT_SPEC.match(spec)
        if not match:
            raise Error("INVALID_ARGUMENT", "reading operand %r: write it like 'bf16[4,2048]'" % spec)
        dims = [part for part in match.group(2).replace(" ", "").split(",") if part]
        return dtype_name(match.group(1)), tuple(int(dim) for dim in dims)
    if isinstance(spec, tuple) and len(spec) == 2:
        return dtype_name(spec[0]), tuple(int(dim) for dim in spec[1])
    if hasattr(spec, "shape") and hasattr(spec, "dtype"):
        return dtype_name(spec.dtype), tuple(_static_dim(dim) for dim in spec.shape)
    raise Error("INVALID_ARGUMENT", "reading an operand: %r has no shape and dtype; give an array, "
                "a (dtype, shape) pair, text like 'bf16[4,2048]', or None" % (spec,))


def _static_dim(dim):
    try:
        return int(dim)
    except Exception:
        raise Error("UNIMPLEMENTED", "reading an operand: its dimension %s is symbolic, but plans are "
                    "made for known sizes; export with concrete shapes" % (dim,))


def _element_kind(values):
    return FLOAT if any(isinstance(value, float) for value in values) else INT


def _scalar(value):
    """A plain Python value; NumPy's and 0-d arrays give up theirs."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def attribute(name, value, declared=None):
    """(name, kind, value). declared: the op's type of it ("float", "int[]", "dtype", ...), or None."""
    if declared == "dtype":
        return name, TEXT, dtype_name(value)
    value = _scalar(value)
    if isinstance(value, bool):
        return name, BOOL, value
    if isinstance(value, int):
        if not -2**63 <= value < 2**63:
            raise Error("INVALID_ARGUMENT", "reading attribute %r: %d does not fit 64 bits" % (name, value))
        return name, INT, value
    if isinstance(value, float):
        return name, FLOAT, repr(float(value))  # NumPy's own floats have another repr
    if isinstance(value, str):
        return name, TEXT, value
    values = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(values, (list, tuple)):
        values = [_scalar(element) for element in values]
        if all(isinstance(element, (int, float)) for element in values):
            kind = FLOAT if declared == "float[]" else _element_kind(values)
            if kind == FLOAT:
                return name, FLOAT_ARRAY, tuple(repr(float(element)) for element in values)
            return name, INT_ARRAY, tuple(int(element) for element in values)
    raise Error("INVALID_ARGUMENT", "reading attribute %r: %r is none of bool, int, float, string, "
                "dtype, or a flat list of ints or floats" % (name, value))


def attributes(given, declared):
    """All of them, by name. declared: {name: type}."""
    return tuple(attribute(name, given[name], declared.get(name)) for name in sorted(given))


def plain_value(kind, value):
    """The Python value of a (kind, value) pair; arrays as tuples."""
    if kind == FLOAT:
        return float(value)
    if kind == FLOAT_ARRAY:
        return tuple(float(element) for element in value)
    return value


def c_spec(operands, attribute_list):
    """A kb_problem_spec; the returned structure keeps everything it points to."""
    tensors = (Tensor * max(1, len(operands)))()
    for slot, described in zip(tensors, operands):
        if described is None:
            continue
        dtype, shape = described
        slot.present = 1
        slot.dtype = _DTYPES[dtype][0]
        slot.rank = len(shape)
        slot.dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    values = (Attribute * max(1, len(attribute_list)))()
    for slot, (name, kind, value) in zip(values, attribute_list):
        slot.name = name.encode()
        slot.kind = kind
        value = plain_value(kind, value)
        if kind in (BOOL, INT):
            slot.integer = int(value)
        elif kind == FLOAT:
            slot.number = value
        elif kind == TEXT:
            slot.text = value.encode()
        else:
            slot.count = len(value)
            element, field = ((ctypes.c_int64, "integers") if kind == INT_ARRAY
                              else (ctypes.c_double, "numbers"))
            setattr(slot, field, (element * max(1, len(value)))(*value))
    return ProblemSpec(tensors, len(operands), values, len(attribute_list))
