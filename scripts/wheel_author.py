"""An author's first hour with the wheels, as a script with a stopwatch: an environment with kbundle[build], `kbundle new`, what the README of the
new library says, its wheel, another environment with that wheel, a call from JAX there, and one from PyTorch where this script's own Python has
it. The folder of this machine's CUDA is empty meanwhile, so that what compiles is what pip brought; of the system a C++ compiler is used, for the
library's CPU kernels.
"""

import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

LARGEST_COMMANDS, LARGEST_SECONDS = 30, 300
TOOLKIT = pathlib.Path("/usr/local/cuda")
COMPILERS = ("nvrtc", "ptxas", "nvfatbin", "nvcc", "cuDNN", "Triton")
USE = """
import jax, leafy.jax
x = jax.numpy.arange(-3.0, 4)
assert (jax.jit(jax.grad(lambda x: leafy.jax.squared_relu(x).sum()))(x) == 2 * jax.numpy.maximum(x, 0)).all(), "a wrong gradient"
"""
USE_TORCH = """
import sys
sys.path.append(%r)
import torch, leafy.pytorch
x = torch.arange(-3.0, 4, requires_grad=True)
leafy.pytorch.squared_relu(x).sum().backward()
assert torch.equal(x.grad, 2 * torch.relu(x.detach())), "a wrong gradient"
"""


class Road:
    """A folder, and a shell there in which this machine's toolkit is not to be seen. Counts commands and seconds."""

    def __init__(self, folder):
        self.folder, self.commands, self.seconds = pathlib.Path(folder), 0, 0.0
        kept = {name: value for name, value in os.environ.items() if re.match(r"PIP_|SSL_|REQUESTS_|LANG|https?_proxy|no_proxy", name, re.I)}
        self.environment = dict(kept, HOME=str(self.folder / "home"), PATH="/usr/bin:/bin", JAX_PLATFORMS="cpu", PIP_DISABLE_PIP_VERSION_CHECK="1")
        (self.folder / "home").mkdir()
        hide = ["unshare", "--mount", "bash", "-euc", f'mount -t tmpfs none {TOOLKIT}; exec "$@"', "-"]
        allowed = not TOOLKIT.exists() or subprocess.run([*hide, "true"], capture_output=True).returncode == 0
        if not allowed:
            print(f"this machine does not let {TOOLKIT} be hidden: compilers may be found there")
        self.hidden = hide if TOOLKIT.exists() and allowed else []

    def __call__(self, line, place=".", code=(0,), hidden=True):
        """Runs one command as typed and returns what it printed. hidden: the toolkit is."""
        start = time.monotonic()
        words = [*(self.hidden if hidden else ()), "bash", "-euc", line]
        done = subprocess.run(words, cwd=self.folder / place, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        self.commands, self.seconds = self.commands + 1, self.seconds + time.monotonic() - start
        print(f"  {time.monotonic() - start:6.1f} s  {line[:110]}", flush=True)
        if done.returncode not in code:
            sys.exit(f"wheel: {line}\n{done.stdout}wheel: the command above ended with {done.returncode}")
        return done.stdout


def check_compilers(said, environment):
    """Every compiler works, and is the environment's own."""
    findings = {one["part"]: one for one in json.loads(said)["findings"]}
    for name in COMPILERS:
        found = [one for part, one in findings.items() if part.startswith(name)]
        if not found or not all(one["found"] and one["where"].startswith(str(environment)) for one in found):
            sys.exit(f"wheel: {name} of kbundle[build] does not work: {json.dumps(found, indent=1)}")
        print(f"            {name}: {', '.join(one['version'] for one in found)}")


def first_library(road, wheels, python):
    """From nothing to a wheel of an own library; its path."""
    links = f"--find-links {shlex.quote(str(pathlib.Path(wheels[0]).parent))}"
    author = road.folder / "author"
    road(f"{python} -m venv author")
    road(f'author/bin/pip install --quiet {links} "kbundle[build,jax]" kbundle-kernels pytest')
    road.environment["PATH"] = f"{author}/bin:/usr/bin:/bin"
    road("kbundle new leafy")
    check_compilers(road("kbundle doctor --json", code=(0, 1)), author)
    library = road.folder / "leafy"
    for line in re.search(r"```sh\n(.*?)```", (library / "README.md").read_text(), re.S)[1].splitlines():
        road(line.split("  #")[0], "leafy")
    made, = (library / "dist").glob("leafy-*.whl")
    return made


def call_from_torch(road):
    """PyTorch is too large to be installed here again: it is this Python's, which links libraries of the toolkit."""
    found = importlib.util.find_spec("torch")
    if found is None:
        print("            not called from PyTorch, which this Python has not: scripts/setup --torch")
        return
    program = USE_TORCH % str(pathlib.Path(found.origin).parents[1])
    road(f"PATH=/nonexistent exec {road.folder}/user/bin/python -c {shlex.quote(program)}", hidden=False)


def go(python, wheels):
    python = pathlib.Path(os.path.realpath(python))
    with tempfile.TemporaryDirectory(prefix="kbundle-author-") as folder:
        road = Road(folder)
        made = first_library(road, wheels, python)
        links = f"--find-links {shlex.quote(str(pathlib.Path(wheels[0]).parent))}"
        road.environment["PATH"] = "/usr/bin:/bin"
        road(f"{python} -m venv user")
        road(f"user/bin/pip install --quiet {links} '{made}[jax]'")
        shutil.rmtree(road.folder / "leafy")
        road(f"PATH=/nonexistent exec {road.folder}/user/bin/python -c {shlex.quote(USE)}")
        call_from_torch(road)
        print(f"a new author: {road.commands} commands, {road.seconds:.0f} s")
        if road.commands > LARGEST_COMMANDS or road.seconds > LARGEST_SECONDS:
            sys.exit(f"wheel: that is more than {LARGEST_COMMANDS} commands or {LARGEST_SECONDS} s")
