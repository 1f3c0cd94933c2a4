"""Triton kernels out of the bundle against Triton itself and JAX, in the same run.

First use: a fresh process with a started JAX, the variant forced. Steady state: the bundle's variants and
the same source launched by Triton, in captured graphs over the same tensors, rotated past L2, in turns.
Numbers: every variant at the corners that the softmax ops promise. Under XLA: captured in one graph with
what is around them, by the typed FFI alone.
"""

import itertools
import os
import pathlib
import statistics
import sys
import time

from report import Report
from runtime import calls, first_use

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "build/kernels.kb"
SCALE, ROUNDS = 0.125, 15
TRITONS_WARPS = (1, 2, 4, 8, 16)
IN_GRAPH, GRAPH_SHAPE, RUNS = ["scaled_forward", "scaled_causal_forward"], (2, 3, 512, 512), 20
SHAPES = [  # the first is that of the first use
    ("scaled_forward", "bf16", (4096, 4096)),
    ("scaled_forward", "bf16", (16384, 1024)),
    ("scaled_forward", "f32", (8192, 2048)),
    ("scaled_forward", "bf16", (128, 2048)),
    ("scaled_backward", "bf16", (16384, 4096)),
    ("scaled_backward", "f32", (16384, 1024)),
    ("scaled_causal_forward", "bf16", (16, 2048, 2048)),
    ("scaled_masked_forward", "bf16", (4, 16, 1024, 1024)),
    ("scaled_masked_forward", "f32", (2, 8, 512, 4096)),
]


def candidates(bundle, problem):
    """Ids of the Triton variants that are legal here."""
    from conformance import capi
    found = [c for c in bundle.explain(problem, capi.CUDA)["candidates"] if c["legal"]]
    return [c["id"] for c in found if "/triton_" in c["id"]]


def problem_of(op, dtype, shape):
    from conformance import capi
    operands = [(dtype, shape)] * (2 if "backward" in op else 1)
    if "masked_forward" in op:
        operands.append(("u8", (shape[0], 1, *shape[2:])))
    return capi.Problem(f"softmax.{op}", operands, {"scale": SCALE})


def tensors(problem, sets):
    import torch
    kinds = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}

    def some(dtype, dims):
        if dtype == "u8":
            return (torch.rand(dims, device="cuda") < 0.3).to(torch.uint8)
        return torch.randn(dims, device="cuda", dtype=torch.float32).to(kinds[dtype])

    result = problem.operands[0]
    return [([some(*o) for o in problem.operands], some(*result)) for _ in range(sets)]


def launch_by_triton(kernel, problem, operands, result, **options):
    """As anybody would call the kernel; options are a configuration."""
    dims = problem.operands[0][1]
    columns = dims[-1]
    constants = {"BLOCK": max(1024, 1 << (columns - 1).bit_length())}
    if "backward" not in problem.op:
        constants["SHIFT"] = 64 if problem.operands[0][0] == "bf16" else 0
    grid, strides = (result.numel() // columns,), ()
    if "masked_forward" in problem.op:
        grid, strides = (dims[2], dims[1], dims[0]), (dims[2], 0)
    kernel[grid](result, *operands, SCALE, columns, *strides, **constants, **options)


def graphs_of(cuda, bundle, problem, data, launches):
    """{(who, configuration): graph}, the kernel's name for Triton, and what its autotuner takes."""
    import torch
    import triton
    sys.path.insert(0, str(ROOT / "kernels/softmax"))
    import softmax_triton
    from conformance import capi
    kernel = getattr(softmax_triton, problem.op.split(".")[1])
    tuned = triton.autotune([triton.Config({}, num_warps=w) for w in TRITONS_WARPS], key=["K"])(kernel)
    launch_by_triton(tuned, problem, *data[0])
    graphs, turns = {}, [data[i % len(data)] for i in range(launches)]
    stream = torch.cuda.ExternalStream(cuda.stream.value)
    for warps in TRITONS_WARPS:
        with torch.cuda.stream(stream):
            launch_by_triton(kernel, problem, *data[0], num_warps=warps)
            torch.cuda.synchronize()
            graphs["Triton", f"WARPS={warps}"] = cuda.capture(
                lambda: [launch_by_triton(kernel, problem, *one, num_warps=warps) for one in turns])
    for variant in [None, *candidates(bundle, problem)]:
        bundle.clear_policy()
        if variant:
            bundle.force(variant)
        plan = capi.Plan(bundle, problem, capi.CUDA)
        assert variant in (None, plan.variant), f"{variant} was forced, the plan has {plan.variant}"
        workspace = cuda.allocate(max(1, plan.workspace_bytes))
        who = "bundle" if variant else "default"
        graphs[who, plan.variant] = cuda.capture(
            lambda: [plan.launch([o.data_ptr() for o in operands], [result.data_ptr()], workspace, cuda.stream)
                     for operands, result in turns])
    bundle.clear_policy()
    return graphs, tuned.best_config.num_warps


def steady_state(report, cuda, bundle):
    """Returns the id of the best variant for the first shape."""
    import torch
    rows, winner = [], None
    for op, dtype, shape in SHAPES:
        problem = problem_of(op, dtype, shape)
        moved = sum(t.nbytes for t in itertools.chain(*[[*o, r] for o, r in tensors(problem, 1)]))
        sets = min(128, max(2, -(-160_000_000 // moved)))
        data, launches = tensors(problem, sets), max(20, sets)
        graphs, tuned = graphs_of(cuda, bundle, problem, data, launches)
        for graph in graphs.values():
            cuda.graph_us(graph, 2)
        times = {key: [] for key in graphs}
        for _, (key, graph) in itertools.product(range(ROUNDS), graphs.items()):
            times[key].append(cuda.graph_us(graph, 1)[0] / launches)
        middle = {key: statistics.median(samples) for key, samples in times.items()}
        best = {who: min((us, name) for (w, name), us in middle.items() if w == who)
                for who in ("bundle", "Triton", "default")}
        label = f"{op} {dtype}{list(shape)}"
        mine, theirs = best["bundle"][0], best["Triton"][0]
        report.bar(f"{label} against Triton's own best", mine, max(theirs * 1.02, theirs + 0.3), "us")
        print("       ", {f"{who} {short(name)}": round(us, 2) for (who, name), us in middle.items()}, flush=True)
        rows.append([label, short(best["bundle"][1]), f"{mine:.2f}", best["Triton"][1], f"{theirs:.2f}",
                     f"WARPS={tuned}", short(best["default"][1]), f"{best['default'][0]:.2f}"])
        winner = winner or best["bundle"][1]
        del data, graphs
        torch.cuda.empty_cache()
    report.table("Microseconds a launch", ["op and shape", "bundle's best in Triton", "us", "Triton's best", "us",
                                           "its autotuner takes", "bundle's default", "us"], rows)
    return winner


def short(variant):
    return variant.split("/")[-1].split("@")[0]


def corners(name):
    """(what is special, change of the operands, scale) to try this op with."""
    from conformance import accuracy
    changes = {"": lambda a: a, "inf, nan": accuracy.with_specials}
    if "masked" in name:
        changes["all masked"] = accuracy.fully_masked
    return [(special, change, scale) for special, change in changes.items() for scale in (0.3, -0.3, 300.0, 0.0)]


def numbers(report, cuda, bundle):
    """Each Triton variant against float64, within the bars of the accuracy section."""
    import numpy as np
    from conformance import accuracy, capi, compare, runner
    reference, worst, launches = runner.load_reference("softmax", [ROOT / "kernels"]), {}, 0
    described = {op["name"]: op for op in bundle.describe(whole=False)["ops"]}
    for name, dtype, columns in itertools.product(sorted({s[0] for s in SHAPES}), ("f32", "f16", "bf16"),
                                              (512, 1040, 2064)):
        op = described[f"softmax.{name}"]
        if "causal" in name and columns > 2000:
            continue
        dims = (1, 1, columns, columns) if "causal" in name else (2, 3, 7, columns)
        for seed, (special, change, scale) in enumerate(corners(name)):
            problem = problem_of(name, dtype, dims)
            problem = capi.Problem(problem.op, problem.operands, {"scale": scale})
            arrays = change(runner.make_operands(reference, op, problem, seed))
            with np.errstate(all="ignore"):
                wanted = runner.wanted_results(reference, op, problem, arrays)[0]
            for variant in candidates(bundle, problem):
                bundle.clear_policy()
                bundle.force(variant)
                launch = runner.Launch(cuda, op, problem, bundle.infer(problem, cuda.kind), arrays, 0)
                found = launch.run(capi.Plan(bundle, problem, cuda.kind))[0]
                ratio, sentence = compare.worst(found, wanted, **accuracy.tolerance(problem.op, dtype))
                launch.free()
                launches += 1
                if not ratio <= 1:
                    print(f"     {variant} {problem} {special}: {ratio:.3g} times the bar, {sentence}")
                if not ratio <= worst.get((name, dtype), 0):
                    worst[name, dtype] = ratio
    bundle.clear_policy()
    report.fact("launches compared with float64", launches)
    for (name, dtype), ratio in worst.items():
        report.bar(f"{name} {dtype}: largest error", ratio, 1, "of the bar")


def opened_and_forced():
    """The bundle for JAX, with the variants that the environment names forced."""
    import kbundle
    bundle = kbundle.open(str(BUNDLE))
    for variant in os.environ["KB_FORCED"].split():
        bundle.force(variant)
    return bundle


def all_chosen(bundle):
    """Asserts that every forced variant, and no other, has been planned."""
    found = {row["variant"] for row in bundle.stats()["chosen"]}
    assert found == set(os.environ["KB_FORCED"].split()), f"chosen were {found}"


def ours():
    jax, x = first_use.started_jax()
    import kbundle.jax as kbj
    start = time.perf_counter()
    bundle = opened_and_forced()
    opened = time.perf_counter()
    call = first_use.first_call(jax, lambda a: kbj.call(bundle, "softmax.scaled_forward", a, scale=SCALE), x)
    all_chosen(bundle)
    yield "first call", call
    yield "open and first call", opened - start + call


def in_one_graph():
    """Counts driver calls of a program of Triton-made ops and what XLA makes, after it was captured."""
    import jax
    import numpy as np
    import kbundle.jax as kbj
    from conformance import runner
    from runtime import graphs
    bundle = opened_and_forced()

    @jax.jit
    def program(x):
        for name in IN_GRAPH * 4:
            x = kbj.call(bundle, f"softmax.{name}", x * 3 + 1, scale=2.0)
        return x

    x = graphs.some(GRAPH_SHAPE, 0)
    wanted, reference = np.asarray(x, np.float64), runner.load_reference("softmax", [ROOT / "kernels"])
    for name in IN_GRAPH * 4:
        wanted = getattr(reference, name)(wanted * 3 + 1, scale=2.0)
    for _ in range(4):
        graphs.check_close(program(x), wanted)
    all_chosen(bundle)
    targets = [line for line in program.lower(x).compile().as_text().splitlines() if "custom_call_target=" in line]
    legacy = [line for line in targets if "API_VERSION_TYPED_FFI" not in line]
    assert len(targets) == 8 and not legacy, f"{len(targets)} custom calls, legacy ones: {legacy}"
    with calls.Counter() as counter:
        for _ in range(RUNS):
            jax.block_until_ready(program(x))
    graphs.check_close(program(x), wanted)
    return counter.calls


def under_xla(report, bundle):
    problems = [problem_of(op, "f32", GRAPH_SHAPE) for op in IN_GRAPH]
    os.environ["KB_FORCED"] = " ".join(candidates(bundle, p)[0] for p in problems)
    found = calls.count_in_child(report, "in_one_graph", "--xla_gpu_graph_min_graph_size=1", __file__)
    if found:
        report.hold(f"XLA, 8 calls and their neighbours, {RUNS} runs: one graph launch a run, right results, typed FFI",
                    found.get("cuGraphLaunch") == RUNS, str(found))
        others = {c: n for c, n in found.items() if c.startswith("cuLaunchKernel") or calls.FORBIDDEN.match(c)}
        report.hold("XLA: no launch outside the graph, no load, no allocation", not others, str(others))
        report.fact(f"driver calls of {RUNS} runs", found)


def first_result(report, winner):
    os.environ["KB_FORCED"] = winner
    mine = first_use.medians("ours", report, __file__)
    control = first_use.medians("plus_one", report)
    formula = first_use.medians("plain_softmax", report)
    if mine and control and formula:
        report.bar("open and first call of a Triton op beyond jit(x + 1)'s first call",
                   mine["open and first call"] - control["first call"], 20.0, "ms")
        report.fact("first call, ms", {"kbundle, with opening": round(mine["open and first call"], 1),
                                       "jit(x + 1)": round(control["first call"], 1),
                                       "jax.jit softmax": round(formula["first call"], 1)})
    first_use.triton(report)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "in_one_graph":
        for call, count in sorted(in_one_graph().items()):
            print(f"CALL {call} {count}")
        return
    if len(sys.argv) > 1:
        for name, seconds in ours():
            print(f"TIME\t{name}\t{seconds}")
        return
    from conformance import capi, devices
    report, cuda, bundle = Report("triton_ops"), devices.Cuda(), capi.Bundle(BUNDLE)
    numbers(report, cuda, bundle)
    winner = steady_state(report, cuda, bundle)
    first_result(report, winner)
    under_xla(report, bundle)
    report.finish()


if __name__ == "__main__":
    main()
