"""Products drawn anew in every run, beside jax.jit of the formula, by every rule that could choose for a problem without a record: the nearest
record (today's), what cuBLASLt's heuristic names first (`heuristic = true`), the best of its first eight and of all recorded algorithms, which
only timing could tell. Right first: some rows and columns against float64. The bars are those of the issue, for the rule in force.
"""

import base64
import json
import math
import os
import pathlib
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import peers
from conformance import capi, devices, runner
from matmul_jax import DTYPES, Ours, arrays_of, formula
from report import Report
from unlisted import cublaslt, drawn

ROOT = pathlib.Path(__file__).resolve().parents[3]
REFERENCE = runner.load_reference("matmul", [ROOT / "kernels"])
COUNT, SECONDS, NAMED = 40, 380, 8
RULES = ("nearest record", "heuristic", "best of 8", "best of all")
WITHIN = {"bf16": 1e-2, "f16": 2e-3, "f32": 2e-3}  # of float64, root of the mean square, relative


def recorded():
    """Algorithms of the committed files, by dtypes."""
    found = {}
    for path in sorted((ROOT / "kernels/matmul/algorithms").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if row["variant"] == "cublaslt":
                found.setdefault(tuple(row["types"]), {}).setdefault(json.dumps(row["config"]), base64.b64decode(row["algorithm"]))
    return {types: list(algorithms.values()) for types, algorithms in found.items()}


def wanted_part(problem, arrays, rows, columns):
    wide = lambda x: np.asarray(x.astype(jnp.float32), np.float64)
    bias = wide(arrays[3][columns]) if problem[4] == "bias" else None
    epilogue = "gelu" if problem[4] == "gelu" else "none"
    return REFERENCE.matmul(wide(arrays[0][rows]), wide(arrays[1][:, columns]), bias=bias, epilogue=epilogue)[0]


class Bench:
    """One problem: sets of arrays, and sides that all work on them."""

    def __init__(self, cuda, lt, bundle, problem, workspace):
        dtype, m, k, n, epilogue = problem
        self.cuda, self.problem, self.workspace = cuda, problem, workspace
        us = max(5.0, 2e-6 * m * k * n / (350 if dtype == "f32" else 700))
        self.sets_wanted = 2 if m * k + k * n > 1 << 26 else 4
        self.calls = max(4, min(40, int(1200 / us)) // 4 * 4)
        shapes = [(dtype, [m, k]), (dtype, [k, n]), None, (dtype, [n]) if epilogue == "bias" else None, None, None, None, None]
        self.attributes = {"out_dtype": dtype, "epilogue": "gelu" if epilogue == "gelu" else "none"}
        self.sets = [arrays_of(shapes, seed) for seed in range(self.sets_wanted)]
        self.outs = jax.block_until_ready([jnp.full((m, n), jnp.nan, DTYPES[dtype]) for _ in self.sets])
        bias = self.at(self.sets[0][3]) if epilogue == "bias" else 0
        self.product = cublaslt.Product(lt, dtype, m, k, n, epilogue, bias)
        self.ours = Ours(cuda, bundle, shapes, self.attributes, self.sets)

    @staticmethod
    def at(array):
        return array.unsafe_buffer_pointer()

    def side(self, choice):
        """Of an algorithm; None: kbundle's own plan."""
        def launch(number):
            if choice is None:
                return self.ours.launch(number)
            a, b, out = self.sets[number][0], self.sets[number][1], self.outs[number]
            return self.product.launch(choice, self.at(a), self.at(b), self.at(out), self.workspace, self.cuda.stream)
        return peers.GraphSide(self.cuda, launch, self.sets_wanted, self.calls)

    def jax_side(self):
        return peers.JaxSide(lambda *arrays: formula(self.attributes)(*arrays), self.sets, self.calls)

    def error(self, rows, columns, wanted):
        return peers.relative_error(np.asarray(self.outs[0][rows][:, columns].astype(jnp.float32)), wanted)


def measured(cuda, lt, bundle, stored, problem, workspace):
    """({rule: us}, jax's us, the worst error)."""
    bench = Bench(cuda, lt, bundle, problem, workspace)
    try:
        named = bench.product.heuristic(NAMED)
        others = [found for one in stored.get((problem[0],) * 3, []) if (found := bench.product.passing(one))]
        quick = [(min(cuda.graph_us(bench.side(choice).graph, 2)), number) for number, choice in enumerate(others)]
        promising = [others[number] for _, number in sorted(quick)[:6]]
        sides = [bench.jax_side(), bench.side(None), *(bench.side(choice) for choice in [*named, *promising])]
        theirs, nearest, *times = peers.by_turns(sides)
        rng = np.random.default_rng(problem[1])
        rows, columns = (np.sort(rng.choice(size, min(size, most), replace=False)) for size, most in ((problem[1], 6), (problem[3], 64)))
        wanted, errors = wanted_part(problem, bench.sets[0], rows, columns), []
        for choice in (named[0], min(zip(times, [*named, *promising]), key=lambda pair: pair[0])[1]):
            cuda.fill(bench.at(bench.outs[0]), 0xFF, math.prod(bench.outs[0].shape) * bench.outs[0].dtype.itemsize)
            cuda.synchronize()
            bench.side(choice)
            cuda.synchronize()
            errors.append(bench.error(rows, columns, wanted))
        return dict(zip(RULES, (nearest, times[0], min(times[:len(named)]), min(times)))), theirs, max(errors)
    finally:
        bench.ours.free()


def conclude(report, ratios):
    for rule in RULES:
        found = [one[rule] for one in ratios]
        mean = statistics.geometric_mean(found)
        report.fact(f"jax by {rule}", f"geometric mean {mean:.3f}, least {min(found):.3f}, {sum(r < 0.97 for r in found)} slower by 3 %")
    inforce = [one["nearest record"] for one in ratios]
    report.bar("unlisted products: least of jax by ours", min(inforce), 0.97, at_least=True)
    report.bar("unlisted products: geometric mean", statistics.geometric_mean(inforce), 1.0, at_least=True)


def main():
    report, started, given = Report("unlisted_products"), time.monotonic(), drawn.seed()
    report.fact("seed", given)
    cuda = devices.Cuda()
    jax.block_until_ready(jnp.zeros(1))
    lt, bundle, stored, workspace = cublaslt.Lt(), capi.Bundle(ROOT / "build/kernels.kb"), recorded(), cuda.allocate(cublaslt.LIMIT)
    rows, ratios, refused = [], [], {}
    for problem in drawn.products(int(os.environ.get("KB_COUNT", COUNT)), given):
        if time.monotonic() - started > SECONDS:
            refused[str(problem)] = "no time was left"
            continue
        one = peers.attempt(str(problem), lambda: measured(cuda, lt, bundle, stored, problem, workspace), refused)
        jax.clear_caches()
        if one is None:
            continue
        times, theirs, error = one
        report.hold(f"{problem} within {WITHIN[problem[0]]} of float64", error <= WITHIN[problem[0]], f"{error:.2g}")
        ratios.append({rule: theirs / us for rule, us in times.items()})
        rows.append([str(problem), f"{theirs:.1f}", *(f"{times[rule]:.1f}" for rule in RULES), *(f"{ratios[-1][rule]:.2f}" for rule in RULES)])
        print(*rows[-1], flush=True)
    for what, why in refused.items():
        report.fact(f"not measured: {what}", why)
    report.table("Microseconds of a call, (dtype, rows, K, N, epilogue), and jax's time by each", ["problem", "jax.jit", *RULES, *RULES], rows)
    conclude(report, ratios)
    report.finish()


if __name__ == "__main__":
    main()
