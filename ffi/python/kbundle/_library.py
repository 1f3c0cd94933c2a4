"""libkbundle.so: where it is, its functions with their types, its errors as exceptions."""

import ctypes
import functools
import json
import os

from kbundle._errors import CODES, Error

_HERE = os.path.dirname(os.path.abspath(__file__))
ABI_VERSION = 1


class Tensor(ctypes.Structure):
    _fields_ = [
        ("present", ctypes.c_int32), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("dims", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class Attribute(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("kind", ctypes.c_int32), ("integer", ctypes.c_int64),
        ("number", ctypes.c_double), ("text", ctypes.c_char_p),
        ("integers", ctypes.POINTER(ctypes.c_int64)), ("numbers", ctypes.POINTER(ctypes.c_double)),
        ("count", ctypes.c_size_t),
    ]


class ProblemSpec(ctypes.Structure):
    _fields_ = [
        ("operands", ctypes.POINTER(Tensor)), ("operand_count", ctypes.c_size_t),
        ("attributes", ctypes.POINTER(Attribute)), ("attribute_count", ctypes.c_size_t),
    ]


class TorchLayout(ctypes.Structure):
    _fields_ = [
        ("tensor_type", ctypes.c_void_p), ("parameter_type", ctypes.c_void_p), ("dtype_type", ctypes.c_void_p),
        ("tensor_offset", ctypes.c_int64), ("keys_offset", ctypes.c_int64),
        ("cpu_keys", ctypes.c_uint64), ("cuda_keys", ctypes.c_uint64), ("differentiate", ctypes.c_void_p),
    ]


class AbsentPart(ctypes.Structure):
    _fields_ = [("target", ctypes.c_char_p), ("how", ctypes.c_char_p)]


class OpenOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("source", ctypes.c_int32), ("descriptor", ctypes.c_int32), ("path", ctypes.c_char_p),
        ("bytes", ctypes.c_void_p), ("byte_count", ctypes.c_uint64), ("name", ctypes.c_char_p), ("allocator", ctypes.c_void_p),
        ("reload", ctypes.c_int32), ("reserved", ctypes.c_int32),
        ("parts", ctypes.POINTER(ctypes.c_char_p)), ("part_count", ctypes.c_size_t),
        ("absent", ctypes.POINTER(AbsentPart)), ("absent_count", ctypes.c_size_t),
        ("folders", ctypes.POINTER(ctypes.c_char_p)), ("folder_count", ctypes.c_size_t),
    ]


_HANDLE = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
_SPEC = ctypes.POINTER(ProblemSpec)

# name: (result, arguments). A kb_error* is returned as an address: 0 is success.
_FUNCTIONS = {
    "kb_abi_version": (ctypes.c_int32, []),
    "kb_version": (_TEXT, []),
    "kb_error_code": (ctypes.c_int32, [_HANDLE]),
    "kb_error_message": (_TEXT, [_HANDLE]),
    "kb_error_free": (None, [_HANDLE]),
    "kb_string_free": (None, [_HANDLE]),
    "kb_bundle_open": (_HANDLE, [_TEXT, _TEXT, _OUT]),
    "kb_bundle_reload": (_HANDLE, [_TEXT, _TEXT, _OUT]),
    "kb_bundle_open_with": (_HANDLE, [ctypes.POINTER(OpenOptions), _OUT]),
    "kb_bundle_find": (_HANDLE, [_TEXT, _TEXT, _OUT]),
    "kb_bundle_identity": (_HANDLE, [_HANDLE]),
    "kb_bundle_close": (_HANDLE, [_HANDLE]),
    "kb_bundle_release": (None, [_HANDLE]),
    "kb_bundle_verify": (_HANDLE, [_HANDLE]),
    "kb_bundle_describe": (_HANDLE, [_HANDLE, _TEXT, ctypes.c_int32, _OUT]),
    "kb_infer": (_HANDLE, [_HANDLE, _TEXT, _SPEC, ctypes.c_int, _OUT]),
    "kb_explain_modes": (_HANDLE, [_HANDLE, _TEXT, _SPEC, ctypes.c_int, _TEXT, ctypes.c_uint64, _OUT]),
    "kb_plan_make": (_HANDLE, [_HANDLE, _TEXT, _SPEC, ctypes.c_int32, ctypes.c_int64, _OUT]),
    "kb_plan_make_modes": (_HANDLE, [_HANDLE, _TEXT, _SPEC, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint64, _OUT]),
    "kb_plan_workspace_bytes": (ctypes.c_int64, [_HANDLE]),
    "kb_plan_launch_cuda": (_HANDLE, [_HANDLE] * 5),
    "kb_plan_launch_threads": (_HANDLE, [_HANDLE, ctypes.c_int32] + [_HANDLE] * 3),
    "kb_plan_release": (None, [_HANDLE]),
    "kb_policy_force": (_HANDLE, [_HANDLE, _TEXT]),
    "kb_policy_deny": (_HANDLE, [_HANDLE, _TEXT]),
    "kb_policy_clear": (None, []),
    "kb_policy_generation": (ctypes.c_uint64, []),
    "kb_policy_strict": (None, [ctypes.c_int32]),
    "kb_policy_allow_portable": (None, [ctypes.c_int32]),
    "kb_stats": (_HANDLE, [_OUT]),
    "kb_torch_load": (_HANDLE, [ctypes.POINTER(ctypes.c_int32)]),
    "kb_torch_fail": (None, [_TEXT]),
    "kb_torch_forget": (None, []),
    "kb_torch_implement": (_HANDLE, [_TEXT, ctypes.c_int32]),
    "kb_torch_implement_op": (_HANDLE, [_TEXT, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t, ctypes.c_int32, ctypes.POINTER(ctypes.c_int64)]),
    "kb_torch_shortcut_enable": (_HANDLE, [ctypes.POINTER(TorchLayout)]),
    "kb_torch_site_make": (_HANDLE, [ctypes.c_int32, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t, ctypes.POINTER(ctypes.c_int64)]),
    "kb_torch_site_release": (None, [ctypes.c_int64]),
    "kb_torch_learn": (_HANDLE, [ctypes.c_int64, ctypes.c_uint64, _HANDLE, ctypes.POINTER(Tensor), ctypes.POINTER(ctypes.c_int32),
                                 ctypes.c_size_t, ctypes.c_int32, _TEXT]),
    "kb_torch_wants_gradient": (ctypes.c_int32, [_HANDLE]),
    "kb_tvm_register": (_HANDLE, [_HANDLE, _TEXT, _SPEC, _TEXT]),
}


def _candidates():
    override = os.environ.get("KBUNDLE_LIBRARY")
    if override:
        return [override]
    tree = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
    return [os.path.join(_HERE, "libkbundle.so"),
            os.path.join(tree, "build", "release", "libkbundle.so")]


def library_path():
    """The file that is (or would be) loaded: $KBUNDLE_LIBRARY, else the one beside this package, else
    the release build of the source tree."""
    candidates = _candidates()
    for path in candidates:
        if os.path.exists(path):
            return os.path.abspath(path)
    raise Error("NOT_FOUND", "loading libkbundle.so: there is none at %s; build it, or set "
                "KBUNDLE_LIBRARY to its path" % " or ".join(candidates))


@functools.lru_cache(maxsize=None)
def library():
    """The loaded library. Loaded once and never closed: XLA keeps pointers into it."""
    path = library_path()
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        from kbundle import _platform
        raise Error("UNAVAILABLE", _platform.wrong_library(path, error)) from None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise Error("UNIMPLEMENTED", "loading %s: it has no %s, which this package calls; take both from one wheel, or build both "
                        "from the same sources" % (path, name))
        function.restype = result
        function.argtypes = arguments
    found = loaded.kb_abi_version()
    if found < ABI_VERSION:
        raise Error("UNIMPLEMENTED", "loading %s: its ABI version is %d, this package needs %d; "
                    "build both from the same sources" % (path, found, ABI_VERSION))
    return loaded


def text(value, what):
    """The bytes of a string or path for C. what: the argument's name, for the error."""
    if not isinstance(value, (str, bytes)):
        raise Error("INVALID_ARGUMENT", "reading %s: %r is %s; give a string" % (what, value, type(value).__name__))
    try:
        encoded = os.fsencode(value) if what == "path" else value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError as error:
        raise Error("INVALID_ARGUMENT", "reading %s: %r is no Unicode text (%s)" % (what, value, error)) from None
    if b"\0" in encoded:
        raise Error("INVALID_ARGUMENT", "reading %s: %r has a NUL character, where C would cut it short; leave it out"
                    % (what, value))
    return encoded


def check(error):
    """Raises what a kb_error* says, and frees it."""
    if not error:
        return
    lib = library()
    tag = CODES.get(lib.kb_error_code(error), "UNKNOWN")
    message = lib.kb_error_message(error).decode("utf-8", "replace")
    lib.kb_error_free(error)
    raise Error(tag, message)


def call_json(function, *arguments):
    """Calls a function whose last parameter is a char** of JSON, and parses it."""
    out = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(out)))
    try:
        return json.loads(ctypes.string_at(out.value).decode("utf-8"))
    finally:
        library().kb_string_free(out)
