"""Promise: a host that has an XLA runtime and no kbundle.jax registers kbundle's handlers by one function of C, and its programs run."""

import subprocess
import sys

# Any handler is asked for its metadata, in a frame that names the runtime's own functions: where a host gets them without Python's help.
SCRIPT = """
import ctypes, sys
import jax, jax.numpy as jnp, numpy as np
import kbundle
from kbundle import _spec
from kbundle._library import library
assert "kbundle.jax" not in sys.modules

class Frame(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("api", ctypes.c_void_p)]

found = []
@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Frame))
def look(frame):
    found.append(frame.contents.api)
    return None

make = ctypes.pythonapi.PyCapsule_New
make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
jax.devices()
try:
    jax.ffi.register_ffi_target("look", make(ctypes.cast(look, ctypes.c_void_p), None, None), platform="cpu")
except Exception:
    pass  # the handler says nothing of its version
register = library().kb_xla_register
register.restype, register.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
assert found and register(found[0], b"cpu") is None

bundle = kbundle.open(sys.argv[1], name="registered by C")
x = jnp.asarray([[3.0, -1.0, 2.0], [5.0, 7.0, 6.0]])
interface = bundle.infer("demo.bounds", (_spec.operand(x),), (), 1)["interface"]
row = jax.ShapeDtypeStruct((2,), x.dtype)
low, high = jax.jit(lambda x: jax.ffi.ffi_call("kbundle.call.v1", [row, row])(
    x, bundle="registered by C", op="demo.bounds", interface=interface, present=np.int64(1), results=np.int64(3),
    workspace_bytes=np.int64(0)))(x)
assert low.tolist() == [-1.0, 5.0] and high.tolist() == [3.0, 7.0]
assert "kbundle.jax" not in sys.modules
assert register(found[0], b"cpu") is None  # as XLA has it already
assert register(found[0], b"tpu") is not None
"""


def test_a_host_registers_the_handlers_by_one_function_and_runs_a_program(demo_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(demo_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
