"""Device times of the loader's own launches inside a captured graph, for the large shape of the bars.

Twenty launches are captured; the median of their times over 15 graph launches. The tensors are 0.5 GB
each and random, far larger than the caches. Bytes: each input read once, each output written once;
the causal op counts the whole tensor although it never reads half of x.
"""

import pathlib

import numpy as np

from conformance import accuracy, capi, devices
from device_copy import reference_tbps
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPE = (4, 16, 2048, 2048)
BARS = {"scaled_forward": 3.8, "scaled_masked_forward": 3.3, "scaled_causal_forward": 4.6,
        "scaled_backward": 4.0, "scaled_masked_backward": 4.0, "scaled_causal_backward": 4.0}
LAUNCHES, REPEATS = 20, 15


def random_bf16(cuda, buffer, seed):
    """Normal random numbers: 4 M of them, repeated, each stretch at another offset."""
    block = (np.random.default_rng(seed).standard_normal(1 << 22) * 2).astype(buffer.dtype)
    step = block.nbytes
    for start in range(0, buffer.size, step):
        cuda.upload(buffer.address + start, np.roll(block, start // step * 37)[:(buffer.size - start) // 2])


def main():
    report, cuda = Report("bandwidth"), devices.Cuda()
    bundle = capi.Bundle(ROOT / "build/kernels.kb")
    buffers = [devices.Buffer(cuda, "bf16", SHAPE) for _ in range(3)]
    for seed, buffer in enumerate(buffers):
        random_bf16(cuda, buffer, seed)
    mask = devices.Buffer(cuda, "u8", (SHAPE[0], 1) + SHAPE[2:])
    mask.put(np.random.default_rng(9).random(mask.dims) < 0.3)
    copy, rows = reference_tbps(report, cuda), []
    for op in bundle.describe(whole=False)["ops"]:
        name = op["name"].split(".")[1]
        if name not in BARS:
            continue
        problem = accuracy.problem_of(op, "bf16", SHAPE)
        plan = capi.Plan(bundle, problem, capi.CUDA)
        spare = iter(buffers)
        operands = [mask if o["name"] == "mask" else next(spare) for o in op["operands"]]
        result = buffers[2]
        workspace = cuda.allocate(plan.workspace_bytes) if plan.workspace_bytes else None
        arguments = capi.Plan.pointers([b.address for b in operands]), capi.Plan.pointers([result.address])
        us = cuda.device_us(lambda: plan.launch(*arguments, workspace, cuda.stream), LAUNCHES, REPEATS)
        moved = sum(b.size for b in operands) + result.size
        rows.append([op["name"], plan.variant.split("/")[1], f"{us:.1f}", f"{moved / us / 1e6:.2f}", f"{100 * moved / us / 1e6 / copy:.0f}"])
        report.bar(f"{op['name']} bf16 {list(SHAPE)}", moved / us / 1e6, BARS[name], "TB/s", at_least=True)
    report.table("Launches in a captured graph", ["op", "variant", "us", "TB/s", "% of copy"], rows)
    report.finish()


if __name__ == "__main__":
    main()
