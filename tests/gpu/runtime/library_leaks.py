"""Plans of cuDNN, algorithms of cuBLASLt and our own kernels, made, launched and dropped over and over; every second round opens the
bundle anew. Prints what the process and the device hold after each round; leaks.py compares.
"""

import launch_cost
import leaks
import listed
from conformance import capi, devices

ROOT = capi.ROOT
BUNDLE = ROOT / "build/kernels.kb"
ROUNDS = 80
SMALL = 9 << 20  # elements of all operands together


def problems(bundle):
    """Small listed problems that have a variant, and an attention problem that only our own kernels take."""
    for op in ("attention.sdpa_forward", "attention.sdpa_backward", "matmul.matmul"):
        fine = [p for p in listed.problems(bundle, op) if bundle.explain(p[0], capi.CUDA)["chosen"]]
        for problem, operands, _ in [p for p in fine if p[1][0][0] != "f32"][:4]:
            yield problem, operands
    operands = [("bf16", (2, 130, 4, 64))] * 3 + [None] * 6
    yield capi.Problem("attention.sdpa_forward", operands, {"scale": 0.125, "with_stats": True}), operands


def main():
    cuda = devices.Cuda()
    launch_cost.frameworks_libraries()
    bundle = capi.Bundle(BUNDLE)
    calls = []
    for problem, operands in problems(bundle):
        results = bundle.infer(problem, capi.CUDA)["results"]
        given = [o and devices.Buffer(cuda, *o) for o in operands]
        for buffer in filter(None, given):
            cuda.fill(buffer.address, 0, buffer.size)
        made = [devices.Buffer(cuda, r["dtype"], r["dims"]) if r["present"] else None for r in results]
        calls.append((problem, [b and b.address for b in given], [b and b.address for b in made]))
    workspace = cuda.allocate(1 << 28)
    for number in range(ROUNDS):
        for problem, given, made in calls:
            plan = capi.Plan(bundle, problem, capi.CUDA, alignment=16)
            assert plan.workspace_bytes <= 1 << 28, f"{problem} needs {plan.workspace_bytes} bytes"
            if number == 0:
                print(f"PLAN {plan.variant}", flush=True)
            plan.launch(given, made, workspace, cuda.stream, cuda.threads)
            cuda.synchronize()
            del plan
        if number % 2:
            bundle.close()
            bundle = capi.Bundle(BUNDLE)
        print(f"SAMPLE {leaks.host_bytes_used()} {leaks.device_bytes_used()}", flush=True)


if __name__ == "__main__":
    main()
