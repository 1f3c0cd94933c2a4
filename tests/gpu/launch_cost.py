"""Host cost of calls of C functions, timed in C (launch_cost.cc), and the libraries whose functions they are."""

import contextlib
import ctypes
import glob
import os
import pathlib
import site
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMER = ROOT / "build/release/libkb_launch_cost.so"
CALLS, ROUNDS = 20, 200  # of one batch between waits, and batches


class Call(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("arguments", ctypes.c_void_p * 16), ("mask", ctypes.c_ssize_t)]


def library(soname):
    """The process's library of that name, else the one that came with Python packages, which a framework would have loaded, else the
    system's."""
    with contextlib.suppress(OSError):
        return ctypes.CDLL(soname, mode=os.RTLD_NOLOAD | ctypes.RTLD_GLOBAL)
    folders = {*site.getsitepackages(), *sys.path}
    found = sorted(p for folder in folders for p in glob.glob(f"{folder}/nvidia/*/lib/{soname}"))
    return ctypes.CDLL(found[0] if found else soname, mode=ctypes.RTLD_GLOBAL)


def frameworks_libraries():
    """Has cuDNN and cuBLASLt in the process, as far as they are installed."""
    for soname in ("libcublasLt.so.13", "libcudnn.so.9"):
        with contextlib.suppress(OSError):
            library(soname)


def cell(value=0):
    """Eight bytes that hold an argument."""
    return ctypes.c_int64(value or 0)


def sequence(calls):
    """Calls to time together: (function, cells, whether the result is an int status; else a pointer that must be null)."""
    zero, made = cell(), (Call * len(calls))()
    made.keep = zero, calls
    for entry, (function, cells, is_status) in zip(made, calls):
        entry.function, entry.mask = ctypes.cast(function, ctypes.c_void_p).value, 0xffffffff if is_status else -1
        for i in range(16):
            entry.arguments[i] = ctypes.addressof(cells[i] if i < len(cells) else zero)
    return made


def costs_us(sequences, wait):
    """Host microseconds of each sequence, and what each takes beyond the second: medians over batches that take turns, with a wait
    behind each batch."""
    timer = ctypes.CDLL(str(TIMER)).kb_launch_cost
    timer.restype = ctypes.c_double
    times = [[] for _ in sequences]
    for round_ in range(ROUNDS + 3):
        for calls, samples in zip(sequences, times):
            ns = timer(calls, ctypes.c_int(len(calls)), ctypes.c_int(CALLS))
            wait()
            if ns < 0:
                raise RuntimeError(f"a timed call failed: {-1 - ns:.0f}")
            if round_ >= 3:
                samples.append(ns / 1e3)
    beyond = [statistics.median(a - b for a, b in zip(samples, times[1])) for samples in times]
    return [statistics.median(samples) for samples in times], beyond


def plan_launch(plan, operands, results, workspace, stream):
    """A launch of a kbundle plan for CUDA through the C ABI."""
    from conformance import capi
    arrays = [capi.Plan.pointers(list(side)) for side in (operands, results)]
    cells = [cell(plan.handle.value), cell(getattr(stream, "value", stream)), *(cell(ctypes.addressof(a)) for a in arrays), cell(workspace)]
    calls = sequence([(capi.LIB.kb_plan_launch_cuda, cells, False)])
    calls.also = plan, arrays
    return calls
