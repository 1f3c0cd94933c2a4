"""Nothing leaks: 1,000 executables over 50 shapes made and dropped, 96 equal call sites that share one plan and one code object,
and plans of cuDNN and cuBLASLt made and dropped while the bundle is opened anew (library_leaks.py).
"""

import ctypes
import gc
import pathlib
import subprocess
import sys

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
SHAPES, ROUNDS = 50, 20
SETTLED = 10  # rounds after which memory must not grow any more


def device_bytes_used():
    driver, free, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(), ctypes.c_size_t()
    context, device = ctypes.c_void_p(), ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    driver.cuCtxPushCurrent_v2(context)
    driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    driver.cuDevicePrimaryCtxRelease_v2(device)
    return total.value - free.value


def host_bytes_used():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024


def main():
    import jax
    import jax.numpy as jnp
    import kbundle
    import kbundle.jax as kbj
    report = Report("leaks")
    libraries(report)
    bundle = kbundle.open(str(ROOT / "build/kernels.kb"))
    samples = []
    for round_number in range(ROUNDS):
        for i in range(SHAPES):
            x = jnp.ones((2, 1, 4, 16 + 8 * i), jnp.float32)
            jax.block_until_ready(jax.jit(lambda a: kbj.call(bundle, "softmax.scaled_forward", a, scale=0.5))(x))
        jax.clear_caches()
        gc.collect()
        samples.append((host_bytes_used(), device_bytes_used()))
        print(f"     after {(round_number + 1) * SHAPES} executables: host {samples[-1][0] >> 20} MiB, "
              f"device {samples[-1][1] >> 20} MiB", flush=True)
    executables = (ROUNDS - SETTLED) * SHAPES
    growth = [(samples[-1][i] - samples[SETTLED - 1][i]) for i in (0, 1)]
    report.bar(f"host memory grown over the last {executables} executables", growth[0] / 2**20, 8.0, "MiB")
    report.bar(f"device memory grown over the last {executables} executables", growth[1] / 2**20, 0.0, "MiB")
    share(report, bundle)
    report.finish()


def libraries(report):
    try:
        child = subprocess.run([sys.executable, str(ROOT / "tests/gpu/runtime/library_leaks.py")], capture_output=True, text=True, timeout=60)
        code, out, said = child.returncode, child.stdout, child.stderr.strip()[-400:]
    except subprocess.TimeoutExpired as error:
        code, out, said = "none after 60 s", (error.stdout or b"").decode(), ""
    lines = out.splitlines()
    samples = [[int(word) for word in line.split()[1:]] for line in lines if line.startswith("SAMPLE ")]
    report.hold("plans of libraries could be made and dropped in every round", code == 0, f"code {code}: {said}")
    if len(samples) < 8:
        return
    half, kinds = len(samples) // 2, [line.split("/")[1].split("[")[0] for line in lines if line.startswith("PLAN ")]
    report.fact("plans of a round", {kind: kinds.count(kind) for kind in sorted(set(kinds))})
    report.fact("MiB of host and device after the first, the middle and the last round",
                [[number >> 20 for number in samples[i]] for i in (0, half - 1, -1)])
    name = f"grown over the last {len(samples) - half} rounds of plans, half of them with the bundle opened anew"
    report.bar(f"host memory {name}", (samples[-1][0] - samples[half - 1][0]) / 2**20, 8.0, "MiB")
    report.bar(f"device memory {name}", (samples[-1][1] - samples[half - 1][1]) / 2**20, 0.0, "MiB")


def share(report, bundle):
    import jax
    import jax.numpy as jnp
    import kbundle.jax as kbj
    before = bundle.stats()
    shape = (3, 1, 7, 1504)

    @jax.jit
    def program(x):
        for i in range(96):
            x = kbj.call(bundle, "softmax.scaled_backward", x, x, scale=0.25)
        return x

    jax.block_until_ready(program(jnp.ones(shape, jnp.bfloat16)))
    after = bundle.stats()
    made = after["plans_made"] - before["plans_made"]
    loaded = after["objects_loaded"] - before["objects_loaded"]
    report.bar("plans made for 96 equal call sites", made, 1, "plans")
    report.hold("at least one plan was made", made >= 1)
    report.bar("code objects loaded for 96 equal call sites", loaded, 1, "objects")


if __name__ == "__main__":
    main()
