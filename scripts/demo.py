"""Runs a bundle's ops from JAX on the CPU and prints for each: the variants chosen, the error against float64, the time, the time
of the plain formula under jax.jit and the ratio; then what GPUs did with such a bundle, from committed results.

Times are medians of interleaved calls, each with freshly allocated outputs, in one process.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

import kbundle
from demo_gpus import RESULTS, of_h100, of_results
from demo_rows import by_jax, in_float64, rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS = 7
NEXT = """\
Next, in {root}:
  build/release/kbundle explain {bundle} softmax.scaled_forward --operand x=bf16[4096,4096]
  build/release/kbundle inspect {bundle}
  build/release/kbundle verify {bundle}
For GPUs too, half an hour the first time: cmake --build --preset release && build/release/kbundle build kernels -o {bundle}
docs/whole-library.md is a whole library on one page."""


def error_of(y, wanted):
    """The largest error, relative to the largest value of its row."""
    row_max = np.maximum(np.max(np.abs(wanted), axis=-1, keepdims=True), 1e-30)
    return float(np.max(np.abs(np.asarray(y, np.float64) - wanted) / row_max))


def interleaved_ms(functions, operands, seconds):
    """Median milliseconds of each function, called in turn so that drift hits all alike."""
    for f in functions:
        jax.block_until_ready(f(*operands))
    samples = [[] for _ in functions]
    deadline = time.perf_counter() + seconds
    while len(samples[0]) < ROUNDS or (time.perf_counter() < deadline and len(samples[0]) < 500):
        for f, times in zip(functions, samples):
            start = time.perf_counter()
            jax.block_until_ready(f(*operands))
            times.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(times) for times in samples]


def chosen(bundle, before):
    """Ids of the variants that plans were made of since `before`, without op and target."""
    ids = [row["variant"] for row in bundle.stats()["chosen"] if row not in before]
    return [variant.split("/", 1)[1].split("@")[0] for variant in ids]


def run(bundle, row, seconds):
    """Prints the row; its error as a part of what it may be."""
    before = bundle.stats()["chosen"]
    ours = jax.jit(row.ours)
    error = error_of(ours(*row.operands), in_float64(row))
    variants = ", ".join(chosen(bundle, before))
    mine, theirs = interleaved_ms([ours, by_jax(row)], row.operands, seconds)
    print(f"{row.work:<24}{row.shape:<26}{error:>9.1e}{mine:>12.3f}{theirs:>12.3f}{theirs / mine:>7.2f}  {variants}", flush=True)
    return error / row.bound


def print_gpus(works):
    measured = [RESULTS / "nvidia_h200.json", *sorted(RESULTS.glob("nvidia_h100*.json"))]
    for path in measured:
        told, where = of_results(path)
        print(f"\nThe same ops on a GPU ({where}; {path.relative_to(ROOT)}), microseconds, the peer's, their ratio:")
        for work in works:
            if work in told:
                print(f"  {work:<24}{told[work]}")
    if len(measured) > 1:
        return
    figures, where = of_h100()
    print(f"No such results of an H100 are committed; what was built for that H200 on another GPU ({where}; tests/gpu/results/nvidia_h100.md):")
    for what, figure in figures:
        print(f"  {what}: {figure}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", default="build/kernels.kb", help="the bundle [build/kernels.kb]")
    parser.add_argument("--seconds", type=float, default=1.0, help="to measure each row for [1]")
    args = parser.parse_args()
    bundle = kbundle.use(str(ROOT / args.bundle))
    print(f"JAX {jax.__version__} on {jax.devices()[0].platform}, {os.cpu_count()} cores; "
          "error: largest, relative to the row's largest value; ratio: jax.jit / kbundle")
    print(f"{'work':<24}{'operand':<26}{'error':>9}{'kbundle ms':>12}{'jax.jit ms':>12}{'ratio':>7}  variants")
    works, worst = [], 0.0
    for row in rows():
        works.append(row.gpu)
        worst = max(worst, run(bundle, row, args.seconds))
    print_gpus(works)
    print("\n" + NEXT.format(root=ROOT, bundle=args.bundle))
    if worst > 1:
        sys.exit(f"demo: an error exceeds its bound by {worst:.2f} times")


if __name__ == "__main__":
    main()
