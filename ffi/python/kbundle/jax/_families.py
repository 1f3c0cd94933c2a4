"""Wrappers that op families bring along: every public name of kbundle/families/*.py.

A family's wrappers are data to this package, as its ops are: it knows none of them by name.
"""

import functools
import importlib
import os
import pkgutil

from kbundle._errors import Error

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "families")


@functools.lru_cache(maxsize=None)
def wrappers():
    """{name: function} of all families that are installed."""
    found = {}
    for module_info in sorted(pkgutil.iter_modules([_FOLDER]), key=lambda info: info.name):
        module = importlib.import_module("kbundle.families." + module_info.name)
        for name in module.__all__:
            if name in found:
                raise Error("ALREADY_EXISTS", "reading the wrappers of op families: both %s and %s have "
                            "%r; rename one" % (found[name].__module__, module.__name__, name))
            found[name] = getattr(module, name)
    return found


def wrapper(name):
    found = wrappers().get(name)
    if found is None:
        raise AttributeError("kbundle.jax has no %r; wrappers installed: %s"
                             % (name, ", ".join(sorted(wrappers())) or "none"))
    return found
