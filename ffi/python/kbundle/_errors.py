"""Errors as kbundle raises them, and the tag by which they are told apart inside other errors."""

import re

CODES = {
    1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND",
    6: "ALREADY_EXISTS", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION",
    10: "ABORTED", 11: "OUT_OF_RANGE", 12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE",
    15: "DATA_LOSS", 16: "UNAUTHENTICATED",
}
_NUMBERS = {name: code for code, name in CODES.items()}
_TAG = r"\[kbundle:([A-Z_]+)\]"


class Error(RuntimeError):
    """What kbundle raises. `code` is the canonical number, `tag` its name ("NOT_FOUND"). Error("INVALID_ARGUMENT", ..) is
    an InvalidArgument."""

    def __new__(cls, tag, message):
        return super().__new__(InvalidArgument if cls is Error and tag == "INVALID_ARGUMENT" else cls, tag, message)

    def __init__(self, tag, message):
        super().__init__("[kbundle:%s] %s" % (tag, message))
        self.tag = tag
        self.code = _NUMBERS[tag]
        self.message = message

    def __reduce__(self):
        return (type(self), (self.tag, self.message))


class InvalidArgument(Error, ValueError):
    """An argument that is refused: a ValueError too."""


class InvalidType(InvalidArgument, TypeError):
    """An operand that is refused for its dtype: a TypeError as well, which NumPy, JAX and PyTorch raise there."""


def tag_of(error):
    """The tag of a kbundle error inside any exception or text, such as jax's, or None."""
    match = re.search(_TAG, str(error))
    return match.group(1) if match else None
