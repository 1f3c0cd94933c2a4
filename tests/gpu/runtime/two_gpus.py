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


def uses(jax, kbj):
    """name: what calls ops of this library, the same in plain JAX, and how far apart they may be by the largest value; x is f32[1, 4, 256, 256]."""
    from sharding.plain import plain_loss, plain_norm
    jnp = jax.numpy
    rows, heads = lambda x: x.reshape(-1, x.shape[-1]), lambda x: x.reshape(1, 256, 4, 256).astype(jnp.bfloat16)
    exact = lambda a, b: jnp.matmul(a, b, precision="highest")
    own = lambda x: kbj.dot_product_attention(heads(x), heads(x), heads(x), is_causal=True)
    plain = lambda x: jax.nn.dot_product_attention(*[heads(x).astype(jnp.float32)] * 3, is_causal=True)
    loss = lambda function: lambda x: jax.grad(lambda x: (function(x).astype(jnp.float32) ** 2).sum())(x)
    labels = jnp.arange(1024, dtype=jnp.int32) % 256
    return {
        "softmax": (lambda x: kbj.scaled_softmax(x, 0.5), lambda x: jax.nn.softmax(0.5 * x), 1e-5),
        "masked softmax": (lambda x: kbj.scaled_masked_softmax(x, (x > 1).astype(jnp.uint8)[:, :1], 0.5),
                           lambda x: jax.nn.softmax(jnp.where((x > 1)[:, :1], -1e4, 0.5 * x)), 1e-5),
        "norm": (lambda x: kbj.rms_norm(x, x[0, 0, 0]), lambda x: plain_norm(x, x[0, 0, 0]), 1e-4),
        "product": (lambda x: kbj.matmul(rows(x), x[0, 0], precision="highest"), lambda x: exact(rows(x), x[0, 0]), 1e-5),
        "product of few rows": (lambda x: kbj.matmul(x[0, 0, :4], x[0, 0], precision="highest"), lambda x: exact(x[0, 0, :4], x[0, 0]), 1e-5),
        "attention": (own, plain, 3e-2),
        "gradient of attention": (loss(own), loss(plain), 3e-2),
        "cross entropy": (loss(lambda x: kbj.cross_entropy(rows(x), labels)), loss(lambda x: plain_loss(rows(x), labels)), 1e-4),
        "quantize": (lambda x: kbj.quantize(rows(x), scale=1.0).data.astype(jnp.float32),
                     lambda x: rows(x).astype(jnp.float8_e4m3fn).astype(jnp.float32), 0),
    }


def joined(jax, function):
    """The function with a collective before and one behind it."""
    def body(x):
        y = function(x + jax.lax.psum(x, "d") * 0.5)
        return (y + jax.lax.psum(y, "d")).reshape(1, -1)
    return body


def turn(names, number, count=4):
    """So many of the names, others in each process, each of them first in one."""
    return [names[(number * count + i) % len(names)] for i in range(count)]


def run_kbundle(number):
    import jax
    import kbundle
    import kbundle.jax as kbj
    kbundle.use(BUNDLE)
    kbundle.allow_formulas(False)  # it is calls that are to wait for their devices
    delay = hold_back(jax, jax.devices()[1])
    known = uses(jax, kbj)
    for seed, name in enumerate(turn(list(known), number)):
        own, plain, most = known[name]
        sharding, program = mesh_program(jax, joined(jax, own))
        on_devices = jax.device_put(np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32), sharding)
        program = program.lower(on_devices).compile()
        busy = delay()
        found = np.asarray(program(on_devices), np.float64)
        wanted = np.asarray(mesh_program(jax, joined(jax, plain))[1](on_devices), np.float64)
        error = float(np.max(np.abs(found - wanted)) / np.max(np.abs(wanted)))
        assert error <= most, f"{name}: off by {error:.3g}"
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


def once(name, env, number=0):
    start = time.monotonic()
    child = subprocess.Popen([sys.executable, __file__, name, str(number)], env=env, stdout=subprocess.PIPE,
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
        run_kbundle(int(sys.argv[2])) if sys.argv[1] == "kbundle" else run_control()
        return
    report = Report("two_gpus")
    env = dict(os.environ, CUDA_MODULE_LOADING="LAZY", NCCL_NVLS_ENABLE="0")
    outcomes = [once("kbundle", env, number) for number in range(PROCESSES)]
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
