"""One rank of two: opens the bundle, runs a product, compares its choices with the other's. Ends with 3 when they differ.

rank_program.py BUNDLE PORT RANK ODD (1: rank 1 denies the variant that would be chosen)"""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("KBUNDLE_LIBRARY", str(pathlib.Path(os.environ.get("KB_BUILD", ROOT / "build/release")) / "libkbundle.so"))
os.environ.update(JAX_PLATFORMS="cpu", XLA_FLAGS="")
sys.path.insert(0, str(ROOT / "ffi/python"))

import jax  # noqa: E402
import numpy as np  # noqa: E402

import kbundle  # noqa: E402
import kbundle.jax as kbj  # noqa: E402


def main(path, port, rank, odd):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize("localhost:" + port, 2, rank)
    bundle = kbundle.use(path)
    a, b = np.ones((4, 32), np.float32), np.ones((32, 16), np.float32)
    if odd and rank == 1:
        bundle.deny(bundle.explain("matmul.matmul", a, b, out_dtype="f32")["chosen"])
    jax.block_until_ready(kbj.matmul(a, b))
    try:
        print("digest", kbj.check_ranks(), flush=True)
    except kbundle.Error as error:
        print(error, flush=True)
        sys.exit(3)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1")
