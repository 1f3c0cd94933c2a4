"""Variants of one family, each forced, on cases that the family's tests make: right, and the same again when launched again."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from conformance import capi, compare, devices, judged, runner

# Tests run side by side already where cores are few; where there are many, OpenBLAS has buffers for some dozens of threads only.
THREADS = min(8, max(1, (os.cpu_count() or 1) // 2))
MOST_HELD = 1 << 30  # bytes of operands that are kept from one choice of an op's dtypes to the next


def operands_of(op, types, given):
    """Arrays in the op's order and in the dtypes of one variant, and the same as (dtype, dims)."""
    arrays, described = [], []
    for operand in op["operands"]:
        array = given.get(operand["name"])
        if array is None:
            arrays.append(None)
            described.append(None)
            continue
        dtype = operand["shape"].split("[")[0]
        dtype = types.get(dtype, dtype)
        arrays.append(array.astype(devices.NUMPY[dtype]))
        described.append((dtype, array.shape))
    return arrays, described


class Held:
    """Operands of an op's cases: one backward has those that the reference's forward made, whatever the dtypes are that they go to."""

    def __init__(self, op):
        self.op, self._made, self._bytes = op, {}, 0

    def operands(self, make):
        made = self._made.get(make)
        if made is None:
            made = make()
            size = sum(np.asarray(array).nbytes for array in made.values() if array is not None)
            if self._bytes + size <= MOST_HELD:
                self._made[make], self._bytes = made, self._bytes + size
        return made


class Cases(judged.Judge):
    """Each variant of a family on each case that it is legal for. cases: (name, op, operands by name, attributes), with
    arrays in float64 or integers, or a function of nothing that makes the operands: of ops that are not asked for none are made."""

    def __init__(self, family, cases, bundle_path, device, roots):
        self.bundle, self.device, self.family = capi.Bundle(bundle_path), device, family
        self.conformance = runner.Conformance(bundle_path, device, roots)
        self.ops = {op["name"]: op for op in self.conformance.ops() if op["name"].startswith(family + ".")}
        self.reference = runner.load_reference(family, roots)
        self.cases = list(cases(self.reference))
        self.forget()

    def forget(self):
        """All that the reference has made."""
        self._prepared, self._held = (None, None), Held(None)

    def variants(self):
        """(op, variant) of all that this device can run, those of the same dtypes together."""
        for op in self.ops.values():
            for variant, reason in sorted(self.conformance.variants(op), key=lambda v: sorted(v[0]["types"].items())):
                if not reason:
                    yield op, variant

    def prepared(self, op, types):
        """[(name, problem, inferred, arrays, judged.Wanted, ids of the legal variants)] for one choice of dtypes."""
        key = op["name"], tuple(sorted(types.items()))
        if self._prepared[0] != key:
            self.bundle.clear_policy()
            if self._held.op != op["name"]:
                self._held = Held(op["name"])
            cases = [case for case in self.cases if op["name"] == f"{self.family}.{case[1]}" and self.wants(types, case)]
            with ThreadPoolExecutor(THREADS, initializer=self.device.enter_thread) as pool:
                self._prepared = key, list(filter(None, pool.map(lambda case: self.prepare(op, types, *case), cases)))
        return self._prepared[1]

    def wants(self, types, case):
        """Whether variants of these dtypes run it."""
        return True

    def prepare(self, op, types, name, _, given, attributes):
        """Nothing where no variant for this device is legal."""
        attributes = attributes | {t["attribute"]: types[t["name"]] for t in op["types"] if t["attribute"]}
        arrays, described = operands_of(op, types, self._held.operands(given) if callable(given) else given)
        problem = capi.Problem(op["name"], described, attributes)
        legal = set(self.bundle.legal(problem, self.device.kind))
        if not legal:
            return None
        wanted = judged.Wanted(lambda: self.wanted(op, problem, arrays), op, problem, arrays)
        if not self.right:
            wanted.results  # now, on many threads
        return name, problem, self.bundle.infer(problem, self.device.kind), arrays, wanted, legal

    def wanted(self, op, problem, arrays):
        """What a case's results should be, and what else they are judged by."""
        return runner.wanted_results(self.reference, op, problem, arrays)

    @contextlib.contextmanager
    def saying(self, name, function):
        """While a function of the reference is another one: nothing is taken from before, and nothing remembered."""
        before = getattr(self.reference, name), self.right
        setattr(self.reference, name, function)
        self.right = None
        self.forget()
        try:
            yield
        finally:
            setattr(self.reference, name, before[0])
            self.right = before[1]
            self.forget()

    def run(self, op, variant, most=None):
        """An outcome of the variant, on `most` cases at most; cases that it is not legal for are left out."""
        outcome = self.conformance.outcome(variant)
        prepared = self.prepared(op, variant["types"])
        self.bundle.force(variant["id"])
        try:
            for name, problem, inferred, arrays, wanted, legal in prepared:
                if variant["id"] in legal and (most is None or outcome.launches < most):
                    self.run_one(outcome, op, name, problem, inferred, arrays, wanted)
        finally:
            self.bundle.clear_policy()
        return outcome

    def run_one(self, outcome, op, name, problem, inferred, arrays, wanted):
        launch = runner.Launch(self.device, op, problem, inferred, arrays, 0)
        try:
            plan = capi.Plan(self.bundle, problem, self.device.kind)
            assert plan.variant == outcome.variant, f"forced, yet {plan.variant} was planned"
            found = launch.run(plan)
            if self.device.kind == capi.CUDA or outcome.launches % 3 == 0:  # where blocks do not run at once, some cases tell
                assert not self.conformance.differ(op, problem, found, launch.run(plan)), "another result again"
            self.judge_unless_known(outcome, op, name, found, wanted)
            outcome.launches += 1
        except (capi.KbError, AssertionError, devices.CudaError) as error:
            outcome.failures.append(f"{name}: {error}")
        finally:
            launch.free()

    def judge(self, outcome, op, name, found, wanted):
        for number, array in enumerate(found):
            if array is None:
                continue
            dtype = next(n for n, t in devices.NUMPY.items() if array.dtype == t)
            ratio, sentence = compare.worst(array, wanted[number], **runner.tolerance_of(op, number, dtype))
            outcome.worst = max(outcome.worst, ratio)
            if not ratio <= 1:
                outcome.failures.append(f"{name}, {op['results'][number]['name']}: {ratio:.3g} times the tolerance, {sentence}")
