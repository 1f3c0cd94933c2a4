"""Modes: what a caller asks of results beyond that they are right, as kb_mode of kbundle_c.h says."""

from kbundle._errors import Error

BITS = {"deterministic": 1, "batch_invariant": 2}


def bits(where, names):
    """The number of modes given by name: one, or several in a tuple, list or set. where: for the error."""
    given = (names,) if isinstance(names, str) else names
    if not isinstance(given, (tuple, list, set, frozenset)) or any(name not in BITS for name in given):
        raise Error("INVALID_ARGUMENT", "%s: modes is %r; it must be some of %s" % (where, names, ", ".join(map(repr, BITS))))
    return sum({BITS[name] for name in given})


def changed(where, before, **wanted):
    """The number of modes that were `before`, with those changed that are True or False in `wanted`; None leaves one as it was."""
    for name, on in wanted.items():
        if on not in (None, True, False):
            raise Error("INVALID_ARGUMENT", "%s: %s is %r; it must be True, False, or None to leave it as it is" % (where, name, on))
        before = before if on is None else before | BITS[name] if on else before & ~BITS[name]
    return before
