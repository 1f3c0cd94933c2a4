"""Functions that packages bring along for their ops, for one framework: every public name of the modules that are entry points
of a group such as "kbundle.jax".

They are data to this package, as ops are: it knows none of them by name.
"""

import functools

from kbundle import _entry_points
from kbundle._errors import Error


@functools.lru_cache(maxsize=None)
def modules(group):
    """((origin, module), ...) of the group, imported."""
    return tuple((origin, _entry_points.load(origin, entry)) for origin, entry in _entry_points.entry_points(group))


@functools.lru_cache(maxsize=None)
def wrappers(group):
    """{name: function} of all packages that are installed."""
    found, places = {}, {}
    for origin, module in modules(group):
        for name in _public(origin, module):
            if name in found:
                raise Error("ALREADY_EXISTS", "reading the wrappers of installed packages: both %s and %s have %r; take one away"
                            % (places[name], origin, name))
            found[name], places[name] = getattr(module, name), origin
    return found


def _public(origin, module):
    """Names of functions that are there."""
    names = getattr(module, "__all__", None)
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and hasattr(module, name) for name in names):
        raise Error("FAILED_PRECONDITION", "reading what %s brings: %s has %s; its __all__ must list the names of its functions, all of which "
                    "it has; mend it, install that package again, or take it away" % (origin, getattr(module, "__name__", repr(module)), (
                        "no __all__" if names is None else "the __all__ %r" % (names,))))
    return names


def wrapper(group, name):
    """The function of that name, or an AttributeError that lists what there is."""
    found = wrappers(group).get(name)
    if found is None:
        raise AttributeError("%s has no %r; wrappers installed: %s" % (group, name, ", ".join(sorted(wrappers(group))) or "none"))
    return found
