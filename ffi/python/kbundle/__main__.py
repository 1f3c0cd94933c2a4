"""Says what this Python has of kbundle.

    python -m kbundle               which bundles it finds, in which order, and which ops each serves; 1 where one cannot be opened
    python -m kbundle --json        the same as JSON
    python -m kbundle --cmake-dir   the folder of kbundleConfig.cmake that its wheel brought, for cmake's -Dkbundle_DIR=
"""

import importlib.metadata
import json
import pathlib
import sys

import kbundle


def lines(found):
    yield "kbundle %s, %s" % (kbundle.__version__, kbundle.library_path())
    if not found:
        yield "no bundle: none is in $KBUNDLE_PATH, and no installed package brings one"
        return
    yield "an op is taken from the first of these that has it:"
    for number, one in enumerate(found, 1):
        yield "%d. %s %s" % (number, one.place.origin, one.place.path)
        if one.error:
            yield "   ERROR %s" % one.error
            continue
        yield "   %r, %d ops: %s" % (one.name, len(one.ops), " ".join(one.ops))
        for path, targets in one.parts:
            yield "   part for %s: %s" % (" ".join(targets), path)
        for targets, install in one.absent:
            yield "   part for %s is not installed: %s" % (" ".join(targets), install)
        for op, place in one.hidden.items():
            yield "   %s is taken from %s %s" % (op, *place)


def as_json(found):
    """What lines() says; "error" is absent where a bundle is fine."""
    bundles = []
    for one in found:
        row = dict(one.place._asdict(), name=one.name, ops=one.ops, hidden={op: place._asdict() for op, place in one.hidden.items()})
        row["parts"] = [{"path": path, "targets": targets} for path, targets in one.parts]
        row["absent"] = [{"targets": targets, "install": install} for targets, install in one.absent]
        bundles.append(dict(row, error=str(one.error)) if one.error else row)
    return json.dumps({"version": kbundle.__version__, "library": kbundle.library_path(), "bundles": bundles})


def cmake_folder():
    """Where pip's record says: below an environment, a prefix, or the user's folder. None: no wheel brought it, or `pip install --target`, which
    leaves out what a wheel has for lib/."""
    try:
        files = importlib.metadata.files("kbundle") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    recorded = [pathlib.Path(file.locate()).resolve() for file in files if file.name == "kbundleConfig.cmake"]
    return next((file.parent for file in recorded if file.exists()), None)


def main(words):
    if words == ["--cmake-dir"]:
        folder = cmake_folder()
        if folder is None:
            sys.exit("looking for kbundleConfig.cmake: no installed wheel kbundle brought one: install the wheel (pip's --target leaves it out), or "
                     "give cmake the prefix of `cmake --install` as CMAKE_PREFIX_PATH")
        print(folder)
        return 0
    if words not in ([], ["--json"]):
        print(__doc__, file=sys.stdout if words == ["--help"] else sys.stderr)
        return 0 if words == ["--help"] else 2
    try:
        found = kbundle.bundles()
        print(as_json(found) if words else "\n".join(lines(found)))
    except kbundle.Error as error:  # of the library, without which nothing can be said of bundles
        if words:
            print(json.dumps({"ok": False, "error": {"code": error.tag, "message": error.message}}))
        print("ERROR %s" % error, file=sys.stderr)
        return 1
    return 1 if any(one.error for one in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
