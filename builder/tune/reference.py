"""The reference side of `kbundle tune`: inputs and float64 expectations of problems, into files.

Started by the command with its folder; reads one JSON request a line from descriptor 3 and answers
a line each on descriptor 4. Whatever a family's reference.py prints goes elsewhere. Inputs come in
the operands' own dtypes; an expectation is float64 for a float result, else of the result's dtype.

Large problems are cut along an axis on which the op is independent, and the parts are computed in
threads, each in arrays that fit a cache: many times faster than one pass over gigabytes. That axis
is the leading dims of an op whose manifest says vmap = "leading"; or the one that reference.py
names, as INDEPENDENT_AXIS = {"op": -2}, counted from the end, which every operand and result then
has. There a function that takes `first` is told where on the axis its part begins.
"""

import concurrent.futures
import ctypes
import importlib.util
import inspect
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
    answer({"error": f"{sys.executable}: {missing}; the float64 references need numpy and "
                     f"ml_dtypes: {sys.executable} -m pip install numpy ml_dtypes, or name "
                     "another Python with --python"})
    sys.exit(3)

NUMPY = {"bool": np.bool_, "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16,
         "u32": np.uint32, "i32": np.int32, "u64": np.uint64, "i64": np.int64, "f16": np.float16,
         "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
         "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
         "e8m0": ml_dtypes.float8_e8m0fnu}
PART_ELEMENTS = 1 << 20  # of all tensors of a part together
BYTES_PER_ELEMENT = {"whole": 64, "parts": 24}  # some eight float64 arrays; files, and room
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


def place(reference, op, function, first):
    """The keyword that says where a part begins, for a function that wants it."""
    cut = op in getattr(reference, "INDEPENDENT_AXIS", {})
    return {"first": first} if cut and "first" in inspect.signature(function).parameters else {}


def make_inputs(reference, request, operands, seed, first=0):
    """Arrays of the operands' dtypes by name; operands: [(name, dtype, dims)]."""
    op = request["op"]
    rng = np.random.default_rng(seed)
    made = {}
    if hasattr(reference, "make_inputs"):
        make = reference.make_inputs
        where = place(reference, op, make, first)
        problem = {n: tuple(dims) for n, _, dims in operands} | request["attributes"]
        made = make(op, problem, seed, **where) or {}
    arrays = {}
    for name, dtype, dims in operands:
        value = made.pop(name, None)
        if value is None:
            value = random_operand(rng, dtype, tuple(dims))
        value = np.asarray(value).astype(NUMPY[dtype])
        if value.shape != tuple(dims):
            raise ValueError(f"make_inputs gives {name} the shape {list(value.shape)}; the problem "
                             f"says {list(dims)}")
        arrays[name] = value
    return arrays


def compute(reference, request, inputs, first=0):
    """The results' arrays, in the op's order."""
    wide = [inputs.get(operand["name"]) for operand in request["operands"]]
    wide = [a if a is None or a.dtype.kind in "iub" else a.astype(np.float64) for a in wide]
    function = getattr(reference, request["op"])
    where = place(reference, request["op"], function, first)
    wanted = function(*wide, **request["attributes"], **where)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    if len(wanted) < len(request["results"]):
        raise ValueError(f"{request['op']} of the reference gives {len(wanted)} results; the op "
                         f"has {len(request['results'])}")
    return wanted


def given(tensors):
    return [tensor for tensor in tensors if tensor["dtype"]]


def size_of(dims):
    return int(np.prod(dims, dtype=np.int64))


def expected_dtype(dtype):
    return NUMPY[dtype] if dtype[0] in "iu" or dtype == "bool" else np.float64


class Cut:
    """How a problem is cut: for each tensor the shape to see it in and the axis there, or None."""

    def __init__(self, reference, request):
        self.length = 0
        axis = getattr(reference, "INDEPENDENT_AXIS", {}).get(request["op"])
        tensors = given(request["operands"]) + given(request["results"])
        self.views = {tensor["name"]: self.view(tensor, axis) for tensor in tensors}
        lengths = {shape[at] for shape, at in filter(None, self.views.values())}
        results_cut = all(self.views[result["name"]] for result in given(request["results"]))
        elements = sum(size_of(tensor["dims"]) for tensor in tensors)
        self.bytes = elements * BYTES_PER_ELEMENT["whole"]
        if len(lengths) == 1 and results_cut and elements > 2 * PART_ELEMENTS:
            self.length = lengths.pop()
            self.bytes = elements * BYTES_PER_ELEMENT["parts"]
            self.step = max(1, self.length * PART_ELEMENTS // elements)

    @staticmethod
    def view(tensor, axis):
        dims, rows = tensor["dims"], tensor["rows"]
        if axis is not None:
            return tuple(dims), len(dims) + axis
        return ((size_of(dims[:rows]), *dims[rows:]), 0) if rows > 0 else None

    def parts(self):
        starts = range(0, self.length, self.step)
        return [(start, min(self.length, start + self.step)) for start in starts]

    def dims(self, tensor, start, stop):
        if self.views[tensor["name"]] is None:
            return list(tensor["dims"])
        shape, at = self.views[tensor["name"]]
        return [stop - start if i == at else dim for i, dim in enumerate(shape)]

    def slot(self, tensor, array, start, stop):
        shape, at = self.views[tensor["name"]]
        return array.reshape(shape)[(slice(None),) * at + (slice(start, stop),)]


class Files:
    """The files of one problem, as arrays that are written in place."""

    def __init__(self, request):
        self.folder, self.number = request["folder"], request["number"]
        self.paths, self.arrays = {}, {}
        for tensor in given(request["operands"]):
            self.create("in", tensor, NUMPY[tensor["dtype"]])
        for tensor in given(request["results"]):
            self.create("out", tensor, expected_dtype(tensor["dtype"]))

    def create(self, kind, tensor, dtype):
        path = os.path.join(self.folder, f"{self.number}.{kind}.{tensor['name']}")
        count, dims = size_of(tensor["dims"]), tuple(tensor["dims"])
        if count == 0:
            open(path, "wb").close()
            array = np.empty(dims, dtype)
        else:
            bytes_ = np.memmap(path, np.uint8, "w+", shape=count * np.dtype(dtype).itemsize)
            array = bytes_.view(dtype).reshape(dims)
        self.paths[kind, tensor["name"]], self.arrays[kind, tensor["name"]] = path, array

    def path(self, kind, tensor):
        return self.paths.get((kind, tensor["name"]), "")


def serve_whole(reference, request, files):
    operands = given(request["operands"])
    wanted = [(o["name"], o["dtype"], o["dims"]) for o in operands]
    inputs = make_inputs(reference, request, wanted, request["seed"])
    for operand in operands:
        files.arrays["in", operand["name"]][...] = inputs[operand["name"]]
    for result, array in zip(request["results"], compute(reference, request, inputs)):
        if result["dtype"]:
            files.arrays["out", result["name"]][...] = array


def serve_parts(reference, request, files, cut):
    operands = given(request["operands"])
    whole = {}  # the same for all parts

    def inputs_of(number, start, stop):
        wanted = [(o["name"], o["dtype"], cut.dims(o, start, stop)) for o in operands]
        return make_inputs(reference, request, wanted, request["seed"] + 7919 * number, start)

    def serve_part(number, start, stop):
        inputs = inputs_of(number, start, stop) | whole
        for operand in operands:
            if cut.views[operand["name"]]:
                array = files.arrays["in", operand["name"]]
                cut.slot(operand, array, start, stop)[...] = inputs[operand["name"]]
        for result, array in zip(request["results"], compute(reference, request, inputs, start)):
            if result["dtype"]:
                found = files.arrays["out", result["name"]]
                cut.slot(result, found, start, stop)[...] = array

    parts = cut.parts()
    for name, array in inputs_of(0, *parts[0]).items():
        if cut.views[name] is None:
            whole[name] = files.arrays["in", name][...] = array
    with concurrent.futures.ThreadPoolExecutor(request["threads"]) as pool:
        for done in [pool.submit(serve_part, i, *span) for i, span in enumerate(parts)]:
            done.result()


def serve(request):
    reference = load(request["reference"])
    cut = Cut(reference, request)
    if cut.bytes > request["memory"]:
        raise MemoryError(f"the float64 reference needs about {cut.bytes >> 30} GiB, "
                          f"{request['memory'] >> 30} are to spare here")
    files = Files(request)
    if cut.length:
        serve_parts(reference, request, files, cut)
    else:
        serve_whole(reference, request, files)
    return {"number": request["number"],
            "inputs": [files.path("in", operand) for operand in request["operands"]],
            "expected": [files.path("out", result) for result in request["results"]]}


def main():
    os.dup2(2, 1)
    answer({"ready": f"Python {sys.version.split()[0]}, NumPy {np.__version__}"})
    with os.fdopen(3) as requests:
        for line in requests:
            request = json.loads(line)
            try:
                reply = serve(request)
            except MemoryError as error:
                reply = {"number": request["number"], "error": str(error) or "the reference ran out of memory"}
            except Exception as error:  # of somebody's reference.py: their problem's loss alone
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{os.path.basename(last.filename)}, line {last.lineno}"
                reply = {"number": request["number"],
                         "error": f"{type(error).__name__}: {error} ({where})"}
            answer(reply)


main()
