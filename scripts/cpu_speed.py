"""The speed bars of the softmax and norm ops on this CPU, against jax.jit of the plain formula.

Each round calls kbundle and jax.jit once, the one that goes first taking turns; a row is the two medians
over the rounds and their ratio, which the bar is set on. The least times stand beside them: where they tell
another story than the medians, other work was on the cores. XLA's intra-op pool is as JAX makes it, one thread
a core: `taskset -c 0,1` for two threads on a larger machine.

Two memory modes, each in a process of its own:

fresh  malloc as users get it. It gives a result of 64 MiB back to the system when that dies, so every call
       writes to newly mapped pages and pays for their faults; smaller results mostly keep their pages.
tuned  malloc is told to keep its pages: MALLOC_MMAP_MAX_=0, no trimming, and one arena, in the environment. XLA
       allocates from a thread of its own, whose arena would otherwise map anything of 64 MiB anew all the same.

`faults` is the median of minor page faults a call, which shows the mode that a row was in: a 64 MiB result is
16384 faults in pages of 4 KiB, and 543 where its whole huge pages are faulted as such.

The norms are measured as users get malloc; --norms: nothing else.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time

SHAPES = [
    ("scaled_forward", "float32", (1, 1, 4096, 4096)),
    ("scaled_causal_forward", "float32", (1, 1, 4096, 4096)),
    ("scaled_masked_forward", "float32", (1, 1, 4096, 4096)),
    ("scaled_backward", "float32", (1, 1, 4096, 4096)),
    ("scaled_forward", "float32", (1, 1, 128, 128)),
    ("scaled_forward", "float32", (1, 1, 1024, 1024)),
    ("scaled_forward", "float32", (1, 1, 8, 65536)),
    ("scaled_forward", "bfloat16", (1, 1, 1024, 1024)),
    ("scaled_forward", "float16", (1, 1, 512, 4097)),
    ("scaled_masked_forward", "bfloat16", (2, 8, 256, 256)),
    ("scaled_causal_forward", "bfloat16", (2, 8, 256, 256)),
    ("scaled_causal_backward", "float32", (2, 8, 256, 256)),
]
LARGE = (1, 1, 4096, 4096)
# Of kbj.rms_norm and kbj.layer_norm, alone and with gradients: the bar is on the geometric mean.
NORMS = [
    ("float32", (4096, 4096)), ("float32", (1, 4096)), ("float32", (128, 1024)), ("float32", (512, 4097)), ("bfloat16", (1024, 2048)),
    ("bfloat16", (8, 8192)), ("float16", (1000, 1001)),
]
NORMS_BAR = 1.5
WARM_UPS = 3
ROUNDS = 31  # at least
SECONDS_PER_LINE = 1.5
TUNED = {"MALLOC_MMAP_MAX_": "0", "MALLOC_ARENA_MAX": "1",
         "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 28)}


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def interleaved(functions, operands):
    """Of each function: median ms, least ms, median of page faults."""
    from jax import block_until_ready
    samples = [[] for _ in functions]
    turn, deadline = 0, time.perf_counter() + SECONDS_PER_LINE
    while turn < WARM_UPS + ROUNDS or time.perf_counter() < deadline:
        for i in (range(len(functions)), reversed(range(len(functions))))[turn % 2]:
            before, start = faults(), time.perf_counter()
            block_until_ready(functions[i](*operands))
            ms = (time.perf_counter() - start) * 1e3
            samples[i].append((ms, faults() - before))
        turn += 1
    columns = [list(zip(*calls[WARM_UPS:])) for calls in samples]
    return [(statistics.median(ms), min(ms), statistics.median(count)) for ms, count in columns]


def measure(shapes):
    import jax
    import kbundle
    import kbundle.jax as kbj
    from demo import ROOT
    from formulas import OPS, SCALE, inputs
    bundle = kbundle.open(str(ROOT / "build/kernels.kb"))
    for op, dtype, shape in shapes:
        formula, kind = OPS[f"softmax.{op}"]
        ours = jax.jit(lambda *a, op=op: kbj.call(bundle, f"softmax.{op}", *a, scale=SCALE))
        row = interleaved([ours, jax.jit(formula)], inputs(kind, dtype, shape))
        print("ROW", json.dumps([op, dtype, list(shape), *row]), flush=True)


def measure_norms():
    import jax
    import formulas
    import kbundle
    import kbundle.jax as kbj
    from demo import ROOT
    kbundle.use(str(ROOT / "build/kernels.kb"))
    for name in ("rms_norm", "layer_norm"):
        for dtype, shape in NORMS:
            ours, theirs = getattr(kbj, name), getattr(formulas, name)
            row = interleaved([jax.jit(ours), jax.jit(theirs)], formulas.inputs("x gamma", dtype, shape))
            print("ROW", json.dumps([name, dtype, list(shape), *row]), flush=True)
            row = interleaved([jax.jit(formulas.gradients(ours)), jax.jit(formulas.gradients(theirs))],
                              formulas.inputs("x gamma dy", dtype, shape))
            print("ROW", json.dumps([name + " and gradients", dtype, list(shape), *row]), flush=True)


def run(mode):
    env = dict(os.environ, JAX_PLATFORMS="cpu", **(TUNED if mode == "tuned" else {}))
    child = subprocess.run([sys.executable, __file__, mode], env=env, capture_output=True, text=True)
    rows = [json.loads(line[4:]) for line in child.stdout.splitlines() if line.startswith("ROW ")]
    if child.returncode or not rows:
        sys.exit(child.stderr)
    return rows


def main():
    if sys.argv[1:] == ["norms"]:
        measure_norms()
        return
    if sys.argv[1:] in (["fresh"], ["tuned"]):
        measure([s for s in SHAPES if sys.argv[1] == "fresh" or s[2] == LARGE])
        return
    missed, ratios = 0, []
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, load before {os.getloadavg()[0]:.1f}")
    print(f"{'memory':<7}{'op and shape':<52}{'kbundle ms':>11}{'least':>9}{'faults':>7}"
          f"{'jax.jit ms':>12}{'least':>9}{'faults':>7}{'ratio':>7}{'bar':>6}")
    for mode, large_bar in (("fresh", 2.0), ("tuned", 1.3), ("norms", 0)) if "--norms" not in sys.argv else (("norms", 0),):
        for op, dtype, shape, mine, theirs in run(mode):
            bar = 0 if mode == "norms" else large_bar if tuple(shape) == LARGE else 0.95
            ratio = theirs[0] / mine[0]
            missed += ratio < bar
            ratios += [ratio] if mode == "norms" else []
            name = f"{op} {dtype}{shape}"
            print(f"{mode:<7}{name:<52}{mine[0]:>11.3f}{mine[1]:>9.3f}{mine[2]:>7.0f}"
                  f"{theirs[0]:>12.3f}{theirs[1]:>9.3f}{theirs[2]:>7.0f}{ratio:>7.2f}{bar:>6.2f}"
                  f"{'' if ratio >= bar else '  MISSED'}")
    mean = statistics.geometric_mean(ratios)
    missed += mean < NORMS_BAR
    print(f"norms: geometric mean {mean:.2f}, bar {NORMS_BAR}{'' if mean >= NORMS_BAR else '  MISSED'}")
    print(f"load after {os.getloadavg()[0]:.1f}; with other work on the cores the ratios mean little")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
