"""Tells XLA about the handlers of libkbundle.so, once per process, without starting a backend.

The same library registered again is accepted. A second copy of it is not: XLA would refuse its handlers,
for CUDA only when the backend starts, and along with them others that wait in the same queue. So the path
of the copy that is registered is kept where every copy of this package sees it.
"""

import ctypes
import sys

import jax

from kbundle._errors import Error
from kbundle._library import library, library_path

TARGET = "kbundle.call.v1"
_STAGES = {
    # XLA's spelling of platforms: "cuda" in lower case would wait in a queue that nobody empties.
    "cpu": {"instantiate": "kb_xla_instantiate_host", "execute": "kb_xla_execute_host"},
    "CUDA": {"instantiate": "kb_xla_instantiate_cuda", "prepare": "kb_xla_prepare_cuda",
             "initialize": "kb_xla_initialize_cuda", "execute": "kb_xla_execute_cuda"},
}
_MARK = "_kbundle_registered_library"


def _capsule(function):
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.cast(function, ctypes.c_void_p), None, None)


def register():
    path = library_path()
    known = getattr(sys, _MARK, None)
    if known is not None and known != path:
        raise Error("FAILED_PRECONDITION", "registering kbundle with XLA: this process already uses %s, "
                    "and XLA cannot hold a second copy (%s); install kbundle once" % (known, path))
    loaded = library()
    for platform, stages in _STAGES.items():
        capsules = {stage: _capsule(getattr(loaded, name)) for stage, name in stages.items()}
        jax.ffi.register_ffi_target(TARGET, capsules, platform=platform)
    setattr(sys, _MARK, path)
