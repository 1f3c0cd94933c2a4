"""What used to fall off a cliff, on this GPU: attention's gradients where all query heads share one key head, and what ragged attention
clears for cuDNN where there are thousands of short sequences.

The backward kernels are compared on the same data: whole, and with the query heads divided among blocks; their results have to agree
as far as 16 bits and another order of sums allow. float64 judges both in sections conformance_flash_backward and attention.
"""

import numpy as np

import attention
import launch_cost
from conformance import capi, devices
from report import Report

BUNDLE, SEQUENCES = attention.BUNDLE, attention.ROOT / "build/attention_grid/sequences.kb"
#         dtype, batch, queries and keys, heads, key heads, columns, mask
SHARED = [("bf16", 1, 4096, 32, 1, 128, "causal"), ("bf16", 1, 4096, 32, 1, 128, "none"), ("bf16", 1, 2048, 64, 1, 128, "causal"),
          ("f16", 2, 2048, 16, 2, 64, "none")]
MOST_OF_WHOLE = 0.75  # of the time of blocks that take all heads
MOST_US = 1500  # 4096 sequences; on an H200 43 us of 1140 are the three kernels around cuDNN's, the clearing of keyless rows 11
AGREE = {"bf16": 2e-2, "f16": 4e-3}


def heads_shared(report, runs, dtype, batch, tokens, heads, kv_heads, columns, mask, rows):
    attributes = {"scale": columns ** -0.5, "mask": mask}
    operands = [(dtype, (batch, tokens, h, columns)) for h in (heads, kv_heads, kv_heads)] + [None] * 6
    forward = capi.Problem(attention.FORWARD, operands, attributes | {"with_stats": True})
    tensors = attention.Tensors(runs.cuda, 1)
    device = [tensors.random(*o)[0] for o in operands[:3]] + [None] * 6
    o, stats = (tensors.empty(r["dtype"], r["dims"]) for r in runs.bundle.infer(forward, capi.CUDA)["results"])
    runs.launch(forward, runs.variants(forward)[0], device, [o, stats])
    dout, _ = tensors.random(dtype, o.dims)
    described = [*operands[:3], (dtype, o.dims), (dtype, o.dims), ("f32", stats.dims), *operands[3:]]
    problem, given = capi.Problem(attention.BACKWARD, described, attributes), [*device[:3], o, dout, stats, *device[3:]]
    found = {}
    for name in ("flash", "flash_split"):
        variant = next((v for v in runs.variants(problem) if f"/{name}[" in v), None)
        if not report.hold(f"{name} takes {operands[:2]}", variant):
            return tensors.free()
        results = [tensors.empty(r["dtype"], r["dims"]) if r["present"] else None
                   for r in runs.bundle.infer(problem, capi.CUDA)["results"]]
        us, why = runs.launch(problem, variant, given, results)
        if not report.hold(f"{name} runs on {operands[:2]}", why is None, why):
            return tensors.free()
        found[name] = us, [r.get().astype(np.float32) for r in results[:3]]
    tensors.free()
    (whole, first), (split, second) = found["flash"], found["flash_split"]
    label = f"{dtype} [{batch}, {tokens}, {heads} on {kv_heads}, {columns}], {mask}"
    for name, a, b in zip(("dq", "dk", "dv"), first, second):
        report.bar(f"{label}: {name}, divided against whole", float(np.abs(a - b).max() / np.abs(a).max()), AGREE[dtype])
    report.bar(f"{label}: time of divided heads, of whole ones", split / whole, MOST_OF_WHOLE)
    rows.append([label, f"{whole:.1f}", f"{split:.1f}", f"{whole / split:.2f}"])


def many_sequences(report, cuda, rows):
    """cuDNN's plan with what is around it, where a sequence in two has no keys: rows that nobody but us clears."""
    if not report.hold(f"{SEQUENCES.name} is there", SEQUENCES.exists(), "make it with tests/gpu/grid_bundles.py and bring it along"):
        return
    launch_cost.frameworks_libraries()
    runs, tensors = attention.Runs(cuda, capi.Bundle(SEQUENCES)), attention.Tensors(cuda, 2)
    [(problem, operands, attributes)] = attention.listed(runs.bundle, "attention.sdpa_ragged_forward", cuda)
    sequences, (_, (total, *_)) = operands[3][1][0] - 1, operands[0]
    q_offsets = np.arange(sequences + 1) * (total // sequences)
    lengths = np.full(sequences, total // sequences)
    lengths[1::2] = 0
    kv_offsets = np.concatenate([[0], np.cumsum(lengths)])
    given = [tensors.random(*o)[0] for o in operands[:3]] + [tensors.put("i32", of) for of in (q_offsets, kv_offsets)]
    o, stats = (tensors.empty(r["dtype"], r["dims"]) for r in runs.bundle.infer(problem, capi.CUDA)["results"])
    us, why = runs.launch(problem, runs.variants(problem)[0], [*given, *[None] * (len(operands) - 5)], [o, stats])
    if report.hold(f"{sequences} sequences run", why is None, why):
        keyless = np.repeat(np.arange(sequences) % 2 == 1, total // sequences)
        found_o, found_stats = o.get().astype(np.float32), stats.get()
        report.hold("rows of sequences without keys are 0, their stats -inf", not found_o[keyless].any() and np.isneginf(found_stats[keyless]).all())
        report.hold("all other rows are finite and some are not 0", np.isfinite(found_o).all() and found_o[~keyless].any())
        report.bar(f"ragged forward of {sequences} sequences", us, MOST_US, "us")
        rows.append([f"ragged forward, {sequences} sequences, {list(operands[0][1])}, cuDNN", "", f"{us:.1f}", ""])
    tensors.free()


def main():
    report, cuda, rows = Report("cliffs"), devices.Cuda(), []
    runs = attention.Runs(cuda, capi.Bundle(BUNDLE))
    for shape in SHARED:
        heads_shared(report, runs, *shape, rows)
    many_sequences(report, cuda, rows)
    report.table("Launches in a captured graph", ["problem", "whole heads, us", "us", "times as fast"], rows)
    report.finish()


if __name__ == "__main__":
    main()
