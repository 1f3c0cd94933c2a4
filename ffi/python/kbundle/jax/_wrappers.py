"""Functions that packages bring along for their ops: every public name of the modules that are entry points of the group
"kbundle.jax".

They are data to this package, as ops are: it knows none of them by name.
"""

import functools

from kbundle import _discovery
from kbundle._errors import Error

GROUP = "kbundle.jax"


@functools.lru_cache(maxsize=None)
def wrappers():
    """{name: function} of all packages that are installed."""
    found, places = {}, {}
    for origin, entry in _discovery.entry_points(GROUP):
        module = _discovery.load(origin, entry)
        for name in module.__all__:
            if name in found:
                raise Error("ALREADY_EXISTS", "reading the wrappers of installed packages: both %s and %s have %r; take one away"
                            % (places[name], origin, name))
            found[name], places[name] = getattr(module, name), origin
    return found


def wrapper(name):
    found = wrappers().get(name)
    if found is None:
        raise AttributeError("kbundle.jax has no %r; wrappers installed: %s"
                             % (name, ", ".join(sorted(wrappers())) or "none"))
    return found
