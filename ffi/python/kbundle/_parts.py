"""Libraries in several wheels: a base, and a part for each GPU family, each with the same ops for other targets.

The base's bundle has a file beside it, NAME.kb.parts, which the build hook writes into the wheel: what the library is called, its
version, and which families there are. Whoever opens the bundle, by whatever way, has with it the parts that are installed: entry points
LIBRARY.FAMILY of the group "kbundle.bundles", in packages of the base's version. Those that are not are named where no part has code for a
device.

    {"library": "leafy", "package": "leafy", "version": "0.1.0", "families": {"sm90a": ["sm_90a"]}}
"""

import json
import os
from typing import NamedTuple

from kbundle._entry_points import BUNDLES, entry_points, paths_of
from kbundle._errors import Error

SUFFIX = b".parts"


class Part(NamedTuple):
    origin: str  # "leafy-sm90a 0.1.0 (entry point leafy.sm90a)"
    path: str


class Absent(NamedTuple):
    """A part that is not installed."""
    targets: tuple
    install: str  # the command


class Beside(NamedTuple):
    """What belongs to a bundle beside its own file."""
    parts: tuple = ()
    absent: tuple = ()


def text(library, package, version, families):
    """What the file says. families: {name: targets}."""
    return json.dumps({"library": library, "package": package, "version": version, "families": families}, sort_keys=True) + "\n"


def beside(path):
    """Of a bundle's path: of nearly all, nothing, for one look at the disk."""
    described = os.fsdecode(os.fsencode(path) + SUFFIX)
    if not os.path.exists(described):
        return Beside()
    base = _read(described)
    installed = {entry.name.rpartition(".")[2]: (origin, entry) for origin, entry in entry_points(BUNDLES)
                 if entry.name.rpartition(".")[0] == base["library"]}
    parts = []
    for family, (origin, entry) in sorted(installed.items()):
        if entry.dist.version != base["version"]:
            raise Error("FAILED_PRECONDITION", "reading what %s brings: it is a part of %s %s, and parts of a library are of one version: %s"
                        % (origin, base["package"], base["version"], _install(base, family)))
        parts += [Part(origin, path) for path in paths_of(origin, entry)]
    for part in parts:
        if not os.path.exists(part.path):
            raise Error("NOT_FOUND", "there is no file %s of %s; install that package again" % part[::-1])
    absent = [Absent(tuple(targets), _install(base, family)) for family, targets in sorted(base["families"].items())
              if family not in installed]
    return Beside(tuple(parts), tuple(absent))


def is_part(name, names):
    """Whether an entry point is a part of another's library, which is opened with that one's bundle."""
    return "." in name and name.rpartition(".")[0] in names


def _install(base, family):
    return 'pip install "%s[%s]==%s"' % (base["package"], family, base["version"])


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            base = json.load(file)
        names = [base["library"], base["package"], base["version"], *base["families"], *sum(base["families"].values(), [])]
        if all(isinstance(name, str) for name in names):
            return base
        wrong = "it has something else than text"
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        wrong = "%s: %s" % (type(error).__name__, error)
    raise Error("FAILED_PRECONDITION", "reading %s, which says what belongs to the bundle beside it: %s; install its package again"
                % (path, wrong))
