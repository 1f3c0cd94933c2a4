"""Calls of the operators that ops are (torch.ops.kbundle.<family>_<op>) with no Python between them and the launch: by programs that
torch.compile made, and by whoever calls them by hand.

Each op is three operators of one form:

    kbundle        the op. On CPU and CUDA its kernel is in libkbundle.so (ffi/torch), which makes a call whose plan it knows. There is no
                   rule for gradients in the way: where they are wanted, the kernel finds that out
    kbundle_rules  the op with its rules for gradients and vmap, in Python. Whatever wants to see or change calls (modes, tracers,
                   subclasses, functorch) takes a call of kbundle to this one before anything else happens, and sees kbundle again below
    kbundle_long   what the kernel calls when it does not know a call, or gradients are wanted: errors are made and plans are learned here

An exception does not pass the kernel: it is kept here, and the kernel raises a RuntimeError with its text.
"""

import ctypes
import functools
import threading

import torch

from kbundle import _bundle, _open_bundles
from kbundle._library import library, text
from kbundle.torch import _eager, _launch

OPS, RULES, LONG = "kbundle", "kbundle_rules", "kbundle_long"
_KINDS = {"float": 2, "int": 2, "bool": 2, "enum": 3, "dtype": 3, "int[]": 4, "float[]": 4}  # ArgumentKind of op_call.h
_TENSOR, _OPTIONAL, _TEXT = 0, 1, 3

# Neither autograd's nor what is above it; the dispatcher in Python, which some tracers turn on, begins at the top each time.
_BELOW_GRADIENTS = torch._C._after_autograd_keyset.remove(torch._C.DispatchKey.PythonDispatcher)

_libraries = {space: torch.library.Library(space, "FRAGMENT") for space in (RULES, LONG)}
_thread = threading.local()


def _possible():
    """Whether this PyTorch tells the kernel for which tensors gradients are wanted, tried on one of each."""
    try:
        lend, take_back = torch._C._aoti.unsafe_alloc_void_ptr_from_tensor, torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr
        torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors
        address = ctypes.pythonapi.PyCapsule_GetPointer
    except AttributeError:
        return False
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    said = []
    for wanted in (False, True):
        handle = lend(torch.empty(0, requires_grad=wanted))
        said.append(library().kb_torch_wants_gradient(address(handle, None)))
        take_back(handle)
    return said == [0, 1]


enabled = _eager.enabled and _possible()
if enabled:
    _bundle.listeners.append(library().kb_torch_forget)


def implement(kernel, description, name, schema):
    """Gives an op's operator, which is defined, its kernel for CPU and CUDA; the operator in RULES, or None where there cannot be one.
    kernel: what Python would do (_operators._Kernel)."""
    if not enabled:
        return None
    kinds = [_OPTIONAL if operand.optional else _TENSOR for operand in description.operands]
    kinds += [*(_KINDS[attribute.type] for attribute in description.attributes), _TEXT]
    for library_of in _libraries.values():
        library_of.define(schema)
    base, overload = name.split(".")
    long = _Long(kernel, getattr(getattr(torch.ops.kbundle_rules, base), overload))
    _libraries[LONG].impl(name, long, "CompositeImplicitAutograd")
    site = ctypes.c_int64()
    error = library().kb_torch_implement_op(text(name, "name"), (ctypes.c_int32 * len(kinds))(*kinds), len(kinds), _eager.cuda,
                                            ctypes.byref(site))
    if error:  # a process has 512 of them
        library().kb_error_free(error)
        return None
    long.site = site.value
    return long.rules


def show(ops, name, op, rules):
    """Lets whatever wants to see calls see those of the op, whose gradients are the rules'. ops: the library of OPS."""
    for key in ("AutogradCPU", "AutogradCUDA"):
        ops.impl(name, torch.library.fallthrough_kernel, key)
    for key in ("PythonTLSSnapshot", "FuncTorchDynamicLayerFrontMode"):
        ops.impl(name, rules, key)
    for key in ("Python", "Functionalize"):
        _libraries[RULES].impl(name, functools.partial(_below, op), key, with_keyset=True)


def _below(op, keys, *tensors, **attributes):
    """Goes on with the op where a call of its rules has come."""
    return op.redispatch(keys & _BELOW_GRADIENTS, *tensors, **attributes)


def rules_library():
    return _libraries[RULES]


class _Long:
    """The operator in LONG."""

    def __init__(self, kernel, rules):
        self.kernel, self.rules, self.site = kernel, rules, None

    def __call__(self, *tensors, bundle="", **attributes):
        try:
            if torch.is_grad_enabled() and any([tensor is not None and tensor.requires_grad for tensor in tensors]):
                return self.rules(*tensors, bundle=bundle, **attributes)
            changes, decided = _open_bundles.changes(), self._decided(bundle)
            tensors, attributes = self.kernel.all(tensors), self.kernel.plain(attributes)
            results = _launch.run(self.kernel.op, bundle, tensors, attributes)
            self._teach(bundle, tensors, attributes, decided)
            if changes != _open_bundles.changes():
                library().kb_torch_forget()
        except BaseException as error:
            _thread.error = error
            library().kb_torch_fail(str(error).encode() or type(error).__name__.encode())
            return None if self.kernel.result_count == 1 else (None,) * self.kernel.result_count
        return results[0] if self.kernel.result_count == 1 else tuple(results)

    def _teach(self, bundle, tensors, attributes, decided):
        generation, plan = _launch.plan(self.kernel.op, bundle, tensors, attributes)
        given = [index for index, tensor in enumerate(tensors) if tensor is not None]
        _eager.teach(self.site, generation, plan, given, decided)

    def _decided(self, bundle):
        """The environment, where that decides which bundle serves a call."""
        used = _open_bundles.used()
        return None if bundle or (used is not None and used.has(self.kernel.op)) else _eager.environment()


def original(error):
    """The exception whose text a kernel raised as a RuntimeError, or that error itself."""
    kept, _thread.error = getattr(_thread, "error", None), None
    return kept if kept is not None and str(kept) and str(kept) in str(error) else error
