"""What is said of an operand whose dtype an op does not have: a TypeError in the words of JAX, with JAX's names. Asked where a call is refused."""

from kbundle._dtypes import LONG_NAMES, dtype_name
from kbundle._errors import Error, InvalidType


def type_error(op, present, arrays):
    """An InvalidType that names the first operand at fault, or None. op: its description."""
    arrays, types = iter(arrays), {one.name: one for one in op.types}
    for operand, there in zip(op.operands, present):
        if not there:
            continue
        array, word = next(arrays), operand.shape.split("[")[0]
        if word not in types and word not in LONG_NAMES:
            continue
        allowed = tuple(types[word].dtypes) if word in types else (word,)
        try:
            fits = dtype_name(array.dtype) in allowed
        except Error:
            fits = False
        if not fits:
            *others, last = [LONG_NAMES[name] for name in allowed]
            return InvalidType("INVALID_ARGUMENT", "op %r requires %s of dtype %s, got %s%s; convert it with astype" % (
                op.name, operand.name, " or ".join(filter(None, (", ".join(others), last))), array.dtype, list(array.shape)))
    return None
