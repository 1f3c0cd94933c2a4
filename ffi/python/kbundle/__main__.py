"""python -m kbundle: which bundles this Python finds, in which order, and which ops each serves. Exit 1 where one cannot be opened."""

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
        for op, place in one.hidden.items():
            yield "   %s is taken from %s %s" % (op, *place)


def main():
    found = kbundle.bundles()
    print("\n".join(lines(found)))
    return 1 if any(one.error for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
