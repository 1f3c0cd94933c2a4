"""Products as JAX's users call them, drawn anew in every run over all sizes, those of few operations among them: inside jax.jit, forward or with
gradients, beside the formula in plain JAX, in one process, in turns (chain.py); and beside the same with a kernel of the bundle for each, which
says what leaving small ones to XLA is worth. Right first: some rows and columns against float64, gradients against those of float32.
"""

import os
import random
import statistics
import sys

import jax
import jax.numpy as jnp
import numpy as np

import kbundle
import kbundle.jax as kbj
import peers
from conformance import capi, runner
from report import Report
from unlisted import chain, drawn

REFERENCE = runner.load_reference("matmul", [capi.ROOT / "kernels"])
COUNT, SECONDS = 36, 200
MOST_OPERATIONS = 1 << 34
WITHIN = {"bfloat16": 1e-2, "float16": 2e-3, "float32": 2e-3}  # of float64, root of the mean square, relative
BY_ROWS = "product with w.T"  # w is [N, K], as an embedding is that logits are made with
KINDS = ("product", BY_ROWS, "bias", "gelu", "relu", "gradients of a product", f"gradients of a {BY_ROWS}", "gradients of gelu")
SIDES = ("jax.jit", "kbj", "kernels")


def problems(count, seed):
    """(dtype, rows, K, N, kind); one in six has dims that are no multiple of 8."""
    chance, found = random.Random(seed), []
    while len(found) < count:
        rows, inner, columns = (int(least * (most / least) ** chance.random()) for least, most in ((1, 16384), (8, 8192), (8, 8192)))
        if len(found) % 6:
            inner, columns = (max(8, size // 8 * 8) for size in (inner, columns))
        if 2 * rows * inner * columns <= MOST_OPERATIONS:
            found.append((("bfloat16", "bfloat16", "float16", "float32")[len(found) % 4], rows, inner, columns, chance.choice(KINDS)))
    return found


def activation(kind):
    return next((name for name in ("gelu", "relu") if name in kind), None)


def plain(kind):
    if BY_ROWS in kind:
        return lambda x, w, b: x @ w.T
    if "product" in kind:
        return lambda x, w, b: x @ w
    act = {None: lambda v: v, "gelu": jax.nn.gelu, "relu": jax.nn.relu}[activation(kind)]
    return lambda x, w, b: act(x @ w + b)


def ours(kind):
    if BY_ROWS in kind:
        return lambda x, w, b: kbj.matmul(x, w, trans_b=True)
    if "product" in kind:
        return lambda x, w, b: kbj.matmul(x, w)
    return lambda x, w, b: kbj.dense(x, w, b, activation(kind))


def whole(kind, function):
    """The function, of (x, w, b, dy), with its gradients where the kind has them."""
    def run(x, w, b, dy):
        if "gradients" not in kind:
            return [function(x, w, b)]
        y, pull = jax.vjp(function, x, w, b)
        return [y, *pull(dy)]
    return run


def error(problem, arrays, made):
    """The largest, over the results, of the norm of the difference by the norm of what is wanted."""
    _, rows, _, columns, kind = problem
    narrow = lambda array: np.asarray(array.astype(jnp.float32), np.float64)
    chance = np.random.default_rng(rows)
    at, of = (np.sort(chance.choice(size, min(size, 64), replace=False)) for size in (rows, columns))
    x, w, b, _ = arrays
    w = w.T if BY_ROWS in kind else w
    bias = None if "product" in kind else narrow(b[of])
    wanted = REFERENCE.matmul(narrow(x[at]), narrow(w[:, of]), bias=bias, epilogue=activation(kind) or "none")[0]
    errors = [peers.relative_error(narrow(made[0][at][:, of]), wanted)]
    if "gradients" in kind:
        with jax.default_matmul_precision("highest"):
            exact = jax.jit(whole(kind, plain(kind)))(*(array.astype(jnp.float32) for array in arrays))
        errors += [peers.relative_error(narrow(a), narrow(b)) for a, b in zip(made[1:], exact[1:]) if np.any(narrow(b))]
    return max(errors)


def arrays_of(problem, number):
    dtype, rows, inner, columns, kind = problem
    shapes = ((rows, inner), (columns, inner) if BY_ROWS in kind else (inner, columns), (columns,), (rows, columns))
    return [jax.random.normal(jax.random.PRNGKey(4 * number + i), shape, dtype) for i, shape in enumerate(shapes)]


def measured(report, problem, number):
    """Microseconds by each side, and whether kbj's program is that of jax.jit."""
    kind, arrays, chains, programs = problem[-1], arrays_of(problem, number), {}, []
    for side in SIDES:
        jax.clear_caches()
        kbundle.allow_formulas(side != "kernels")
        function = whole(kind, plain(kind) if side == "jax.jit" else ours(kind))
        programs.append(jax.jit(function).lower(*arrays).as_text())
        if side == "kbj":
            found = error(problem, arrays, jax.jit(function)(*arrays))
            report.hold(f"{problem} within {WITHIN[problem[0]]} of float64", found <= WITHIN[problem[0]], f"{found:.2g}")
        chains[side] = chain.chained(function)
        jax.block_until_ready(chains[side](*arrays))
    kbundle.allow_formulas(True)
    return chain.in_turns(chains, arrays, rounds=20), programs[SIDES.index("jax.jit")] == programs[SIDES.index("kbj")]


def main():
    report, given = Report("unlisted_programs"), drawn.seed()
    report.fact("seed", given)
    kbundle.use(str(capi.ROOT / "build/kernels.kb"))
    rows, ahead, by_kernels, by_chance = [], [], [], []
    for number, problem in drawn.in_time(report, problems(int(os.environ.get("KB_COUNT", COUNT)), given), SECONDS):
        us, same = measured(report, problem, number)
        found = {side: us["jax.jit"] / us[side] for side in SIDES}
        ahead.append(1.0 if same else found["kbj"])
        by_chance += [found["kbj"]] * same
        by_kernels.append(found["kernels"])
        rows.append([str(problem), *(f"{us[side]:.1f}" for side in SIDES), f"{found['kbj']:.2f}", f"{found['kernels']:.2f}", "yes" * same])
        print(*rows[-1], flush=True)
    report.table("Microseconds of a call in jax.jit, (dtype, rows, K, N, kind), and jax.jit's time by ours",
                 ["problem", *SIDES, "kbj ahead", "kernels ahead", "one program"], rows)
    for name, found in (("kbj", ahead), ("kernels alone", by_kernels)):
        report.fact(name, f"geometric mean {statistics.geometric_mean(found):.3f}, {sum(one < 0.97 for one in found)} of {len(found)} slower by 3 %")
    if by_chance:
        report.fact("one program timed twice", f"{min(by_chance):.2f} to {max(by_chance):.2f}, {sum(abs(r - 1) > 0.03 for r in by_chance)} of "
                    f"{len(by_chance)} apart by 3 %")
    report.bar("products in programs: geometric mean of jax.jit's time by ours", statistics.geometric_mean(ahead), 1.0, at_least=True)
    report.bar("products in programs: least", min(ahead), 0.97, at_least=True)
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
