"""What an attention op costs besides its device time: the host's time of a launch against cudnnBackendExecute of the same execution
plan with a variant pack that is there already, and the time until plans are ready, in fresh processes, against cuDNN doing the same
with the same plans by its backend functions alone, part by part.
"""

import concurrent.futures
import contextlib
import ctypes
import time

import launch_cost
from cudnn_backend import BUNDLE, Cudnn, Pack, arguments_of, blob_of, direct_calls, touch
from report import Report
from runtime import first_use

FORWARD, BACKWARD = "attention.sdpa_forward", "attention.sdpa_backward"
SHAPE = (4, 2048, 16, 128)
PLANS, THREADS = 16, 8
BEYOND_US, FIRST_MS, ALL_MS = 0.3, 5.0, 8.0


def problems(bundle, op):
    """Listed problems that cuDNN takes: (capi.Problem, operands, id of the variant that a plan gets)."""
    import attention
    from conformance import capi
    for problem, operands, _ in attention.listed(bundle, op, None):
        if operands[0][0] == "f32":
            continue
        chosen = bundle.explain(problem, capi.CUDA)["chosen"]
        if chosen and "/cudnn" in chosen:
            yield problem, operands, chosen


def host_cost(report):
    from conformance import capi, devices
    cuda, bundle, rows = devices.Cuda(), capi.Bundle(BUNDLE), []
    cudnn = Cudnn(driver_version(cuda))
    handle = cudnn.handle()
    cudnn.check("cudnnSetStream", handle, cuda.stream)
    for op in (FORWARD, BACKWARD):
        [description] = bundle.describe(op, whole=False)["ops"]
        lengths = [i for i, operand in enumerate(description["operands"]) if operand["name"].endswith("_lengths")]
        alone = (one for one in problems(bundle, op) if not any(one[1][i] for i in lengths))  # with them a plan has a kernel behind it
        problem, operands, variant = next(alone)  # of any size: a launch's cost is the host's
        inferred = bundle.infer(problem, capi.CUDA)["results"]
        given = [devices.Buffer(cuda, *o) if o else None for o in operands]
        results = [devices.Buffer(cuda, r["dtype"], r["dims"]) if r["present"] else None for r in inferred]
        for buffer in filter(None, given):
            cuda.fill(buffer.address, 0, buffer.size)  # the time is the host's
        names = [o["name"] for o in description["operands"] + description["results"]]
        addresses = {name: b.address for name, b in zip(names, given + results) if b}
        plan = capi.Plan(bundle, problem, capi.CUDA, alignment=16)
        workspace = cuda.allocate(max(256, plan.workspace_bytes))
        at = lambda buffers: [b and b.address for b in buffers]
        ours = launch_cost.plan_launch(plan, at(given), at(results), workspace, cuda.stream)
        blob = blob_of(variant)
        pack = Pack(blob, arguments_of(op), addresses, problem.attributes, workspace)
        direct = direct_calls(cudnn, handle, cudnn.plan(handle, blob), pack)
        medians, (beyond, *_) = launch_cost.costs_us([ours, *direct], cuda.synchronize)
        report.bar(f"{op}: host time of a launch beyond cudnnBackendExecute's", beyond, BEYOND_US, "us")
        rows.append([f"{op} {problem.attributes.get('mask', 'none')} {operands[0][1]}", *(f"{us:.2f}" for us in (*medians, beyond))])
    report.table("Host microseconds of a launch",
                 ["op, mask, q", "kbundle", "cudnnBackendExecute", "with a pack a call", "beyond"], rows)


def driver_version(cuda):
    version = ctypes.c_int()
    cuda.call("cuDriverGetVersion", ctypes.byref(version))
    return version.value


# ---- Fresh processes: what each yields is (name, seconds) ----

def started():
    """A context, the bundle's distinct problems of both ops (forward ones first), cuDNN loaded as a framework would have."""
    from conformance import capi, devices
    cuda = devices.Cuda()
    cudnn = Cudnn(driver_version(cuda))
    bundle = capi.Bundle(BUNDLE)
    return cuda, cudnn, bundle, [p for op in (FORWARD, BACKWARD) for p in problems(bundle, op)]


def by_cudnn():
    """One plan, then others, by cuDNN's backend functions alone."""
    cuda, cudnn, _, every = started()
    blobs = [(problem.op, blob_of(variant)) for problem, _, variant in every[:PLANS + 1]]
    names = {op: arguments_of(op) for op in (FORWARD, BACKWARD)}
    start = time.perf_counter()
    handle = cudnn.handle()
    yield "first handle", time.perf_counter() - start
    op, blob = blobs[0]
    plan = cudnn.plan(handle, blob)
    yield "first handle and plan", time.perf_counter() - start
    touch(cuda, cudnn, handle, plan, blob, names[op])
    yield "first handle, plan and touch", time.perf_counter() - start
    start = time.perf_counter()
    handles = [cudnn.handle() for _ in range(PLANS)]
    yield "16 handles", time.perf_counter() - start
    start = time.perf_counter()
    plans = [cudnn.plan(h, blob) for h, (_, blob) in zip(handles, blobs[1:])]
    yield "16 plans", time.perf_counter() - start
    start = time.perf_counter()
    for h, plan, (op, blob) in zip(handles, plans, blobs[1:]):
        touch(cuda, cudnn, h, plan, blob, names[op])
    yield "16 touches", time.perf_counter() - start


def by_cudnn_threads():
    """The same parts on threads, in a process that has had its first plan."""
    cuda, cudnn, _, every = started()
    blobs = [blob_of(variant) for _, _, variant in every[:PLANS + 1]]
    cudnn.plan(cudnn.handle(), blobs[0])
    with threads(cuda) as pool:
        start = time.perf_counter()
        handles = list(pool.map(lambda _: cudnn.handle(), range(PLANS)))
        yield "16 handles on 8 threads", time.perf_counter() - start
        start = time.perf_counter()
        list(pool.map(lambda pair: cudnn.plan(*pair), zip(handles, blobs[1:])))
        yield "16 plans on 8 threads", time.perf_counter() - start


@contextlib.contextmanager
def threads(cuda):
    """A pool whose threads have the context, all started."""
    import threading
    met = threading.Barrier(THREADS)

    def begin():
        cuda.call("cuCtxSetCurrent", cuda.context)

    with concurrent.futures.ThreadPoolExecutor(THREADS, initializer=begin) as pool:
        list(pool.map(lambda _: met.wait(), range(THREADS)))
        yield pool


def by_kbundle():
    """The first plan, and 16 others one after the other."""
    from conformance import capi
    _, _, _, every = started()
    start = time.perf_counter()
    bundle = capi.Bundle(BUNDLE)
    yield "opened", time.perf_counter() - start
    kept = [capi.Plan(bundle, every[0][0], capi.CUDA, alignment=16)]
    yield "first plan", time.perf_counter() - start
    start = time.perf_counter()
    kept += [capi.Plan(bundle, problem, capi.CUDA, alignment=16) for problem, _, _ in every[1:PLANS + 1]]
    yield "16 plans", time.perf_counter() - start
    start = time.perf_counter()
    kept += [capi.Plan(bundle, problem, capi.CUDA, alignment=16) for problem, _, _ in every[1:PLANS + 1]]
    yield "16 plans that are there", time.perf_counter() - start


def by_kbundle_threads():
    """The first plan, then 16 others on 8 threads."""
    from conformance import capi
    cuda, _, _, every = started()
    bundle = capi.Bundle(BUNDLE)
    kept = [capi.Plan(bundle, every[0][0], capi.CUDA, alignment=16)]
    with threads(cuda) as pool:
        start = time.perf_counter()
        kept += pool.map(lambda p: capi.Plan(bundle, p[0], capi.CUDA, alignment=16), every[1:PLANS + 1])
        yield "16 plans on 8 threads", time.perf_counter() - start


def by_kbundle_at_once():
    """16 plans on 8 threads as the first that the process does with cuDNN."""
    from conformance import capi
    cuda, _, _, every = started()
    with threads(cuda) as pool:
        start = time.perf_counter()
        bundle = capi.Bundle(BUNDLE)
        list(pool.map(lambda p: capi.Plan(bundle, p[0], capi.CUDA, alignment=16), every[1:PLANS + 1]))
        yield "16 first plans on 8 threads", time.perf_counter() - start


def compiled(attention):
    """What a program takes to compile, forward and with gradients."""
    import jax
    import jax.numpy as jnp
    arrays = [jnp.ones(SHAPE, jnp.bfloat16) for _ in range(3)]
    jax.block_until_ready(arrays)
    gradients = jax.grad(lambda *x: attention(*x).astype(jnp.float32).sum(), argnums=(0, 1, 2))
    for name, function in (("forward", attention), ("gradients", gradients)):
        start = time.perf_counter()
        program = jax.jit(function).lower(*arrays).compile()
        yield f"{name} compiled", time.perf_counter() - start
        jax.block_until_ready(program(*arrays))
        yield f"{name} done", time.perf_counter() - start


def by_jax():
    import jax
    yield from compiled(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn"))


def by_kbj():
    import kbundle
    import kbundle.jax as kbj
    kbundle.use(BUNDLE)
    yield from compiled(lambda q, k, v: kbj.dot_product_attention(q, k, v, is_causal=True))


SCENARIOS = ("by_cudnn", "by_cudnn_threads", "by_kbundle", "by_kbundle_threads", "by_kbundle_at_once", "by_jax", "by_kbj")


def ready(report):
    found = {scenario: first_use.medians(scenario, report, __file__) for scenario in SCENARIOS}
    for name, times in found.items():
        report.fact(f"{name}, ms", {k: round(v, 2) for k, v in times.items()})
    alone, ours, on_threads, at_once = (found[s] for s in ("by_cudnn", "by_kbundle", "by_kbundle_threads", "by_kbundle_at_once"))
    if alone and ours:
        report.bar("open to first plan, beyond cuDNN's own first handle, plan and touch", ours["first plan"] - alone["first handle, plan and touch"],
                   FIRST_MS, "ms")
        report.fact("open to first plan, beyond cuDNN's own first handle, ms", round(ours["first plan"] - alone["first handle"], 2))
    if on_threads:
        report.bar("16 distinct plans on 8 threads, behind a first", on_threads["16 plans on 8 threads"], ALL_MS, "ms")
    if at_once and alone:
        report.fact("16 distinct plans on 8 threads as the first, beyond cuDNN's own first handle, plan and touch, ms",
                    round(at_once["16 first plans on 8 threads"] - alone["first handle, plan and touch"], 2))
    if found["by_jax"] and found["by_kbj"]:
        for name in ("forward done", "gradients done"):
            report.bar(f"kbj.dot_product_attention, {name}, of jax.nn's time", found["by_kbj"][name] / found["by_jax"][name], 1.0)


def main():
    import peers
    if first_use.ran_scenario(globals()):
        return
    report = Report("attention_costs")

    def section():
        ready(report)
        host_cost(report)

    peers.finish(report, section)


if __name__ == "__main__":
    main()
