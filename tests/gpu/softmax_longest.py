"""Softmax over rows as long as an int32 counts, two of them, so that a count that wraps reads or writes the other row.

A few elements of each row are large, the first and the last among them; all others are 0, and too small in y for 16 bits. So
y and dx are known exactly but for a rounding, and everything else in them must be 0 where poison was.
"""

import numpy as np

from conformance import capi, devices
from report import Report

ROOT = capi.ROOT
ROWS, LARGE = 2, 30.0
LENGTHS = {2**31 - 1: "multi_pass_unaligned", 2**31 - 17: "multi_pass"}  # the second: the longest whose vectors may stick out
CHUNK = 1 << 28  # elements compared at a time
OPS = ("scaled_forward", "scaled_masked_forward", "scaled_backward")


def places(length):
    """Elements that are large, of each row; the last but one of them is masked where there is a mask."""
    return [np.array([0, 7, length // 2 + row, length - 9, length - 1]) + row * length for row in range(ROWS)]


class Tensors:
    def __init__(self, cuda, length):
        self.cuda, self.length = cuda, length
        self.x, self.dy, self.y = (cuda.allocate(2 * ROWS * length) for _ in range(3))
        self.mask = cuda.allocate(ROWS * length)

    def put(self, address, at, values):
        for place, value in zip(at, values):
            self.cuda.upload(address + int(place) * 2, np.array([value], np.float16))

    def found(self, address):
        """(places that are not +-0, their values)."""
        every, values = [], []
        for start in range(0, ROWS * self.length, CHUNK):
            count = min(CHUNK, ROWS * self.length - start)
            part = self.cuda.download(address + start * 2, count * 2).view(np.uint16)
            at = np.flatnonzero(part & 0x7fff)
            if len(at) > 1000:
                return None, f"{len(at)} elements from {start} on are not 0"
            every.append(at + start), values.append(part[at].view(np.float16))
        return np.concatenate(every), np.concatenate(values).astype(np.float64)

    def free(self):
        for address in (self.x, self.dy, self.y, self.mask):
            self.cuda.free(address)


def run(cuda, bundle, tensors, op, wanted_variant):
    """What is wrong, or None."""
    length, by_row = tensors.length, places(tensors.length)
    dims = (1, 1, ROWS, length) if "masked" in op else (ROWS, length)
    operands = [("f16", dims)] * (2 if "backward" in op else 1) + ([("u8", dims)] if "masked" in op else [])
    plan = capi.Plan(bundle, capi.Problem(f"softmax.{op}", operands, {"scale": 1.0}), capi.CUDA)
    if plan.variant.split("/")[1].split("[")[0] != wanted_variant:
        return f"{plan.variant} was planned"
    cuda.fill(tensors.x, 0, 2 * ROWS * length)
    cuda.fill(tensors.dy, 0, 2 * ROWS * length)
    cuda.fill(tensors.y, 0xff, 2 * ROWS * length)
    given = [tensors.x]
    if "backward" in op:  # y and dy are given, dx comes out where y of a forward op would
        for at in by_row:
            tensors.put(tensors.x, at, np.full(len(at), 0.2))
            tensors.put(tensors.dy, at, np.arange(len(at)) + 1.0)
        given = [tensors.dy, tensors.x]
        y, dy = float(np.float16(0.2)), np.arange(5) + 1.0
        wanted = [y * (dy - y * dy.sum()) for _ in by_row]
    else:
        for at in by_row:
            tensors.put(tensors.x, at, np.full(len(at), LARGE))
        wanted = [np.full(len(at), 1 / (len(at) + (length - len(at)) * np.exp(-LARGE))) for at in by_row]
        if "masked" in op:
            given.append(tensors.mask)
            cuda.fill(tensors.mask, 0, ROWS * length)
            for number, at in enumerate(by_row):
                cuda.fill(tensors.mask + int(at[-2]), 1, 1)
                by_row[number] = np.delete(at, -2)
                wanted[number] = np.full(len(at) - 1, 1 / (len(at) - 1 + (length - len(at)) * np.exp(-LARGE)))
    workspace = cuda.allocate(max(1, plan.workspace_bytes))
    plan.launch(capi.Plan.pointers(given), capi.Plan.pointers([tensors.y]), workspace, cuda.stream)
    cuda.synchronize()
    cuda.free(workspace)
    at, values = tensors.found(tensors.y)
    if at is None or not np.array_equal(at, np.concatenate(by_row)):
        return values if at is None else f"not 0 are {at.tolist()}"
    error = np.abs(values - np.concatenate(wanted)) / np.abs(np.concatenate(wanted))
    return None if error.max() < 2 ** -10 else f"off by {error.max():.2g}"


def main():
    report, cuda = Report("softmax_longest"), devices.Cuda()
    bundle = capi.Bundle(ROOT / "build/kernels.kb")
    for length, variant in LENGTHS.items():
        tensors = Tensors(cuda, length)
        for op in OPS:
            wrong = run(cuda, bundle, tensors, op, variant)
            report.hold(f"{op} of {ROWS} rows of {length} f16, {variant}", wrong is None, wrong or "")
        tensors.free()
    report.finish()


if __name__ == "__main__":
    main()
