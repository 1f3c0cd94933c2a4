"""Runs the six softmax ops from JAX on the CPU and prints, per op and shape: the variant chosen,
the error against float64, the time, the time of the plain formula under jax.jit, and the ratio.

Times are medians of interleaved calls, each with freshly allocated outputs, in one process.
"""

import argparse
import importlib.util
import os
import pathlib
import statistics
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

import kbundle
import kbundle.jax as kbj
from formulas import OPS, SCALE, inputs

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS = 7
SECONDS_PER_LINE = 0.5
SHAPES = [("float32", (2, 8, 128, 128)), ("bfloat16", (2, 8, 256, 256)),
          ("float32", (1, 1, 4096, 4096))]


def load_reference():
    path = ROOT / "kernels/softmax/reference.py"
    spec = importlib.util.spec_from_file_location("softmax_reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row_error(y, wanted):
    """The largest error, relative to the largest value of its row."""
    row_max = np.maximum(np.max(np.abs(wanted), axis=-1, keepdims=True), 1e-30)
    return float(np.max(np.abs(np.asarray(y, np.float64) - wanted) / row_max))


def interleaved_ms(functions, operands):
    """Median milliseconds of each function, called in turn so that drift hits all alike."""
    for f in functions:
        jax.block_until_ready(f(*operands))
    samples = [[] for _ in functions]
    deadline = time.perf_counter() + SECONDS_PER_LINE
    while len(samples[0]) < ROUNDS or (time.perf_counter() < deadline and len(samples[0]) < 500):
        for f, times in zip(functions, samples):
            start = time.perf_counter()
            jax.block_until_ready(f(*operands))
            times.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(times) for times in samples]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", default=str(ROOT / "build/kernels.kb"))
    args = parser.parse_args()
    bundle = kbundle.open(args.bundle)
    reference = load_reference()
    print(f"JAX {jax.__version__} on {jax.devices()[0].platform}, {os.cpu_count()} cores; "
          "error: largest, relative to the row's largest value; ratio: jax.jit / kbundle")
    print(f"{'op':<32}{'shape':<24}{'variant':<44}{'error':>9}{'kbundle ms':>12}"
          f"{'jax.jit ms':>12}{'ratio':>7}")
    worst = 0.0
    for op, (formula, kind) in OPS.items():
        for dtype, shape in SHAPES:
            operands = inputs(kind, dtype, shape)
            ours = jax.jit(lambda *a, op=op: kbj.call(bundle, op, *a, scale=SCALE))
            wanted = getattr(reference, op.split(".")[1])(
                *(np.asarray(a, np.float64) for a in operands), scale=SCALE)
            error = row_error(ours(*operands), wanted)
            mine, theirs = interleaved_ms([ours, jax.jit(formula)], operands)
            variant = bundle.explain(op, *operands, scale=SCALE)["chosen"].split("/", 1)[1]
            label = f"{jnp.dtype(dtype).name}{list(shape)}".replace(" ", "")
            print(f"{op:<32}{label:<24}{variant:<44}{error:>9.1e}{mine:>12.3f}{theirs:>12.3f}"
                  f"{theirs / mine:>7.2f}", flush=True)
            worst = max(worst, error / (2e-6 if dtype == "float32" else 4e-3))
    if worst > 1:
        sys.exit(f"demo: an error exceeds its bound by {worst:.2f} times")


if __name__ == "__main__":
    main()
