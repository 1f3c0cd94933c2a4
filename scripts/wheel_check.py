"""The two wheels as a user has them: a new environment, then an op from JAX in a new process that has no compiler on its PATH, no
network, no home, and an environment that it cannot write to."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

NOBODY = 65534
USE = """
import os, time
start = time.process_time()
import jax
import jax.numpy as jnp
jax.devices()
after_jax = time.process_time()
import kbundle.jax as kbj
own = time.process_time() - after_jax
began = time.perf_counter()
x = jnp.linspace(-3.0, 3.0, 12 * 64, dtype=jnp.float32).reshape(12, 64)
y = jax.jit(lambda x: kbj.scaled_softmax(x, 0.5))(x).block_until_ready()
first = time.perf_counter() - began
assert abs(y - jax.nn.softmax(0.5 * x)).max() < 1e-6, "a wrong result"
assert own <= 0.030, "import kbundle.jax takes %.0f ms beyond jax's own" % (1e3 * own)
try:
    open(os.path.join(os.path.dirname(kbj.__file__), "x"), "w")
    raise SystemExit("the environment can be written to")
except OSError:
    pass
print("import kbundle.jax %.1f ms beyond jax's %.0f; first scaled_softmax under jit %.0f ms" % (1e3 * own, 1e3 * (after_jax - start), 1e3 * first))
"""


def without_network():
    """Words before a command that take the network from it; none where this machine does not let us."""
    words = ["unshare", "--net"]
    allowed = shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0
    return words if allowed else []


def install(python, folder, wheels):
    """A new environment in the folder: of the network JAX, of this folder the wheels."""
    subprocess.run([str(python), "-m", "venv", str(folder)], check=True)
    own = str(folder / "bin/python")
    version = subprocess.run([str(python), "-c", "import jax; print(jax.__version__)"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"jax=={version}", f"jaxlib=={version}"], check=True)
    subprocess.run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", *map(str, wheels)], check=True)
    subprocess.run([own, "-m", "pip", "check", "--disable-pip-version-check"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["chmod", "-R", "a-w", str(folder)], check=True)
    return own


def run_in_a_new_environment(python, wheels):
    with tempfile.TemporaryDirectory(prefix="kbundle-wheel-") as made:
        folder = pathlib.Path(made)
        folder.chmod(0o755)  # for somebody else than root, whom a file's mode does not stop
        own = install(python, folder / "env", wheels)
        empty = folder / "nothing"
        empty.mkdir()
        lonely = without_network()
        if not lonely:
            print("this machine does not let a process be cut off from the network: it is not")
        become = ["setpriv", "--reuid", str(NOBODY), "--clear-groups"] if os.getuid() == 0 else []
        words = [*lonely, *become, own, "-B", "-I"]
        environment = {"PATH": str(empty), "JAX_PLATFORMS": "cpu"}
        words[0] = shutil.which(words[0]) or words[0]
        if become:
            words[words.index("setpriv")] = shutil.which("setpriv")
        try:
            for more in (["-m", "kbundle"], ["-c", USE]):
                start = time.perf_counter()
                done = subprocess.run([*words, *more], env=environment, cwd="/", capture_output=True, text=True, timeout=300)
                if done.returncode:
                    sys.exit(f"wheel: in a new environment:\n{done.stdout}{done.stderr}")
                print(done.stdout.strip().replace("\n", "\n    "), f"({time.perf_counter() - start:.1f} s in all)")
        finally:
            subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
