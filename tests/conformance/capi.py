"""The C ABI of libkbundle.so (kbundle_c.h) for tests: bundles, plans and launches without any framework."""

import ctypes
import functools
import json
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = ["bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16", "f32", "f64",
          "e4m3", "e5m2", "e8m0"]  # number = index + 1
CUDA, HOST = 0, 1
DETERMINISTIC, BATCH_INVARIANT = 1, 2  # kb_mode


class Tensor(ctypes.Structure):
    _fields_ = [("present", ctypes.c_int32), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("dims", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64))]


class Attribute(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int32), ("integer", ctypes.c_int64),
                ("number", ctypes.c_double), ("text", ctypes.c_char_p),
                ("integers", ctypes.POINTER(ctypes.c_int64)),
                ("numbers", ctypes.POINTER(ctypes.c_double)), ("count", ctypes.c_size_t)]


class Spec(ctypes.Structure):
    _fields_ = [("operands", ctypes.POINTER(Tensor)), ("operand_count", ctypes.c_size_t),
                ("attributes", ctypes.POINTER(Attribute)), ("attribute_count", ctypes.c_size_t)]


class KbError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def library_path():
    return os.environ.get("KBUNDLE_LIBRARY") or str(
        pathlib.Path(os.environ.get("KB_BUILD", ROOT / "build/release")) / "libkbundle.so")


def _load():
    lib = ctypes.CDLL(library_path())
    lib.kb_error_message.restype = ctypes.c_char_p
    lib.kb_error_message.argtypes = [ctypes.c_void_p]
    lib.kb_error_code.argtypes = [ctypes.c_void_p]
    lib.kb_error_free.argtypes = [ctypes.c_void_p]
    lib.kb_string_free.argtypes = [ctypes.c_void_p]
    lib.kb_plan_workspace_bytes.restype = ctypes.c_int64
    lib.kb_plan_workspace_bytes.argtypes = [ctypes.c_void_p]
    lib.kb_plan_release.argtypes = [ctypes.c_void_p]
    lib.kb_bundle_release.argtypes = [ctypes.c_void_p]
    pointer, text, i32 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32
    spec, out = ctypes.POINTER(Spec), ctypes.POINTER(ctypes.c_void_p)
    addresses = ctypes.POINTER(pointer)
    for name, types in {
            "kb_bundle_open": [text, text, out],
            "kb_bundle_describe": [pointer, text, i32, out],
            "kb_infer": [pointer, text, spec, i32, out],
            "kb_explain_modes": [pointer, text, spec, i32, text, ctypes.c_uint64, out],
            "kb_policy_force": [pointer, text],
            "kb_policy_deny": [pointer, text],
            "kb_stats": [out],
            "kb_plan_make_modes": [pointer, text, spec, i32, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint64, out],
            "kb_plan_variant": [pointer, out],
            "kb_plan_launch_cuda": [pointer, pointer, addresses, addresses, pointer],
            "kb_plan_launch_host": [pointer, pointer, addresses, addresses, pointer],
            "kb_plan_launch_threads": [pointer, i32, addresses, addresses, pointer],
    }.items():
        getattr(lib, name).restype = ctypes.c_void_p
        getattr(lib, name).argtypes = types
    return lib


LIB = _load()


def check(error):
    if error:
        code, message = LIB.kb_error_code(error), LIB.kb_error_message(error).decode()
        LIB.kb_error_free(error)
        raise KbError(code, message)


def take_string(out):
    text = ctypes.cast(out, ctypes.c_char_p).value.decode()
    LIB.kb_string_free(out)
    return text


def stats():
    out = ctypes.c_void_p()
    check(LIB.kb_stats(ctypes.byref(out)))
    return json.loads(take_string(out))


class Problem:
    """One request: operands are (dtype name, dims) or None where absent; attributes by name."""

    def __init__(self, op, operands, attributes):
        self.op, self.operands, self.attributes = op, operands, attributes

    @functools.cached_property
    def spec(self):
        """What the C ABI reads."""
        self._keep = []
        tensors = (Tensor * max(1, len(self.operands)))()
        for tensor, operand in zip(tensors, self.operands):
            if operand is None:
                continue
            dtype, dims = operand
            array = (ctypes.c_int64 * max(1, len(dims)))(*dims)
            self._keep.append(array)
            tensor.present, tensor.dtype, tensor.rank, tensor.dims = 1, DTYPES.index(dtype) + 1, len(dims), array
        values = (Attribute * max(1, len(self.attributes)))()
        for value, (name, given) in zip(values, self.attributes.items()):
            value.name = name.encode()
            self._set(value, given)
        self._keep += [tensors, values]
        return Spec(tensors, len(self.operands), values, len(self.attributes))

    def _set(self, value, given):
        if isinstance(given, bool):
            value.kind, value.integer = 0, given
        elif isinstance(given, int):
            value.kind, value.integer = 1, given
        elif isinstance(given, float):
            value.kind, value.number = 2, given
        elif isinstance(given, str):
            value.kind, value.text = 3, given.encode()
        elif all(isinstance(item, int) for item in given):
            array = (ctypes.c_int64 * max(1, len(given)))(*given)
            value.kind, value.integers, value.count = 4, array, len(given)
            self._keep.append(array)
        else:
            array = (ctypes.c_double * max(1, len(given)))(*given)
            value.kind, value.numbers, value.count = 5, array, len(given)
            self._keep.append(array)

    def __str__(self):
        shapes = ", ".join("-" if o is None else f"{o[0]}{list(o[1])}".replace(" ", "") for o in self.operands)
        attributes = "".join(f", {k}={v}" for k, v in self.attributes.items())
        return f"{self.op}({shapes}{attributes})"


class Plan:
    def __init__(self, bundle, problem, kind, workspace_limit=-1, alignment=1, modes=0):
        self.problem, self.kind, out = problem, kind, ctypes.c_void_p()
        check(LIB.kb_plan_make_modes(bundle.handle, problem.op.encode(), ctypes.byref(problem.spec), kind,
                                     workspace_limit, alignment, modes, ctypes.byref(out)))
        self.handle = out
        self.workspace_bytes = LIB.kb_plan_workspace_bytes(out)

    def __del__(self):
        if getattr(self, "handle", None):
            LIB.kb_plan_release(self.handle)

    @property
    def variant(self):
        out = ctypes.c_void_p()
        check(LIB.kb_plan_variant(self.handle, ctypes.byref(out)))
        return take_string(out)

    @staticmethod
    def pointers(addresses):
        return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)

    def launch(self, operands, results, workspace=None, stream=None, threads=1):
        """Addresses in the op's order; the arrays may be made once with pointers(). stream: of a plan for CUDA; threads: of
        one for the host."""
        if isinstance(operands, list):
            operands, results = self.pointers(operands), self.pointers(results)
        function, where = ((LIB.kb_plan_launch_cuda, stream) if self.kind == CUDA else
                           (LIB.kb_plan_launch_threads, threads))
        check(function(self.handle, where, operands, results, workspace))


class Bundle:
    def __init__(self, path, name=None):
        self.handle = ctypes.c_void_p()
        check(LIB.kb_bundle_open(str(path).encode(), name and name.encode(), ctypes.byref(self.handle)))

    def close(self):
        LIB.kb_bundle_release(self.handle)
        self.handle = None

    def describe(self, op=None, whole=True):
        out = ctypes.c_void_p()
        check(LIB.kb_bundle_describe(self.handle, op and op.encode(), int(whole), ctypes.byref(out)))
        return json.loads(take_string(out))

    def listed(self, op=None):
        """The Problems that the manifest lists, of one op or of all."""
        for row in self.describe(op)["ops"]:
            for given in row["problems"]:
                operands = [(o["dtype"], tuple(o["dims"])) if o["present"] else None for o in given["operands"]]
                yield Problem(row["name"], operands, given["attributes"])

    def infer(self, problem, kind):
        out = ctypes.c_void_p()
        check(LIB.kb_infer(self.handle, problem.op.encode(), ctypes.byref(problem.spec), kind, ctypes.byref(out)))
        return json.loads(take_string(out))

    def explain(self, problem, kind, target=None, modes=0):
        out = ctypes.c_void_p()
        check(LIB.kb_explain_modes(self.handle, problem.op.encode(), ctypes.byref(problem.spec), kind,
                                   target and target.encode(), modes, ctypes.byref(out)))
        return json.loads(take_string(out))

    def legal(self, problem, kind, modes=0):
        """Ids of the variants that may compute it, in the bundle's order."""
        return [candidate["id"] for candidate in self.explain(problem, kind, modes=modes)["candidates"] if candidate["legal"]]

    def force(self, variant):
        check(LIB.kb_policy_force(self.handle, variant.encode()))

    def clear_policy(self):
        LIB.kb_policy_clear()
