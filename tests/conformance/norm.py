"""The norm ops on rows that matter, the same on every device, every variant forced: zeros, infinities and NaN, rows far from zero,
numbers whose squares overflow or vanish, lengths around every limit, no rows at all."""

import zlib

import numpy as np

from conformance import capi, family

LENGTHS = [1, 2, 3, 8, 31, 64, 127, 128, 255, 256, 512, 1000, 1024, 2040, 4097, 5120, 8192, 10001, 16384, 32760, 65536]
SPECIAL = ["zeros", "constant", "far", "huge", "tiny", "nan", "inf", "-inf", "both infinities", "one of many"]


def row(rng, length, kind):
    x = rng.standard_normal(length)
    at = rng.integers(length)
    if kind == "zeros":
        return np.zeros(length)
    if kind == "constant":
        return np.full(length, 1.5)
    if kind == "far":
        return 300 + x
    if kind == "huge":
        return (1 + x) * 2e37
    if kind == "tiny":
        return x * 1e-30
    if kind == "one of many":
        return np.where(np.arange(length) == at, 1000.0, 1e-3 * x)
    x[at] = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "both infinities": np.inf}[kind]
    if kind == "both infinities":
        x[(at + 1) % length] = -np.inf
    return x


def many_rows(rng, rows, length):
    """Rows of which one of 100 is strange."""
    x = 3 + rng.standard_normal((rows, length))
    for at, kind in zip(range(7, rows, 100), SPECIAL, strict=False):
        x[at] = row(rng, length, kind)
    return x


def of_op(op, x, rng, reference, gamma, more):
    """The operands of a case; those of a backward op as reference.make_inputs gives them."""
    length, given = x.shape[-1], {"x": x, "gamma": gamma}
    other = rng.standard_normal(x.shape) if more else None
    if op.endswith("forward"):
        given |= {"residual": other}
        return given | ({"beta": rng.standard_normal(length)} if more and op.startswith("layer") else {})
    made = reference.make_inputs(op, {"x": x.shape}, length)
    return {name: made[name] for name in ("dy", "x", "mu", "rsigma", "gamma") if name != "mu" or op.startswith("layer")} | {"dsum": other}


def cases(reference):
    """(name, op, operands by name, attributes) with arrays in float64."""
    for op in ("rmsnorm_forward", "layernorm_forward", "rmsnorm_backward", "layernorm_backward"):
        for length in LENGTHS:
            for rows in (0, 1, 5) if length < 5000 else (3,):
                rng = np.random.default_rng(length + rows)
                x, gamma = 3 + rng.standard_normal((rows, length)), 0.25 + rng.random(length)
                yield f"{rows} x {length}", op, of_op(op, x, rng, reference, gamma, length % 2 == 0), {}
        rng = np.random.default_rng(1)
        x, gamma = rng.standard_normal((700, 96)), 0.25 + rng.random(96)
        yield "many rows, gamma about zero", op, of_op(op, x, rng, reference, gamma - 1, True), {"zero_centered_gamma": True}
        # Several threads, blocks and rounds for few rows.
        for rows, length in ((40, 4096), (129, 1536), (300, 1001), (512, 200), (900, 640), (7, 14336)):
            rng = np.random.default_rng(rows)
            x, gamma = 1 + rng.standard_normal((rows, length)), 0.25 + rng.random(length)
            yield f"few rows, {rows} x {length}", op, of_op(op, x, rng, reference, gamma, length % 2 == 0), {}
        for rows, length in ((1100, 520), (1030, 8192)) if op == "layernorm_forward" else ():  # some of many rows are done again
            given = {"x": many_rows(np.random.default_rng(length), rows, length), "gamma": np.linspace(-1, 2, length)}
            yield f"many rows, {rows} x {length}", op, given | ({"beta": np.linspace(1, -1, length)} if length == 520 else {}), {}
        for rows, length in ((1100, 33), (600, 1031), (270, 8195), (280, 12001)) if op.endswith("backward") else ():  # through a ring
            rng = np.random.default_rng(rows)
            x, gamma = 1 + rng.standard_normal((rows, length)), 0.25 + rng.random(length)
            yield f"many rows, {rows} x {length}", op, of_op(op, x, rng, reference, gamma, rows != 600), {}
        for length in (33, 1024) if op.endswith("backward") else ():
            given = of_op(op, rng.standard_normal((4, length)), rng, reference, None, False)
            given["x"][1, length // 2], given["dy"][2, 3] = np.nan, np.nan
            yield f"{length}, NaN in two rows", op, given, {}
    for op in ("rmsnorm_forward", "layernorm_forward"):
        for length in (33, 64, 1024, 4096, 20000):
            rng = np.random.default_rng(length)
            x = np.stack([row(rng, length, kind) for kind in SPECIAL])
            for epsilon in (1e-6, 0.1):
                yield f"{length}, special rows", op, {"x": x, "gamma": rng.standard_normal(length)}, {"epsilon": epsilon}
            gamma = np.where(np.arange(length) % 5 == 0, [[np.nan], [np.inf]][length % 2], 0.0).reshape(length)
            yield f"{length}, gamma of 0 and not finite", op, {"x": x[2:4], "gamma": gamma}, {}
        # Without epsilon: squares that vanish are squares all the same.
        x = rng.standard_normal((6, 512)) * [[1e-3], [1e-15], [1e-20], [1e-28], [1e15], [1e30]]
        yield "without epsilon", op, {"x": x, "gamma": np.ones(512)}, {"epsilon": 0.0}


def quantized(reference):
    """Rows of every length by one scale and by scales of groups, and strange rows by one scale: what cancels is not enlarged then."""
    for op in ("rmsnorm_quantize", "layernorm_quantize"):
        for length in (1, 7, 8, 127, 128, 136, 1000, 1024, 4104, 8192, 10001, 16384, 20000):
            rng = np.random.default_rng(length)
            for rows in (0, 1, 16, 33) if length < 2000 else (3,):
                given = {"x": 3 + rng.standard_normal((rows, length)), "gamma": 0.25 + rng.random(length)}
                if length % 2 == 0:
                    given |= {"residual": rng.standard_normal((rows, length))}
                    given |= {"beta": rng.standard_normal(length)} if op.startswith("layer") else {}
                yield f"{rows} x {length}, one scale", op, given | {"scale": np.array([20.0])}, {"transposed": True}
                if length > 4:  # of so few elements a layer norm leaves only what rounding does
                    yield f"{rows} x {length}, groups", op, given, {"zero_centered_gamma": length % 2 == 1, "amax_epsilon": 1e-3}
        for rows, length in ((1100, 136), (1030, 1032), (1025, 8328)):  # one row after another in a block
            rng = np.random.default_rng(length)
            given = {"x": 3 + rng.standard_normal((rows, length)), "gamma": 0.25 + rng.random(length)}
            if length == 1032:
                given |= {"residual": rng.standard_normal((rows, length))}
                given |= {"beta": rng.standard_normal(length)} if op.startswith("layer") else {}
            yield f"many rows, {rows} x {length}, one scale", op, given | {"scale": np.array([20.0])}, {"transposed": length < 2000}
            # Of millions of elements some would lie so near zero that a layer norm leaves only what rounding does.
            away = np.sign(given["x"] - 3)
            given = {"x": given["x"] + away, "gamma": given["gamma"]}
            if length == 1032:
                given |= {"residual": away * rng.random((rows, length))}
                given |= {"beta": 0.1 * given["gamma"]} if op.startswith("layer") else {}
            yield f"many rows, {rows} x {length}, groups", op, given, {"amax_epsilon": 1e-3, "power_of_two": length == 1032}
        given = {"x": many_rows(rng, 1100, 136), "gamma": 0.25 + rng.random(136), "scale": np.array([20.0])}
        yield "many rows, some strange", op, given, {"epsilon": 0.1}
        for length in (64, 1024, 4096):
            rng = np.random.default_rng(length)
            given = {"x": np.stack([row(rng, length, kind) for kind in SPECIAL]), "gamma": rng.standard_normal(length)}
            for scale in (1.0, 300.0, 1e-3):
                yield f"{length}, special rows", op, given | {"scale": np.array([scale])}, {"epsilon": 0.1}


class Cases(family.Cases):
    """Each variant of the family on each case that it is legal for."""

    def __init__(self, bundle_path, device, roots):
        super().__init__("norm", lambda reference: [*cases(reference), *quantized(reference)], bundle_path, device, roots)

    def wants(self, types, case):
        """On the host, which takes rows of any number alike, a case of millions of elements goes to one choice of dtypes."""
        if self.device.kind == capi.CUDA or case[2]["x"].size < 1 << 20:
            return True
        variants = self.ops[f"norm.{case[1]}"]["variants"]
        every = sorted({str(sorted(variant["types"].items())) for variant in variants if variant["provider"] == "host"})
        return every[zlib.crc32(case[0].encode()) % len(every)] == str(sorted(types.items()))

    def prepare(self, *case):
        with np.errstate(over="ignore"):  # what is huge is infinite in f16
            return super().prepare(*case)
