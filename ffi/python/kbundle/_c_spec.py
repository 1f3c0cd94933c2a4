"""A request in the normal form of _spec as the C structs of kbundle_c.h."""

import ctypes

from kbundle import _spec
from kbundle._dtypes import dtype_number
from kbundle._library import Attribute, ProblemSpec, Tensor, text


def c_spec(operands, attributes):
    """A kb_problem_spec; the returned structure keeps everything it points to. ctypes drops the bits of an integer that
    do not fit, so that the normal form has been checked for them."""
    tensors = (Tensor * max(1, len(operands)))()
    for slot, described in zip(tensors, operands):
        if described is None:
            continue
        dtype, shape = described
        slot.present = 1
        slot.dtype = dtype_number(dtype)
        slot.rank = len(shape)
        slot.dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    values = (Attribute * max(1, len(attributes)))()
    for slot, (name, kind, value) in zip(values, attributes):
        slot.name = text(name, "the name of an attribute")
        slot.kind = kind
        _set_value(slot, name, kind, _spec.plain_value(kind, value))
    return ProblemSpec(tensors, len(operands), values, len(attributes))


def _set_value(slot, name, kind, value):
    if kind in (_spec.BOOL, _spec.INT):
        slot.integer = int(value)
    elif kind == _spec.FLOAT:
        slot.number = value
    elif kind == _spec.TEXT:
        slot.text = text(value, "attribute %r" % name)
    else:
        slot.count = len(value)
        element, field = ((ctypes.c_int64, "integers") if kind == _spec.INT_ARRAY
                          else (ctypes.c_double, "numbers"))
        setattr(slot, field, (element * max(1, len(value)))(*value))
