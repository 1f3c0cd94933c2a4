"""The speed bars of the softmax ops on this CPU, against jax.jit of the plain formula.

Medians of interleaved calls, with XLA's intra-op pool as JAX makes it. Two memory modes, each in a
process of its own: "fresh", where every output is newly mapped memory as users get it, and "tuned",
where malloc is told to keep its pages (MALLOC_MMAP_MAX_=0, no trimming).
"""

import json
import os
import subprocess
import sys

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
TUNED = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 28)}


def measure(shapes):
    import jax
    import kbundle
    import kbundle.jax as kbj
    from demo import ROOT, interleaved_ms
    from formulas import OPS, SCALE, inputs
    bundle = kbundle.open(str(ROOT / "build/kernels.kb"))
    for op, dtype, shape in shapes:
        formula, kind = OPS[f"softmax.{op}"]
        ours = jax.jit(lambda *a, op=op: kbj.call(bundle, f"softmax.{op}", *a, scale=SCALE))
        mine, theirs = interleaved_ms([ours, jax.jit(formula)], inputs(kind, dtype, shape))
        print("ROW", json.dumps([op, dtype, list(shape), mine, theirs]), flush=True)


def run(mode):
    env = dict(os.environ, JAX_PLATFORMS="cpu", **(TUNED if mode == "tuned" else {}))
    child = subprocess.run([sys.executable, __file__, mode], env=env, capture_output=True, text=True)
    rows = [json.loads(line[4:]) for line in child.stdout.splitlines() if line.startswith("ROW ")]
    if child.returncode or not rows:
        sys.exit(child.stderr)
    return rows


def main():
    if len(sys.argv) > 1:
        measure([s for s in SHAPES if sys.argv[1] == "fresh" or s[2] == LARGE])
        return
    missed = 0
    print(f"{'memory':<8}{'op and shape':<58}{'kbundle ms':>12}{'jax.jit ms':>12}{'ratio':>8}{'bar':>7}")
    for mode, large_bar in (("fresh", 2.0), ("tuned", 1.3)):
        for op, dtype, shape, mine, theirs in run(mode):
            bar = large_bar if tuple(shape) == LARGE else 0.95
            missed += theirs / mine < bar
            print(f"{mode:<8}{f'{op} {dtype}{shape}':<58}{mine:>12.3f}{theirs:>12.3f}{theirs / mine:>8.2f}{bar:>7.2f}"
                  f"{'' if theirs / mine >= bar else '  MISSED'}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
