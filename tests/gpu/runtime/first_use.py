"""First use in fresh processes: what kbundle adds between a started JAX and a first result.

Every figure is the median over fresh processes. "first call" is the first call of one jitted function
until its result is ready, on a device array that exists, in a process whose JAX has its backend.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = str(ROOT / "build/kernels.kb")
PROCESSES = 3
SHAPE = (4096, 4096)


def started_jax():
    import jax
    import jax.numpy as jnp
    import numpy as np
    x = jnp.asarray(np.random.default_rng(0).standard_normal(SHAPE), jnp.bfloat16)
    jax.block_until_ready(x)
    return jax, x


def first_call(jax, function, x):
    start = time.perf_counter()
    jax.block_until_ready(jax.jit(function)(x))
    return time.perf_counter() - start


def plus_one():
    jax, x = started_jax()
    yield "first call", first_call(jax, lambda a: a + 1, x)


def plain_softmax():
    jax, x = started_jax()
    yield "first call", first_call(jax, lambda a: jax.nn.softmax(a * 0.125, axis=-1), x)


def ours():
    jax, x = started_jax()
    start = time.perf_counter()
    import kbundle
    import kbundle.jax as kbj
    imported = time.perf_counter()
    bundle = kbundle.open(BUNDLE)
    opened = time.perf_counter()
    yield "import kbundle.jax", imported - start
    yield "kbundle.open", opened - imported
    call = first_call(jax, lambda a: kbj.call(bundle, "softmax.scaled_forward", a, scale=0.125), x)
    yield "first call", call
    yield "open and first call", opened - imported + call


# Problems that no manifest lists, one of our own kernels and one of FlashAttention-4's.
PROBLEMS = {"softmax": ("softmax.scaled_forward", [("bf16", SHAPE)], {"scale": 0.125}),
            "attention": ("attention.sdpa_forward", [("bf16", (3, 1290, 12, 128))] * 3 + [None] * 4, {"scale": 0.09, "mask": "causal"})}


def own_share(name="softmax"):
    """Open, select, load and make ready what a call under XLA needs (it promises aligned addresses),
    through the C ABI with a context that exists."""
    from conformance import capi, devices
    devices.Cuda()
    problem = capi.Problem(*PROBLEMS[name])
    _ = problem.spec  # structs of ctypes, types of arrays among them: what the test needs to ask, and XLA's handler has no part in
    start = time.perf_counter()
    bundle = capi.Bundle(BUNDLE)
    yield "open", time.perf_counter() - start
    bundle.infer(problem, capi.CUDA)
    yield "open and shapes of results", time.perf_counter() - start
    capi.Plan(bundle, problem, capi.CUDA, alignment=16)
    yield "open to ready", time.perf_counter() - start


def own_share_of_attention():
    return own_share("attention")


def drivers_load(name="softmax"):
    """What the driver takes for the same code object by itself, the first in a process, by the calls that the loader makes."""
    import ctypes
    from conformance import capi, devices
    cuda, problem, bundle = devices.Cuda(), capi.Problem(*PROBLEMS[name]), capi.Bundle(BUNDLE)
    chosen = bundle.explain(problem, capi.CUDA)["chosen"]
    code = ctypes.create_string_buffer(subprocess.run(
        [ROOT / "build/release/kbundle", "extract", BUNDLE, chosen, "-o", "-", "--quiet"], capture_output=True, check=True).stdout)
    library, kernel, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    start = time.perf_counter()
    cuda.call("cuLibraryLoadData", ctypes.byref(library), code, None, None, 0, None, None, 0)
    cuda.call("cuLibraryEnumerateKernels", ctypes.byref(kernel), 1, library)
    cuda.call("cuKernelGetFunction", ctypes.byref(function), kernel)
    cuda.call("cuFuncLoad", function)
    yield "load", time.perf_counter() - start


def drivers_load_of_attention():
    return drivers_load("attention")


def medians(scenario, report, script=__file__):
    runs = []
    for _ in range(PROCESSES):
        child = subprocess.run([sys.executable, script, scenario], capture_output=True, text=True, timeout=90)
        if not report.bars and child.returncode:
            print(child.stderr[-500:])
        lines = [line.split("\t")[1:] for line in child.stdout.splitlines() if line.startswith("TIME\t")]
        if child.returncode or not lines:
            report.hold(f"{scenario} ran", False, child.stderr.strip()[-300:])
            return {}
        runs.append({name: float(seconds) * 1e3 for name, seconds in lines})
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def triton(report):
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, TRITON_CACHE_DIR=cache)
        for name in ("cold", "warm"):
            child = subprocess.run([sys.executable, str(ROOT / "tests/gpu/triton_softmax.py")], env=env,
                                   capture_output=True, text=True)
            found = [line.split()[1] for line in child.stdout.splitlines() if line.startswith("SECONDS")]
            report.fact(f"Triton, 5 configurations, {name} cache, first call, ms",
                        round(float(found[0]) * 1e3, 1) if found else child.stderr.strip()[-200:])


def ran_scenario(scenarios):
    """Runs the scenario that the command line names and says its times, for medians(); False where it names none."""
    if len(sys.argv) < 2:
        return False
    for name, seconds in scenarios[sys.argv[1]]():
        print(f"TIME\t{name}\t{seconds}", flush=True)
    return True


def main():
    if ran_scenario(globals()):
        return
    report = Report("first_use")
    mine = medians("ours", report)
    control, jax_softmax = medians("plus_one", report), medians("plain_softmax", report)
    for name in ("", "_of_attention"):
        share, driver = medians("own_share" + name, report), medians("drivers_load" + name, report)
        if share and driver:
            what = name.replace("_", " ") or " of softmax"
            report.bar(f"kbundle's own share{what}, open to ready, beyond the driver's load", share["open to ready"] - driver["load"], 1.0, "ms")
            report.fact(f"own share{what}, ms", {**{k: round(v, 2) for k, v in share.items()}, "driver's load": round(driver["load"], 2)})
    if mine and control and jax_softmax:
        report.bar("import kbundle.jax beyond jax", mine["import kbundle.jax"], 30.0, "ms")
        report.bar("open and first call beyond jit(x + 1)'s first call",
                   mine["open and first call"] - control["first call"], 10.0, "ms")
        for name, found in {"kbundle": mine, "jit(x + 1)": control, "jax.jit softmax": jax_softmax}.items():
            report.fact(f"{name}, first call, ms", round(found["first call"], 2))
    triton(report)
    report.finish()


if __name__ == "__main__":
    main()
