"""Runs every variant of a bundle that this device can run, by force, against the float64 reference.

A variant is launched on up to PROBLEMS_PER_VARIANT problems that it is legal for, at aligned and at
unaligned addresses, on poisoned outputs between guard bytes, twice from one plan. A variant that no
problem could launch fails: add a problem to its manifest that it is for.
"""

import dataclasses
import functools
import importlib.util
import itertools
import pathlib
import sys
import weakref

import numpy as np

from conformance import capi, compare, devices, judged, problems

PROBLEMS_PER_VARIANT = 5
CHOICES_KEPT = 16


@dataclasses.dataclass
class Outcome:
    variant: str
    launches: int = 0
    worst: float = 0.0  # the largest error, in units of the tolerance
    failures: list = dataclasses.field(default_factory=list)
    blobs: list = dataclasses.field(default_factory=list)  # SHA-256 of its code objects

    @property
    def passed(self):
        return self.launches > 0 and not self.failures

    def reason(self):
        return "; ".join(self.failures[:3]) or ("" if self.launches else "never launched")


def load_reference(family, roots):
    """reference.py of a family: each root is the family's folder or holds it."""
    paths = [p for root in map(pathlib.Path, roots) for p in (root / family / "reference.py", root / "reference.py")]
    path = next((p for p in paths if p.exists()), None)
    if path is None:
        raise FileNotFoundError(f"no reference.py of family {family!r} among {list(map(str, paths))}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last: a family's jax.py is not jax
    spec = importlib.util.spec_from_file_location(f"{family}_reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_operand(rng, dtype, dims):
    if dtype == "bool":
        return rng.random(dims) < 0.5
    if dtype[0] in "ui":
        return rng.integers(0 if dtype[0] == "u" else -100, 200 if dtype[0] == "u" else 100, dims)
    return rng.standard_normal(dims) * 2


def shapes_of(op, problem):
    return {o["name"]: tuple(given[1]) for o, given in zip(op["operands"], problem.operands) if given}


def make_operands(reference, op, problem, seed):
    """Arrays of each operand's own dtype (None where absent), in the op's order."""
    rng = np.random.default_rng(seed)
    names = [o["name"] for o in op["operands"]]
    made = {}
    if hasattr(reference, "make_inputs"):
        made = reference.make_inputs(op["name"].split(".")[1], shapes_of(op, problem) | problem.attributes, seed) or {}
    return [None if o is None else
            np.asarray(made.get(name, random_operand(rng, *o) if name not in made else 0)).astype(devices.NUMPY[o[0]])
            for name, o in zip(names, problem.operands)]


def wanted_results(reference, op, problem, arrays):
    function = getattr(reference, op["name"].split(".")[1])
    wide = [a if a is None or a.dtype.kind in "iub" else compare.wide(a) for a in arrays]
    wanted = function(*wide, **problem.attributes)
    return list(wanted) if isinstance(wanted, tuple) else [wanted]


def tolerance_of(op, result, dtype):
    for tolerance in op["tolerances"]:
        if tolerance["result"] == result and tolerance["dtype"] in (None, dtype):
            return {"ulps": tolerance["ulps"], "relative": tolerance["relative"]}
    return {"ulps": 1.0, "relative": 0.0}


def some_rows(found, wanted):
    """Of a large result 500 rows and all that still holds the poison; of another everything."""
    if found.size <= 1 << 18 or found.ndim < 2:
        return found, wanted
    rows = found.reshape(-1, found.shape[-1])
    bits = rows.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[rows.dtype.itemsize])
    unwritten = np.flatnonzero((bits == np.iinfo(bits.dtype).max).any(axis=1))[:100]
    picks = np.unique(np.concatenate([[0, len(rows) - 1], unwritten,
                                      np.random.default_rng(len(rows)).integers(0, len(rows), 500)]))
    return rows[picks], np.broadcast_to(wanted, found.shape).reshape(rows.shape)[picks]


class Launch:
    """Buffers of one problem on one device, and the run of a plan on them."""

    def __init__(self, device, op, problem, inferred, arrays, offset):
        self.device, self.op, self.arrays = device, op, arrays
        item = lambda dtype: np.dtype(devices.NUMPY[dtype]).itemsize
        self.operands = [o and devices.Buffer(device, o[0], o[1], offset * item(o[0])) for o in problem.operands]
        self.results = []
        for result, given in zip(op["results"], inferred["results"]):
            if not given["present"]:
                self.results.append(None)
            elif result["alias"] >= 0:
                self.results.append(self.operands[result["alias"]])
            else:
                self.results.append(devices.Buffer(device, given["dtype"], given["dims"], offset * item(given["dtype"])))

    def fill(self):
        """Operands from the arrays, results poisoned."""
        for buffer, array in zip(self.operands, self.arrays):
            if buffer:
                buffer.put(array)
        for buffer, result in zip(self.results, self.op["results"]):
            if buffer and result["alias"] < 0:
                buffer.poison()

    def addresses(self):
        """Of operands and of results."""
        return [[b.address if b else None for b in buffers] for buffers in (self.operands, self.results)]

    def run(self, plan, captured=False):
        """The results as arrays; raises AssertionError when something was written outside them."""
        self.fill()
        workspace = devices.Buffer(self.device, "u8", [plan.workspace_bytes]).poison()
        self.device.synchronize()
        launch = lambda: plan.launch(*self.addresses(), workspace.address if plan.workspace_bytes else None,
                                     self.device.stream, self.device.threads)
        self.device.run_captured(launch) if captured else launch()
        self.device.synchronize()
        every = [b for b in [*self.operands, *self.results, workspace] if b]
        assert all(b.guards_whole() for b in every), "wrote outside a buffer"
        workspace.free()
        return self.read()

    def read(self):
        return [b and b.get() for b in self.results]

    def free(self):
        for buffer in {id(b): b for b in [*self.operands, *self.results] if b}.values():
            buffer.free()


class Conformance(judged.Judge):
    def __init__(self, bundle_path, device, reference_roots, few=False):
        self.bundle, self.device, self.roots = capi.Bundle(bundle_path), device, reference_roots
        self.description = self.bundle.describe()
        self.few = few  # only the two smallest problems of each variant
        self._problems, self._unreachable, self._references = {}, {}, {}
        self._legal, self._explained = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()  # by problem
        self._data, self._made = {}, 0

    def ops(self):
        return self.description["ops"]

    def variants(self, op):
        """Variants of this device kind: (variant, None), or (variant, why this device cannot run it)."""
        for variant in op["variants"]:
            if (variant["provider"] == "host") == (self.device.kind == capi.HOST):
                yield variant, self.unreachable(op, variant)

    def unreachable(self, op, variant):
        """Why this device cannot run the variant, or None. Any problem of its dtypes is told the same: one that the manifest lists
        if the op accepts one of them."""
        key = op["name"], tuple(sorted(variant["types"].items()))
        if key not in self._unreachable:
            accepted = lambda problem: problems.legal(self.bundle, problem, self.device.kind, np.inf)
            problem = (next(filter(accepted, problems.of_types(op, variant["types"], listed_only=True)), None)
                       or next(filter(accepted, self.problems(op, variant["types"])), None))
            candidates = self.bundle.explain(problem, self.device.kind)["candidates"] if problem else []
            self._unreachable[key] = {c["id"]: c["reason"] for c in candidates if "cannot run on" in c["reason"]}
        return self._unreachable[key].get(variant["id"])

    def problems(self, op, types, large=False):
        """All that are tried, small ones first, whether or not the op accepts them. There are thousands: of a few choices of dtypes they are kept."""
        key = op["name"], tuple(sorted(types.items())), large
        if key not in self._problems:
            if len(self._problems) >= CHOICES_KEPT:
                del self._problems[next(iter(self._problems))]
            bounds = (problems.MAX_ELEMENTS, problems.MAX_LARGE_ELEMENTS) if large else (0, problems.MAX_ELEMENTS)
            self._problems[key] = problems.of_types(op, types, *bounds)
        return self._problems[key]

    def inferred(self, op, problem, large=False):
        """What kb_infer says about one of problems(); None where it is none of the op, or too much work for the reference."""
        if problem not in self._legal:
            most = problems.MAX_LARGE_ELEMENTS if large else problems.MAX_ELEMENTS
            inferred = problems.legal(self.bundle, problem, self.device.kind, most)
            self._legal[problem] = inferred if inferred and self.work(op, problem) <= most else None
        return self._legal[problem]

    def legal(self, op, types):
        """[(problem, what kb_infer says)] of all that the op accepts."""
        every = ((problem, self.inferred(op, problem)) for problem in self.problems(op, types))
        return [(problem, inferred) for problem, inferred in every if inferred]

    def work(self, op, problem):
        """How many numbers the reference makes, where it says that they are more than the operands hold."""
        work = getattr(self.reference(op), "work", None)
        return work(op["name"].split(".")[1], shapes_of(op, problem) | problem.attributes) if work else 0

    def reference(self, op):
        family = op["name"].split(".")[0]
        if family not in self._references:
            self._references[family] = load_reference(family, self.roots)
        return self._references[family]

    def chosen_problems(self, op, variant):
        """Some of the problems that the variant is legal for: the smallest, the largest, between; a
        large one only for a variant that takes nothing smaller."""
        if self.few:
            return self.spread(op, variant, [0, 0]) or self.spread(op, variant, [0], large=True)
        return self.spread(op, variant, np.linspace(0, 1, PROBLEMS_PER_VARIANT)) or self.spread(op, variant, [0], large=True)

    def spread(self, op, variant, shares, large=False):
        """For each share of the list of problems the nearest one not yet taken that the variant is legal for. Few are asked about
        where most are legal, all where hardly one is."""
        every, taken = self.problems(op, variant["types"], large), set()
        takes = lambda p: self.inferred(op, p, large) and self.explained(p).get(variant["id"])
        for share in shares:
            nearest = np.argsort(np.abs(np.arange(len(every)) - share * (len(every) - 1)), kind="stable")
            taken.update(itertools.islice((place for place in nearest if place not in taken and takes(every[place])), 1))
        return [(every[place], self.inferred(op, every[place], large)) for place in sorted(taken)]

    def explained(self, problem):
        if problem not in self._explained:
            answer = self.bundle.explain(problem, self.device.kind)
            self._explained[problem] = {c["id"]: c["legal"] for c in answer["candidates"]}
        return self._explained[problem]

    def data(self, op, problem):
        """(operands, what is wanted)."""
        arrays, wanted = self.case(op, problem)
        return arrays, wanted.results

    def case(self, op, problem):
        """(operands, judged.Wanted)."""
        key = str(problem)
        if key not in self._data:
            if len(self._data) > 40:
                self._data.clear()
            self._made += 1
            arrays = make_operands(self.reference(op), op, problem, seed=self._made)
            make = functools.partial(wanted_results, self.reference(op), op, problem, arrays)
            self._data[key] = arrays, judged.Wanted(make, op, problem, arrays)
        return self._data[key]

    def outcome(self, variant):
        blobs = {k["blob"] for k in variant["kernels"] if k["blob"] >= 0}
        return Outcome(variant["id"], blobs=sorted(self.description["blobs"][b]["sha256"] for b in blobs))

    def run(self, op, variant):
        outcome = self.outcome(variant)
        self.bundle.clear_policy()
        chosen = self.chosen_problems(op, variant)  # what is legal is asked before anything is forced
        self.bundle.force(variant["id"])
        try:
            for (problem, inferred), offset in itertools.product(chosen, (0, 1)):
                self.run_one(outcome, op, variant, problem, inferred, offset)
        finally:
            self.bundle.clear_policy()
        return outcome

    def run_one(self, outcome, op, variant, problem, inferred, offset):
        arrays, wanted = self.case(op, problem)
        where = f"{problem}{' unaligned' if offset else ''}"
        try:
            plan = capi.Plan(self.bundle, problem, self.device.kind)
            if plan.variant != variant["id"]:
                outcome.failures.append(f"{where}: forced, yet {plan.variant} was planned")
                return
            launch = Launch(self.device, op, problem, inferred, arrays, offset)
            found, again = launch.run(plan), launch.run(plan)
            self.judge_unless_known(outcome, op, where, found, wanted)
            if self.differ(op, problem, found, again):
                outcome.failures.append(f"{where}: another result when launched again")
            launch.free()
            outcome.launches += offset == 0
        except (capi.KbError, AssertionError, devices.CudaError) as error:
            refused = offset and isinstance(error, capi.KbError) and "align" in str(error)
            if not refused:  # a plan may have no steps for unaligned addresses, and must then say so
                outcome.failures.append(f"{where}: {error}")

    def differ(self, op, problem, found, again):
        """Whether a second launch gave other bits where the op promises the same."""
        return any(a is not None and a.tobytes() != b.tobytes() and self.repeats(op, problem, result["name"])
                   for result, a, b in zip(op["results"], found, again))

    def repeats(self, op, problem, result):
        repeats = getattr(self.reference(op), "repeats", None)
        return self.device.kind == capi.HOST or not repeats or repeats(op["name"].split(".")[1], problem.attributes, result)

    def judge(self, outcome, op, where, found, wanted):
        for number, (result, array) in enumerate(zip(op["results"], found)):
            if array is None:
                continue
            name = next(n for n, t in devices.NUMPY.items() if array.dtype == t)
            array, exact = some_rows(array, wanted[number])
            ratio, sentence = compare.worst(array, exact, **tolerance_of(op, number, name))
            outcome.worst = max(outcome.worst, ratio)
            if not ratio <= 1:
                outcome.failures.append(f"{where}, {result['name']}: {ratio:.3g} times the tolerance, {sentence}")
