"""Which bundle has an op where the caller names none. The first of these that has it:

    1. the bundle of kbundle.use()
    2. the files of $KBUNDLE_PATH, joined as in $PATH
    3. what installed packages bring: entry points of the group "kbundle.bundles", sorted by name; each is the path of a
       bundle, or a list of paths

Nothing is looked for before it is needed, and nothing behind the bundle that has the op: a bundle of ours goes before one that
is installed, and a damaged file that nobody asks is no error. One that is asked is: what cannot be read is never passed over.
"""

import os
from typing import NamedTuple

from kbundle import _open_bundles
from kbundle._entry_points import BUNDLES, entry_points, paths_of
from kbundle._errors import Error

USE, PATH = "kbundle.use()", "$KBUNDLE_PATH"

_opened = {}  # by place


class Place(NamedTuple):
    origin: str  # USE, PATH, or of a package "mylib 1.2 (entry point mylib)"
    path: str


class Found(NamedTuple):
    """A place of bundles(). ops: which it serves; hidden: {op: the place that serves it instead}; error: why it cannot be opened.
    Where other wheels bring parts of it, or may, parts: [(path, targets)], itself first; absent: [(targets, install)], the command for
    each that is not installed."""
    place: Place
    name: str | None = None
    ops: tuple = ()
    hidden: dict = {}
    error: Error | None = None
    parts: tuple = ()
    absent: tuple = ()


def _files():
    return [Place(PATH, path) for path in os.environ.get("KBUNDLE_PATH", "").split(os.pathsep) if path]


def _places():
    """All places but kbundle.use()'s, in order; packages are imported as they are reached."""
    yield from _files()
    for origin, entry in entry_points(BUNDLES):
        for path in paths_of(origin, entry):
            yield Place(origin, path)


def _bundle(place):
    """Of the place, opened when need be. An error names the place."""
    bundle = _open_bundles.latest(_opened.get(place))
    if bundle is None:
        try:
            if not os.path.exists(place.path):
                raise Error("NOT_FOUND", "there is no file %s; %s" % (place.path, (
                    "take it out of $KBUNDLE_PATH" if place.origin == PATH else "build it, or install the package again")))
            bundle = _opened[place] = _open_bundles.keep(_open_bundles.open(place.path))
        except Error as error:
            raise Error(error.tag, "opening the bundle of %s: %s" % (place.origin, error.message)) from None
    return bundle


def default_bundle(op=None):
    """The bundle that serves an op (see kbundle.bundles), opened on first use; without an op the first of all."""
    bundle, asked = _open_bundles.used(), []
    if bundle is not None:
        if op is None or bundle.has(op):
            return bundle
        asked.append("%s of %s" % (bundle.path, USE))
    for place in _places():
        bundle = _bundle(place)
        if op is None or bundle.has(op):
            return bundle
        asked.append("%s of %s" % place[::-1])
    if len(asked) == 1:
        bundle.op(op)  # raises, naming the nearest
    raise Error("NOT_FOUND", "looking for %s: %s; call kbundle.use(path), name a file in $KBUNDLE_PATH, or install a package "
                "that brings one, such as kbundle-kernels"
                % ("a bundle" if op is None else "a bundle that has %r" % op,
                   "it is not in " + ", ".join(asked) if asked else "none is in use, in $KBUNDLE_PATH or installed"))


def bundles():
    """Every place of a bundle in the order in which an op is looked for, as a list of Found. Opens them all; raises nothing."""
    found, first = [], {}

    def add(place, bundle):
        hidden = {op.name: first[op.name] for op in bundle.ops if op.name in first}
        parts, absent = _described_parts(bundle)
        found.append(Found(place, bundle.name, tuple(op.name for op in bundle.ops if op.name not in hidden), hidden, None, parts, absent))
        first.update((op, place) for op in found[-1].ops)
    used = _open_bundles.used()
    if used is not None:
        add(Place(USE, used.path), used)
    for origin, entry in [(PATH, None), *entry_points(BUNDLES)]:
        try:
            places = _files() if entry is None else [Place(origin, path) for path in paths_of(origin, entry)]
        except Error as error:
            found.append(Found(Place(origin, ""), error=error))
            continue
        for place in places:
            try:
                add(place, _bundle(place))
            except Error as error:
                found.append(Found(place, error=error))
    return found


def _described_parts(bundle):
    """Nothing where it is all of a library."""
    absent = {}
    for part in bundle.absent:
        absent.setdefault(part.how, []).append(part.target)
    if len(bundle.parts) == 1 and not absent:
        return (), ()
    return (tuple((part.path, tuple(part.targets)) for part in bundle.parts),
            tuple((tuple(targets), install) for install, targets in absent.items()))
