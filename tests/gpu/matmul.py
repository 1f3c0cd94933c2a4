"""The op matmul by cuBLASLt and by our own kernels on this GPU, against float64: every epilogue x f16 and bf16 x layouts, few rows,
batches, float32 in TF32 and IEEE, FP8. Results and workspace are poisoned and lie between guards; every second problem is launched
first inside a capture, straight after its plan, the very first of the process among them; then once more, which must give the same bits.

What is allowed is in proportion to the magnitudes that were summed (tests/conformance/matmul.py), half a step of the result's
dtype, what an approximate tanh costs, and what cuBLASLt rounds between.
"""

import itertools
import sys

import numpy as np

from conformance import capi, compare, devices, runner
from conformance import matmul as cases
import launch_cost
import peers
from report import Report

ROOT = capi.ROOT
BUNDLE = ROOT / "build/kernels.kb"
FAST = [(256, 384, 128), (200, 264, 320), (64, 1024, 72)]  # m, n, k whose rows are multiples of 16 bytes
FEW = [(1, 512, 1024), (3, 264, 136), (8, 1032, 2056)]  # rows
ODD = [(100, 130, 257), (33, 41, 65), (7, 9, 5), (1, 130, 2000)]
UNITS = {"bf16": 1e-5, "f16": 1e-5, "tf32": 1e-3, "ieee": 3e-6, "e4m3": 1e-3, "e5m2": 1e-3}
STEPS = {"bf16": 2.0 ** -9, "f16": 2.0 ** -12, "f32": 0.0}  # half a step of a 16-bit result, relative
TANH = 1e-3  # of what a gelu or its gradient is made of
PLAIN = [case for case in cases.CASES if cases.SCALES not in case[0]]


def listed():
    """(name, types, size, lead, operands beside a and b, attributes); the first words of a name say which bar it counts for."""
    for dtype, (wanted, attributes) in itertools.product(("bf16", "f16"), PLAIN):
        for size, trans_a, trans_b in itertools.product(FAST, (False, True), (False, True)):
            yield "16-bit", (dtype,) * 3, size, (), wanted, attributes | {"trans_a": trans_a, "trans_b": trans_b}
    turns = itertools.cycle(itertools.product((False, True), (False, True)))
    for (wanted, attributes), size in itertools.product(PLAIN, ODD):
        yield "odd", ("bf16",) * 3, size, (), wanted, attributes | dict(zip(("trans_a", "trans_b"), next(turns)))
    for dtype, (wanted, attributes), size, trans_b in itertools.product(("bf16", "f16"), cases.PRODUCTS, FEW, (False, True)):
        yield "few rows", (dtype,) * 3, size, (), wanted, attributes | {"trans_b": trans_b}
    for (wanted, attributes), lead in itertools.product(PLAIN, [(3,), (2, 2)]):
        if "bias_gradient" not in attributes:
            yield "batched", ("bf16",) * 3, (128, 192, 64), lead, wanted, attributes | dict(zip(("trans_a", "trans_b"), next(turns)))
    for (wanted, attributes), precision in itertools.product(PLAIN, ("tf32", "ieee")):
        for size in (FAST[0], FAST[1]):
            trans = dict(zip(("trans_a", "trans_b"), next(turns)))
            yield f"f32 {precision}", ("f32",) * 3, size, (), wanted, attributes | trans | {"precision": precision}
    for dtype in ("bf16", "f16"):
        yield "16-bit to f32", (dtype, dtype, "f32"), FAST[0], (), (), {}
        yield "16-bit to f32", (dtype, dtype, "f32"), FAST[1], (), (cases.C,), {"beta": 2.0, "alpha": 0.5, "trans_b": True}
    yield from fp8()


def fp8():
    for a, b in (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3")):
        for size, out, fast in itertools.product([(256, 256, 256), (128, 512, 1024), (48, 64, 96)], ("bf16", "f16", "f32"), (False, True)):
            yield "FP8", (a, b, out), size, (), (cases.SCALES,), {"trans_b": True, "fast_accumulation": fast}
        yield "FP8", (a, b, "bf16"), (256, 256, 256), (), (), {"trans_b": True}
        yield "FP8", (a, b, "bf16"), (256, 384, 512), (), (cases.SCALES, cases.BIAS), {"trans_b": True, "epilogue": "gelu"}


class NotOffered(Exception):
    """The manifest has no variant for the problem: data, not a failure."""


class Products:
    def __init__(self, device, bundle, reference):
        self.device, self.bundle, self.reference = device, bundle, reference
        [self.op] = bundle.describe("matmul.matmul", whole=False)["ops"]
        self.variants, self.padded, self.unsteady = set(), 0, []

    def problem(self, types, arrays, attributes):
        names = {np.dtype(t): n for n, t in devices.NUMPY.items()}
        described = [None if a is None else (names[np.asarray(a).dtype], np.shape(a)) for a in arrays]
        return capi.Problem("matmul.matmul", described, attributes | {"out_dtype": types[2]})

    def once(self, launch, plan, captured):
        """The results of one launch, as arrays."""
        launch.fill()
        workspace = devices.Buffer(self.device, "u8", [plan.workspace_bytes]).poison()
        self.device.synchronize()
        addresses = *launch.addresses(), workspace.address if plan.workspace_bytes else None, self.device.stream
        if captured:
            self.device.launch_graph(self.device.capture(lambda: plan.launch(*addresses)))
        else:
            plan.launch(*addresses)
        self.device.synchronize()
        every = [b for b in [*launch.operands, *launch.results, workspace] if b]
        assert all(b.guards_whole() for b in every), "wrote outside a buffer"
        workspace.free()
        return launch.read()

    def errors(self, number, types, size, lead, wanted, attributes):
        """What is wrong with one problem, as sentences. Raises KbError where a variant is legal and yet no plan can be made."""
        rng = np.random.default_rng(number)
        arrays = cases.operands(rng, dict(zip("ABO", types)), size, lead, attributes.get("trans_a"), attributes.get("trans_b"), wanted)
        problem = self.problem(types, arrays, attributes)
        if self.bundle.explain(problem, self.device.kind)["chosen"] is None:
            raise NotOffered
        plan = capi.Plan(self.bundle, problem, self.device.kind, alignment=16)
        self.variants.add(plan.variant)
        launch = runner.Launch(self.device, self.op, problem, self.bundle.infer(problem, self.device.kind), arrays, 0)
        try:
            found = self.once(launch, plan, number % 2 == 0)
            again = self.once(launch, plan, False)
        finally:
            launch.free()
        steady = [a is None or a.tobytes() == b.tobytes() for a, b in zip(found[:3], again[:3])]
        if found[3] is not None and found[3].tobytes() != again[3].tobytes():
            self.unsteady.append(str(problem))
        wrong = [] if all(steady) else [f"{problem}: another result when launched again"]
        return wrong + list(self.judged(problem, types, arrays, attributes, found))

    def judged(self, problem, types, arrays, attributes, found):
        wide = [None if a is None else a if a.dtype == np.uint8 else np.asarray(a, np.float64) for a in arrays]
        exact = self.reference.matmul(*wide, **attributes)
        before = self.reference.matmul(*wide, **attributes | {"epilogue": "none", "bias_gradient": "none"})[0]
        unit = UNITS[attributes.get("precision", "tf32") if types[0] == "f32" else types[0]]
        size, sum_size = cases.magnitudes(arrays, **attributes)
        inner = unit * size + self.rounded(types[2], wide, attributes, before)
        allowed = inner + (TANH * np.abs(before) if "gelu" in attributes.get("epilogue", "") else 0)
        if attributes.get("epilogue") == "dgelu":
            allowed = allowed + 2 * STEPS[types[2]] * np.abs(exact[0])
        yield from self.compared(f"{problem}, d", found[0], exact[0], allowed)
        if found[1] is not None:
            yield from self.compared(f"{problem}, aux_out", found[1], exact[1], inner)
        if found[3] is not None:
            whole = allowed.sum(-2) + 0.5 * compare.spacing(exact[0], found[0].dtype).sum(-2)
            yield from self.compared(f"{problem}, dbias", found[3], exact[3], whole if attributes["bias_gradient"] == "d" else 1e-5 * sum_size)
        if found[2] is not None:
            columns = before.shape[-1]
            bits = np.unpackbits(found[2], axis=-1, bitorder="little")
            wrong = (bits[..., :columns] != (before > 0)) & (np.abs(before) > unit * size)
            self.padded += bool(bits[..., columns:].any())
            if wrong.any():
                yield f"{problem}, mask_out: {int(wrong.sum())} bits are wrong"

    def rounded(self, dtype, wide, attributes, before):
        """cuBLASLt rounds to the result's dtype what something is done to afterwards, where rows are not aligned."""
        plain = wide[:2] + [None] * 4 + wide[6:]
        product = self.reference.matmul(*plain, **attributes | {"epilogue": "none", "bias_gradient": "none"})[0]
        followed = any(v is not None for v in wide[2:4]) or "gelu" in attributes.get("epilogue", "")
        c = 0 if wide[2] is None else abs(attributes.get("beta", 0.0)) * np.abs(wide[2])
        return 1.13 * STEPS[dtype] * (2 * np.abs(product) + c + np.abs(before)) if followed else 0

    def compared(self, where, found, exact, allowed):
        ratio = np.abs(found.astype(np.float64) - exact) / (allowed + 0.51 * compare.spacing(exact, found.dtype))
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        if not ratio.max() <= 1:
            at = np.unravel_index(int(ratio.argmax()), ratio.shape)
            yield f"{where}: {ratio.max():.3g} times what is allowed at {list(map(int, at))}: {found[at]!r} for {exact[at]!r}"


def run(report, device, products):
    ran, refused, wrong, absent = {}, {}, {}, {}
    for number, (name, *case) in enumerate(listed()):
        label = f"{case[0]} {case[1]} {case[2]} {case[3]} {case[4]}"
        try:
            sentences = products.errors(number, *case)
        except NotOffered:
            absent.setdefault(name, []).append(label)
            continue
        except (capi.KbError, AssertionError, devices.CudaError) as error:
            kind = refused if isinstance(error, capi.KbError) else wrong
            kind.setdefault(name, []).append(f"{label}: {error}")
            continue
        ran[name] = ran.get(name, 0) + 1
        wrong.setdefault(name, []).extend(sentences)
        for sentence in sentences[:1]:
            print(f"     WRONG {sentence}", flush=True)
    for name in dict.fromkeys(case[0] for case in listed()):
        report.bar(f"{name}: results that are wrong", len(wrong.get(name, [])), 0)
        without = refused.get(name, [])
        report.fact(f"{name}: problems that the manifest offers no variant for", len(absent.get(name, [])))
        if name == "odd":
            report.fact("odd shapes without a plan", f"{len(without)}, {ran.get(name, 0)} ran")
        else:
            report.bar(f"{name}: problems without a plan", len(without), 0)
        report.bar(f"{name}: problems that ran", ran.get(name, 0), 1, at_least=True)
        for sentence in without[:6]:
            print(f"     REFUSED {sentence[:700]}", flush=True)


def bad_input(report, products):
    """FP8 is for b transposed alone; what has no plan says why."""
    for trans_a, trans_b in ((False, False), (True, False), (True, True)):
        arrays = cases.operands(np.random.default_rng(0), {"A": "e4m3", "B": "e4m3", "O": "bf16"}, (64, 64, 64), (), trans_a, trans_b, ())
        problem = products.problem(("e4m3", "e4m3", "bf16"), arrays, {"trans_a": trans_a, "trans_b": trans_b})
        try:
            capi.Plan(products.bundle, problem, products.device.kind, alignment=16)
            said = "a plan was made"
        except capi.KbError as error:
            said = str(error)
        report.hold(f"FP8 with trans_a={trans_a}, trans_b={trans_b} is refused, and why", "trans_b && !trans_a" in said, said[:600])


def main():
    report = Report("matmul")

    def section():
        device = devices.Cuda()
        launch_cost.library("libcublasLt.so.13")
        bundle = capi.Bundle(sys.argv[1] if len(sys.argv) > 1 else BUNDLE)
        products = Products(device, bundle, runner.load_reference("matmul", [ROOT / "kernels"]))
        run(report, device, products)
        bad_input(report, products)
        report.fact("algorithms that ran", len(products.variants))
        report.fact("masks with bits set past N", products.padded)
        report.fact("bias gradients with other bits when launched again", len(products.unsteady))

    peers.finish(report, section)


if __name__ == "__main__":
    main()
