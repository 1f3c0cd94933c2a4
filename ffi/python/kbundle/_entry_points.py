"""What installed packages bring, by groups of entry points. What goes wrong there is said to be their fault."""

import functools
import os

from kbundle._errors import Error

BUNDLES = "kbundle.bundles"  # each the path of a bundle, or a list of paths


@functools.lru_cache(maxsize=None)
def entry_points(group):
    """((origin, entry point), ...) of the group, sorted by name. origin: "mylib 1.2 (entry point mylib)"."""
    from importlib import metadata  # which takes longer to import than all of kbundle
    found = [("%s %s (entry point %s)" % (entry.dist.name, entry.dist.version, entry.name), entry)
             for entry in metadata.entry_points(group=group)]
    return tuple(sorted(found, key=lambda pair: (pair[1].name, pair[0])))


def load(origin, entry):
    """What an entry point names."""
    if not entry.pattern.match(entry.value):
        raise _broken(origin, entry, ValueError("that names no object; it must be package.module:name, or package.module"))
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # a module that ends the program would end this one without a word
        raise _broken(origin, entry, error) from error


@functools.lru_cache(maxsize=None)
def paths_of(origin, entry):
    """Those of an entry point of the group BUNDLES."""
    paths = load(origin, entry)
    try:
        return tuple(os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths))
    except TypeError as error:
        raise _broken(origin, entry, error) from error


def _broken(origin, entry, error):
    return Error("FAILED_PRECONDITION", "reading what %s brings: %s: %s: %s; install that package again, or take it away"
                 % (origin, entry.value or "nothing", type(error).__name__, error))
