"""From the wheels of dist/ to a first result on this GPU: a new environment, then ops from JAX in a new process with no toolkit on its
PATH. JAX is this machine's own, since nothing is downloaded."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
LONGEST = 60  # seconds
USE = """
import jax
import jax.numpy as jnp
import kbundle
import kbundle.jax as kbj
assert jax.default_backend() == "gpu", jax.default_backend()
x = jax.random.normal(jax.random.key(0), (4000, 1000))
y = jax.jit(lambda x: kbj.scaled_softmax(x, 0.5))(x)
print("softmax", float(abs(y - jax.nn.softmax(0.5 * x)).max()))
q, k, v = (jax.random.normal(jax.random.key(seed), (2, 777, 4, 64), jnp.bfloat16) for seed in range(3))
o = jax.jit(lambda *qkv: kbj.dot_product_attention(*qkv, is_causal=True))(q, k, v)
wanted = jax.nn.dot_product_attention(*(a.astype(jnp.float32) for a in (q, k, v)), is_causal=True)
print("attention", float(abs(o.astype(jnp.float32) - wanted).max()))
for one in kbundle.stats()["chosen"]:
    print("chosen", one["variant"])
"""


def install(folder, wheels):
    """The Python of a new environment that has the wheels, and JAX with what it needs from where this machine has it."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", "--no-index", "--no-deps"]
    # Without this process's own path, on which pip would find what it is to install.
    subprocess.run([*pip, *map(str, wheels)], env={n: v for n, v in os.environ.items() if n != "PYTHONPATH"}, check=True)
    [site] = folder.glob("lib/python3*/site-packages")
    (site / "jax.pth").write_text(str(pathlib.Path(importlib.util.find_spec("jax").origin).parents[1]) + "\n")
    return str(folder / "bin/python")


def main():
    report, wheels = Report("from the wheels to a first result on a GPU"), sorted((ROOT / "dist").glob("*.whl"))
    if not report.hold("both wheels are in dist/", len(wheels) == 2, "make them by scripts/wheel and bring them along"):
        report.finish()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        (folder / "tmp").mkdir()
        start = time.monotonic()
        own = install(folder / "env", wheels)
        installed = time.monotonic() - start
        environment = {"PATH": str(folder / "nothing"), "TMPDIR": str(folder / "tmp"), "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                       **{name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}}
        done = subprocess.run([own, "-I", "-c", USE], env=environment, cwd="/", capture_output=True, text=True)
        seconds = time.monotonic() - start
    if not report.hold("the process ends well", done.returncode == 0, done.stderr[-1500:]):
        report.finish()
    said = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    errors, chosen = {what: float(value) for what, value in said if what != "chosen"}, [value for what, value in said if what == "chosen"]
    report.bar("softmax: largest error", errors["softmax"], 1e-6)
    report.bar("attention: largest error", errors["attention"], 2e-2)
    report.hold("code made for this GPU was chosen", len(chosen) == 2 and all("@sm_" in one for one in chosen), str(chosen))
    report.bar("seconds from the wheels to the end of that process", round(seconds, 1), LONGEST, "s")
    report.fact("of which installing", round(installed, 1))
    report.fact("chosen", ", ".join(chosen))
    report.finish()


if __name__ == "__main__":
    main()
