"""Ops as functions of tvm-ffi on CUDA: values against float64, on the stream that tvm-ffi has as the current one, with workspace, in a graph, on
threads that CUDA has not seen. Tensors are PyTorch's; nothing else of it is used. CuPy's arrays too, where CuPy is."""

import importlib.util
import math
import os

from at_once import at_once
from report import Report

SHAPES = [(64, 1000), (3, 5, 129), (1, 1)]


def softmax_error(torch, y, x, scale):
    return float((y.double() - torch.softmax(x.double() * scale, -1)).abs().max())


def poisoned(torch, x):
    return torch.full_like(x, math.nan)


def values(report, torch, kbv):
    softmax = kbv.function(None, "softmax.scaled_forward")
    for shape in SHAPES:
        for dtype, most in ((torch.float32, 1e-6), (torch.bfloat16, 4e-3)):
            x = torch.randn(shape, device="cuda").to(dtype)
            y = poisoned(torch, x)
            for turn in range(2):
                softmax(x, y, 0.5)
            report.bar(f"softmax {list(shape)} {dtype}: largest error", softmax_error(torch, y, x, 0.5), most)
    q = torch.randn(2, 128, 4, 64, device="cuda", dtype=torch.bfloat16)
    o = poisoned(torch, q)
    kbv.function(None, "attention.sdpa_forward", given=("q", "k", "v"), scale=0.125)(q, q, q, o)
    qt = q.double().transpose(1, 2)
    wanted = (torch.softmax(qt @ qt.transpose(-1, -2) * 0.125, -1) @ qt).transpose(1, 2)
    report.bar("attention: largest error", float((o.double() - wanted).abs().max()), 2e-2)


def workspace(report, torch, kbv):
    """An op whose plan has workspace: gradients of a norm by its weights are sums over rows."""
    x, dy, gamma = (torch.randn(2048, 1024, device="cuda"), torch.randn(2048, 1024, device="cuda"), torch.rand(1024, device="cuda"))
    import kbundle
    op = kbundle.default_bundle("norm.rmsnorm_backward").op("norm.rmsnorm_backward")
    rsigma = (x.double().square().mean(-1) + 1e-6).rsqrt()
    given = {"dy": dy, "x": x, "gamma": gamma, "rsigma": rsigma.float()}
    names = [one.name for one in op.operands if one.name in given]
    report.hold("its operands are those known here", set(names) == set(given), f"{[one.name for one in op.operands]}")
    made = {"dx": poisoned(torch, x), "dgamma": poisoned(torch, gamma)}
    results = [made[one.name] for one in op.results if one.name in made]
    kbv.function(None, "norm.rmsnorm_backward", given=names)(*[given[name] for name in names], *results)
    wanted = (dy.double() * x.double() * rsigma[:, None]).sum(0)
    error = float((made["dgamma"].double() - wanted).abs().max() / wanted.abs().max())
    report.bar("with workspace: dgamma, largest error by its largest value", error, 1e-4)


def streams(report, torch, kbv, tvm_ffi):
    softmax = kbv.function(None, "softmax.scaled_forward", scale=0.5)
    x = torch.randn(512, 1024, device="cuda")
    y, side = poisoned(torch, x), torch.cuda.Stream()
    softmax(x, y)
    torch.cuda.synchronize()
    with torch.cuda.stream(side), tvm_ffi.use_torch_stream():
        torch.cuda._sleep(200_000_000)
        x.copy_(torch.randn_like(x))
        softmax(x, y)
    report.hold("a call waits for what its stream is at", not side.query())
    torch.cuda.synchronize()
    report.bar("and sees what its stream wrote before it", softmax_error(torch, y, x, 0.5), 1e-6)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), tvm_ffi.use_torch_stream():
        softmax(x, y)
    for replay in range(2):
        x.copy_(torch.randn_like(x))
        y.fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        report.bar(f"a captured graph, replay {replay}", softmax_error(torch, y, x, 0.5), 1e-6)


def threads(report, torch, kbv):
    softmax, found = kbv.function(None, "softmax.scaled_forward", scale=0.5), []

    def work(_):
        x = torch.randn(33, 77, device="cuda")
        y = poisoned(torch, x)
        torch.cuda.synchronize()
        softmax(x, y)
        torch.cuda.synchronize()
        found.append(softmax_error(torch, y, x, 0.5))
    at_once(work, 4)
    report.hold("threads that CUDA has not seen", len(found) == 4 and max(found) < 1e-6, f"{found}")


def cupy_arrays(report, kbv, tvm_ffi):
    """CuPy's arrays by DLPack, on its streams and in its graphs. None of its own kernels runs, for which it would want a compiler."""
    if importlib.util.find_spec("cupy") is None:
        report.fact("CuPy", "is not here, and its arrays were not tried")
        return
    import cupy
    import numpy as np
    report.fact("CuPy", cupy.__version__)
    softmax = kbv.function(None, "softmax.scaled_forward", scale=0.5)

    def drawn(shape, dtype):
        return np.random.default_rng().standard_normal(shape).astype(dtype)

    def error(found, host):
        x = host.astype(np.float64) * 0.5
        wanted = np.exp(x - x.max(-1, keepdims=True))
        return float(np.abs(found - wanted / wanted.sum(-1, keepdims=True)).max())
    for shape in SHAPES:
        for dtype, most in ((np.float32, 1e-6), (np.float16, 1e-3)):
            host = drawn(shape, dtype)
            x, y = cupy.asarray(host), cupy.asarray(np.full_like(host, math.nan))
            softmax(x, y)
            report.bar(f"CuPy, softmax {list(shape)} {np.dtype(dtype)}: largest error", error(cupy.asnumpy(y), host), most)
    stream, host = cupy.cuda.Stream(non_blocking=True), drawn((512, 1024), np.float32)
    x, y = cupy.asarray(host), cupy.asarray(np.full_like(host, math.nan))
    tensors = tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y)  # of the same memory; DLPack itself waits for streams, which no capture allows
    cupy.cuda.get_current_stream().synchronize()
    with stream, tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:0"), stream.ptr):
        softmax(*tensors)
        report.bar("CuPy, on a stream of its own", error(y.get(stream=stream), host), 1e-6)
        stream.begin_capture()
        softmax(*tensors)
        graph = stream.end_capture()
        for replay in range(2):
            host = drawn(host.shape, np.float32)
            x.set(host, stream=stream)
            y.set(np.full_like(host, math.nan), stream=stream)
            graph.launch(stream)
            report.bar(f"CuPy, a graph that its stream captured, replay {replay}", error(y.get(stream=stream), host), 1e-6)


def main():
    report = Report("kbundle.tvm_ffi on CUDA")
    for needed in ("tvm_ffi", "torch"):
        report.hold(f"{needed} is here", importlib.util.find_spec(needed) is not None, "install it, or name its folder in PYTHONPATH")
    if not all(bar["holds"] for bar in report.bars):
        report.finish()
    import kbundle
    import kbundle.tvm_ffi as kbv
    import torch
    import tvm_ffi
    kbundle.use(os.environ.get("KB_BUNDLE", "build/kernels.kb"))
    report.fact("tvm-ffi", tvm_ffi.__version__)
    report.hold("PyTorch finds a GPU", torch.cuda.is_available())
    values(report, torch, kbv)
    workspace(report, torch, kbv)
    streams(report, torch, kbv, tvm_ffi)
    threads(report, torch, kbv)
    cupy_arrays(report, kbv, tvm_ffi)
    report.finish()


if __name__ == "__main__":
    main()
