"""Ops as functions of tvm-ffi, for whoever speaks DLPack: NumPy, CuPy, JAX by jax-tvm-ffi, C++.

    import kbundle, kbundle.tvm_ffi as kbv
    forward = kbv.function(kbundle.open("kernels.kb"), "family.op", scale=0.5)
    forward(x, y)

A call gives operands, then results, which it writes; None for what is left out. On CUDA it is enqueued on the stream that tvm-ffi has as
the current one (tvm_ffi.use_raw_stream, use_torch_stream), and a CUDA graph may capture it after the first call of the problem. Errors are
ValueError and RuntimeError with the text that kbundle.Error has. Functions are C++: calling one from C++ or through another language's
binding runs no Python.
"""

import ctypes
import itertools

try:
    import tvm_ffi
except ModuleNotFoundError as error:
    if error.name != "tvm_ffi":
        raise
    raise ModuleNotFoundError("kbundle.tvm_ffi needs tvm-ffi, which this Python does not have: pip install apache-tvm-ffi, or "
                              "kbundle[tvm-ffi]", name="tvm_ffi") from None

from kbundle._bundle import Bundle
from kbundle._c_spec import c_spec
from kbundle._discovery import default_bundle
from kbundle._errors import Error
from kbundle._library import check, library, text

__all__ = ["function", "register"]

_ANY = ("f32", ())  # an operand that calls give, whatever it will be
_numbers = itertools.count()


def function(bundle, op, /, *, given=None, **attributes):
    """A tvm_ffi.Function of an op: call(operands.., results.., values..). bundle: None is the first that has the op (kbundle.bundles).

    given: the names of the operands that calls give; all of them where it is None, and then None stands for one that is left out. Of results
    all are given, None for those that a call does not have, or only those that it has, where no None follows. Attributes said here are every
    call's; a call may give values of the others behind its tensors, in the op's order, None for a default."""
    bundle = _bundle(bundle, op)
    name = "kbundle.function.%d" % next(_numbers)
    _register(bundle, op, name, given, attributes)
    made = tvm_ffi.get_global_func(name)
    tvm_ffi.remove_global_func(name)
    return made


def register(bundle, prefix="kbundle."):
    """Makes every op of an open bundle a global function of tvm-ffi, prefix and the op's name, in place of another of that name; their
    names. A call gives attributes behind its tensors, see `function`."""
    _bundle(bundle, None)
    names = []
    for op in bundle.ops:
        names.append(prefix + op.name)
        _register(bundle, op.name, names[-1], None, {})
    return names


def _bundle(bundle, op):
    if bundle is None and op is not None:
        return default_bundle(op)
    if not isinstance(bundle, Bundle):
        raise Error("INVALID_ARGUMENT", "making functions of tvm-ffi: %r is no bundle; pass what kbundle.open returned" % (bundle,))
    return bundle


def _register(bundle, op, name, given, attributes):
    described = bundle.op(op)
    operands = [operand.name for operand in described.operands]
    for wanted in given or ():
        if wanted not in operands:
            raise Error("INVALID_ARGUMENT", "making op %r a function of tvm-ffi: given names %r; its operands are %s"
                        % (op, wanted, ", ".join(operands)))
    names = [attribute.name for attribute in described.attributes]
    for attribute in attributes:
        if attribute not in names:
            raise Error("INVALID_ARGUMENT", "making op %r a function of tvm-ffi: it has no attribute %r; there are %s"
                        % (op, attribute, ", ".join(names) or "none"))
    present = [_ANY if given is None or operand in given else None for operand in operands]
    spec = c_spec(present, bundle.normal_attributes(op, attributes))
    check(library().kb_tvm_register(bundle._live, text(op, "op"), ctypes.byref(spec), text(name, "name")))
