"""The variants that are calls of a library (execution plans of cuDNN, algorithms of cuBLASLt), each forced on a listed problem that
it takes: a first launch in a capture straight after the plan, a second one on buffers at other addresses, both on poisoned results
and workspace between guards, and the same bits where the op promises them.

Listed problems are large. Compared with float64 are, of attention, the last query heads that share a key head (of packed or FP8
tensors the last batch), of a matrix product some rows; of a bias's gradient that sums all rows of d, the sum of the d that was found.
What cuDNN drops by its own generator has no reference: such a plan must write everything and repeat itself, and is no ran_on fact.
"""

import dataclasses
import itertools
import math
import time

import numpy as np

import attention
import matmul
from conformance import capi, compare, devices, problems as shapes, runner

PROVIDERS = ("cudnn", "cublaslt")
ROWS = 48


@dataclasses.dataclass
class Found:
    """The results of each launch, as arrays, and the buffers that the first one wrote."""
    launches: list
    buffers: list = dataclasses.field(default_factory=list)


def problems(bundle, op):
    """Listed problems, those that move least first: (capi.Problem, operands, attributes)."""
    return sorted(((p, p.operands, p.attributes) for p in bundle.listed(op)), key=lambda p: sum(math.prod(o[1]) for o in p[1] if o))


def retyped(bundle, op, types):
    """The same in the dtypes of a variant that no listed problem has: a library that is asked for an algorithm when it runs is asked in
    those as well."""
    letters = [operand["shape"].split("[")[0] for operand in op["operands"]]
    for _, operands, attributes in problems(bundle, op["name"]):
        named = [o and (types.get(letter, o[0]), o[1]) for letter, o in zip(letters, operands)]
        out = {"out_dtype": types["O"]} if "O" in types else {}
        yield capi.Problem(op["name"], named, attributes | out), named, attributes | out


def launch(device, plan, given, results, captured):
    """One launch; raises AssertionError when something was written outside results and workspace."""
    workspace = devices.Buffer(device, "u8", [plan.workspace_bytes]).poison()
    device.synchronize()
    addresses = [[b and b.address for b in side] for side in (given, results)]
    enqueue = lambda: plan.launch(*addresses, workspace.address if plan.workspace_bytes else None, device.stream, device.threads)
    device.run_captured(enqueue) if captured else enqueue()
    device.synchronize()
    whole = all(b.guards_whole() for b in [*given, *results, workspace] if b)
    workspace.free()
    assert whole, "wrote outside a buffer"


class Operands:
    """Operands of one problem in device buffers, at two addresses each."""

    def __init__(self, device, arrays):
        names = {np.dtype(t): n for n, t in devices.NUMPY.items()}
        put = lambda a: a if a is None else devices.Buffer(device, names[a.dtype], a.shape).put(a)
        self.device = device
        self.places = [[put(a) for a in arrays] for _ in range(2)]

    def free(self):
        for buffer in [b for place in self.places for b in place if b]:
            buffer.free()


def two_launches(device, bundle, problem, variant, operands):
    """Found; raises KbError, AssertionError or CudaError."""
    plan = capi.Plan(bundle, problem, device.kind)
    assert plan.variant == variant, f"forced, yet {plan.variant} was planned"
    inferred, taken = bundle.infer(problem, device.kind)["results"], []
    for captured, given in zip((True, False), operands.places):
        results = [devices.Buffer(device, r["dtype"], r["dims"]).poison() if r["present"] else None for r in inferred]
        taken.append(results)
        launch(device, plan, given, results, captured)
    arrays = [[b and b.get() for b in results] for results in taken]
    for buffer in taken[1]:
        buffer and buffer.free()
    return Found(arrays, taken[0])


class Variants:
    """The library variants of one op, on as few listed problems as launch each of them once. A case has operands, and says by
    judge(Found) what is wrong."""

    def __init__(self, conformance, op, variants, make_case, until):
        self.conformance, self.op, self.make_case, self.until = conformance, op, make_case, until
        self.bundle, self.device = conformance.bundle, conformance.device
        self.outcomes, self.types = {v["id"]: conformance.outcome(v) for v in variants}, {v["id"]: v["types"] for v in variants}
        self.refused, self.foreign = {}, {}

    def run(self):
        for given in problems(self.bundle, self.op["name"]):
            self.run_waiting(*given)
        for variant, outcome in self.outcomes.items():
            for given in [] if outcome.failures or variant in self.foreign else retyped(self.bundle, self.op, self.types[variant]):
                if outcome.launches:
                    break
                self.run_waiting(*given)
        self.bundle.clear_policy()
        for variant, outcome in self.outcomes.items():
            if not outcome.launches and not outcome.failures:
                late = time.monotonic() >= self.until
                outcome.failures.append("there was no time for it" if late else self.refused.get(variant, "no listed problem is for it"))
        skipped = {v: reason for v, reason in self.foreign.items() if not self.outcomes[v].launches}
        return [outcome for v, outcome in self.outcomes.items() if v not in skipped], list(skipped.items())

    def run_waiting(self, problem, operands, attributes):
        """Those that have not been launched and take this problem."""
        if time.monotonic() > self.until:
            return
        self.bundle.clear_policy()
        try:
            candidates = self.bundle.explain(problem, self.device.kind)["candidates"]
        except capi.KbError:  # the op does not take it in these dtypes
            return
        self.foreign |= {c["id"]: c["reason"] for c in candidates if "cannot run on" in c["reason"] and c["id"] in self.outcomes}
        waiting = [c["id"] for c in candidates if c["legal"] and c["id"] in self.outcomes and not self.outcomes[c["id"]].launches]
        if waiting:
            self.run_problem(problem, operands, attributes, waiting)

    def run_problem(self, problem, operands, attributes, waiting):
        case = None
        try:
            for variant in waiting:
                if time.monotonic() > self.until or not self.planned(problem, variant):
                    continue
                if case is None:
                    self.bundle.clear_policy()
                    case = self.make_case(self.conformance, problem, operands, attributes)
                    self.bundle.force(variant)
                self.run_one(case, problem, variant)
        except (capi.KbError, AssertionError, devices.CudaError, MemoryError) as error:  # of the case itself
            for variant in waiting:
                self.refused[variant] = f"{problem}: {error}"
        finally:
            if case is not None:
                case.free()

    def planned(self, problem, variant):
        """Whether a plan can be made: an algorithm is legal by its dtypes, and whether it takes a problem cuBLASLt says."""
        self.bundle.clear_policy()
        self.bundle.force(variant)
        try:
            made = capi.Plan(self.bundle, problem, self.device.kind).variant
        except capi.KbError as error:
            self.refused[variant] = f"{problem}: {error}"
            return False
        if made != variant:
            self.refused[variant] = f"{problem}: forced, yet {made} was planned"
        return made == variant

    def run_one(self, case, problem, variant):
        outcome, found = self.outcomes[variant], None
        try:
            found = two_launches(self.device, self.bundle, problem, variant, case.operands)
            outcome.launches += 1
            outcome.blobs = outcome.blobs if case.compared else []
            outcome.failures += [f"{problem}: {sentence}" for sentence in case.judge(self.op, found)]
            promised = variant in self.bundle.legal(problem, self.device.kind, capi.DETERMINISTIC)
            if promised and self.conformance.differ(self.op, problem, *found.launches):
                outcome.failures.append(f"{problem}: another result when launched again, elsewhere")
        except (capi.KbError, AssertionError, devices.CudaError) as error:
            outcome.failures.append(f"{problem}: {error}")
        finally:
            for buffer in found.buffers if found else []:
                buffer and buffer.free()


# ---- attention ----

class LastHead(attention.Case):
    def chosen(self):
        last = list(super().chosen())[-1]
        yield last


class Got:
    """An array where a buffer is expected."""

    def __init__(self, array):
        self.array, self.dtype, self.dims = array, array.dtype, array.shape

    def get(self):
        return self.array


FORWARD = ("scale", "layout", "mask", "window", "window_right", "dropout", "score_mod", "score_scalars")


class Attention:
    """One problem of either op; of the backward op with what the forward op gives for it."""

    compared = True

    def __init__(self, conformance, problem, operands, attributes):
        self.conformance, self.device, self.bundle = conformance, conformance.device, conformance.bundle
        [self.op] = [op for op in conformance.ops() if op["name"] == problem.op]
        self.backward, self.limit = problem.op.endswith("backward"), attention.LIMITS[operands[0][0]]
        own = operands[:3] + operands[6:] if self.backward else operands
        self.case = LastHead(self.device, conformance.reference(self.op), own, attributes)
        self.case.tensors.free()
        self.case.tensors.buffers.clear()
        arrays = self.case.host
        if self.backward:
            self.o, self.stats, self.dout = self.forward(own, attributes, arrays)
            arrays = arrays[:3] + [self.o, self.dout, self.stats] + arrays[3:]
        self.operands = Operands(self.device, arrays)

    def forward(self, operands, attributes, arrays):
        attributes = {k: v for k, v in attributes.items() if k in FORWARD} | {"with_stats": True}
        problem = capi.Problem("attention.sdpa_forward", operands, attributes)
        given = Operands(self.device, arrays)
        variant = self.bundle.explain(problem, self.device.kind)["chosen"]
        found = two_launches(self.device, self.bundle, problem, variant, given)
        given.free()
        for buffer in found.buffers:
            buffer.free()
        dout = np.random.default_rng(2).standard_normal(found.launches[0][0].shape, np.float32).astype(found.launches[0][0].dtype)
        return found.launches[0][0], found.launches[0][1], dout

    def judge(self, op, found):
        for results in found.launches:
            wrapped = [r if r is None else Got(r) for r in results]
            errors = (self.case.backward_errors(Got(self.o), Got(self.stats), self.dout, wrapped) if self.backward else
                      self.case.forward_errors(*wrapped))
            for name, error in errors.items():
                if not error <= (1e-3 if name == "stats" else self.limit):
                    yield f"{name} is off by {error:.3g} of its row"
            for result, array in zip(op["results"], results):
                if array is not None and np.isnan(array.astype(np.float32)).any():
                    yield f"{result['name']} has NaN, or was not written everywhere"

    def free(self):
        self.operands.free()


class LastBatch:
    """One problem of another attention op: of what has batches the last one is compared, of packed tensors one key head with its
    queries' heads. Other batches are all alike, and so are all key heads of a batch."""

    def __init__(self, conformance, problem, operands, attributes):
        [self.op] = [op for op in conformance.ops() if op["name"] == problem.op]
        self.reference, self.attributes = conformance.reference(self.op), dict(attributes)
        self.compared = generated_by_reference(attributes)
        self.names = [o["name"] for o in self.op["operands"]]
        self.batches, self.kv_heads = operands[0][1][0], attributes.get("kv_heads", 1)
        self.heads = operands[0][1][2] - 2 * self.kv_heads if "kv_heads" in attributes else None
        if self.compared:
            self.last = self.one_batch(operands, 2)
            first = self.one_batch(operands, 1) if self.batches > 1 else self.last
            arrays = [self.whole(*parts) for parts in zip(self.names, first, self.last, operands)]
        else:
            rng = np.random.default_rng(1)
            arrays = [o and (np.full(o[1], 8, np.float32) if name == "stats" else random(rng, *o)) for name, o in zip(self.names, operands)]
        self.operands, self.wanted = Operands(conformance.device, arrays), None

    def one_batch(self, operands, seed):
        """Operands of one batch, and of packed ones with one key head, in their own dtypes."""
        self.small = [o and (o[0], self.cut(name, place, o[1])) for place, (name, o) in enumerate(zip(self.names, operands))]
        self.small_attributes = self.attributes | ({"kv_heads": 1} if self.heads else {})
        dims = {name: o[1] for name, o in zip(self.names, self.small) if o}
        made = self.reference.make_inputs(self.op["name"].split(".")[1], dims | self.small_attributes, seed)
        return [None if o is None else np.asarray(made[name]).astype(devices.NUMPY[o[0]]) for name, o in zip(self.names, self.small)]

    def cut(self, name, place, dims):
        _, terms = shapes.split_shape(self.op["operands"][place]["shape"])
        dims = list(dims)
        if terms and terms[0] in ("B", "BB") and dims[0] == self.batches:
            dims[0] = 1
        group = self.heads and self.heads // self.kv_heads
        if self.heads and name == "qkv":
            dims[2] = group + 2
        elif self.heads and name in ("o", "dout"):
            dims[2] = group
        elif self.heads and name in ("stats", "bias") and dims[1] == self.heads:
            dims[1] = group
        return tuple(dims)

    def whole(self, name, first, last, operand):
        """An operand of the problem from that of its first batches and of its last."""
        if operand is None or first.shape == tuple(operand[1]):
            return last
        first, last = ([self.all_heads(name, a) for a in (first, last)] if self.heads else (first, last))
        whole = np.concatenate([*[first] * (operand[1][0] - 1), last])
        assert whole.shape == tuple(operand[1]), f"{name} is {whole.shape} and must be {operand[1]}"
        return whole

    def all_heads(self, name, array):
        if name == "qkv":
            parts = array[:, :, :-2], array[:, :, -2:-1], array[:, :, -1:]
            return np.concatenate([np.concatenate([part] * self.kv_heads, 2) for part in parts], 2)
        axis = {"o": 2, "dout": 2, "stats": 1, "bias": 1}.get(name)
        return array if axis is None or array.shape[axis] == 1 < self.heads // self.kv_heads else np.concatenate([array] * self.kv_heads, axis)

    def compared_part(self, name, array):
        """What of a result is compared: the last batch, the last key head; None where that says nothing."""
        if array.ndim == 0 or len(array) != self.batches:
            return None
        array = array[-1:]
        if not self.heads:
            return array
        group, kv = self.heads // self.kv_heads, self.kv_heads
        if name == "dqkv":
            return array[:, :, [*range(self.heads - group, self.heads), self.heads + kv - 1, self.heads + 2 * kv - 1]]
        return array[:, :, -group:] if name == "o" else array[:, -group:] if array.shape[1] == self.heads else None

    def judge(self, op, found):
        if self.compared and self.wanted is None:
            named = capi.Problem(op["name"], self.small, self.small_attributes)
            self.wanted = runner.wanted_results(self.reference, op, named, self.last)
        for results, (number, result) in itertools.product(found.launches, enumerate(op["results"])):
            array = results[number]
            if array is None:
                continue
            if np.isnan(array.astype(np.float32)).any():
                yield f"{result['name']} has NaN, or was not written everywhere"
            part = self.compared_part(result["name"], array) if self.compared else None
            if part is not None and part.shape == np.shape(self.wanted[number]):
                name = next(n for n, t in devices.NUMPY.items() if array.dtype == t)
                tolerance = runner.tolerance_of(op, number, name)
                ratio, sentence = compare.worst(part.reshape(-1), self.wanted[number].reshape(-1), **tolerance)
                if not ratio <= 1:
                    yield f"{result['name']}: {ratio:.3g} times the tolerance, {sentence}"

    def free(self):
        self.operands.free()


def generated_by_reference(attributes):
    return attributes.get("generator", "own") == "own" or not attributes.get("dropout")


def attention_case(conformance, problem, operands, attributes):
    plain = problem.op in ("attention.sdpa_forward", "attention.sdpa_backward") and not attributes.get("dropout")
    return (Attention if plain else LastBatch)(conformance, problem, operands, attributes)


# ---- matrix products ----

def random(rng, dtype, dims):
    if dtype[0] in "ui":
        return rng.integers(0, 256, dims).astype(devices.NUMPY[dtype])
    made = rng.standard_normal(dims, np.float32) if dims else np.float32(rng.uniform(0.5, 2.0))
    return np.asarray(made).astype(devices.NUMPY[dtype])


class Product:
    compared = True

    def __init__(self, conformance, problem, operands, attributes):
        rng = np.random.default_rng(1)
        self.arrays = [None if o is None else random(rng, *o) for o in operands]
        self.attributes, self.types = dict(attributes), (operands[0][0], operands[1][0], attributes.get("out_dtype", "bf16"))
        self.operands = Operands(conformance.device, self.arrays)
        [op] = [op for op in conformance.ops() if op["name"] == problem.op]
        self.products = matmul.Products(conformance.device, conformance.bundle, conformance.reference(op))
        rows = self.arrays[0].shape[-1 if attributes.get("trans_a") else -2]
        self.rows = np.unique(np.concatenate([[0, rows - 1], rng.integers(0, rows, ROWS)]))

    def cut(self, arrays, first_transposed):
        """Rows of a matrix and of what is as high as d; vectors, b and scales are whole."""
        return [a if a is None or not whole else a[..., self.rows] if transposed else a[..., self.rows, :]
                for a, (whole, transposed) in zip(arrays, first_transposed)]

    def judge(self, op, found):
        trans_a = self.attributes.get("trans_a", False)
        arrays = self.cut(self.arrays, [(True, trans_a), (False, False), (True, False), (False, False), (True, False), (True, False),
                                        (False, False), (False, False)])
        which = self.attributes.get("bias_gradient", "none")
        for results in found.launches:
            some = self.cut(results, [(True, False)] * 3 + [(which == "a", True)])
            if which == "d":
                some[3] = None
                name = next(n for n, t in devices.NUMPY.items() if results[3].dtype == t)
                ratio, sentence = compare.worst(results[3], results[0].astype(np.float64).sum(-2), **runner.tolerance_of(op, 3, name))
                if not ratio <= 1:
                    yield f"dbias: {ratio:.3g} times the tolerance, {sentence}"
            yield from self.products.judged("", self.types, arrays, self.attributes, some)
            for result, array in zip(op["results"], results):
                if array is not None and array.dtype != np.uint8 and np.isnan(array.astype(np.float32)).any():
                    yield f"{result['name']} has NaN, or was not written everywhere"

    def free(self):
        self.operands.free()


CASES = {"attention": attention_case, "matmul": Product}


def run(conformance, op, variants, until):
    """Outcomes of the library variants of an op, and those that this device cannot run, with reasons."""
    return Variants(conformance, op, variants, CASES[op["name"].split(".")[0]], until).run()
