"""The two wheels as a user has them: a new environment, a project with CMake that finds the wheel there, then an op from JAX in a new process
that has no compiler on its PATH, no network, no home, and an environment that it cannot write to. Its system calls are read: nothing is written
outside a temporary folder."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

PROJECT = pathlib.Path(__file__).resolve().parents[1] / "tests/install/project"
NOBODY = 65534
RUNS = 3  # of each process that is timed: the machine's own noise is not the library's
LARGEST_INSTALL_S, LARGEST_IMPORT_MS, LARGEST_FIRST_MS = 60, 30, 20
START = """
import time
start = time.process_time()
import jax
import jax.numpy as jnp
jax.devices()
after_jax = time.process_time()
"""
IMPORT = "import kbundle.jax as kbj\nprint('import', 1e3 * (time.process_time() - after_jax))\n"
FIRST = """
x = jnp.linspace(-3.0, 3.0, 12 * 64, dtype=jnp.float32).reshape(12, 64).block_until_ready()
began = time.perf_counter()
y = jax.jit(lambda x: FUNCTION)(x).block_until_ready()
print('first', 1e3 * (time.perf_counter() - began))
"""
TRIVIAL = START + FIRST.replace("FUNCTION", "x + 1")
USE = START + IMPORT + FIRST.replace("FUNCTION", "kbj.scaled_softmax(x, 0.5)") + """
assert abs(y - jax.nn.softmax(0.5 * x)).max() < 1e-6, "a wrong result"
import os
try:
    open(os.path.join(os.path.dirname(kbj.__file__), "x"), "w")
    raise SystemExit("the environment can be written to")
except OSError:
    pass
"""
CALLS = "execve,open,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,socket"


def without_network():
    """Words before a command that take the network from it; none where this machine does not let us."""
    words = [shutil.which("unshare") or "unshare", "--net"]
    allowed = shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True).returncode == 0
    if not allowed:
        print("this machine does not let a process be cut off from the network: it is not")
    return words if allowed else []


def install(python, folder, wheels):
    """A new environment in the folder: of the network JAX, of this folder the wheels."""
    subprocess.run([str(python), "-m", "venv", str(folder)], check=True)
    own = str(folder / "bin/python")
    version = subprocess.run([str(python), "-c", "import jax; print(jax.__version__)"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"jax=={version}", f"jaxlib=={version}"], check=True)
    subprocess.run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", *map(str, wheels)], check=True)
    return own


class Lonely:
    """A process of that Python with nothing around it."""

    def __init__(self, own, folder):
        self.own, self.folder = own, folder
        (folder / "nothing").mkdir()
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o777)
        become = [shutil.which("setpriv"), "--reuid", str(NOBODY), "--clear-groups"] if os.getuid() == 0 else []
        self.words = [*without_network(), *become, own, "-B", "-I"]
        self.environment = {"PATH": str(folder / "nothing"), "JAX_PLATFORMS": "cpu", "TMPDIR": str(folder / "tmp")}

    def __call__(self, *more, before=()):
        done = subprocess.run([*before, *self.words, *more], env=self.environment, cwd="/", capture_output=True, text=True, timeout=300)
        if done.returncode:
            sys.exit(f"wheel: in a new environment:\n{done.stdout}{done.stderr}")
        return done.stdout

    def milliseconds(self, program):
        """{what: the least of several processes}."""
        runs = [dict(line.split() for line in self("-c", program).splitlines()) for _ in range(RUNS)]
        return {what: min(float(run[what]) for run in runs) for what in runs[0]}

    def trace(self, program):
        """What it called that could change or start something, without what failed: [(name, arguments)]."""
        log = self.folder / "trace"
        self("-c", program, before=[shutil.which("strace"), "-f", "-qq", "-e", f"trace={CALLS}", "-o", str(log)])
        calls = re.findall(r"^\d+ +(\w+)\((.*)\) += (?!-1)", log.read_text(), re.M)
        return [(name, arguments) for name, arguments in calls if name not in ("open", "openat") or re.search(r"O_(WRONLY|RDWR|CREAT)", arguments)]


def check_trace(lonely):
    if not shutil.which("strace"):
        sys.exit("wheel: reading what a process writes needs strace: apt install strace")
    allowed = (rf'"(?:{re.escape(str(lonely.folder))}/tmp|/dev/(?:null|shm|tty)|/proc/self)(?:/|")')
    programs = {word for word in lonely.words if word.startswith("/")}
    for name, arguments in lonely.trace(USE):
        fine = re.search(allowed, arguments)
        if name == "execve":
            fine = arguments.split('"')[1] in programs
        if name == "socket":
            fine = arguments.startswith("AF_UNIX")
        if not fine:
            sys.exit(f"wheel: an op in a new process called {name}({arguments})")
    print("an op in a new process: starts nothing, opens no connection, writes nothing outside its temporary folder")


def check_times(lonely):
    trivial, used = lonely.milliseconds(TRIVIAL), lonely.milliseconds(USE)
    beyond = used["first"] - trivial["first"]
    print(f"import kbundle.jax: {used['import']:.1f} ms beyond jax's; first scaled_softmax under jit: {used['first']:.1f} ms, {beyond:.1f} beyond a "
          f"first x + 1 ({trivial['first']:.1f})")
    if used["import"] > LARGEST_IMPORT_MS or beyond > LARGEST_FIRST_MS:
        sys.exit(f"wheel: that is more than {LARGEST_IMPORT_MS} ms of import or {LARGEST_FIRST_MS} of a first op")


def check_cmake(own, project, folder):
    """A project outside the tree, in C and C++, finds with CMake what the wheel brought, by the path that the wheel's Python says; its bundle is
    built, its programs are linked and run. Returns what find_package found."""
    def run(*words):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300,
                              env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "KBUNDLE_CACHE": str(folder / "cache")})
        if done.returncode:
            sys.exit(f"wheel: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}wheel: the command above ended with {done.returncode}")
        return done.stdout

    where = run(own, "-m", "kbundle", "--cmake-dir").strip()
    build = folder / "outside"
    said = run(shutil.which("cmake"), "-S", project, "-B", build, f"-Dkbundle_DIR={where}")
    run(shutil.which("cmake"), "--build", build)
    bundle, library = build / "twice.kb", pathlib.Path(where).parents[1] / "libkbundle.so.1"
    for program in ("use_c", "use_c_from_cpp"):
        if run(build / program, bundle) != "twice.forward/loop[T=f32]@x86-64-v2 14\n":
            sys.exit(f"wheel: {program}, built against {where}, computes something else")
    if run(build / "use_dlopen", library, bundle) != "verified\n":
        sys.exit(f"wheel: {library} does not verify {bundle}")
    print(f"CMake: a project in C and C++ finds {where}, builds its bundle, links and runs")
    return said


def run_in_a_new_environment(python, wheels):
    with tempfile.TemporaryDirectory(prefix="kbundle-wheel-") as made:
        folder = pathlib.Path(made)
        folder.chmod(0o755)  # for somebody else than root, whom a file's mode does not stop
        start = time.monotonic()
        own = install(python, folder / "env", wheels)
        lonely = Lonely(own, folder)
        lonely("-c", USE.replace("import os\n", "raise SystemExit(0)\n"))
        seconds = time.monotonic() - start
        print(f"from no environment to a first result: {seconds:.0f} s")
        if seconds > LARGEST_INSTALL_S:
            sys.exit(f"wheel: that is more than {LARGEST_INSTALL_S} s")
        subprocess.run([own, "-m", "pip", "check", "--disable-pip-version-check"], check=True, stdout=subprocess.DEVNULL)
        (folder / "cmake").mkdir()
        check_cmake(own, PROJECT, folder / "cmake")
        subprocess.run(["chmod", "-R", "a-w", str(folder / "env")], check=True)
        try:
            print(lonely("-m", "kbundle").strip().replace("\n", "\n    "))
            check_times(lonely)
            check_trace(lonely)
        finally:
            subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
