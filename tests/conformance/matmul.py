"""The op matmul on odd shapes with everything it can do, the same on every device, every variant forced.

An error is allowed in proportion to the magnitudes that were summed, so that sums that cancel are no excuse and no trouble:
UNIT (of two factors in TF32 what their rounding makes) times sum(|a| |b|) and so on, plus half a step of the result's dtype
and a little for what the epilogue computes.
"""

import itertools
import zlib

import numpy as np

from conformance import capi, compare, devices, runner

# m, n, k: less than a tile, tiles and one more, several tiles; odd depths, one longer than what is summed in one go.
SIZES = [(1, 1, 1), (1, 7, 3), (5, 1, 13), (12, 32, 64), (13, 33, 257), (97, 65, 31), (96, 64, 300), (200, 130, 17)]
# The same of up to 8 rows: odd ones, rows of whole vectors, great depths.
FEW_ROWS = [(1, 1, 1), (1, 264, 2048), (2, 71, 1030), (3, 72, 328), (4, 200, 168), (5, 1, 13), (7, 136, 517), (8, 136, 2056)]
# And what decides which of a GPU's kernels of small products is legal: 9 to 16 rows, wide and short, narrow and deep, more rows.
SMALL = [(9, 72, 328), (16, 40, 1448), (2, 4104, 136), (10, 1104, 1408), (12, 600, 1000), (16, 4, 8), (13, 100, 5000), (11, 4096, 64),
         (8, 4100, 64), (33, 40, 64), (100, 96, 200), (300, 24, 120), (40, 16, 440), (4, 904, 776), (15, 968, 1096),
         (5, 160, 6640), (40, 36, 2152), (40, 76, 800), (5, 32, 7248), (8, 780, 1384), (2, 32, 472), (11, 120, 3920), (2, 280, 3992)]
LEADS = [(), (3,), (2, 2)]
UNIT, TF32_UNIT = 1e-6, 2 ** -10
C, BIAS, AUX, MASK, SCALES = "c", "bias", "aux", "mask", "scales"
CASES = [  # operands beside a and b, attributes
    ((), {}),
    ((C,), {"alpha": -0.5, "beta": 2.0}),
    ((C,), {"beta": 0.0}),
    ((BIAS,), {"alpha": 3.0}),
    ((C, BIAS), {"epilogue": "relu", "beta": 1.0}),
    ((), {"epilogue": "relu", "with_aux": True}),
    ((BIAS,), {"epilogue": "gelu"}),
    ((BIAS,), {"epilogue": "gelu", "with_aux": True}),
    ((MASK,), {"epilogue": "drelu"}),
    ((MASK, C), {"epilogue": "drelu", "bias_gradient": "d", "beta": 0.5}),
    ((AUX,), {"epilogue": "dgelu", "alpha": 0.5}),
    ((AUX,), {"epilogue": "dgelu", "bias_gradient": "d"}),
    ((), {"bias_gradient": "a"}),
    ((), {"bias_gradient": "b"}),
    ((SCALES,), {"fast_accumulation": True}),
    ((SCALES, BIAS), {"epilogue": "gelu"}),
]

PRODUCTS = [case for case in CASES if not {"with_aux", "bias_gradient"} & set(case[1]) and not {AUX, MASK, SCALES} & set(case[0])]


def swapped(trans, array):
    return np.swapaxes(array, -1, -2) if trans else array


def operands(rng, types, size, lead, trans_a, trans_b, wanted):
    """Arrays in the op's order, in their own dtypes; None where absent."""
    m, n, k = size
    normal = lambda dtype, *dims: rng.standard_normal(dims).astype(devices.NUMPY[types.get(dtype, dtype)])
    scale = lambda: np.float32(rng.uniform(0.5, 2.0)) if SCALES in wanted else None
    return [normal("A", *lead, *((k, m) if trans_a else (m, k))), normal("B", *lead, *((n, k) if trans_b else (k, n))),
            normal("O", *lead, m, n) if C in wanted else None, normal("O", n) if BIAS in wanted else None,
            normal("O", *lead, m, n) if AUX in wanted else None,
            rng.integers(0, 256, (*lead, m, -(-n // 128) * 16), np.uint8) if MASK in wanted else None, scale(), scale()]


def magnitudes(arrays, *, trans_a=False, trans_b=False, alpha=1.0, beta=0.0, bias_gradient="none", **_):
    """What an error of d, aux_out and of dbias is measured by: the sums of the magnitudes, before the epilogue."""
    a, b, c, bias, aux, _, *scales = [None if v is None else np.abs(v.astype(np.float64)) for v in arrays]
    a, b = swapped(trans_a, a), swapped(trans_b, b)
    size = abs(alpha) * (a @ b)
    for scale in scales:
        size = size if scale is None else size * scale
    size = size + (0 if c is None or beta == 0 else abs(beta) * c) + (0 if bias is None else bias)
    return 1.2 * size, {"none": None, "d": 1.2 * size.sum(-2), "a": a.sum(-1), "b": b.sum(-2)}[bias_gradient]


class Cases:
    def __init__(self, bundle_path, device, roots):
        self.bundle, self.device = capi.Bundle(bundle_path), device
        self.conformance = runner.Conformance(bundle_path, device, roots)
        self.op = next(op for op in self.conformance.ops() if op["name"] == "matmul.matmul")
        self.reference = runner.load_reference("matmul", roots)
        self._legal = {}  # ids by problem
        self._made = None, {}

    def variants(self):
        return [variant for variant, reason in self.conformance.variants(self.op) if not reason]

    def run(self, variant):
        """An outcome of the variant; cases that it is not legal for are left out. Layouts and leading dims take turns, and
        of mixed dtypes each variant gets a third of the cases."""
        outcome = runner.Outcome(variant["id"])
        turns = itertools.cycle(itertools.product((False, True), (False, True), LEADS))
        for number, (size, (wanted, attributes)) in enumerate(itertools.product(SIZES, CASES)):
            trans_a, trans_b, lead = next(turns)
            if len(set(variant["types"].values())) > 1 and number % 3:
                continue
            arrays = operands(np.random.default_rng(number), variant["types"], size, lead, trans_a, trans_b, wanted)
            self.run_one(outcome, variant, arrays, {"trans_a": trans_a, "trans_b": trans_b} | attributes)
        return outcome

    def run_few_rows(self, variant, sizes=FEW_ROWS):
        """The same of products of few rows."""
        outcome = runner.Outcome(variant["id"])
        for arrays, attributes in self.few_rows(variant, sizes):
            self.run_one(outcome, variant, arrays, attributes)
        return outcome

    def few_rows(self, variant, sizes):
        """(arrays, attributes) of each; b's layout takes turns, so that variants differ in what they have of it."""
        turn = zlib.crc32(variant["id"].encode())
        for number, (size, (wanted, attributes)) in enumerate(itertools.product(sizes, PRODUCTS)):
            trans_a, trans_b, lead = size[0] == 1 and number % 4 > 1, bool((turn + number) % 2), LEADS[number % len(LEADS)]
            yield self.made(number, variant["types"], size, lead, trans_a, trans_b, wanted), {"trans_a": trans_a, "trans_b": trans_b} | attributes

    def made(self, number, types, *case):
        """operands() of a case; variants of the same dtypes, which come together, share them."""
        if self._made[0] != types:
            self._made = types, {}
        key = number, case
        if key not in self._made[1]:
            self._made[1][key] = operands(np.random.default_rng(number), types, *case)
        return self._made[1][key]

    def legal(self, problem):
        """Ids of the variants that take it; none of what is no problem of the op, as FP8 attributes of others."""
        key = str(problem)
        if key not in self._legal:
            try:
                candidates = self.bundle.explain(problem, self.device.kind)["candidates"]
            except capi.KbError:
                candidates = []
            self._legal[key] = {c["id"] for c in candidates if c["legal"]}
        return self._legal[key]

    def problem(self, variant, arrays, attributes):
        names = {np.dtype(t): n for n, t in devices.NUMPY.items()}
        described = [None if a is None else (names[np.asarray(a).dtype], np.shape(a)) for a in arrays]
        return capi.Problem("matmul.matmul", described, attributes | {"out_dtype": variant["types"]["O"]})

    def results(self, variant, arrays, attributes):
        """What the variant makes of the arrays; None where it is not legal."""
        problem = self.problem(variant, arrays, attributes)
        if variant["id"] not in self.legal(problem):
            return None, problem
        inferred = self.bundle.infer(problem, self.device.kind)  # before anything is forced, which makes it a hundred times slower
        self.bundle.force(variant["id"])
        launch = runner.Launch(self.device, self.op, problem, inferred, arrays, 0)
        try:
            plan = capi.Plan(self.bundle, problem, self.device.kind)
            assert plan.variant == variant["id"], f"forced, yet {plan.variant} was planned"
            found, again = launch.run(plan), launch.run(plan)
            assert all(a is None or a.tobytes() == b.tobytes() for a, b in zip(found, again)), "another result again"
            return found, problem
        finally:
            launch.free()
            self.bundle.clear_policy()

    def run_one(self, outcome, variant, arrays, attributes):
        try:
            found, problem = self.results(variant, arrays, attributes)
        except (capi.KbError, AssertionError, devices.CudaError) as error:
            outcome.failures.append(f"{attributes}: {error}")
            return
        if found is None:
            return
        outcome.launches += 1
        wide = [None if a is None else a if a.dtype == np.uint8 else np.asarray(a, np.float64) for a in arrays]
        wanted = self.reference.matmul(*wide, **attributes)
        size, sum_size = magnitudes(arrays, **attributes)
        unit = TF32_UNIT if variant["types"]["A"] == "f32" and self.device.kind == capi.CUDA else UNIT
        for name, array, exact, allowed in zip(("d", "aux_out", "dbias"), (found[0], found[1], found[3]),
                                               (wanted[0], wanted[1], wanted[3]), (size, size, sum_size)):
            if array is not None:
                self.judge(outcome, f"{problem}, {name}", array, exact, allowed, unit)
        if found[2] is not None:
            before = self.reference.matmul(*wide, **attributes | {"epilogue": "none"})[0]
            self.judge_mask(outcome, f"{problem}, mask_out", found[2], wanted[2], np.abs(before) <= unit * size)

    def judge(self, outcome, where, found, wanted, size, unit):
        allowed = unit * (size + np.abs(wanted)) + 0.501 * compare.spacing(wanted, found.dtype)
        ratio = np.abs(found.astype(np.float64) - wanted) / allowed
        worst = float(ratio.max())
        outcome.worst = max(outcome.worst, worst)
        if not worst <= 1:
            at = np.unravel_index(int(np.argmax(np.where(np.isnan(ratio), np.inf, ratio))), ratio.shape)
            outcome.failures.append(f"{where}: {worst:.3g} times what is allowed at {list(map(int, at))}: "
                                    f"{found[at]!r} for {wanted[at]!r}")

    def judge_mask(self, outcome, where, found, wanted, open_to_rounding):
        wrong = np.unpackbits(found ^ wanted, axis=-1, bitorder="little")
        wrong[..., :open_to_rounding.shape[-1]] &= ~open_to_rounding
        if wrong.any():
            outcome.failures.append(f"{where}: {int(wrong.sum())} bits are wrong")
