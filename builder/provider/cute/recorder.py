"""Runs what CuTe DSL exported against record.c: what would be launched, for any shapes, at any addresses, with no GPU.

Three runs of each problem tell a parameter's bytes apart: those that are never written differ when the stack is
poisoned with something else, those of an address when the tensors lie elsewhere; all others are the problem's alone.
"""
import ctypes
import os
import re
import struct
import subprocess

import elf

PATTERNS = (0xA5, 0x5A)
NOT_ZERO = re.compile(rb"[^\0]")
# What record.c stands for, and what is the C library's and harmless.
HARMLESS = {"memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_"}
FAKES = {
    "_cudaLibraryLoadData", "_cudaLibraryGetKernel", "cuda_dialect_init_library_once",
    "cuda_dialect_unload_library_once", "_cudaGetDevice", "_cudaSetDevice", "_cudaGetDeviceCount", "_cuDeviceGet",
    "_cudaDeviceGetAttribute", "_cuKernelGetAttribute", "_cudaKernelSetAttributeForDevice", "_cudaFuncSetAttribute",
    "_cudaLaunchKernelEx", "TVMFFIEnvGetStream", "TVMFFIErrorSetRaisedFromCStr", "TVMFFIErrorSetRaisedFromCStrParts",
    "CuteDSLRT_TVMFFISetRaisedCudaError"}


class CannotRecord(Exception):
    """The host function does what a recording does not hold, or refuses a problem."""


# ---- TVM FFI's C ABI (dlpack and tvm/ffi/c_api.h) ----
class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("dtype", DType), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


class Any(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("zero", ctypes.c_uint32), ("value", ctypes.c_uint64)]


class Array(ctypes.Structure):
    _fields_ = [("references", ctypes.c_uint64), ("type", ctypes.c_int32), ("pad", ctypes.c_uint32),
                ("deleter", ctypes.c_void_p), ("data", ctypes.c_void_p), ("size", ctypes.c_int64),
                ("capacity", ctypes.c_int64), ("data_deleter", ctypes.c_void_p)]


NONE, INT, BOOL, FLOAT, TENSOR, ARRAY = 0, 1, 2, 3, 7, 71
CUDA = 2
DTYPES = {"bool": (6, 8), "i8": (0, 8), "i16": (0, 16), "i32": (0, 32), "i64": (0, 64), "u8": (1, 8), "u16": (1, 16),
          "u32": (1, 32), "u64": (1, 64), "f16": (2, 16), "f32": (2, 32), "f64": (2, 64), "bf16": (4, 16),
          "e4m3": (10, 8), "e5m2": (12, 8), "e8m0": (14, 8)}


class Arguments:
    """One call's arguments as TVMFFIAny, with all that they point to."""

    def __init__(self, values):
        self.keep = []
        self.count = len(values)
        self.array = (Any * max(1, self.count))(*[self.any(value) for value in values])

    def any(self, value):
        if value is None:
            return Any(NONE, 0, 0)
        if isinstance(value, bool):
            return Any(BOOL, 0, int(value))
        if isinstance(value, int):
            return Any(INT, 0, value & 0xFFFFFFFFFFFFFFFF)
        if isinstance(value, float):
            return Any(FLOAT, 0, struct.unpack("<Q", struct.pack("<d", value))[0])
        if isinstance(value, (tuple, list)):
            return self.tuple(value)
        return self.tensor(*value.at)

    def tuple(self, values):
        items = (Any * max(1, len(values)))(*[self.any(value) for value in values])
        array = Array(1 << 32 | 1, ARRAY, 0, None, ctypes.addressof(items), len(values), len(values), None)
        self.keep += [items, array]
        return Any(ARRAY, 0, ctypes.addressof(array))

    def tensor(self, address, dtype, shape, strides):
        rank = len(shape)
        dims = (ctypes.c_int64 * max(1, rank))(*shape)
        steps = (ctypes.c_int64 * max(1, rank))(*strides)
        code, bits = DTYPES[dtype]
        tensor = Tensor(address, CUDA, 0, rank, DType(code, bits, 1), dims, steps, 0)
        self.keep += [dims, steps, tensor]
        return Any(TENSOR, 0, ctypes.addressof(tensor))


class Placed:
    """A tensor of one problem at an address."""

    def __init__(self, address, dtype, shape, strides):
        self.at = (address, dtype, shape, strides)


# ---- record.c's ----
class RawLaunch(ctypes.Structure):
    _fields_ = [("kernel", ctypes.c_uint32), ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3),
                ("cluster", ctypes.c_uint32 * 3), ("programmatic", ctypes.c_uint32), ("shared", ctypes.c_uint64),
                ("params", ctypes.c_uint8 * 4096)]


class Launch:
    """One recorded launch: `params` are its parameters, one after the other."""

    def __init__(self, raw, bytes_):
        self.kernel, self.shared, self.programmatic = raw.kernel, raw.shared, raw.programmatic
        self.grid, self.block, self.cluster = tuple(raw.grid), tuple(raw.block), tuple(raw.cluster)
        self.params = ctypes.string_at(ctypes.addressof(raw.params), bytes_)

    def shape(self):
        return (self.kernel, self.grid, self.block, self.cluster, self.programmatic, self.shared)


def run(compiler, what, options):
    made = subprocess.run([compiler, *options], capture_output=True, text=True)
    if made.returncode != 0:
        raise CannotRecord("%s cannot %s: %s" % (compiler, what, made.stderr))


def recording_object(folder, compiler):
    """record.c compiled, once for all that are recorded in this folder."""
    path = os.path.join(folder, "record.o")
    if not os.path.exists(path):
        source, unfinished = os.path.join(folder, "record.c"), path + ".unfinished"
        with open(source, "w", encoding="utf-8") as file:
            file.write(RECORD_C)
        run(compiler, "compile what records it", ["-x", "c", "-c", "-fPIC", "-O1", "-o", unfinished, source])
        os.replace(unfinished, path)
    return path


class Recorder:
    def __init__(self, folder, compiler, object_file, cubin, function):
        with open(object_file, "rb") as file:
            foreign = elf.undefined(file.read()) - FAKES - HARMLESS
        if foreign:
            raise CannotRecord("its host code calls %s, which a recording does not hold" % ", ".join(sorted(foreign)))
        library = os.path.join(folder, "record.so")
        # CuTe DSL's own libraries are in this process, with what record.c stands in for: it must be found first.
        run(compiler, "link it", ["-shared", "-Wl,-Bsymbolic", "-o", library, recording_object(folder, compiler), object_file])
        self.library = ctypes.CDLL(library)
        self.function = getattr(self.library, "__tvm_ffi_" + function)
        self.library.record_error.restype = ctypes.c_char_p
        self.library.record_launch.restype = ctypes.POINTER(RawLaunch)
        self.library.record_call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int]
        self.symbols, self.param_bytes = [], []
        for symbol, sizes in sorted(elf.kernels(cubin).items()):
            if self.library.record_kernel(symbol.encode(), len(sizes), (ctypes.c_uint32 * max(1, len(sizes)))(*sizes)) < 0:
                raise CannotRecord("more kernels or parameters than a recording holds")
            self.symbols.append(symbol)
            self.param_bytes.append(sizes)

    def run(self, arguments, pattern):
        """The launches of one call; every byte of it."""
        status = self.library.record_call(ctypes.cast(self.function, ctypes.c_void_p), arguments.array, arguments.count, pattern)
        if status != 0:
            raise CannotRecord(self.library.record_error().decode(errors="replace") or "its host function returned %d" % status)
        launches = []
        for number in range(self.library.record_count()):
            raw = self.library.record_launch(number).contents
            launches.append(Launch(raw, sum(self.param_bytes[raw.kernel])))
        return launches

    def device(self, major, minor, multiprocessors, shared):
        self.library.record_device(major, minor, multiprocessors, shared)


def differing(left, right):
    """At which bytes the two, of one length, differ."""
    if left == right:
        return set()
    bits = int.from_bytes(left, "little") ^ int.from_bytes(right, "little")
    return {found.start() for found in NOT_ZERO.finditer(bits.to_bytes(len(left), "little"))}


class Recording:
    """A problem's launches, and by launch which bytes are never written and which are of an address."""

    def __init__(self, recorder, here, there):
        here, there = Arguments(here), Arguments(there)
        self.launches = recorder.run(here, PATTERNS[0])
        poisoned = recorder.run(here, PATTERNS[1])
        moved = recorder.run(there, PATTERNS[1])
        if [one.shape() for one in self.launches] != [one.shape() for one in moved]:
            raise CannotRecord("what it launches depends on where the tensors lie")
        self.moved = moved
        self.unwritten, self.addressed = [], []
        for a, b, c in zip(self.launches, poisoned, moved):
            self.unwritten.append(differing(a.params, b.params))
            self.addressed.append(differing(b.params, c.params))
