"""What variants promise of their bits, held to it: a deterministic one gives the same in every launch, on any number of threads; in a
batch-invariant one an item has the same bits alone, beside one other, beside six, beside all, and beside items that are far out.

A variant is forced, in its mode, on problems that it is legal for there. Which dims hold items, and what belongs to an item, is the
bundle's word (cuts with "batch" of kb_infer); operands without such a dim are everybody's.
"""

import dataclasses
import math

import ml_dtypes
import numpy as np

from conformance import capi, runner

PROBLEMS = 2
TRIED = 60  # problems that are asked about for each of them
THREADS = (1, 3)
MODES = {"deterministic": capi.DETERMINISTIC, "batch_invariant": capi.BATCH_INVARIANT}
LARGEST = 1 << 17  # elements: an item's bits do not depend on a size that launches once more


@dataclasses.dataclass
class Outcome:
    compared: int = 0  # launches whose bits were compared with another's
    failures: list = dataclasses.field(default_factory=list)


class Modes:
    """Borrows a runner.Conformance, whose problems and operands it uses."""

    def __init__(self, conformance):
        self.conformance, self.bundle, self.device = conformance, conformance.bundle, conformance.device
        self._explained, self._small = {}, {}

    def legal(self, problem, mode):
        """{variant: whether it may compute the problem in the mode}; nothing where the op refuses the problem."""
        key = problem, mode
        if key not in self._explained:
            answer = self.bundle.explain(problem, self.device.kind, modes=mode)
            self._explained[key] = {c["id"]: c["legal"] for c in answer["candidates"]}
        return self._explained[key]

    def small(self, op, types):
        """Problems of these dtypes, from small to large."""
        key = op["name"], tuple(sorted(types.items()))
        if key not in self._small:
            elements = lambda problem: max((math.prod(o[1]) for o in problem.operands if o), default=0)
            self._small[key] = [problem for problem in self.conformance.problems(op, types) if elements(problem) <= LARGEST]
        return self._small[key]

    def problems(self, op, variant, mode):
        """Some that the variant is legal for in the mode, from small to large; for batches those with several items."""
        every = self.small(op, variant["types"])
        taken = []
        for share in np.linspace(0.15, 1, PROBLEMS):
            nearest = np.argsort(np.abs(np.arange(len(every)) - share * (len(every) - 1)), kind="stable")
            for place in nearest[:TRIED]:
                inferred = self.conformance.inferred(op, every[place])
                if inferred is None or any(every[place] is p for p, _ in taken) or self.is_large(inferred):
                    continue
                if mode == capi.BATCH_INVARIANT and not self.batch_cuts(every[place], inferred):
                    continue
                if self.legal(every[place], mode).get(variant["id"]):
                    taken.append((every[place], inferred))
                    break
        return taken

    @staticmethod
    def is_large(inferred):
        """Of results, whose sizes may be an attribute's: a matrix for each of thousands of groups."""
        return largest(inferred) > LARGEST

    def batch_cuts(self, problem, inferred):
        """[(cut, items)] along which at least three items lie."""
        cuts = []
        for cut in inferred["cuts"]:
            sizes = [o[1][axis] for o, axis in zip(problem.operands, cut["operands"]) if o and axis >= 0]
            if cut["batch"] and min(sizes) >= 3:
                cuts.append((cut, min(sizes)))
        return cuts

    def run(self, op, variant, mode):
        outcome = Outcome()
        chosen = self.problems(op, variant, MODES[mode])  # what is legal is asked before anything is forced
        self.bundle.force(variant["id"])
        try:
            for seed, (problem, inferred) in enumerate(chosen):
                arrays = runner.make_operands(self.conformance.reference(op), op, problem, seed)
                try:
                    getattr(self, mode)(outcome, op, problem, inferred, arrays)
                except (capi.KbError, AssertionError) as error:
                    outcome.failures.append(f"{problem}: {error}")
        finally:
            self.bundle.clear_policy()
        return outcome

    def launched(self, op, problem, inferred, arrays, mode, threads=2):
        """The results of a launch, as arrays."""
        if self.device.kind == capi.HOST:
            self.device.threads = threads
        plan = capi.Plan(self.bundle, problem, self.device.kind, alignment=16, modes=mode)
        launch = runner.Launch(self.device, op, problem, inferred, arrays, 0)
        try:
            return launch.run(plan)
        finally:
            launch.free()

    def deterministic(self, outcome, op, problem, inferred, arrays):
        first = self.launched(op, problem, inferred, arrays, capi.DETERMINISTIC)
        for threads in THREADS:
            again = self.launched(op, problem, inferred, arrays, capi.DETERMINISTIC, threads)
            self.compare(outcome, op, f"{problem}, {threads} threads", first, again)

    def batch_invariant(self, outcome, op, problem, inferred, arrays):
        whole = self.launched(op, problem, inferred, arrays, capi.BATCH_INVARIANT)
        for cut, items in self.batch_cuts(problem, inferred):
            for begin, end in sorted({(items - 1, items), (1, 3), (items // 2, min(items, items // 2 + 7)), (1, items)}):
                self.part(outcome, op, problem, arrays, whole, cut, items, begin, end)
            self.beside(outcome, op, problem, inferred, arrays, whole, cut, items)

    def part(self, outcome, op, problem, arrays, whole, cut, items, begin, end):
        """Items begin to end by themselves, beside what they got among all."""
        def piece(array, axis):
            if array is None or axis < 0:
                return array
            each = array.shape[axis] // items  # of a joined dim an item may have several
            return np.take(array, np.arange(begin * each, end * each), axis)
        given = [piece(array, axis) for array, axis in zip(arrays, cut["operands"])]
        operands = [o and (o[0], g.shape) for o, g in zip(problem.operands, given)]
        smaller = capi.Problem(problem.op, operands, problem.attributes)
        try:
            inferred = self.bundle.infer(smaller, self.device.kind)
        except capi.KbError as error:
            outcome.failures.append(f"{problem}, items {begin} to {end} by themselves are no problem: {error}")
            return
        found = self.launched(op, smaller, inferred, given, capi.BATCH_INVARIANT)
        wanted = [None if axis < 0 else piece(array, axis) for array, axis in zip(whole, cut["results"])]
        self.compare(outcome, op, f"{problem}, items {begin} to {end} of dims {cut['operands']}", wanted, found)

    def beside(self, outcome, op, problem, inferred, arrays, whole, cut, items):
        """Every second item as it is, those between far out: its first half far from the others, near the largest that there is, NaN,
        and dropped where there is a mask."""
        given = [a if a is None or axis < 0 else far_out(a, axis, items, described["name"] == "mask")
                 for a, axis, described in zip(arrays, cut["operands"], op["operands"])]
        found = self.launched(op, problem, inferred, given, capi.BATCH_INVARIANT)

        def even(array, axis):
            return None if array is None or axis < 0 else by_item(array, axis, items)[::2]
        self.compare(outcome, op, f"{problem}, items of dims {cut['operands']} beside others",
                     *[[even(array, axis) for array, axis in zip(results, cut["results"])] for results in (whole, found)])

    def compare(self, outcome, op, where, wanted, found):
        for result, a, b in zip(op["results"], wanted, found):
            if a is None:  # absent, or no item's
                continue
            outcome.compared += 1
            if a.shape != b.shape or a.tobytes() != b.tobytes():
                outcome.failures.append(f"{where}: other bits of {result['name']}")


def by_item(array, axis, items):
    """A view: an item in front, then what of it lies along the axis, then all else."""
    return np.moveaxis(array.reshape(*array.shape[:axis], items, array.shape[axis] // items, *array.shape[axis + 1:]), axis, 0)


def far_out(array, axis, items, is_mask):
    """A copy whose every second item is far from the others. Numbers that are places or sizes stay."""
    given = array.copy()
    view = by_item(given, axis, items)
    if is_mask:
        view[1::4] = 1
    elif given.dtype.kind not in "iub":
        most = float(ml_dtypes.finfo(given.dtype).max)
        flat = np.arange(view[0].size).reshape(view[0].shape)
        view[1::6] = np.where(flat < flat.size // 2, min(900.0, most), view[1::6])
        view[3::6] = most / 2
        view[5::6] = np.nan
    return given


def largest(inferred):
    """Elements of the largest result."""
    return max(math.prod(r["dims"]) for r in inferred["results"] if r["present"])


def promising(conformance, mode):
    """(op, variant) of all that say in a manifest that they promise the mode, and that this device can run."""
    for op in conformance.ops():
        for variant, reason in conformance.variants(op):
            if not reason and variant[mode] is not None:
                yield op, variant
