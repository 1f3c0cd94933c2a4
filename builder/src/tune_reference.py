"""The reference side of `kbundle tune`: inputs and float64 expectations of problems, into files.

Started by the command with its folder; reads one JSON request a line from descriptor 3 and answers a
line each on descriptor 4. Whatever a family's reference.py prints goes elsewhere. Inputs come in the
operands' own dtypes; an expectation is float64 for a float result, else of the result's dtype.

Large problems are cut along an axis on which the op is independent, and the parts are computed in
threads, each in arrays that fit a cache: many times faster than one pass over gigabytes. That axis is
the leading dims of an op whose manifest says vmap = "leading"; or the one that reference.py names, as
INDEPENDENT_AXIS = {"op": -2}, counted from the end, which every operand and result must then have.
"""

import concurrent.futures
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
PART_ELEMENTS = 1 << 20  # of all operands of a part together
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


def make_inputs(reference, op, operands, seed):
    """Arrays of the operands' dtypes by name; operands: [(name, dtype, dims)]."""
    rng = np.random.default_rng(seed)
    made = {}
    if hasattr(reference, "make_inputs"):
        made = reference.make_inputs(op, {name: tuple(dims) for name, _, dims in operands}, seed) or {}
    arrays = {}
    for name, dtype, dims in operands:
        value = made.pop(name, None)
        if value is None:
            value = random_operand(rng, dtype, tuple(dims))
        value = np.ascontiguousarray(np.asarray(value).astype(NUMPY[dtype]))
        if value.shape != tuple(dims):
            raise ValueError(f"make_inputs gives {name} the shape {list(value.shape)}; the problem says {dims}")
        arrays[name] = value
    return arrays


def compute(reference, request, inputs):
    """The results' arrays, or None where absent."""
    wide = [inputs.get(operand["name"]) for operand in request["operands"]]
    wide = [a if a is None or a.dtype.kind in "iub" else a.astype(np.float64) for a in wide]
    wanted = getattr(reference, request["op"])(*wide, **request["attributes"])
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    if len(wanted) < len(request["results"]):
        raise ValueError(f"{request['op']} of the reference gives {len(wanted)} results; the op has "
                         f"{len(request['results'])}")
    return wanted


def given(tensors):
    return [tensor for tensor in tensors if tensor["dtype"]]


def expected_dtype(dtype):
    return NUMPY[dtype] if dtype[0] in "iu" or dtype == "bool" else np.float64


class Cut:
    """How a problem is cut: for every tensor the shape to see it in and the axis in that, or None."""

    def __init__(self, reference, request):
        self.length = 0
        self.views = {}
        tensors = given(request["operands"]) + given(request["results"])
        axis = getattr(reference, "INDEPENDENT_AXIS", {}).get(request["op"])
        lengths = set()
        for tensor in tensors:
            dims, rows = tensor["dims"], tensor["rows"]
            view = None
            if axis is not None:
                view = tuple(dims), len(dims) + axis
            elif rows > 0:
                view = (int(np.prod(dims[:rows])), *dims[rows:]), 0
            self.views[tensor["name"]] = view
            if view:
                lengths.add(view[0][view[1]])
        results_cut = all(self.views[tensor["name"]] for tensor in given(request["results"]))
        elements = sum(int(np.prod(tensor["dims"])) for tensor in tensors)
        if len(lengths) == 1 and results_cut and elements > 2 * PART_ELEMENTS:
            self.length = lengths.pop()
            self.step = max(1, self.length * PART_ELEMENTS // elements)

    def parts(self):
        return [(start, min(self.length, start + self.step)) for start in range(0, self.length, self.step)]

    def dims(self, tensor, start, stop):
        view = self.views[tensor["name"]]
        if view is None:
            return list(tensor["dims"])
        return [stop - start if i == view[1] else dim for i, dim in enumerate(view[0])]

    def slot(self, tensor, array, start, stop):
        shape, axis = self.views[tensor["name"]]
        return array.reshape(shape)[(slice(None),) * axis + (slice(start, stop),)]


def create(request, name, dtype, dims):
    path = os.path.join(request["folder"], f"{request['number']}.{name}")
    if int(np.prod(dims)) == 0:
        open(path, "wb").close()
        return path, np.empty(tuple(dims), dtype)
    return path, np.memmap(path, np.uint8, "w+", shape=int(np.prod(dims)) * np.dtype(dtype).itemsize).view(dtype).reshape(
        tuple(dims))


def serve(request):
    reference = load(request["reference"])
    operands, results = given(request["operands"]), given(request["results"])
    files = {("in", o["name"]): create(request, "in." + o["name"], NUMPY[o["dtype"]], o["dims"]) for o in operands}
    files.update({("out", r["name"]): create(request, "out." + r["name"], expected_dtype(r["dtype"]), r["dims"])
                  for r in results})
    cut = Cut(reference, request)
    whole = {}

    def part(number, start, stop):
        wanted = [(o["name"], o["dtype"], cut.dims(o, start, stop)) for o in operands]
        inputs = make_inputs(reference, request["op"], wanted, request["seed"] + 7919 * number)
        inputs.update(whole)
        for o in operands:
            if o["name"] not in whole and cut.views[o["name"]]:
                cut.slot(o, files["in", o["name"]][1], start, stop)[...] = inputs[o["name"]]
        for r, array in zip(request["results"], compute(reference, request, inputs)):
            if r["dtype"]:
                cut.slot(r, files["out", r["name"]][1], start, stop)[...] = array

    if cut.length:
        first = cut.parts()[0]
        made = make_inputs(reference, request["op"], [(o["name"], o["dtype"], cut.dims(o, *first)) for o in operands],
                           request["seed"])
        for o in operands:
            if cut.views[o["name"]] is None:  # the same for all parts
                whole[o["name"]] = files["in", o["name"]][1][...] = made[o["name"]]
        with concurrent.futures.ThreadPoolExecutor(request["threads"]) as pool:
            for done in [pool.submit(part, number, *span) for number, span in enumerate(cut.parts())]:
                done.result()
    else:
        inputs = make_inputs(reference, request["op"], [(o["name"], o["dtype"], o["dims"]) for o in operands],
                             request["seed"])
        for o in operands:
            files["in", o["name"]][1][...] = inputs[o["name"]]
        for r, array in zip(request["results"], compute(reference, request, inputs)):
            if r["dtype"]:
                files["out", r["name"]][1][...] = array
    return {"number": request["number"],
            "inputs": [files["in", o["name"]][0] if o["dtype"] else "" for o in request["operands"]],
            "expected": [files["out", r["name"]][0] if r["dtype"] else "" for r in request["results"]]}


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
