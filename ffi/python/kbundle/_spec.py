"""Requests in normal form: operands and attributes as people write them, checked, as values that hash and compare exactly.

An operand is (dtype name, shape) or None where it is absent; an attribute (name, kind, value), floats as their repr, so that
0.0 and -0.0 differ and NaN equals itself. Whatever fits no 64 bits, or would change on its way into them, is refused here.
"""

import operator
import re

from kbundle._dtypes import dtype_name
from kbundle._errors import Error

_TEXT_SPEC = r"\s*([a-z0-9_]+)\s*\[([0-9\s,]*)\]\s*"
_NUMBER = r"[0-9]+"
_MOST = 2**63 - 1

BOOL, INT, FLOAT, TEXT, INT_ARRAY, FLOAT_ARRAY = range(6)


def operand(spec, what="an operand"):
    """(dtype name, shape) of "bf16[4,8]", of a (dtype, shape) pair, or of anything with shape and
    dtype; None of None. what: the argument's name, for errors."""
    if spec is None:
        return None
    if isinstance(spec, str):
        return _operand_of_text(spec, what)
    if isinstance(spec, tuple) and len(spec) == 2:
        return dtype_name(spec[0]), tuple(_dim(dim, what) for dim in _dims(spec[1], what))
    if hasattr(spec, "shape") and hasattr(spec, "dtype"):
        return dtype_name(spec.dtype), tuple(_dim(dim, what) for dim in spec.shape)
    raise Error("INVALID_ARGUMENT", "reading %s: %r has no shape and dtype; give an array, "
                "a (dtype, shape) pair, text like 'bf16[4,2048]', or None" % (what, spec))


def _dims(shape, what):
    if isinstance(shape, str) or not hasattr(shape, "__iter__"):
        raise Error("INVALID_ARGUMENT", "reading %s: its shape is %r; give sizes like (4, 2048)" % (what, shape))
    return shape


def _operand_of_text(spec, what):
    match = re.fullmatch(_TEXT_SPEC, spec)
    dims = [part.strip() for part in match.group(2).split(",")] if match and match.group(2).strip() else []
    if not match or not all(re.fullmatch(_NUMBER, dim) for dim in dims):
        raise Error("INVALID_ARGUMENT", "reading %s: %r is no tensor; write it like 'bf16[4,2048]'" % (what, spec))
    return dtype_name(match.group(1)), tuple(_dim(int(dim.lstrip("0")[:40] or "0"), what) for dim in dims)


def _dim(dim, what):
    try:
        size = operator.index(dim)
    except Exception:
        if isinstance(dim, (float, str)):
            raise Error("INVALID_ARGUMENT", "reading %s: its dimension %r is no integer" % (what, dim)) from None
        raise Error("UNIMPLEMENTED", "reading %s: its dimension %s is symbolic, but plans are made for known sizes; "
                    "export with concrete shapes" % (what, dim)) from None
    if not 0 <= size <= _MOST:
        raise Error("INVALID_ARGUMENT", "reading %s: its dimension is %d; sizes are 0 to 2^63 - 1" % (what, size))
    return size


# ---- attributes ----

def attribute(name, value, declared=None):
    """(name, kind, value). declared: the op's type of it ("float", "int[]", "dtype", ...), or None."""
    if declared == "dtype":
        return name, TEXT, dtype_name(value)
    value = _scalar(value)
    if isinstance(value, bool):
        return name, BOOL, value
    if isinstance(value, int):
        return name, INT, _integer(name, value)
    if isinstance(value, float):
        return name, FLOAT, repr(float(value))  # NumPy's own floats have another repr
    if isinstance(value, str):
        return name, TEXT, value
    values = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(values, (list, tuple)):
        values = [_scalar(element) for element in values]
        if all(isinstance(element, (int, float)) and not isinstance(element, bool) for element in values):
            if declared == "float[]" or any(isinstance(element, float) for element in values):
                return name, FLOAT_ARRAY, tuple(repr(_float(name, element)) for element in values)
            return name, INT_ARRAY, tuple(_integer(name, element) for element in values)
    raise Error("INVALID_ARGUMENT", "reading attribute %r: %r is none of bool, int, float, string, "
                "dtype, or a flat list of ints or floats" % (name, value))


def attributes(given, declared):
    """All of them, by name. declared: {name: type}."""
    return tuple(attribute(name, given[name], declared.get(name)) for name in sorted(given))


def _scalar(value):
    """A plain Python value; NumPy's and 0-d arrays give up theirs."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def _integer(name, value):
    if -_MOST - 1 <= value <= _MOST:
        return int(value)
    raise Error("INVALID_ARGUMENT", "reading attribute %r: %d does not fit 64 bits; give -2^63 to 2^63 - 1" % (name, value))


def _float(name, value):
    """An element of a list of floats; an integer only where a double holds it exactly."""
    if isinstance(value, float) or abs(value) <= 2**53:
        return float(value)
    raise Error("INVALID_ARGUMENT", "reading attribute %r: %d has no exact value as a float; give a float" % (name, value))


def plain_value(kind, value):
    """The Python value of a (kind, value) pair; arrays as tuples."""
    if kind == FLOAT:
        return float(value)
    if kind == FLOAT_ARRAY:
        return tuple(float(element) for element in value)
    return value


def spread(given, present):
    """What is given, None between where an operand is absent: in the op's order."""
    given = iter(given)
    return [next(given) if there else None for there in present]
