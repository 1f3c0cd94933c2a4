"""Bundles and the ops in them."""

import ctypes
import functools
import os
import threading
from types import SimpleNamespace

from kbundle import _spec
from kbundle._errors import Error
from kbundle._library import call_json, check, library
from kbundle._policy import stats as _all_stats

CUDA, HOST = 0, 1
_LISTS = ("types", "operands", "results", "attributes", "tolerances", "problems")


class Op:
    """What an op computes and how it is called: name, summary, interface (hash), vmap (rule), and lists of
    operands, results, attributes, types, tolerances and problems, each with named fields."""

    def __init__(self, bundle, description):
        self._bundle = bundle
        for key, value in description.items():
            if key == "variants":
                continue
            if key in _LISTS:
                value = [SimpleNamespace(**entry) for entry in value]
            setattr(self, key, value)

    @property
    def variants(self):
        """The ways this op can be computed, all targets, in manifest order."""
        described = self._bundle._describe(self.name, with_variants=True)["ops"][0]
        return [SimpleNamespace(**entry) for entry in described["variants"]]

    def __repr__(self):
        operands = ", ".join(operand.name for operand in self.operands)
        attributes = "".join(", %s=" % attribute.name for attribute in self.attributes)
        return "<kbundle.Op %s(%s%s)>" % (self.name, operands, attributes)


class Bundle:
    """One open bundle file. Made by kbundle.open; immutable; safe from any thread."""

    def __init__(self, handle):
        self._handle = handle
        described = self._describe(None, with_variants=False)
        self.name = described["name"]
        self.path = described["path"]
        self.content_id = described["content_id"]
        self.targets = described["targets"]
        self.provenance = described["provenance"]
        self.ops = [Op(self, op) for op in described["ops"]]
        self._by_name = {op.name: op for op in self.ops}

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            library().kb_bundle_release(handle)

    def __repr__(self):
        return "<kbundle.Bundle %r, %d ops, %s>" % (self.name, len(self.ops), self.path)

    def op(self, name):
        """The op of that name; NOT_FOUND says which names are near."""
        found = self._by_name.get(name)
        if found is None:
            self._describe(name, with_variants=False)  # raises, naming the nearest
            raise Error("INTERNAL", "op %r appeared in bundle %r after it was opened" % (name, self.name))
        return found

    def explain(self, op, *operands, target=None, **attributes):
        """Which variant would be chosen, and why not the others, as a dict. operands: text like
        "bf16[4,2048]", arrays, (dtype, shape) pairs, or None. target: "sm_90a", "x86-64-v3", ...; "cuda"
        is the current device's, None this CPU's."""
        kind = HOST if target is None or target.startswith("x86") else CUDA
        name = None if target is None or target == "cuda" else target.encode()
        spec = self._spec(op, operands, attributes)
        return call_json(library().kb_explain, self._handle, op.encode(), ctypes.byref(spec), kind, name)

    def stats(self):
        """kbundle.stats() with the choices of this bundle only."""
        result = _all_stats()
        result["chosen"] = [row for row in result["chosen"] if row["bundle"] == self.name]
        return result

    def force(self, variant):
        """Use this variant wherever it is legal, in plans made from now on."""
        check(library().kb_policy_force(self._handle, variant.encode()))

    def deny(self, variant):
        """Never use this variant, in plans made from now on."""
        check(library().kb_policy_deny(self._handle, variant.encode()))

    def verify(self):
        """Checks every byte of the file; raises DATA_LOSS naming what is damaged."""
        check(library().kb_bundle_verify(self._handle))

    def infer(self, op, operands, attributes, kind):
        """What a framework needs to trace a call (see kb_infer), from normal forms of _spec; cached."""
        return _infer(self, op, operands, attributes, kind)

    def normal_attributes(self, op, attributes):
        """Attributes given by name, in the normal form of _spec."""
        declared = {attribute.name: attribute.type for attribute in self.op(op).attributes}
        return _spec.attributes(attributes, declared)

    def _spec(self, op, operands, attributes):
        described = [_spec.operand(operand) for operand in operands]
        return _spec.c_spec(described, self.normal_attributes(op, attributes))

    def _describe(self, op, with_variants):
        return call_json(library().kb_bundle_describe, self._handle,
                         None if op is None else op.encode(), 1 if with_variants else 0)


@functools.lru_cache(maxsize=8192)
def _infer(bundle, op, operands, attributes, kind):
    spec = _spec.c_spec(operands, attributes)
    return call_json(library().kb_infer, bundle._handle, op.encode(), ctypes.byref(spec), kind)


_lock = threading.Lock()
_open = {}  # name -> Bundle; a program refers to its bundle by name, so it stays open
_default = None


def open(path, name=None):
    """Opens a bundle file under a process-wide name (default: the name inside it) and returns it.
    The same content under the same name again gives the same object; other content under a taken name
    is ALREADY_EXISTS."""
    out = ctypes.c_void_p()
    check(library().kb_bundle_open(os.fsencode(path), None if name is None else name.encode(),
                                   ctypes.byref(out)))
    bundle = Bundle(out.value)
    if name is not None:
        bundle.name = name
    with _lock:
        known = _open.get(bundle.name)
        if known is not None and known.content_id == bundle.content_id:
            return known
        _open[bundle.name] = bundle
        return bundle


def find(name):
    """The open bundle of that name."""
    with _lock:
        if name in _open:
            return _open[name]
        names = ", ".join(sorted(_open)) or "none"
    raise Error("NOT_FOUND", "finding bundle %r: it is not open in this process (open are: %s); call "
                "kbundle.open(path) before the program is used" % (name, names))


def use(bundle):
    """Makes an open bundle, or the file at a path, the default one; returns it."""
    global _default
    _default = bundle if isinstance(bundle, Bundle) else open(bundle)
    return _default


def default_bundle():
    """The bundle of kbundle.use(), else of the file $KBUNDLE_BUNDLE, else kernels.kb beside this package,
    else build/kernels.kb of the source tree. Opened on first use."""
    if _default is not None:
        return _default
    here = os.path.dirname(os.path.abspath(__file__))
    tree = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    override = os.environ.get("KBUNDLE_BUNDLE")
    candidates = [override] if override else [os.path.join(here, "kernels.kb"),
                                              os.path.join(tree, "build", "kernels.kb")]
    for path in candidates:
        if os.path.exists(path):
            return use(path)
    raise Error("NOT_FOUND", "looking for the default bundle: there is none at %s; build one, set "
                "KBUNDLE_BUNDLE, or call kbundle.use(path)" % " or ".join(candidates))


