"""The op matmul against jax.jit of the same formula on the problems of its manifest: device time and accuracy, in one run, on the
same arrays. How times are taken: peers.py. Errors are those of sampled rows against float64, relative, root mean square.

FP8 is printed, not judged: what XLA makes of the formula with scales is not always an FP8 product.
"""

import functools
import math
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import kbundle
import kbundle.jax as kbj
import launch_cost
import peers
from conformance import capi, devices, runner
from report import Report

ROOT = capi.ROOT
BUNDLE = ROOT / "build/kernels.kb"
SECONDS = 280  # after which no further problem is begun
DTYPES = {"bf16": jnp.bfloat16, "f16": jnp.float16, "f32": jnp.float32, "e4m3": jnp.float8_e4m3fn, "e5m2": jnp.float8_e5m2, "u8": jnp.uint8}
NAMES = ("a", "b", "c", "bias", "aux", "mask", "a_scale", "b_scale")
ROWS = 6
# Where JAX was seen at 691 to 701 TFLOP/s: kbundle must be faster by this factor.
AHEAD, AHEAD_ON = 1.05, {(8192, 8192, 8192), (16384, 4096, 14336), (16384, 14336, 4096)}
PEAK_TFLOPS = 700  # only to guess how many calls make a burst


def problems(bundle):
    """(operands, attributes) of the listed problems of a size that is worth timing, of small ones in both 16-bit dtypes one; FP8 last."""
    found = {}
    for given in bundle.listed("matmul.matmul"):
        operands, attributes = given.operands, {"out_dtype": "bf16"} | given.attributes
        work = math.prod(extents(operands, given.attributes))
        dtype = "16-bit" if operands[0][0] in ("bf16", "f16") and work < 1 << 34 else operands[0][0] + operands[1][0]
        if work >= 1 << 22:
            found.setdefault((extents(operands, attributes), dtype, words(operands, attributes)), (operands, attributes))
    return sorted(found.values(), key=lambda item: item[0][0][0][0] == "e")


def extents(operands, attributes):
    (_, a), (_, b) = operands[:2]
    m, k = reversed(a[-2:]) if attributes.get("trans_a") else a[-2:]
    return math.prod(a[:-2]), m, b[-2] if attributes.get("trans_b") else b[-1], k


def arrays_of(operands, seed):
    """On the device, in the op's order: normal random numbers, random bits for a mask, scales near 1."""
    made = []
    for number, operand in enumerate(operands):
        key = jax.random.PRNGKey(seed * 16 + number)
        if operand is None:
            made.append(None)
        elif operand[0] == "u8":
            made.append(jax.random.randint(key, operand[1], 0, 256).astype(jnp.uint8))
        elif NAMES[number].endswith("scale"):
            made.append(jnp.float32(0.75 + 0.5 * number % 1))
        else:
            made.append(jax.random.normal(key, operand[1], jnp.float32).astype(DTYPES[operand[0]]))
    return jax.block_until_ready(made)


def bits(mask, columns):
    wide = (mask[..., None] >> jnp.arange(8, dtype=jnp.uint8)) & 1
    return wide.reshape(mask.shape[:-1] + (-1,))[..., :columns].astype(bool)


def formula(attributes):
    """What a JAX user writes; a relu's mask is one of booleans there, as operand and as result."""
    at = {"trans_a": False, "trans_b": False, "alpha": 1.0, "beta": 0.0, "epilogue": "none", "with_aux": False,
          "bias_gradient": "none", "precision": "tf32"} | attributes
    out = DTYPES[at["out_dtype"]]
    exact = jax.lax.Precision.HIGHEST if at["precision"] == "ieee" else None

    def product(a, b):
        axes = tuple(range(a.ndim - 2))
        contract = (a.ndim - (2 if at["trans_a"] else 1),), (b.ndim - (1 if at["trans_b"] else 2),)
        return jax.lax.dot_general(a, b, (contract, (axes, axes)), precision=exact, preferred_element_type=out)

    def function(a, b, c, bias, aux, mask, a_scale, b_scale):
        wide = [x if s is None else x.astype(out) * s.astype(out) for x, s in ((a, a_scale), (b, b_scale))]
        x = product(*wide) if at["alpha"] == 1 else product(*wide) * at["alpha"]
        x = x if c is None else x + at["beta"] * c
        x = (x if bias is None else x + bias).astype(out)
        d = {"none": lambda: x, "relu": lambda: jax.nn.relu(x), "gelu": lambda: jax.nn.gelu(x), "drelu": lambda: jnp.where(mask, x, 0),
             "dgelu": lambda: jax.vjp(jax.nn.gelu, aux)[1](x)[0]}[at["epilogue"]]()
        results = [d]
        if at["with_aux"]:
            results.append(x if at["epilogue"] == "gelu" else x > 0)
        if at["bias_gradient"] != "none":
            summed, transposed = {"d": (d, False), "a": (a, not at["trans_a"]), "b": (b, at["trans_b"])}[at["bias_gradient"]]
            results.append(jnp.sum(summed, -1 if transposed else -2))
        return results

    return function


class Ours:
    """Launches through the C ABI on the arrays of JAX, each set with results of its own."""

    def __init__(self, cuda, bundle, operands, attributes, sets):
        problem = capi.Problem("matmul.matmul", operands, attributes)
        self.cuda, self.plan = cuda, capi.Plan(bundle, problem, capi.CUDA, alignment=16)
        inferred = bundle.infer(problem, capi.CUDA)["results"]
        self.results = [[devices.Buffer(cuda, r["dtype"], r["dims"]).poison() if r["present"] else None for r in inferred] for _ in sets]
        self.workspace = cuda.allocate(max(256, self.plan.workspace_bytes))
        self.pointers = [(capi.Plan.pointers([None if x is None else x.unsafe_buffer_pointer() for x in arrays]),
                          capi.Plan.pointers([b and b.address for b in results])) for arrays, results in zip(sets, self.results)]

    def launch(self, number):
        self.plan.launch(*self.pointers[number], self.workspace, self.cuda.stream)

    def rows(self, picks):
        """Rows of the first set's d, in the first and only matrix of the batch that is looked at."""
        d = self.results[0][0]
        size = d.dims[-1] * np.dtype(d.dtype).itemsize
        return np.stack([self.cuda.download(d.address + int(row) * size, size).view(d.dtype) for row in picks])

    def free(self):
        for buffer in (b for results in self.results for b in results if b):
            buffer.free()
        self.cuda.free(self.workspace)


def wanted_rows(reference, operands, attributes, arrays, picks):
    """d of the picked rows in float64, of the batch's first matrix."""
    first = lambda x: np.asarray(x[(0,) * (x.ndim - 2)]).astype(np.float64)
    a, b, c, bias, aux, mask, *scales = arrays
    a = np.asarray(a[(0,) * (a.ndim - 2)][:, picks].T if attributes.get("trans_a") else a[(0,) * (a.ndim - 2)][picks]).astype(np.float64)
    cut = lambda x: None if x is None else np.asarray(x[(0,) * (x.ndim - 2)][picks])
    wide = lambda x: x if x is None else np.asarray(x).astype(np.float64)
    without = {"trans_a": False, "with_aux": False, "bias_gradient": "none"}
    return reference.matmul(a, first(b), wide(cut(c)), wide(bias), wide(cut(aux)), cut(mask), *map(wide, scales), **attributes | without)[0]


def measured(cuda, bundle, ours_in_jax, reference, operands, attributes, refused):
    """A dict of what one problem gave."""
    batch, m, n, k = extents(operands, attributes)
    us = max(5.0, 2 * batch * m * n * k / PEAK_TFLOPS / 1e6)
    calls, set_count = max(6, min(48, int(1500 / us))), 2 if batch * (m * k + k * n) > 1 << 26 else 4
    sets = [arrays_of(operands, seed) for seed in range(set_count)]
    theirs = formula(attributes)
    columns = None if operands[5] is None else n
    jax_sets = [[bits(x, columns) if x is not None and i == 5 else x for i, x in enumerate(arrays)] for arrays in sets]
    label = f"{'x'.join(map(str, [batch] * (batch > 1) + [m, n, k]))} {operands[0][0]}"
    ours = Ours(cuda, bundle, operands, attributes, sets)
    try:
        sides = [peers.GraphSide(cuda, ours.launch, set_count, calls),
                 peers.attempt(f"{label}: jax", lambda: peers.JaxSide(theirs, jax_sets, calls), refused),
                 peers.attempt(f"{label}: kbj", lambda: peers.JaxSide(functools.partial(ours_in_jax, attributes), sets, calls), refused)]
        times = peers.by_turns(sides)
        picks = np.sort(np.random.default_rng(m).choice(m, min(m, ROWS), replace=False))
        wanted = wanted_rows(reference, operands, attributes, sets[0], picks)
        errors = [peers.relative_error(ours.rows(picks), wanted), None]
        if sides[1]:
            d = jax.jit(theirs)(*jax_sets[0])[0]
            errors[1] = peers.relative_error(d[(0,) * (d.ndim - 2)][picks], wanted)
        return {"label": label, "shape": (m, n, k), "times": times, "errors": errors, "flops": 2 * batch * m * n * k, "fp8": operands[0][0][0] == "e",
                "variant": ours.plan.variant.split("/")[1].split("@")[0]}
    finally:
        ours.free()


def words(operands, attributes):
    """What a problem is besides its product."""
    return ", ".join([name for name, o in zip(("c", "bias"), operands[2:4]) if o]
                     + [k if v is True else f"{k}={v}" for k, v in attributes.items() if k != "out_dtype"])


def judge(report, found):
    judged = [f for f in found if not f["fp8"] and f["times"][1]]
    slower = [f"{f['label']} {f['words']}: {f['times'][0]:.1f} against {f['times'][1]:.1f} us" for f in judged
              if f["times"][0] > f["times"][1] * peers.NOISE]
    report.bar("problems compared with jax", len(judged), 20, at_least=True)
    report.hold("never slower than jax by more than 2 %", not slower, "; ".join(slower))
    for f in judged:
        if f["shape"] in AHEAD_ON and f["words"] == "":
            report.bar(f"{f['label']}: times faster than jax", f["times"][1] / f["times"][0], AHEAD, at_least=True)
    worse = [f"{f['label']} {f['words']}: {f['errors'][0]:.3g} against {f['errors'][1]:.3g}" for f in judged
             if not f["errors"][0] <= 1.1 * f["errors"][1]]
    report.hold("errors at most 1.1 times jax's", not worse, "; ".join(worse))


def table(report, found):
    number, rows = peers.number, []
    for f in found:
        ours, theirs, in_jax = f["times"]
        rows.append([f["label"], f["words"], number(ours), number(theirs), number(in_jax), number(theirs and theirs / ours, 3),
                     *(number(us and f["flops"] / us / 1e6, 0) for us in (ours, theirs)),
                     *("" if e is None else f"{e:.3g}" for e in f["errors"]), f["variant"][-40:]])
    report.table("Microseconds of a call", ["m x n x k", "problem", "kbundle", "jax.jit", "kbundle in jax.jit", "times faster", "TFLOP/s",
                                            "jax TFLOP/s", "error", "jax error", "variant"], rows)


def main():
    report, found, refused = Report("matmul_jax"), [], {}

    def section():
        start, cuda = time.monotonic(), devices.Cuda()
        jax.block_until_ready(jnp.zeros(1))
        launch_cost.library("libcublasLt.so.13")
        path = sys.argv[1] if len(sys.argv) > 1 else BUNDLE
        bundle, by_jax = capi.Bundle(path), kbundle.open(str(path))
        reference = runner.load_reference("matmul", [ROOT / "kernels"])

        def ours_in_jax(attributes, *arrays):
            given = attributes | {"out_dtype": jnp.dtype(DTYPES[attributes["out_dtype"]])}
            return [r for r in kbj.call(by_jax, "matmul.matmul", *arrays, **given) if r is not None]

        for operands, attributes in problems(bundle):
            if time.monotonic() - start > SECONDS:
                refused[f"{operands[:2]} {words(operands, attributes)}"] = "no time was left"
                continue
            one = peers.attempt(f"{operands[:2]} {words(operands, attributes)}",
                                lambda: measured(cuda, bundle, ours_in_jax, reference, operands, attributes, refused), refused)
            if one:
                one["words"] = words(operands, attributes)
                found.append(one)
                print("    ", one["label"], one["words"], *map(peers.number, one["times"]), one["errors"], one["variant"][-60:], flush=True)
            jax.clear_caches()
        judge(report, found)
        report.fact("seconds", round(time.monotonic() - start, 1))

    peers.finish(report, section, refused, lambda: table(report, found))


if __name__ == "__main__":
    main()
