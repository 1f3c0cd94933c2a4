"""What a matrix product costs besides its device time: the host's time of a launch against cublasLtMatmul itself with the same
descriptors and algorithm, and the time until a first product is there, in fresh processes, against cuBLASLt's own first use and
against what JAX takes to compile the same.
"""

import ctypes
import functools
import subprocess
import time

import numpy as np

import launch_cost
from launch_cost import cell
from report import Report
from runtime import first_use

ROOT = launch_cost.ROOT
BUNDLE = str(ROOT / "build/kernels.kb")
FIRST = (4096, 4096, 4096)  # m, n, k of matmul + bias + gelu, bf16
SHAPES = [((512, 512, 512), False), ((512, 512, 512), True), ((1, 4096, 4096), False), (FIRST, True)]  # and whether bias and gelu
BEYOND_US, BEYOND_MS = 0.3, 10.0
# Numbers of cublasLt.h.
COMPUTE_32F, R_32F, R_16BF, DESC_EPILOGUE, DESC_BIAS, GELU_BIAS = 68, 0, 14, 7, 8, 36


def problem_of(shape, gelu):
    from conformance import capi
    m, n, k = shape
    operands = [("bf16", (m, k)), ("bf16", (k, n)), None, ("bf16", (n,)) if gelu else None, None, None, None, None]
    return capi.Problem("matmul.matmul", operands, {"epilogue": "gelu" if gelu else "none", "out_dtype": "bf16"})


class Direct:
    """One product by cuBLASLt alone: our b and a are its A and B (kernels/matmul/README.md)."""

    def __init__(self, lt, handle, shape, addresses, workspace, gelu):
        m, n, k = shape
        self.lt, self.handle, self.workspace, self.addresses = lt, handle, workspace, addresses
        self.desc = (ctypes.c_uint64 * 32)()
        self.check("cublasLtMatmulDescInit_internal", self.desc, ctypes.sizeof(self.desc), COMPUTE_32F, R_32F)
        if gelu:
            self.check("cublasLtMatmulDescSetAttribute", self.desc, DESC_EPILOGUE, ctypes.byref(ctypes.c_uint32(GELU_BIAS)), ctypes.c_size_t(4))
            self.check("cublasLtMatmulDescSetAttribute", self.desc, DESC_BIAS, ctypes.byref(ctypes.c_void_p(addresses["bias"])), ctypes.c_size_t(8))
        self.layouts = {name: self.layout(rows, columns) for name, rows, columns in (("b", k, n), ("a", m, k), ("d", m, n))}

    def check(self, name, *arguments):
        status = getattr(self.lt, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {status}")

    def layout(self, rows, columns):
        made = (ctypes.c_uint64 * 8)()
        self.check("cublasLtMatrixLayoutInit_internal", made, ctypes.c_size_t(ctypes.sizeof(made)), R_16BF, ctypes.c_uint64(columns),
                   ctypes.c_uint64(rows), ctypes.c_int64(columns))
        return made

    def heuristic(self, limit=32 << 20):
        """The heuristic's first algorithm."""
        preference, found, count = (ctypes.c_uint64 * 8)(), (ctypes.c_uint64 * 16)(), ctypes.c_int()
        self.check("cublasLtMatmulPreferenceInit_internal", preference, ctypes.c_size_t(ctypes.sizeof(preference)))
        self.check("cublasLtMatmulPreferenceSetAttribute", preference, 1, ctypes.byref(ctypes.c_size_t(limit)), ctypes.c_size_t(8))
        b, a, d = (self.layouts[name] for name in "bad")
        self.check("cublasLtMatmulAlgoGetHeuristic", self.handle, self.desc, b, a, d, d, preference, 1, found, ctypes.byref(count))
        return bytes(found)[:64]

    def prepare(self, algorithm):
        """Checks the algorithm and keeps the arguments of the call."""
        self.algorithm, found = ctypes.create_string_buffer(algorithm, 64), (ctypes.c_uint64 * 16)()
        b, a, d = (self.layouts[name] for name in "bad")
        self.check("cublasLtMatmulAlgoCheck", self.handle, self.desc, b, a, d, d, self.algorithm, found)
        self.alpha, self.beta = ctypes.c_float(1), ctypes.c_float(0)
        self.workspace_bytes = found[8]

    def cells(self, stream):
        where = lambda x: cell(ctypes.addressof(x))
        b, a, d = (where(self.layouts[name]) for name in "bad")
        at = {name: cell(address) for name, address in self.addresses.items()}
        return [cell(self.handle.value), where(self.desc), where(self.alpha), at["b"], b, at["a"], a, where(self.beta), at["d"], d, at["d"], d,
                where(self.algorithm), cell(self.workspace), cell(self.workspace_bytes), cell(stream.value)]

    def calls(self, stream):
        made = launch_cost.sequence([(self.lt.cublasLtMatmul, self.cells(stream), True)])
        made.also = self
        return made

    def enqueue(self, stream):
        arguments = [ctypes.c_int64(c.value) for c in self.cells(stream)]
        status = self.lt.cublasLtMatmul(*arguments)
        if status:
            raise RuntimeError(f"cublasLtMatmul: {status}")


def handle_of(lt):
    lt.cublasLtGetVersion.restype = ctypes.c_size_t
    handle = ctypes.c_void_p()
    if status := lt.cublasLtCreate(ctypes.byref(handle)):
        raise RuntimeError(f"cublasLtCreate: {status}")
    return handle


def algorithm_of(variant, direct):
    """The 64 bytes that the bundle holds for a variant, behind cuBLAS's version; of one that asks the heuristic the heuristic's first."""
    found = subprocess.run([str(ROOT / "build/release/kbundle"), "extract", BUNDLE, variant, "-o", "-"], capture_output=True)
    if b"there is no code object" in found.stderr:
        return direct.heuristic()
    if found.returncode or len(found.stdout) != 112:
        raise RuntimeError(f"kbundle extract gave {len(found.stdout)} bytes: {found.stderr.decode()[-300:]}")
    return found.stdout[8:72]


def buffers(cuda, shape):
    """Addresses of random operands and of a result."""
    from conformance import devices
    m, n, k = shape
    rng, made = np.random.default_rng(0), {}
    for name, dims in (("a", (m, k)), ("b", (k, n)), ("bias", (n,)), ("d", (m, n))):
        made[name] = devices.Buffer(cuda, "bf16", dims).put(rng.standard_normal(dims, np.float32))
    return {name: buffer.address for name, buffer in made.items()}


def host_cost(report):
    from conformance import capi, devices
    cuda, lt = devices.Cuda(), launch_cost.library("libcublasLt.so.13")
    bundle, handle, rows = capi.Bundle(BUNDLE), handle_of(lt), []
    workspace = cuda.allocate(64 << 20)
    for shape, gelu in SHAPES:
        addresses = buffers(cuda, shape)
        plan = capi.Plan(bundle, problem_of(shape, gelu), capi.CUDA, alignment=16)
        ours = launch_cost.plan_launch(plan, [addresses["a"], addresses["b"], None, addresses["bias"] if gelu else None, *[None] * 4],
                                       [addresses["d"], None, None, None], workspace, cuda.stream)
        direct = Direct(lt, handle, shape, addresses, workspace, gelu)
        direct.prepare(algorithm_of(plan.variant, direct))
        (mine, theirs), (beyond, _) = launch_cost.costs_us([ours, direct.calls(cuda.stream)], cuda.synchronize)
        label = f"{'x'.join(map(str, shape))}{' + bias + gelu' if gelu else ''}"
        report.bar(f"{label}: host time of a launch beyond cublasLtMatmul's", beyond, BEYOND_US, "us")
        rows.append([label, f"{mine:.2f}", f"{theirs:.2f}", f"{beyond:.2f}"])
    report.table("Host microseconds of a launch", ["product", "kbundle", "cublasLtMatmul", "beyond"], rows)


# ---- Fresh processes: what each yields is (name, seconds) ----

def started():
    """A context, the library loaded as a framework would have, operands, and a clock that begins after all that."""
    from conformance import devices
    cuda = devices.Cuda()
    lt = launch_cost.library("libcublasLt.so.13")
    addresses, workspace = buffers(cuda, FIRST), cuda.allocate(64 << 20)
    cuda.synchronize()
    return cuda, lt, addresses, workspace


def by_cublaslt():
    cuda, lt, addresses, workspace = started()
    start = time.perf_counter()
    handle = handle_of(lt)
    yield "handle", time.perf_counter() - start
    direct = Direct(lt, handle, FIRST, addresses, workspace, True)
    algorithm = direct.heuristic()
    yield "heuristic", time.perf_counter() - start
    direct.prepare(algorithm)
    yield "algorithm checked", time.perf_counter() - start
    direct.enqueue(cuda.stream)
    yield "enqueued", time.perf_counter() - start
    cuda.synchronize()
    yield "done", time.perf_counter() - start


def by_kbundle():
    from conformance import capi
    cuda, _, addresses, workspace = started()
    start = time.perf_counter()
    bundle = capi.Bundle(BUNDLE)
    yield "opened", time.perf_counter() - start
    plan = capi.Plan(bundle, problem_of(FIRST, True), capi.CUDA, alignment=16)
    yield "plan", time.perf_counter() - start
    plan.launch([addresses["a"], addresses["b"], None, addresses["bias"], *[None] * 4], [addresses["d"], None, None, None], workspace, cuda.stream)
    yield "enqueued", time.perf_counter() - start
    cuda.synchronize()
    yield "done", time.perf_counter() - start
    before = time.perf_counter()
    capi.Plan(bundle, problem_of((512, 512, 512), False), capi.CUDA, alignment=16)
    yield "another plan", time.perf_counter() - before


def compiled(function):
    import jax
    import jax.numpy as jnp
    m, n, k = FIRST
    arrays = [jnp.ones(dims, jnp.bfloat16) for dims in ((m, k), (k, n), (n,))]
    jax.block_until_ready(arrays)
    start = time.perf_counter()
    program = jax.jit(function).lower(*arrays).compile()
    yield "compiled", time.perf_counter() - start
    jax.block_until_ready(program(*arrays))
    yield "done", time.perf_counter() - start


def by_jax():
    import jax
    import jax.numpy as jnp
    yield from compiled(lambda a, b, bias: jax.nn.gelu(jnp.matmul(a, b) + bias))


def by_kbj():
    import kbundle
    import kbundle.jax as kbj
    kbundle.use(BUNDLE)
    yield from compiled(functools.partial(kbj.dense, activation="gelu"))


SCENARIOS = {"cuBLASLt alone": "by_cublaslt", "kbundle": "by_kbundle", "jax.jit": "by_jax", "kbj.dense in jax.jit": "by_kbj"}


def ready(report):
    found = {name: first_use.medians(scenario, report, __file__) for name, scenario in SCENARIOS.items()}
    for name, times in found.items():
        report.fact(f"{name}, ms from a context (JAX: from arrays on the device)", {k: round(v, 2) for k, v in times.items()})
    alone, ours, by_jit, by_dense = found.values()
    if alone and ours:
        report.bar("matmul + bias + gelu, open to first result, beyond cuBLASLt's own first use", ours["done"] - alone["done"], BEYOND_MS, "ms")
    if by_jit and by_dense:
        report.bar("kbj.dense, compiled and run, of jax.jit's time", by_dense["done"] / by_jit["done"], 1.0)


def main():
    import peers
    if first_use.ran_scenario(globals()):
        return
    report = Report("matmul_costs")

    def section():
        ready(report)
        host_cost(report)

    peers.finish(report, section)


if __name__ == "__main__":
    main()
