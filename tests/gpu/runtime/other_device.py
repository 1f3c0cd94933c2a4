"""A stream of another device, or of another context: the launch is refused by a message that names both devices, inside a capture too, and the
plan works afterwards. Needs the driver alone."""

import array
import ctypes
import pathlib
import re

from conformance import capi
from report import Report

ROOT = pathlib.Path(__file__).resolve().parents[3]
DIMS = (4, 64)
BYTES = 4 * DIMS[0] * DIMS[1]
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class Driver:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)

    def __call__(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    def handle(self, name, *arguments):
        """What the function returns through its first parameter."""
        out = ctypes.c_void_p()
        self(name, ctypes.byref(out), *arguments)
        return out


def refusal(plan, memory, stream):
    try:
        plan.launch([memory[0].value], [memory[1].value], stream=stream)
    except capi.KbError as error:
        return error.code, str(error)
    return 0, "it was launched"


def main():
    report = Report("a stream of another device")
    driver = Driver()
    first, second = (driver.handle("cuDevicePrimaryCtxRetain", ordinal) for ordinal in (0, 1))
    driver("cuCtxSetCurrent", second)
    foreign = driver.handle("cuStreamCreate", 0)
    third = driver.handle("cuCtxCreate_v2", 0, 0)  # of device 0 too, and current
    sibling = driver.handle("cuStreamCreate", 0)
    driver("cuCtxSetCurrent", first)
    own = driver.handle("cuStreamCreate", 0)

    bundle = capi.Bundle(ROOT / "build/kernels.kb")
    plan = capi.Plan(bundle, capi.Problem("softmax.scaled_forward", [("f32", DIMS)], {"scale": 0.5}), capi.CUDA)
    memory = [driver.handle("cuMemAlloc_v2", ctypes.c_size_t(BYTES)) for _ in range(2)]
    x = array.array("f", [1.0] * (BYTES // 4))
    driver("cuMemcpyHtoD_v2", memory[0], ctypes.c_void_p(x.buffer_info()[0]), ctypes.c_size_t(BYTES))

    two = r"the stream is of CUDA device 1 \(.+\), the plan was made on CUDA device 0 \(.+\): give a stream"
    one = r"the stream is of another context of CUDA device 0 \(.+\) than the plan: give a stream"
    for what, stream, says in (("of device 1", foreign, two), ("of another context", sibling, one)):
        code, message = refusal(plan, memory, stream)
        report.hold(f"a stream {what} is refused with both named", code == 9 and re.search(says, message), f"{code}: {message}")
        driver("cuStreamBeginCapture_v2", stream, RELAXED)
        code, message = refusal(plan, memory, stream)
        graph = ctypes.c_void_p()
        driver.library.cuStreamEndCapture(stream, ctypes.byref(graph))  # a refused launch may have ended it
        report.hold(f"a stream {what} that captures likewise", code == 9 and re.search(says, message), f"{code}: {message}")

    plan.launch([memory[0].value], [memory[1].value], stream=own)
    driver("cuStreamSynchronize", own)
    driver("cuMemcpyDtoH_v2", ctypes.c_void_p(x.buffer_info()[0]), memory[1], ctypes.c_size_t(BYTES))
    report.bar("largest error on the plan's own stream afterwards", max(abs(value - 1 / DIMS[1]) for value in x), 1e-6)
    driver("cuCtxDestroy_v2", third)
    report.finish()


if __name__ == "__main__":
    main()
