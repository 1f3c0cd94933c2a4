"""One open bundle. Which bundles are open is _open_bundles' to know."""

import ctypes
import os
import re
import threading
from types import SimpleNamespace

from kbundle import _modes, _spec
from kbundle._c_spec import c_spec
from kbundle._errors import Error
from kbundle._infer_cache import InferCache
from kbundle._library import call_json, check, library, text
from kbundle._op import Op
from kbundle._policy import by_name
from kbundle._policy import stats as _all_stats

CUDA, HOST = 0, 1
lock = threading.RLock()  # of which bundles are open; its thread may come again, where a finalizer or a signal handler closes one
held = set()  # bundles that were opened here and not closed, whose names stay taken though nobody has the object
_closed = 0
listeners = []  # functions, called after a bundle is opened, closed or used


def closed_so_far():
    """How many bundles were closed."""
    return _closed


def tell_listeners():
    for listener in listeners:
        listener()


def _after_fork_in_child():
    """A thread that the child does not have may have held it."""
    global lock
    lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class _Handle:
    """A kb_bundle, released with the last reference to this object: a call that has it as an argument keeps it."""

    def __init__(self, address):
        self._as_parameter_ = ctypes.c_void_p(address)
        self._release = library().kb_bundle_release  # also there while the interpreter ends

    def __del__(self):
        self._release(self._as_parameter_)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("a bundle's handle belongs to this process; copy or pickle the Bundle")


class Bundle:
    """One open bundle file, or several of one library. Made by kbundle.open and kbundle.open_library; immutable until it is
    closed; safe from any thread. As a context manager it is given back at the end (close). parts: path, content_id, file_bytes and targets of
    each file; absent: target and how (to get it) of what is in none of them.

    A copy is the bundle itself. Pickled it is its absolute paths and its name (_open_bundles says how): who unpickles it has
    it open under that name, opening the file when need be."""

    def __init__(self, handle, name=None, paths=None):
        """Takes over a kb_bundle. name: what it is open as; paths: where its files were when they were opened."""
        self._handle = _Handle(handle)
        described = self._describe(None, whole=-1)
        self.name = described["name"] if name is None else name
        self.content_id = described["content_id"]
        self.targets = described["targets"]
        self._parts = described["parts"]
        for part, path in zip(self._parts, paths or ()):
            if part["path"] == re.sub("[\udc80-\udcff]", "\ufffd", path):  # JSON is UTF-8, which a path need not be
                part["path"] = path
        self.path = ", ".join(part["path"] for part in self._parts)
        self._absent = described["absent"]
        self.provenance = described["provenance"]
        self.ops = [Op(self, op["name"]) for op in described["ops"]]
        self._by_name = {op.name: op for op in self.ops}
        self._absolute_paths = tuple(os.path.abspath(path) for path in paths or [part["path"] for part in self._parts])
        self._infer_cache = InferCache(self._infer)
        self._opens = 0  # that were not given back
        self._kept = 0  # places where calls that name no bundle find it: no close() closes it
        self._successor = None  # what a reload put in its place

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return "<kbundle.Bundle %r, %d ops, %s>" % (self.name, len(self.ops), self.path)

    def op(self, name):
        """The op of that name; NOT_FOUND says which names are near."""
        if not isinstance(name, str):
            raise Error("INVALID_ARGUMENT", "looking for an op in bundle %r: %r is no name; give a string like 'family.op'"
                        % (self.name, name))
        found = self._by_name.get(name)
        if found is None:
            self._describe(name, whole=0)  # raises, naming the nearest
            raise Error("INTERNAL", "op %r appeared in bundle %r after it was opened" % (name, self.name))
        return found

    def has(self, op):
        """Whether it has an op of that name."""
        return op in self._by_name

    @property
    def parts(self):
        """Its files, each with path, content_id, file_bytes and targets."""
        return tuple(SimpleNamespace(**part) for part in self._parts)

    @property
    def absent(self):
        """Parts of the library that are not here, each with target and how: what brings it."""
        return tuple(SimpleNamespace(**part) for part in self._absent)

    @property
    def closed(self):
        return self._handle is None

    def explain(self, op, *operands, target=None, modes=(), **attributes):
        """Which variant would be chosen, and why not the others, as a dict. operands: text like
        "bf16[4,2048]", arrays, (dtype, shape) pairs, or None. target: "sm_90a", "x86-64-v3", ...; "cuda"
        is the current device's, None or "host" this CPU's. modes: "deterministic", "batch_invariant", or both in a tuple."""
        if target is not None and not isinstance(target, str):
            raise Error("INVALID_ARGUMENT", "explaining %s: target is %r; give a string like 'sm_90a', or None for this CPU"
                        % (op, target))
        kind = HOST if target is None or target == "host" or target.startswith(("x86", "armv")) else CUDA
        name = None if target in (None, "host", "cuda") else text(target, "target")
        operands = [_spec.operand(operand, "operand %d of %s" % (index, op)) for index, operand in enumerate(operands)]
        spec = c_spec(operands, self.normal_attributes(op, attributes))
        asked = _modes.bits("explaining %s" % op, modes)
        return call_json(library().kb_explain_modes, self._live, text(op, "op"), ctypes.byref(spec), kind, name, asked)

    def stats(self):
        """kbundle.stats() with the choices of this bundle's content only, whatever the name it was used under."""
        result = _all_stats()
        contents = {part["content_id"] for part in self._parts}
        result["chosen"] = [row for row in result["chosen"] if row["content_id"] in contents]
        return result

    def force(self, variant):
        """Use this variant wherever it is legal, in plans made from now on: of eager calls at once, of a program
        that jax.jit has compiled already not before it is traced again (jax.clear_caches)."""
        check(library().kb_policy_force(self._live, text(variant, "variant")))
        by_name()

    def deny(self, variant):
        """Never use this variant, in plans made from now on; see force. Both are wishes of the whole process, by id: they hold
        for every bundle that has a variant of this id."""
        check(library().kb_policy_deny(self._live, text(variant, "variant")))
        by_name()

    def close(self):
        """Gives back one open of the file: all who open it share this object, and the last that is given back takes it out of its
        name. What serves calls that name no bundle (kbundle.use, kbundle.bundles) stays open all the same, until something else is
        used. Programs that were compiled with it go on; tracing a call again is NOT_FOUND until a bundle of that name is open.
        Descriptor and memory come back when no such program is left (jax.clear_caches() drops those that nobody else holds).
        Closing what is closed does nothing."""
        if self._handle is None:
            return
        with lock:
            if self._opens:
                self._opens -= 1
            self._let_go()

    def _let_go(self):
        """Closes it where nobody has it open any more, and no place keeps it. The caller has the lock."""
        global _closed
        close, handle = library().kb_bundle_close, self._handle
        if self._opens or self._kept or handle is None:
            return
        error = close(handle)
        self._handle = None
        held.discard(self)
        _closed += 1
        tell_listeners()
        try:
            check(error)
        except Error as error:
            if error.tag != "NOT_FOUND":  # else another was loaded in its place
                raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def verify(self):
        """Checks every byte of the file; raises DATA_LOSS naming what is damaged."""
        check(library().kb_bundle_verify(self._live))

    def infer(self, op, operands, attributes, kind):
        """What a framework needs to trace a call (see kb_infer), from normal forms of _spec; cached until the policy
        changes."""
        return self._infer_cache.get(op, operands, attributes, kind)

    def normal_attributes(self, op, attributes):
        """Attributes given by name, in the normal form of _spec."""
        declared = {attribute.name: attribute.type for attribute in self.op(op).attributes}
        return _spec.attributes(attributes, declared)

    def _infer(self, op, operands, attributes, kind):
        spec = c_spec(operands, attributes)
        return call_json(library().kb_infer, self._live, text(op, "op"), ctypes.byref(spec), kind)

    def _describe(self, op, whole):
        """whole: 1; 0 leaves the long lists out; -1 also all of an op but its name, which no damage of another op disturbs."""
        return call_json(library().kb_bundle_describe, self._live, None if op is None else text(op, "op"), whole)

    @property
    def _live(self):
        """The handle, for the C ABI."""
        handle = self._handle
        if handle is None:
            raise Error("FAILED_PRECONDITION", "using bundle %r of %s: it is closed; open the file again"
                        % (self.name, self.path))
        return handle
