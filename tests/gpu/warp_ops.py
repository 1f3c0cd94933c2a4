"""Kernels of NVIDIA Warp out of the bundle, from JAX on this GPU: the very test file that runs on the CPU, with results and gradients
equal to Warp's own where Warp is there. Then microseconds of a launch in captured graphs, beside Warp's own in turns.
"""

import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "build/warp.kb"
ROUNDS, LAUNCHES = 15, 20
GRID, PARTICLES = (4096, 4096), 1 << 22


def from_jax(report):
    env = dict(os.environ, KB_WARP_BUNDLE=str(BUNDLE), KB_WARP_DEVICE="cuda:0", JAX_PLATFORMS="cuda", KBUNDLE_PYTHON=sys.executable)
    child = subprocess.run([sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "tests/warp/test_jax.py"],
                           cwd=ROOT, env=env, capture_output=True, text=True)
    print(child.stdout[-3000:])
    report.hold("tests/warp/test_jax.py passes on this GPU", child.returncode == 0 and "passed" in child.stdout,
                child.stdout.strip().splitlines()[-1] if child.stdout.strip() else child.stderr[-300:])


def problems():
    """(op, operands, attributes, bytes that a launch moves)."""
    n, m = GRID
    return [("react", [("f32", GRID)], {"k": 0.2}, 8 * n * m),
            ("react_backward", [("f32", GRID)] * 2, {"k": 0.2}, 12 * n * m),
            ("integrate", [("f32", (PARTICLES, 3)), ("f32", (PARTICLES, 3)), ("f32", (PARTICLES, 4))], {"dt": 0.02}, 64 * PARTICLES),
            ("energy", [("f32", (PARTICLES, 3)), ("f32", (PARTICLES,))], {}, 16 * PARTICLES)]


def warps_own(op, cuda, buffers):
    """A captured graph of Warp's own launches of the same work over the same memory, on the stream that is timed; None without Warp."""
    if importlib.util.find_spec("warp.config") is None:  # tests/warp is a `warp` as well
        return None
    import warp as wp
    sys.path.insert(0, str(ROOT / "tests/warp/library"))
    wp.config.quiet = True
    import kernels
    stream = wp.Stream("cuda:0", cuda_stream=cuda.stream.value)

    def array(number, dims, dtype=float):
        return wp.array(ptr=buffers[number], shape=dims, dtype=dtype, device="cuda:0")
    calls = {
        "react": lambda: (kernels.react, GRID, [array(0, GRID), array(1, GRID), 0.2]),
        "integrate": lambda: (kernels.integrate, PARTICLES, [array(0, PARTICLES, wp.vec3), array(1, PARTICLES, wp.vec3),
                                                             array(2, PARTICLES, wp.quat), 0.02, wp.vec3(0.0, 0.0, -9.81)]),
    }
    if op not in calls:
        return None
    kernel, dim, inputs = calls[op]()
    wp.load_module(kernels, device="cuda:0")
    return cuda.capture(lambda: [wp.launch(kernel, dim, inputs=inputs, device="cuda:0", stream=stream) for _ in range(LAUNCHES)])


def speed(report):
    from conformance import capi, devices
    cuda, bundle, rows = devices.Cuda(), capi.Bundle(BUNDLE), []
    for op, operands, attributes, moved in problems():
        problem = capi.Problem(f"sim.{op}", operands, attributes)
        plan = capi.Plan(bundle, problem, capi.CUDA)
        shapes = bundle.infer(problem, capi.CUDA)["results"]
        in_place = op == "integrate"
        given = [cuda.allocate(4 * size(dims)) for _, dims in operands]
        for address, (_, dims) in zip(given, operands):
            cuda.fill(address, 0, 4 * size(dims))
        made = given[:2] if in_place else [cuda.allocate(4 * size(one["dims"])) for one in shapes]
        workspace = cuda.allocate(max(1, plan.workspace_bytes))
        graphs = {"bundle": cuda.capture(lambda: [plan.launch(given, made, workspace, cuda.stream) for _ in range(LAUNCHES)])}
        own = warps_own(op, cuda, given if in_place else [*given, *made])
        if own:
            graphs["Warp"] = own
        times = {who: [] for who in graphs}
        for graph in graphs.values():
            cuda.graph_us(graph, 2)
        for _ in range(ROUNDS):
            for who, graph in graphs.items():
                times[who].append(cuda.graph_us(graph, 1)[0] / LAUNCHES)
        us = {who: statistics.median(samples) for who, samples in times.items()}
        rows.append([op, f"{us['bundle']:.2f}", f"{us['Warp']:.2f}" if own else "-", f"{moved / us['bundle'] / 1e6:.2f}"])
        if own:
            report.bar(f"{op} against Warp's own launch", us["bundle"], max(us["Warp"] * 1.02, us["Warp"] + 0.3), "us")
    report.table("Microseconds a launch, in a captured graph", ["op", "bundle", "Warp", "TB/s"], rows)


def size(dims):
    count = 1
    for dim in dims:
        count *= dim
    return count


def main():
    report = Report("warp_ops")
    if BUNDLE.exists():
        from_jax(report)
        speed(report)
    else:
        report.hold(f"{BUNDLE.name} is there", False, "build it from tests/warp/library and bring it along")
    report.finish()


if __name__ == "__main__":
    main()
