"""Which driver calls are made after prepare, counted by CUPTI over the whole process.

Through the C ABI, right after the plans are made: launches, memsets and copies, before each launch the question which context is current,
nothing else; the same of a call of cuDNN or cuBLASLt
each, in a process of its own, whose questions to the driver are named, and what cuDNN itself does to its kernels and its handle at each
call (an attribute of a loaded kernel, an event). Under JAX, whose own events and graph updates are in the count too: no load, no
allocation, no waiting.
"""

import ctypes
import glob
import os
import pathlib
import re
import site
import subprocess
import sys

from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
INJECTION = ROOT / "build/release/libkb_cupti.so"
OURS = re.compile(r"cu(LaunchKernel|LaunchKernelEx|Memset\w+Async|Memcpy\w*Async)(_\w+)?$")
QUESTIONS = re.compile(r"cu(\w*Get\w*|StreamIsCapturing\w*|StreamQuery|EventQuery|Occupancy\w*)$")
OF_CUDNN = re.compile(r"cu(KernelSetAttribute|EventRecord)$")  # neither loads, allocates nor waits
FORBIDDEN = re.compile(r"cu(Module|Library|Link|Kernel|Func(Load|Set)|Mem(Alloc|Free|Create|Map)|CtxSynchronize|"
                       r"GraphInstantiate)")


class Counter:
    def __init__(self):
        self.library = ctypes.CDLL(str(INJECTION))
        self.library.kb_cupti_report.restype = ctypes.c_size_t

    def __enter__(self):
        self.library.kb_cupti_count(1)
        return self

    def __exit__(self, *_):
        self.library.kb_cupti_count(0)
        text = ctypes.create_string_buffer(1 << 16)
        self.library.kb_cupti_report(text, ctypes.c_size_t(len(text)))
        self.calls = {line.split()[0]: int(line.split()[1]) for line in text.value.decode().splitlines()}


def capi():
    import graphs
    cuda, ops = graphs.capi_ops()
    cuda.synchronize()
    ops = [ready for ready in ops if "/cudnn[" not in ready.plan.variant and "/cublaslt[" not in ready.plan.variant]
    with Counter() as counter:
        for ready in ops * 20:
            ready.launch()
    cuda.synchronize()
    return counter.calls


def listed(place):
    """The first 20 launches of one of graph_ops.CALLS, of a plan that was just made."""
    import graph_ops
    call = graph_ops.ready(list(graph_ops.CALLS)[int(place)])
    call.plan_now()
    with Counter() as counter:
        for _ in range(20):
            call.launch()
    call.device.synchronize()
    return counter.calls


def jax_calls():
    import jax
    import graphs
    program, _ = graphs.xla_program((2, 3, 64, 64))
    x = graphs.some((2, 3, 64, 64), 0)
    for _ in range(4):
        jax.block_until_ready(program(x))
    with Counter() as counter:
        for _ in range(20):
            jax.block_until_ready(program(x))
    return counter.calls


def cupti_library():
    patterns = [f"{folder}/nvidia/*/lib/libcupti.so.1*" for folder in {*site.getsitepackages(), *sys.path}]
    patterns += ["/usr/local/cuda*/**/libcupti.so.1*"]
    return next((p for pattern in patterns for p in sorted(glob.glob(pattern, recursive=True))), None)


def count_in_child(report, name, flags="", script=__file__):
    env = dict(os.environ, CUDA_INJECTION64_PATH=str(INJECTION), KB_CUPTI=cupti_library() or "", XLA_FLAGS=flags)
    try:
        child = subprocess.run([sys.executable, script, name], env=env, capture_output=True, text=True, timeout=50)
    except subprocess.TimeoutExpired:
        report.hold(f"{name} {flags}".strip(), False, "it took longer than 50 s")
        return {}
    lines = [line.split()[1:] for line in child.stdout.splitlines() if line.startswith("CALL ")]
    if child.returncode or not lines:
        report.hold(f"{name} {flags}".strip(), False, child.stderr.strip()[-300:] or "no driver call was counted")
        return {}
    return {call: int(count) for call, count in lines}


def check_listed(report):
    from graph_ops import CALLS
    for place, title in enumerate(CALLS):
        calls = count_in_child(report, f"listed:{place}")
        if calls:
            own = OF_CUDNN if "cuDNN" in title else QUESTIONS
            wrong = {c: n for c, n in calls.items() if not any(known.match(c) for known in (OURS, QUESTIONS, own))}
            beside = " and cuDNN's own attributes and events" if own is OF_CUDNN else ""
            held = not wrong and any(map(OURS.match, calls))
            report.hold(f"{title}: launches, memsets and copies{beside}, nothing else", held, str(wrong or calls))
            report.fact(f"calls of 20 launches, {title}", calls)


def main():
    if len(sys.argv) > 1:
        name, _, argument = sys.argv[1].partition(":")
        calls = {"capi": capi, "jax": jax_calls, "listed": listed}[name](*filter(None, [argument]))
        for call, count in sorted(calls.items()):
            print(f"CALL {call} {count}")
        return
    report = Report("calls")
    report.fact("libcupti", os.path.basename(cupti_library() or "not found"))
    calls = count_in_child(report, "capi")
    if calls:
        others = {c: n for c, n in calls.items() if not OURS.match(c) and c != "cuCtxGetId"}
        report.hold("after prepare: which context is current, launches, memsets and copies, nothing else", not others, str(others))
        report.fact("calls of 20 launches of each op", calls)
    check_listed(report)
    for flags in ("--xla_gpu_graph_min_graph_size=1", "--xla_gpu_enable_command_buffer="):
        calls = count_in_child(report, "jax", flags)
        if calls:
            wrong = {c: n for c, n in calls.items() if FORBIDDEN.match(c)}
            report.hold(f"JAX, 20 runs of 8 calls, {flags}: no load, no allocation, no waiting", not wrong, str(wrong))
            report.fact(f"calls, {flags}", calls)
    report.finish()


if __name__ == "__main__":
    main()
