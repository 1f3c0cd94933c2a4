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


def own_share():
    """Open, select, load and make ready what a call under XLA needs (it promises aligned addresses),
    through the C ABI with a context that exists."""
    from conformance import capi, devices
    devices.Cuda()
    problem = capi.Problem("softmax.scaled_forward", [("bf16", SHAPE)], {"scale": 0.125})
    start = time.perf_counter()
    bundle = capi.Bundle(BUNDLE)
    opened = time.perf_counter()
    capi.Plan(bundle, problem, capi.CUDA, alignment=16)
    yield "open", opened - start
    yield "open to ready", time.perf_counter() - start


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
    share, mine = medians("own_share", report), medians("ours", report)
    control, jax_softmax = medians("plus_one", report), medians("plain_softmax", report)
    if share and mine and control and jax_softmax:
        report.bar("kbundle's own share, open to ready", share["open to ready"], 1.0, "ms")
        report.bar("import kbundle.jax beyond jax", mine["import kbundle.jax"], 30.0, "ms")
        report.bar("open and first call beyond jit(x + 1)'s first call",
                   mine["open and first call"] - control["first call"], 10.0, "ms")
        for name, found in {"kbundle": mine, "jit(x + 1)": control, "jax.jit softmax": jax_softmax}.items():
            report.fact(f"{name}, first call, ms", round(found["first call"], 2))
    triton(report)
    report.finish()


if __name__ == "__main__":
    main()
