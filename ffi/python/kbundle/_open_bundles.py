"""The bundles that are open in this process, by name: what compiled programs refer to. The library knows which; here each has one object."""

import copyreg
import ctypes
import os
import weakref

from kbundle import _bundle
from kbundle._bundle import Bundle
from kbundle._errors import Error
from kbundle._library import check, library, text

_objects = weakref.WeakValueDictionary()  # by name and the library's identity; each keeps its identity taken
_default = None
_changes = 0


def changes():
    """A number that grows with every bundle that Python opens or closes, and with every use()."""
    return _changes + _bundle.closed_so_far()


def _live(name, identity):
    known = _objects.get((name, identity))
    return known if known is not None and known._handle is not None else None


def _object(handle, name, path=None):
    """The object of the bundle that a new kb_bundle refers to. name: None where it is not known yet."""
    identity = library().kb_bundle_identity(handle)
    with _bundle.lock:
        known = name and _live(name, identity)
        if known:
            library().kb_bundle_release(handle)
            return known
        bundle = Bundle(handle.value, name, path)
        known = _live(bundle.name, identity)
        if known:
            return known
        _objects[bundle.name, identity] = bundle
        return bundle


def open(path, name=None, *, reload=False):
    """Opens a bundle file under a process-wide name (default: the name inside it) and returns it.

    Compiled programs refer to their bundle by this name and the op. Several files may be open under one name as long as no
    op is in two of them, so libraries that know nothing of each other may both ship a kernels.kb; an op that other content
    has there already is ALREADY_EXISTS. The same content under the same name again gives the same object.

    Where other threads use kbundle, start processes by spawn or forkserver: a child forked in the middle of a call of theirs
    has its locks.

    reload: bundles of that name that share an op with the file lose it instead. What was compiled keeps the old one."""
    if name is not None and (not isinstance(name, str) or not name):
        raise Error("INVALID_ARGUMENT", "opening %s: name is %r; give a string that is not empty, or leave it out" % (path, name))
    global _changes
    out = ctypes.c_void_p()
    opener = library().kb_bundle_reload if reload else library().kb_bundle_open
    check(opener(text(os.fspath(path), "path"), None if name is None else text(name, "name"), ctypes.byref(out)))
    _changes += 1
    _bundle.tell_listeners()
    return _object(out, name, os.fsdecode(path))


def reopen(path, name, content_id):
    """What a pickled bundle stands for: the one of that name where it has this content, else the file's."""
    with _bundle.lock:
        for known in list(_objects.values()):
            if known.name == name and known.content_id == content_id and known._handle is not None:
                return known
    return open(path, name)


copyreg.pickle(Bundle, lambda bundle: (reopen, (bundle._absolute_path, bundle.name, bundle.content_id)))


def every():
    """All bundles that are open and have an object here."""
    with _bundle.lock:
        return [bundle for bundle in list(_objects.values()) if bundle._handle is not None]


def find(name, op=None):
    """The open bundle of that name; where there are several, the one that has the op."""
    out = ctypes.c_void_p()
    check(library().kb_bundle_find(text(name, "name"), None if op is None else text(op, "op"), ctypes.byref(out)))
    return _object(out, name)


def use(bundle):
    """Makes an open bundle, or the file at a path, the default one; returns it."""
    global _changes, _default
    _changes += 1
    _default = bundle if isinstance(bundle, Bundle) else open(bundle)
    _bundle.tell_listeners()
    return _default


def used():
    """The bundle of use() while it is open, or None."""
    return _default if _default is not None and not _default.closed else None
