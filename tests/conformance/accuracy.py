"""The accuracy bars of the softmax ops, the same on every device: what a user's call gives, whichever
variant the loader chooses, against float64.

f16 and bf16 within 1 ulp, f32 within 2e-6 of the row's largest value; a gradient in f16 or bf16 may
also be off by 2e-6 of the row's largest value, since dy - sum(dy * y) cancels.
"""

import numpy as np

from conformance import capi, compare, devices, runner

LENGTHS = [1, 2, 31, 33, 1000, 4097, 65536]
LONGEST_SQUARE = 4097
SCALE = 0.3


def tolerance(op, dtype):
    relative = 2e-6 if dtype == "f32" or op.endswith("backward") else 0.0
    return {"ulps": 0.0 if dtype == "f32" else 1.0, "relative": relative}


def shapes(op, length):
    """Leading dims that a row of this length is tried with; causal ops have as many rows as columns."""
    if "causal" in op:
        return [(1, 2, length, length)] if length < 1000 else [(1, 1, length, length)]
    return [(2, 3, 7, length), (1, 1, 1, length)] if length < 65536 else [(1, 2, 3, length), (1, 1, 1, length)]


def problem_of(op, dtype, dims):
    operands = []
    for operand in op["operands"]:
        if operand["name"] == "mask":
            operands.append(("u8", (dims[0], 1) + tuple(dims[2:])))
        else:
            operands.append((dtype, dims))
    return capi.Problem(op["name"], operands, {"scale": SCALE})


def with_specials(arrays):
    """Infinities, NaN and a row of -inf, each in a row of its own as far as there are rows."""
    x = arrays[0] = arrays[0].copy()
    rows = x.reshape(-1, x.shape[-1])
    for row, value in enumerate([np.inf, -np.inf, np.nan]):
        if row < len(rows):
            rows[row, row % rows.shape[1]] = value
    if len(rows) > 4:
        rows[3] = -np.inf
    return arrays


def fully_masked(arrays):
    arrays[1] = np.ones_like(arrays[1])
    return arrays


def cases(description):
    for op in description["ops"]:
        if not op["name"].startswith("softmax."):
            continue
        for dtype in ("f32", "f16", "bf16"):
            for length in LENGTHS:
                if "causal" in op["name"] and length > LONGEST_SQUARE:
                    continue
                for dims in shapes(op["name"], length):
                    problem = problem_of(op, dtype, dims)
                    yield op, dtype, problem, "", 0, lambda a: a
                    if length in (33, 1000):
                        yield op, dtype, problem, "unaligned", 1, lambda a: a
                        yield op, dtype, problem, "inf, nan", 0, with_specials
                        if len(op["operands"]) == 2 and "forward" in op["name"]:
                            yield op, dtype, problem, "all masked", 0, fully_masked


def run(bundle_path, device, references):
    """(op, dtype, problem, what is special, error in tolerances, sentence) of every case."""
    bundle = capi.Bundle(bundle_path)
    description = bundle.describe(whole=False)
    reference = runner.load_reference("softmax", references)
    for seed, (op, dtype, problem, special, offset, change) in enumerate(cases(description)):
        inferred = bundle.infer(problem, device.kind)
        arrays = change(runner.make_operands(reference, op, problem, seed))
        with np.errstate(all="ignore"):
            wanted = runner.wanted_results(reference, op, problem, arrays)[0]
        launch = runner.Launch(device, op, problem, inferred, arrays, offset)
        try:
            found = launch.run(capi.Plan(bundle, problem, device.kind))[0]
            ratio, sentence = compare.worst(found, wanted, **tolerance(op["name"], dtype))
        except (AssertionError, capi.KbError, devices.CudaError) as error:
            ratio, sentence = float("inf"), str(error)
        launch.free()
        yield op["name"], dtype, str(problem), special, ratio, sentence
