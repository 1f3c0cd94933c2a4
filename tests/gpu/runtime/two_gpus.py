"""Two GPUs: collectives in flight around each op's first use, one device behind, in fresh processes.

A process that hangs is killed after 60 s and counts as a failure. Beside it runs a control whose
handler loads a code object inside execute.
"""

import os
import pathlib
import subprocess
import sys
import time

import numpy as np

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = str(ROOT / "build/kernels.kb")
PROCESSES = int(os.environ.get("KB_TWO_GPU_PROCESSES", "20"))
CONTROLS = 3
WATCHDOG_SECONDS = 60
SHAPE = (2, 4, 256, 256)


def mesh_program(jax, body):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
    sharding = NamedSharding(mesh, P("d"))
    return sharding, jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False))


def hold_back(jax, device, seconds=0.3):
    """Work on one device that keeps it from reaching the collective for a while."""
    import jax.numpy as jnp
    a = jax.device_put(jnp.ones((4096, 4096), jnp.bfloat16), device)
    square = jax.jit(lambda m: jax.lax.fori_loop(0, 40, lambda _, v: (v @ a) * 1e-4, m))
    jax.block_until_ready(square(a))

    def enqueue():
        end = time.perf_counter() + 0.01
        while time.perf_counter() < end:
            out = square(a)
        return [out] + [square(a) for _ in range(max(0, int(seconds / 0.007)))]
    return enqueue


def kbundle_body(jax, op):
    import jax.numpy as jnp
    import kbundle
    import kbundle.jax as kbj
    bundle = kbundle.open(BUNDLE)

    def body(x):
        x = x + jax.lax.psum(x, "d") * 0.5
        operands = (x,)
        if "masked_forward" in op:
            operands = (x, (x > 1).astype(jnp.uint8)[:, :1])
        elif "backward" in op:
            operands = (x, x)
        y = kbj.call(bundle, op, *operands, scale=0.5)
        return y + jax.lax.psum(y, "d")
    return body


def float64_body(op, x):
    from conformance import runner
    reference = runner.load_reference("softmax", [ROOT / "kernels"])
    parts = np.split(x.astype(np.float64), 2)
    total = sum(parts)
    found = []
    for part in parts:
        part = part + total * 0.5
        operands = (part,)
        if "masked_forward" in op:
            operands = (part, (part > 1)[:, :1])
        elif "backward" in op:
            operands = (part, part)
        found.append(getattr(reference, op.split(".")[1])(*operands, scale=0.5))
    return np.concatenate([f + sum(found) for f in found])


def run_kbundle():
    import jax
    import kbundle
    ops = [op.name for op in kbundle.open(BUNDLE).ops]
    delay = hold_back(jax, jax.devices()[1])
    for seed, op in enumerate(ops):
        sharding, program = mesh_program(jax, kbundle_body(jax, op))
        x = np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)
        on_devices = jax.device_put(x, sharding)
        busy = delay()
        found = np.asarray(program(on_devices), np.float64)
        error = float(np.max(np.abs(found - float64_body(op, x))))
        assert error < 1e-3, f"{op}: off by {error:.3g}"
        jax.block_until_ready(busy)
    print("right")


def run_control():
    import ctypes
    import jax
    library = ctypes.CDLL(str(ROOT / "build/release/libkb_control.so"))
    jax.ffi.register_ffi_target("kb.control", jax.ffi.pycapsule(library.kb_control_execute), platform="CUDA")
    delay = hold_back(jax, jax.devices()[1])

    def body(x):
        x = x + jax.lax.psum(x, "d") * 0.5
        y = jax.ffi.ffi_call("kb.control", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
        return y + jax.lax.psum(y, "d")

    sharding, program = mesh_program(jax, body)
    on_devices = jax.device_put(np.ones(SHAPE, np.float32), sharding)
    busy = delay()
    assert float(np.max(np.asarray(program(on_devices)))) == 6.0
    jax.block_until_ready(busy)
    print("right")


def once(name, env):
    start = time.monotonic()
    child = subprocess.Popen([sys.executable, __file__, name], env=env, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    try:
        out, error = child.communicate(timeout=WATCHDOG_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return "hung", time.monotonic() - start
    if child.returncode == 0 and "right" in out:
        return "right", time.monotonic() - start
    return f"failed: {(error.strip().splitlines() or ['?'])[-1][:200]}", time.monotonic() - start


def main():
    if len(sys.argv) > 1:
        {"kbundle": run_kbundle, "control": run_control}[sys.argv[1]]()
        return
    report = Report("two_gpus")
    env = dict(os.environ, CUDA_MODULE_LOADING="LAZY", NCCL_NVLS_ENABLE="0")
    outcomes = [once("kbundle", env) for _ in range(PROCESSES)]
    report.bar("fresh processes with right results and no hang", sum(o == "right" for o, _ in outcomes), PROCESSES,
               "processes", at_least=True)
    for outcome in sorted({o for o, _ in outcomes} - {"right"}):
        report.fact(f"seen {sum(o == outcome for o, _ in outcomes)} times", outcome)
    report.fact("longest process, s", round(max(s for _, s in outcomes), 1))
    cubin = pathlib.Path(os.environ.get("KB_OUT", "/tmp")) / "control.cubin"
    variant = next(v for v in variants() if v["target"] == "sm_90a")
    subprocess.run([str(ROOT / "build/release/kbundle"), "extract", BUNDLE, variant["id"], "-o", str(cubin)], check=True)
    controls = [once("control", dict(env, KB_CONTROL_CUBIN=str(cubin)))[0] for _ in range(CONTROLS)]
    cubin.unlink()
    report.fact("control that loads inside execute", ", ".join(controls))
    report.finish()


def variants():
    from conformance import capi
    return [v for op in capi.Bundle(BUNDLE).describe()["ops"] for v in op["variants"]]


if __name__ == "__main__":
    main()
