"""The reference side of `kbundle tune`: inputs and float64 expectations of problems, into files.

Started by the command with its folder; reads one JSON request a line from descriptor 3 and answers a
line each on descriptor 4. Whatever a family's reference.py prints goes elsewhere. Inputs come in the
operands' own dtypes; an expectation is float64 for a float result, else of the result's dtype.
"""

import ctypes
import importlib.util
import json
import os
import signal
import sys
import traceback


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def answer(row):
    os.write(4, (json.dumps(row) + "\n").encode())


die_with_parent()
try:
    import ml_dtypes
    import numpy as np
except ImportError as missing:
    answer({"error": f"{sys.executable}: {missing}; the float64 references need numpy and ml_dtypes: "
                     "pip install them there, or name another interpreter with --python"})
    sys.exit(3)

NUMPY = {"bool": np.bool_, "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16,
         "u32": np.uint32, "i32": np.int32, "u64": np.uint64, "i64": np.int64, "f16": np.float16,
         "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
         "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e8m0": ml_dtypes.float8_e8m0fnu}
modules = {}


def load(path):
    if path not in modules:
        spec = importlib.util.spec_from_file_location(f"reference_{len(modules)}", path)
        modules[path] = importlib.util.module_from_spec(spec)
        sys.path.insert(0, os.path.dirname(path))
        spec.loader.exec_module(modules[path])
    return modules[path]


def random_operand(rng, dtype, dims):
    if dtype == "bool":
        return rng.random(dims) < 0.5
    if dtype[0] in "ui":
        low, high = (0, 200) if dtype[0] == "u" else (-100, 100)
        return rng.integers(low, high, dims)
    made = rng.standard_normal(dims, np.float32)
    made *= 2
    return made


def make_inputs(reference, request):
    rng = np.random.default_rng(request["seed"])
    made = {}
    given = [o for o in request["operands"] if o["dtype"]]
    if hasattr(reference, "make_inputs"):
        shapes = {o["name"]: tuple(o["dims"]) for o in given}
        made = reference.make_inputs(request["op"], shapes, request["seed"]) or {}
    arrays = {}
    for operand in given:
        value = made.pop(operand["name"], None)
        if value is None:
            value = random_operand(rng, operand["dtype"], tuple(operand["dims"]))
        value = np.ascontiguousarray(np.asarray(value).astype(NUMPY[operand["dtype"]]))
        if value.shape != tuple(operand["dims"]):
            raise ValueError(f"make_inputs gives {operand['name']} the shape {list(value.shape)}; "
                             f"the problem says {operand['dims']}")
        arrays[operand["name"]] = value
    return arrays


def write(request, name, array):
    path = os.path.join(request["folder"], f"{request['number']}.{name}")
    with open(path, "wb") as file:
        file.write(memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))
    return path


def serve(request):
    reference = load(request["reference"])
    inputs = make_inputs(reference, request)
    reply = {"number": request["number"], "inputs": [], "expected": []}
    wide = []
    for operand in request["operands"]:
        array = inputs.pop(operand["name"], None)
        reply["inputs"].append("" if array is None else write(request, "in." + operand["name"], array))
        wide.append(array if array is None or array.dtype.kind in "iub" else array.astype(np.float64))
        del array
    wanted = getattr(reference, request["op"])(*wide, **request["attributes"])
    wide.clear()
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    if len(wanted) < len(request["results"]):
        raise ValueError(f"{request['op']} of the reference gives {len(wanted)} results; the op has "
                         f"{len(request['results'])}")
    for result, array in zip(request["results"], wanted):
        if not result["dtype"]:
            reply["expected"].append("")
            continue
        dtype = NUMPY[result["dtype"]] if result["dtype"][0] in "iu" or result["dtype"] == "bool" else np.float64
        array = np.broadcast_to(np.asarray(array), tuple(result["dims"])).astype(dtype, copy=False)
        reply["expected"].append(write(request, "out." + result["name"], array))
    return reply


def main():
    os.dup2(2, 1)
    answer({"ready": f"Python {sys.version.split()[0]}, NumPy {np.__version__}"})
    with os.fdopen(3) as requests:
        for line in requests:
            request = json.loads(line)
            try:
                reply = serve(request)
            except MemoryError:
                reply = {"number": request["number"], "error": "the reference ran out of memory"}
            except Exception as error:  # of somebody's reference.py: their problem's loss alone
                last = traceback.extract_tb(error.__traceback__)[-1]
                reply = {"number": request["number"],
                         "error": f"{type(error).__name__}: {error} ({os.path.basename(last.filename)}, "
                                  f"line {last.lineno})"}
            answer(reply)


main()
