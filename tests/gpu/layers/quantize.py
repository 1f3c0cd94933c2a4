"""The quantize ops on this GPU: every variant on the numbers that matter, bit for bit; then device times at 16384 x 8192 bf16 and at
shapes drawn anew, beside jax.jit of the plain formulas.

Bytes: each input read once, each output written once. kbundle's side is a captured graph of launches, all steps of an op in it;
JAX's a jitted program, called back to back, by the host's clock. With --hostile only some cases, for compute-sanitizer.
"""

import dataclasses
import pathlib
import random
import sys
import time
from typing import Any, Callable

import numpy as np

import peers
from bandwidth import random_bf16
from conformance import capi, devices, quantize
from device_copy import reference_tbps
from report import Report
from unlisted import drawn

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "build/kernels.kb"
BAR_SHAPE = (16384, 8192)
GROUPS = 64
CALLS, REPEATS = 4, 9


@dataclasses.dataclass
class Row:
    """An op at [M, N]. operands: (dtype, dims) of each, or None; formula: of JAX, of the operands that are there."""
    title: str
    op: str
    operands: Callable[[int, int], list]
    attributes: dict[str, Any]
    formula: Callable
    bar: float  # TB/s at BAR_SHAPE
    beside: str = ""  # the row that it may be a tenth slower than at BAR_SHAPE
    whole: int = 1  # what N is a multiple of


def rows():
    import quantize_formulas as plain
    x, scaled = lambda m, n: [("bf16", (m, n)), None], lambda m, n: [("bf16", (m, n)), ("f32", (1,))]
    e4m3 = {"out_dtype": "e4m3"}
    yield Row("quantize + amax", "per_tensor", scaled, e4m3, plain.cast, 3.9)
    yield Row("current scaling", "per_tensor", x, e4m3, plain.current, 0.0)
    yield Row("quantize + amax + transpose", "per_tensor_transpose", scaled, e4m3, plain.cast_transpose, 3.4)
    yield Row("dbias + quantize + transpose", "per_tensor_transpose", scaled, dict(e4m3, dbias=True), plain.cast_transpose_dbias, 3.3)
    yield Row("1 x 128", "per_group", lambda m, n: [("bf16", (m, n))], dict(e4m3, amax_epsilon=1e-4), plain.per_group, 3.6)
    yield Row("1 x 128, scales for TMA", "per_group", lambda m, n: [("bf16", (m, n))], dict(e4m3, scales="columns"), plain.per_group, 0.0)
    yield Row("128 x 128", "per_tile", lambda m, n: [("bf16", (m, n))], dict(e4m3, amax_epsilon=1e-4), plain.per_tile, 0.0)
    yield Row("MXFP8 both ways", "mxfp8", lambda m, n: [("bf16", (m, n))], dict(e4m3, columnwise=True), plain.mx_both, 3.0)
    plain_x = lambda m, n: [("bf16", (m, n))]
    both = dict(e4m3, amax_epsilon=1e-4)
    yield Row("1 x 128 both ways", "per_block_transpose", plain_x, both, plain.groups_both, 3.4)
    yield Row("1 x 128 and 128 x 128", "per_block_transpose", plain_x, dict(both, transposed="tiles"), plain.groups_and_tiles, 3.4)
    yield Row("128 x 128 both ways", "per_block_transpose", plain_x, dict(both, rowwise="tiles", transposed="tiles"), plain.tiles_both, 0.0)
    yield Row("dbias + 1 x 128 both ways", "per_block_transpose", plain_x, dict(both, dbias=True), plain.groups_both_dbias, 3.3)
    yield Row("gelu + 1 x 128 and 128 x 128", "per_block_activation", lambda m, n: [("bf16", (m, 1, n))],
              dict(both, function="gelu", transposed="tiles"), plain.gelu_blocks, 3.3)
    yield Row("swiglu + 1 x 128 and 128 x 128", "per_block_activation", lambda m, n: [("bf16", (m, 2, n))],
              dict(both, function="silu", transposed="tiles"), plain.swiglu_blocks, 3.3)
    yield Row("dgelu + dbias + 1 x 128 both ways", "per_block_activation_gradient", lambda m, n: [("bf16", (m, n)), ("bf16", (m, 1, n))],
              dict(both, function="gelu", dbias=True), plain.dgelu_blocks, 3.2)
    yield Row("dswiglu + 1 x 128 both ways", "per_block_activation_gradient", lambda m, n: [("bf16", (m, n)), ("bf16", (m, 2, n))],
              dict(both, function="silu"), plain.dswiglu_blocks, 3.2, whole=128)
    gated = lambda m, n: [("bf16", (m, 2, n)), ("f32", (1,))]
    swiglu = {"function": "silu", **e4m3}
    yield Row("swiglu + quantize", "per_tensor_activation", gated, swiglu, plain.swiglu, 0.0)
    yield Row("swiglu + quantize + transpose", "per_tensor_activation", gated, dict(swiglu, transposed=True), plain.swiglu_transpose, 0.0)
    gradient = lambda planes: lambda m, n: [("bf16", (m, n)), ("bf16", (m, planes, n)), ("f32", (1,))]
    e5m2 = {"out_dtype": "e5m2"}
    yield Row("dgelu + dbias + quantize + transpose", "per_tensor_activation_gradient", gradient(1),
              dict(e5m2, function="gelu", transposed=True, dbias=True), plain.dgelu_transpose_dbias, 3.2)
    yield Row("dswiglu + quantize + transpose", "per_tensor_activation_gradient", gradient(2),
              dict(e5m2, function="silu", transposed=True), plain.dswiglu_transpose, 3.2)
    grouped = lambda m, n: [("bf16", (m, n)), ("i32", (GROUPS,)), ("f32", (GROUPS,))]
    yield Row("grouped + quantize + amax", "per_tensor_grouped", grouped, e4m3, plain.grouped, 0.0, "quantize + amax")
    yield Row("grouped + quantize + amax + transpose", "per_tensor_grouped", grouped, dict(e4m3, transposed=True), plain.grouped_transpose, 0.0,
              "quantize + amax + transpose")
    yield Row("grouped, current scaling", "per_tensor_grouped", lambda m, n: [*grouped(m, n)[:2], None], e4m3, plain.grouped_current, 0.0,
              "current scaling")
    yield Row("dequantize", "dequantize", lambda m, n: [("e4m3", (m, n)), ("f32", (1,))], {"out_dtype": "bf16"}, plain.dequantize, 3.9)


def check_cases(report, cuda, hostile):
    """Every variant on every case; with hostile, one variant of each kind on few."""
    cases = quantize.Cases(BUNDLE, cuda, [ROOT / "kernels"])
    if hostile:
        cases.cases = [c for c in cases.cases if c[0].startswith(("one NaN", "129 x", "33 x", "1 x 1", "usual, 5 ", "every code * 0.3"))]
    outcomes, seen = [], set()
    for op, variant in cases.variants():
        kind = variant["id"].split("[")[0]
        if not hostile or kind not in seen:
            outcomes.append(cases.run(op, variant))
            seen.add(kind)
    for outcome in outcomes:
        if not outcome.passed:
            report.hold(outcome.variant, False, outcome.reason())
    report.bar("variants right on every case", sum(o.passed for o in outcomes), max(1, len(outcomes)), "variants", at_least=True)
    report.fact("launches", sum(2 * o.launches for o in outcomes))


def sizes_of(rows):
    """Of groups of random shares of the rows, some of them empty."""
    rng = np.random.default_rng(0)
    return rng.multinomial(rows, rng.dirichlet(np.ones(GROUPS)) * (rng.random(GROUPS) > 0.1)).astype(np.int32)


def filled(cuda, dtype, dims, seed, rows):
    buffer = devices.Buffer(cuda, dtype, dims)
    if dtype == "bf16" and buffer.size >= 1 << 23:
        random_bf16(cuda, buffer, seed)
    elif dtype == "i32":
        buffer.put(sizes_of(rows))
    elif dtype in ("e4m3", "e5m2"):
        cuda.fill(buffer.address, 0x31 + seed, buffer.size)
    else:
        buffer.put(np.random.default_rng(seed).random(dims) + 0.5)
    return buffer


def ours(cuda, bundle, row, shape):
    """(variant, device us, bytes of a call)."""
    described = row.operands(*shape)
    problem = capi.Problem("quantize." + row.op, described, row.attributes)
    plan = capi.Plan(bundle, problem, cuda.kind)
    operands = [o and filled(cuda, *o, seed, shape[0]) for seed, o in enumerate(described)]
    results = [r["present"] and devices.Buffer(cuda, r["dtype"], r["dims"]) for r in bundle.infer(problem, cuda.kind)["results"]]
    workspace = cuda.allocate(max(1, plan.workspace_bytes))
    arguments = [capi.Plan.pointers([b.address if b else None for b in buffers]) for buffers in (operands, results)]
    us = cuda.device_us(lambda: plan.launch(*arguments, workspace, cuda.stream, cuda.threads), CALLS, REPEATS)
    every = [b for b in [*operands, *results] if b]
    moved = sum(b.size for b in every)
    for buffer in every:
        buffer.free()
    cuda.free(workspace)
    return plan.variant, us, moved


def theirs(row, shape):
    """Microseconds of a call of the formula under jax.jit."""
    import jax
    import jax.numpy as jnp
    rng, made = np.random.default_rng(0), []
    for operand in filter(None, row.operands(*shape)):
        dtype, dims = operand
        if dtype == "i32":
            made.append(jnp.asarray(sizes_of(shape[0])))
        elif len(dims) == 1:
            made.append(jnp.full(dims, 2.0, jnp.float32))
        else:
            block = rng.standard_normal((256, *dims[1:])).astype(np.float32)
            wide = jnp.resize(jnp.asarray(block), dims)
            made.append(jax.jit(lambda x, to=devices.NUMPY[dtype]: x.astype(to))(wide))
    program = jax.jit(row.formula)

    def burst(calls):
        start = time.perf_counter()
        for _ in range(calls):
            result = program(*made)
        jax.block_until_ready(result)
        return (time.perf_counter() - start) / calls * 1e6

    burst(2)
    us = sorted(burst(4 * CALLS) for _ in range(5))[2]
    for array in made:
        array.delete()
    return us


def shapes(given):
    """The shape of the bars, then others of 4 to 128 M elements: rows of whole tiles, of whole vectors, and of any length."""
    yield BAR_SHAPE
    chance = random.Random(given)
    for step in (64, 8, 1):
        columns = chance.randint(512 // step, 16384 // step) * step
        yield chance.randint(1 << 22, 1 << 27) // columns, columns


def times(report, cuda):
    seed = drawn.seed()
    report.fact("seed (KB_SEED)", seed)
    bundle, copy, table = capi.Bundle(BUNDLE), reference_tbps(report, cuda), []
    for shape in shapes(seed):
        us_of = {}
        for row in rows():
            if shape[1] % row.whole:
                continue
            variant, us, moved = ours(cuda, bundle, row, shape)
            us_of[row.title] = us
            jax_us = theirs(row, shape)
            tbps = moved / us / 1e6
            table.append([row.title, f"{shape[0]} x {shape[1]}", variant.split("/")[1].split("@")[0], f"{us:.1f}", f"{tbps:.2f}",
                          f"{100 * tbps / copy:.0f}", f"{jax_us:.1f}", f"{jax_us / us:.2f}"])
            if shape == BAR_SHAPE and row.bar:
                report.bar(f"{row.title}, {shape[0]} x {shape[1]} bf16", tbps, row.bar, "TB/s", at_least=True)
            if shape == BAR_SHAPE and row.beside:
                report.bar(f"{row.title}, {shape[0]} x {shape[1]} bf16: times {row.beside}", us / us_of[row.beside], 1.1)
            if moved > 1 << 26:
                report.bar(f"{row.title}, {shape[0]} x {shape[1]}: times jax.jit", jax_us / us, 0.98, at_least=True)
    report.table("Launches in a captured graph, and jax.jit", ["op", "shape", "variant", "us", "TB/s", "% of copy", "jax us", "ratio"], table)


def main():
    report, cuda, hostile = Report("quantize"), devices.Cuda(), "--hostile" in sys.argv
    if "--times" not in sys.argv:
        check_cases(report, cuda, hostile)
    if not hostile:
        peers.finish(report, lambda: times(report, cuda))
    report.finish()


if __name__ == "__main__":
    main()
