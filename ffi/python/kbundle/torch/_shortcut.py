"""Shortcuts: functions whose known calls go from Python's call to the launch in one step of C++ (ffi/torch's shortcut.h), past torch's
dispatcher, which has nothing to do for them: no mode, tracer or profiler watches, and tensors are plain ones.

Where torch keeps things in its objects is no part of any interface: it is looked for in tensors of every kind, and where it is not found
the same way in all of them, or something else is missing, there are no shortcuts, and calls are as right as with them.
"""

import ctypes
import functools
import sysconfig

import torch
from torch.autograd import forward_ad

from kbundle._errors import Error
from kbundle._library import TorchLayout, check, library
from kbundle.torch import _direct, _eager

_WORDS = 24  # of what a tensor points to, where its keys are looked for


def _samples():
    """(a tensor, whether it is a plain one)."""
    with torch.inference_mode():
        inference = torch.empty(3)
    complex_one = torch.empty(2, dtype=torch.complex64)
    return [(torch.empty(2, 3), True), (torch.empty(0, requires_grad=True), True), (torch.nn.Parameter(torch.empty(1)), True), (inference, True),
            (torch.empty(2, dtype=torch.int8), True), (complex_one.conj(), False), (complex_one.conj().imag, False),
            (torch.empty(2, device="meta"), False), (torch._efficientzerotensor(2), False), (torch.empty(2).to_sparse(), False)]


def _word(address):
    return ctypes.c_uint64.from_address(address).value


def _only(places):
    """The one place that all have in common."""
    [place] = set.intersection(*map(set, places))
    return place


def _plain_keys(device):
    """All that a tensor of a device may have which needs no dispatcher."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    for name in (device, "Autograd" + device, "Autocast" + device):
        keys = keys | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
    return keys.raw_repr()


def _layout():
    """See TorchLayout."""
    lend, take_back = torch._C._aoti.unsafe_alloc_void_ptr_from_tensor, torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr
    objects, keys, cpu = [], [], _plain_keys("CPU")
    for tensor, plain in _samples():
        handle, own = lend(tensor), torch._C._dispatch_keys(tensor).raw_repr()
        inside = _word(ctypes.pythonapi.PyCapsule_GetPointer(ctypes.py_object(handle), None))
        take_back(handle)
        objects.append([at for at in range(16, type(tensor).__basicsize__, 8) if _word(id(tensor) + at) == inside])
        keys.append([8 * at for at in range(_WORDS) if _word(inside + 8 * at) == own])
        if plain != (not own & ~cpu):
            raise ValueError("the keys of a tensor are %#x" % own)
    return TorchLayout(id(torch.Tensor), id(torch.nn.Parameter), id(torch.dtype), _only(objects), _only(keys), cpu, _plain_keys("CUDA"),
                       id(_eager._apply))


def _possible():
    if not _direct.enabled or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    try:
        check(library().kb_torch_shortcut_enable(ctypes.byref(_layout())))
    except (AttributeError, RuntimeError, TypeError, ValueError, Error):
        return False
    return True


enabled = _possible()
_STATES = (torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack, torch._C._are_functorch_transforms_active,
           torch._C._get_tracing_state, functools.partial(getattr, forward_ad, "_current_level"),
           torch._C._autograd._profiler_enabled) if enabled else ()


def _made(function, *arguments):
    """What a function of the library says that returns a Python object, called with the interpreter's lock."""
    function = ctypes.PyDLL(None, handle=library()._handle)[function]
    function.restype = ctypes.py_object
    return function(*arguments)


if enabled:
    _eager.note, _eager.known = _made("kb_torch_shortcut_note"), _made("kb_torch_shortcut_run")


def known_calls(function, *states):
    """The function with a shortcut before it, for callers that torch.compile does not trace."""
    states = (*_STATES, *states)
    return _made("kb_torch_shortcut_make", ctypes.py_object(function), (ctypes.c_void_p * len(states))(*map(id, states)),
                 ctypes.c_size_t(len(states)))


def shortcut(*states):
    """A decorator of functions that check and complete their arguments and then call one op: @kbt.shortcut(). What such a function does may
    depend on dtypes, shapes, devices and layout of tensors, on the other arguments, and on what states, functions without arguments, say: not
    on what tensors hold, nor on anything else that changes."""
    def decorate(function):
        if not enabled:
            return function
        known = known_calls(function, *states)

        @functools.wraps(function)
        def entered(*arguments, **named):
            if torch.compiler.is_compiling():
                return function(*arguments, **named)
            return known(*arguments, **named)
        return entered
    return decorate
