"""The bundles that are open in this process, by name: what compiled programs refer to. The library knows which; here each has one object."""

import contextlib
import copyreg
import ctypes
import os
import sys
import weakref

from kbundle import _bundle
from kbundle._bundle import Bundle
from kbundle._errors import Error
from kbundle._library import AbsentPart, OpenOptions, check, library, text

_objects = weakref.WeakValueDictionary()  # by name and the library's identity; each keeps its identity taken
_default = None
_changes = 0


def changes():
    """A number that grows with every bundle that Python opens or closes, and with every use()."""
    return _changes + _bundle.closed_so_far()


def _live(name, identity):
    known = _objects.get((name, identity))
    return known if known is not None and known._handle is not None else None


def _object(handle, name, paths=None):
    """The object of the bundle that a new kb_bundle refers to. name: None where it is not known yet. Making one runs much Python, and in it
    what may open the same: so it is looked for once more."""
    identity = library().kb_bundle_identity(handle)
    with _bundle.lock:
        known = name and _live(name, identity)
        if known:
            library().kb_bundle_release(handle)
            return known
        bundle = Bundle(handle.value, name, paths)
        known = _live(bundle.name, identity)
        if known:
            return known
        _objects[bundle.name, identity] = bundle
        return bundle


def open(path, name=None, *, reload=False):
    """Opens a bundle file under a process-wide name (default: the name inside it) and returns it.

    Compiled programs refer to their bundle by this name and the op. Several files may be open under one name as long as no
    op is in two of them, so libraries that know nothing of each other may both ship a kernels.kb; an op that other content
    has there already is ALREADY_EXISTS. The same content under the same name again gives the same object, which is closed when
    each who opened it has given it back, by Bundle.close or by leaving `with`.

    Where other threads use kbundle, start processes by spawn or forkserver: a child forked in the middle of a call of theirs
    has its locks.

    reload: bundles of that name that share an op with the file lose it instead. What was compiled keeps the old one; where it was the
    default, of kbundle.use() or of a place where bundles are looked for, the new one is.

    Where the file is the base of a library in several wheels (PATH.parts beside it says so), it is opened with the parts that are installed."""
    folders = list(_folders())
    return _open_with([os.fspath(path)], name, reload, folders=(ctypes.c_char_p * max(1, len(folders)))(*folders), folder_count=len(folders))


def open_library(paths, name=None, *, reload=False, absent=()):
    """Opens several bundle files as one: parts of a library, each with the same ops for other targets, as wheels of GPU
    families bring them. A call goes to the part whose code fits the device best, and where that has nothing for the
    problem, to the next. Two files with code for one target, or other names or ops, are INVALID_ARGUMENT; an op that they declare
    differently is FAILED_PRECONDITION when it is first asked for; both name the files.

    absent: (target, how to get it) of parts that are not here, for the error where no part has code for a device. name, reload: as
    of open."""
    paths = [os.fspath(path) for path in paths]
    if not paths:
        raise Error("INVALID_ARGUMENT", "opening a library: no path is given; give the files of its parts")
    others = (ctypes.c_char_p * max(1, len(paths) - 1))(*(text(path, "path") for path in paths[1:]))
    missing = (AbsentPart * max(1, len(absent)))(*(AbsentPart(text(target, "target"), text(how, "how")) for target, how in absent))
    return _open_with(paths, name, reload, parts=others, part_count=len(paths) - 1, absent=missing, absent_count=len(absent))


def _folders():
    """Those that packages are imported from. What names no folder is skipped, as Python does."""
    for folder in sys.path:
        if isinstance(folder, str) and "\0" not in folder:
            with contextlib.suppress(UnicodeEncodeError):
                yield os.fsencode(folder)


def _name(name, path):
    """For C; None: the one inside the file."""
    if name is not None and (not isinstance(name, str) or not name):
        raise Error("INVALID_ARGUMENT", "opening %s: name is %r; give a string that is not empty, or leave it out" % (path, name))
    return None if name is None else text(name, "name")


def _open_with(paths, name, reload, **options):
    """By C's options, of the first path; paths: of the files that the caller named."""
    global _changes
    options = OpenOptions(size=ctypes.sizeof(OpenOptions), path=text(paths[0], "path"), name=_name(name, paths[0]),
                          reload=1 if reload else 0, **options)
    out = ctypes.c_void_p()
    with _bundle.lock:
        while True:
            closed = _bundle.closed_so_far()
            check(library().kb_bundle_open_with(ctypes.byref(options), ctypes.byref(out)))
            bundle = _object(out, name, [os.fsdecode(path) for path in paths])
            bundle._opens += 1  # from here on nobody else's close() closes it
            if closed == _bundle.closed_so_far():
                break
            bundle._opens -= 1  # a finalizer or a signal handler may have closed it meanwhile
        _bundle.held.add(bundle)
        if reload:
            _replace_by(bundle)
    _changes += 1
    _bundle.tell_listeners()
    return bundle


def _replace_by(new):
    """What a reload took out of the new one's name has a successor, which is kept in its stead."""
    for old in every():
        if old is not new and old.name == new.name and any(new.has(op.name) for op in old.ops):
            old._successor = new
            new._kept += old._kept
            old._kept = 0
            _bundle.held.discard(old)


def reopen(paths, name, content_id):
    """What a pickled bundle stands for: the one of that name where it has this content, else the files'."""
    for known in _known():
        if known.name == name and known.content_id == content_id:
            return known
    return open(paths[0], name) if len(paths) == 1 else open_library(paths, name)


copyreg.pickle(Bundle, lambda bundle: (reopen, (bundle._absolute_paths, bundle.name, bundle.content_id)))


def _known():
    """The objects of all bundles that were not closed. Their table is copied at once: what runs meanwhile may change it."""
    with _bundle.lock:
        known = [reference() for reference in _objects.valuerefs()]
    return [bundle for bundle in known if bundle is not None and bundle._handle is not None]


def every():
    """All bundles that are open and have an object here."""
    return [bundle for bundle in _known() if bundle._successor is None]


def find(name, op=None):
    """The open bundle of that name; where there are several, the one that has the op."""
    out = ctypes.c_void_p()
    check(library().kb_bundle_find(text(name, "name"), None if op is None else text(op, "op"), ctypes.byref(out)))
    return _object(out, name)


def use(bundle):
    """Makes an open bundle, or the file at a path, the default one; returns it. It stays open while it is the default, whoever closes it."""
    global _changes, _default
    bundle = keep(bundle if isinstance(bundle, Bundle) else open(bundle))
    with _bundle.lock:
        before, _default = used(), bundle
        if before is not None:
            before._kept -= 1
            if before in _bundle.held:  # else it was opened elsewhere, and stays
                before._let_go()
    _changes += 1
    _bundle.tell_listeners()
    return bundle


def keep(bundle):
    """The bundle, or what was loaded in its place, which no close() closes from now on."""
    with _bundle.lock:
        bundle = latest(bundle)
        bundle._live  # or an error
        bundle._kept += 1
    return bundle


def latest(bundle):
    """The bundle, or what was loaded in its place."""
    while bundle is not None and bundle._successor is not None:
        bundle = bundle._successor
    return bundle


def used():
    """The bundle of use(), or None."""
    return latest(_default)
