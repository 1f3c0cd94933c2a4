"""What XLA's calls of prepare and initialize cost in a run whose plan is there, for a call of each family: the handlers as XLA has
them, called again and again from C with the frames that XLA gives (launch_cost.cc). What XLA's own getters take is in the figures.
"""

import ctypes
import statistics

import launch_cost
import peers
from report import Report

ROOT = launch_cost.ROOT
BUNDLE = str(ROOT / "build/kernels.kb")
STAGES = {"prepare": "kb_xla_prepare_cuda", "initialize": "kb_xla_initialize_cuda"}
ROUNDS, RUNS = 5000, 5
MOST_NS = 150
Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class Watched:
    """libkbundle.so with handlers that time themselves while `measuring`."""

    def __init__(self, path, stages):
        self.real = ctypes.CDLL(path)
        self.timer = ctypes.CDLL(str(launch_cost.TIMER)).kb_launch_cost
        self.timer.restype = ctypes.c_double
        self.measuring, self.samples = False, {stage: [] for stage in stages}
        self.handlers = {name: self.handler(stage, name) for stage, name in stages.items()}

    def handler(self, stage, name):
        function = getattr(self.real, name)
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

        def call(frame):
            error = function(frame)
            if self.measuring and not error:
                calls = launch_cost.sequence([(function, [launch_cost.cell(frame)], False)])
                self.samples[stage].append(self.timer(calls, ctypes.c_int(1), ctypes.c_int(ROUNDS)))
            return error

        return Handler(call)

    def __getattr__(self, name):
        return self.handlers.get(name) or getattr(self.real, name)


def watch(stages=STAGES):
    """Has watched handlers registered with XLA, by the import of kbundle.jax: it must be the first."""
    import kbundle._library as loaded
    watched, plain = Watched(loaded.library_path(), stages), loaded.library
    loaded.library = lambda: watched
    import kbundle.jax  # noqa: F401
    loaded.library = plain
    return watched


def programs():
    """(name, jitted function of one call, arrays)."""
    import jax
    import jax.numpy as jnp
    import kbundle
    import kbundle.jax as kbj
    bundle = kbundle.use(BUNDLE) or kbundle.open(BUNDLE)
    heads = [jnp.ones((8, 512, 16, 64), jnp.float16)] * 3
    yield "softmax", jax.jit(lambda x: kbj.call(bundle, "softmax.scaled_forward", x, scale=0.5)), [jnp.ones((1024, 1024), jnp.bfloat16)]
    yield "attention", jax.jit(lambda q, k, v: kbj.dot_product_attention(q, k, v)), heads
    layer = [jnp.ones(dims, jnp.bfloat16) for dims in ((2048, 1024), (1024, 3072), (3072,))]
    yield "matmul", jax.jit(lambda x, w, b: kbj.dense(x, w, b, "gelu")), layer


def measure(report, watched):
    import jax
    rows = []
    for name, program, arrays in programs():
        for _ in range(3):
            jax.block_until_ready(program(*arrays))
        watched.samples = {stage: [] for stage in watched.samples}
        watched.measuring = True
        for _ in range(RUNS):
            jax.block_until_ready(program(*arrays))
        watched.measuring = False
        if not report.hold(f"{name}: each stage was seen in each run", all(len(s) >= RUNS for s in watched.samples.values()),
                           str({stage: len(s) for stage, s in watched.samples.items()})):
            continue
        assert min(map(min, watched.samples.values())) > 0, "a handler called again gave an error"
        each = [statistics.median(samples) for samples in watched.samples.values()]
        report.bar(f"{name}: prepare + initialize once filled, with XLA's getters", sum(each), MOST_NS, "ns")
        rows.append([name, *(f"{ns:.1f}" for ns in each)])
    report.table("Nanoseconds of a call", ["", *watched.samples], rows)


def main():
    report = Report("stages")
    peers.finish(report, lambda: measure(report, watch()))


if __name__ == "__main__":
    main()
