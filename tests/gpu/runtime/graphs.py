"""Graph safety: captured straight after prepare as the very first use, and under XLA's command buffers
in every mode. Each scenario is a fresh process, so that nothing is warm.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "build/kernels.kb"
# name: (function, XLA_FLAGS)
SCENARIOS = {
    "first use inside a capture": ("first_use_captured", ""),
    "error inside a capture leaves stream and process usable": ("error_captured", ""),
    "XLA, as it comes": ("xla_runs", ""),
    "XLA, command buffers of one call": ("xla_runs", "--xla_gpu_graph_min_graph_size=1"),
    "XLA, no command buffers": ("xla_runs", "--xla_gpu_enable_command_buffer="),
    "XLA, buffers that move": ("xla_moved", "--xla_gpu_graph_min_graph_size=1"),
    "XLA, a second executable": ("xla_second", "--xla_gpu_graph_min_graph_size=1"),
    "XLA, profiler on": ("xla_profiled", "--xla_gpu_graph_min_graph_size=1"),
    "XLA, an error from the handler": ("xla_error", "--xla_gpu_graph_min_graph_size=1"),
    "attention and matmul: first use inside a capture, replays, moved buffers": ("graph_ops.replayed", ""),
    "attention and matmul: 4 threads with 4 streams each on the same plans": ("graph_ops.at_once", ""),
    "attention: a dropout state written between replays": ("graph_ops.dropout_state_written", ""),
    "XLA, attention and dense with gradients, as it comes": ("graph_ops.xla", ""),
    "XLA, attention and dense with gradients, command buffers": ("graph_ops.xla", "--xla_gpu_graph_min_graph_size=1"),
    "XLA, attention and dense with gradients, no command buffers": ("graph_ops.xla", "--xla_gpu_enable_command_buffer="),
}


class Ready:
    """An op on one of its small problems through the C ABI: plan, filled buffers, workspace, what is wanted."""

    def __init__(self, conformance, op):
        from conformance import capi, runner
        cuda = conformance.device
        types = next(variant["types"] for variant, why in conformance.variants(op) if why is None)
        legal = conformance.legal(op, types)
        for place in sorted(range(len(legal)), key=lambda i: abs(i - len(legal) // 2)):
            problem, inferred = legal[place]
            try:
                self.plan = capi.Plan(conformance.bundle, problem, capi.CUDA)
                break
            except capi.KbError:  # a library may take no problem that is as small or as odd
                continue
        else:
            raise LookupError(f"{op['name']}: no small problem has a plan")
        arrays, self.wanted = conformance.data(op, problem)
        self.name = str(problem)
        self.workspace = cuda.allocate(max(1, self.plan.workspace_bytes))
        self.buffers = runner.Launch(cuda, op, problem, inferred, arrays, offset=0)
        self.buffers.fill()
        self.conformance, self.op = conformance, op

    def launch(self, operands=None):
        own, results = self.buffers.addresses()
        self.plan.launch(operands or own, results, self.workspace, self.conformance.device.stream)

    def check(self):
        from conformance import runner
        outcome = runner.Outcome(self.name)
        self.conformance.judge(outcome, self.op, self.name, self.buffers.read(), self.wanted)
        assert not outcome.failures, outcome.reason()


def capi_ops():
    """The device, and every op of the bundle, each ready to launch."""
    from conformance import devices
    import flash
    import launch_cost
    cuda = devices.Cuda()
    launch_cost.frameworks_libraries()
    conformance, ready = flash.Conformance(BUNDLE, cuda, [ROOT / "kernels"]), []
    for op in conformance.ops():
        try:
            ready.append(Ready(conformance, op))
        except (LookupError, StopIteration) as error:  # an op that only a library's plans compute: graph_ops.py has some
            print(f"{op['name']} is left out: {error}")
    assert len(ready) > 8, "hardly any op is ready"
    return cuda, ready


def first_use_captured():
    cuda, ops = capi_ops()
    for ready in ops:
        cuda.synchronize()
        graph = cuda.capture(ready.launch)
        cuda.launch_graph(graph)
        cuda.synchronize()
        ready.check()


def error_captured():
    from conformance import capi
    cuda, ops = capi_ops()
    for ready in ops:
        operands, _ = ready.buffers.addresses()
        cuda.synchronize()
        for bad in ([None, *operands[1:]], [operands[0] + 1, *operands[1:]]):
            if operands[0] is None or bad[0] and ready.buffers.arrays[0].itemsize == 1:
                continue  # an address of bytes is never odd
            try:
                cuda.capture(lambda: ready.launch(bad))
            except capi.KbError as error:
                assert str(error)
                continue
            raise AssertionError(f"{ready.name}: operand address {bad[0]} was accepted")
        graph = cuda.capture(ready.launch)
        for launch in (lambda: cuda.launch_graph(graph), ready.launch):
            ready.buffers.fill()  # an op in place has overwritten its operands
            launch()
            cuda.synchronize()
            ready.check()


def xla_program(shape):
    """Eight calls of forward ops in one program, and the same in float64."""
    import jax
    import kbundle
    import kbundle.jax as kbj
    bundle = kbundle.open(str(BUNDLE))
    ops = ["softmax.scaled_forward", "softmax.scaled_causal_forward"] * 4

    @jax.jit
    def program(x):
        for op in ops:
            x = kbj.call(bundle, op, x * 3 + 1, scale=2.0)
        return x

    def wanted(x):
        from conformance import runner
        reference = runner.load_reference("softmax", [ROOT / "kernels"])
        x = np.asarray(x, np.float64)
        for op in ops:
            x = getattr(reference, op.split(".")[1])(x * 3 + 1, scale=2.0)
        return x

    return program, wanted


def check_close(found, wanted):
    error = float(np.max(np.abs(np.asarray(found, np.float64) - wanted)))
    assert error < 1e-4, f"off by {error:.3g}"


def some(shape, seed):
    import jax.numpy as jnp
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def xla_runs():
    program, wanted = xla_program((2, 3, 64, 64))
    for seed in range(6):
        x = some((2, 3, 64, 64), seed)
        check_close(program(x), wanted(x))


def xla_moved():
    program, wanted = xla_program((2, 3, 64, 64))
    kept = []
    for seed in range(8):
        kept.append(some((2, 3, 64, 64), seed))
        kept.append(program(kept[-1]))
        kept.append(some((seed + 1, 1000), seed))
        check_close(kept[-2], wanted(kept[-3]))


def xla_second():
    first, wanted = xla_program((2, 3, 64, 64))
    second, _ = xla_program((2, 3, 64, 64))
    for seed in range(4):
        for shape in ((2, 3, 64, 64), (1, 5, 100, 100)):
            x = some(shape, seed)
            check_close(first(x), wanted(x))
            check_close(second(x), wanted(x))


def xla_profiled():
    import jax
    program, wanted = xla_program((2, 3, 64, 64))
    x = some((2, 3, 64, 64), 0)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(4):
                check_close(program(x), wanted(x))
    check_close(program(x), wanted(x))


def xla_error():
    """A call that can never be planned (every variant denied) fails with a sentence; others go on."""
    import jax
    import kbundle
    import kbundle.jax as kbj
    bundle = kbundle.open(str(BUNDLE))
    program, wanted = xla_program((2, 3, 64, 64))
    x = some((2, 3, 64, 64), 0)
    check_close(program(x), wanted(x))
    op = next(o for o in bundle.ops if o.name == "softmax.scaled_backward")
    for variant in op.variants:
        bundle.deny(variant.id)
    try:
        jax.block_until_ready(jax.jit(lambda a: kbj.call(bundle, op.name, a * 2, a, scale=1.0))(x))
    except Exception as error:
        assert op.name in str(error), f"an error that does not name the op: {error}"
    else:
        raise AssertionError("a call without a legal variant gave no error")
    for _ in range(3):
        check_close(program(x), wanted(x))


def main():
    if len(sys.argv) > 1:
        module, _, function = sys.argv[1].rpartition(".")
        getattr(__import__(module), function)() if module else globals()[function]()
        print("scenario held")
        return
    report = Report("graphs")
    for name, (function, flags) in SCENARIOS.items():
        env = dict(os.environ, XLA_FLAGS=flags)
        try:
            child = subprocess.run([sys.executable, __file__, function], env=env, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            report.hold(name, False, "it took longer than 60 s")
            continue
        last = (child.stderr.strip().splitlines() or ["no output"])[-1]
        report.hold(name, child.returncode == 0 and "scenario held" in child.stdout, f"code {child.returncode}: {last}")
        if function == "graph_ops.replayed":
            report.fact("graphs that moved", [line.split(": ")[1] for line in child.stdout.splitlines() if ": moved by" in line])
    report.finish()


if __name__ == "__main__":
    main()
