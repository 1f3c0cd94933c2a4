"""kbundle.torch on this GPU: values and gradients beside float64 at shapes drawn anew (KB_SEED), views of any kind, the current stream beside a
busy one, threads that are new to CUDA, tensors on a wrong device, captured graphs whose results were poisoned, and microseconds of the host
per call beside PyTorch's own operators of the same inputs, in turns.
"""

import functools
import math
import os
import random
import statistics
import time

import torch

import kbundle
import kbundle.torch as kbt
from at_once import at_once
from kbundle.torch import _direct, _eager, _shortcut
from report import Report

F = torch.nn.functional
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SHAPES, SECONDS = 40, 15  # of values, whichever comes first
ROUNDS, CALLS, MOST = 60, 25, 2.0  # of times: so many calls before the GPU is waited for; the bar


# ---- values ----

def norm(function, formula, x, *weights):
    return lambda *given: function(*given, epsilon=1e-5), lambda x, *given: formula(x, x.shape[-1:], *given, 1e-5), [x, *weights]


def drawn(chance, device):
    """(name, function, formula, what it is given) of a call at a shape that is drawn."""
    dtype = chance.choice(list(TOLERANCE))
    rows, wide = (chance.randint(1, 40), chance.randint(1, 9)), chance.choice([8, 33, 128, 1000, 1024, 2049, 4096])

    def of(*shape, dtype=dtype):
        return torch.randn(shape, device=device, dtype=torch.float32).to(dtype)
    kind = chance.choice(["softmax", "causal", "masked", "rms_norm", "layer_norm", "attention"])
    if kind == "softmax":
        return kind, functools.partial(kbt.scaled_softmax, scale=0.5), lambda x: torch.softmax(x * 0.5, -1), [of(*rows, wide)]
    if kind == "causal":
        size = chance.randint(2, 200)
        keep = torch.ones(size, size, device=device).tril().bool()
        return kind, kbt.scaled_causal_softmax, lambda x: torch.softmax(x.masked_fill(~keep, -1e30), -1), [of(*rows, size, size)]
    if kind == "masked":
        mask = torch.rand(rows[0], 1, 7, wide, device=device) > 0.5
        mask[..., 0] = False
        return (kind, lambda x: kbt.scaled_masked_softmax(x, mask), lambda x: torch.softmax(x.masked_fill(mask, -1e30), -1),
                [of(*rows, 7, wide)])
    if kind == "rms_norm":
        return kind, *norm(kbt.rms_norm, F.rms_norm, of(*rows, wide), of(wide))
    if kind == "layer_norm":
        return kind, *norm(kbt.layer_norm, F.layer_norm, of(*rows, wide), of(wide), of(wide))
    if dtype == torch.float32:
        dtype = torch.bfloat16
    depth, queries = chance.choice([64, 128]), chance.randint(1, 300)
    more = {"is_causal": chance.random() < 0.5}
    return (kind, functools.partial(kbt.scaled_dot_product_attention, **more), functools.partial(F.scaled_dot_product_attention, **more),
            [of(2, 4, queries, depth, dtype=dtype) for _ in range(3)])


def error(function, formula, given, gradients=True):
    """The largest of values and gradients against float64, by the largest number of each tensor there."""
    found, wanted = [], []
    for all_of, call, wide in ((found, function, None), (wanted, formula, torch.float64)):
        inputs = [x.detach().to(wide or x.dtype).requires_grad_(gradients) for x in given]
        y = call(*inputs)
        all_of.append(y.detach())
        if gradients:
            generator = torch.Generator().manual_seed(1)
            weight = torch.randn(y.shape, generator=generator).to(y.device, found[0].dtype).to(y.dtype)
            all_of += torch.autograd.grad(y, inputs, weight)
    assert all(one.shape == other.shape and one.dtype == given[0].dtype for one, other in zip(found, wanted, strict=True))
    return max([float((one.double() - other).abs().max() / other.abs().max().clamp_min(1.0)) for one, other in zip(found, wanted)
                if one.numel()], default=0.0)


def values(report, device, seed):
    chance, worst, until = random.Random(seed), {}, time.monotonic() + SECONDS
    torch.manual_seed(seed)
    for count in range(SHAPES):
        if time.monotonic() > until:
            break
        kind, function, formula, given = drawn(chance, device)
        for turn in ("the long way", "known", "without a gradient"):  # each by another way through kbundle.torch
            of = error(function, formula, given, turn != "without a gradient") / TOLERANCE[given[0].dtype]
            where = f"{given[0].dtype} {[tuple(x.shape) for x in given]}, {turn}"
            worst[kind] = max(worst.get(kind, (0.0, "")), (of if math.isfinite(of) else math.inf, where))
    for kind, (of, where) in sorted(worst.items()):
        report.bar(f"{kind}: largest error by its tolerance ({where})", of, 1.0)
    report.fact("shapes drawn", f"{count + 1}, KB_SEED={seed}")


def views(report, device):
    base = torch.randn(12, 40, device=device)
    kinds = {"transposed": base.t(), "every other": base[::2, 1::2], "expanded": base[:1].expand(5, 40), "no rows": base[:0],
             "shifted by one element": base.reshape(-1)[1:1 + 11 * 40].reshape(11, 40), "one element": base[:1, :1]}
    for name, x in kinds.items():
        of = max(error(kbt.scaled_softmax, functools.partial(torch.softmax, dim=-1), [x], gradients) for gradients in (False, False, True, True))
        report.hold(f"a view, {name}", of < TOLERANCE[x.dtype], f"error {of:.3g}")


# ---- streams, threads, devices ----

def streams(report):
    """A call waits for what its own stream has before it, and for nothing else."""
    x, other, busy = torch.ones(64, 256, device="cuda"), torch.cuda.Stream(), torch.cuda.current_stream()
    for _ in range(2):
        kbt.scaled_softmax(x)
    torch.cuda.synchronize()
    torch.cuda._sleep(400_000_000)
    done = busy.record_event()
    with torch.cuda.stream(other):
        y = kbt.scaled_softmax(x)
    other.synchronize()
    report.hold("a call on a second stream ends while the first is busy", not done.query())
    report.hold("and is right", torch.allclose(y, torch.full_like(y, 1 / 256)))
    torch.cuda.synchronize()
    with torch.cuda.stream(other):
        torch.cuda._sleep(50_000_000)
        x[:, 0] = 1000.0
        y = kbt.scaled_softmax(x)
    other.synchronize()
    report.hold("a call sees what its stream wrote before it", bool((y[:, 0] == 1).all()) and bool((y[:, 1:] == 0).all()))


def threads(report):
    x, wrong = torch.randn(33, 257, device="cuda"), []
    wanted = torch.softmax(x, -1)
    torch.cuda.synchronize()

    def work(_):
        try:
            for _ in range(20):
                torch.testing.assert_close(kbt.scaled_softmax(x), wanted)
        except Exception as error:
            wrong.append(error)
    at_once(work)
    report.hold("threads that CUDA has not seen", not wrong, str(wrong[:1]))


def refusals(report):
    x, gamma = torch.ones(4, 256, device="cuda"), torch.ones(256)
    for turn in ("at first", "where the op is known"):
        try:
            kbt.call(None, "norm.rmsnorm_forward", x, gamma)
            said = "nothing"
        except kbundle.Error as refused:
            said = str(refused)
        report.hold(f"operands on two devices are refused by name, {turn}", "operand 1 is on cpu, those before it are on cuda:0" in said, said)
        kbt.rms_norm(x, gamma.cuda())
    torch.testing.assert_close(kbt.rms_norm(torch.ones(4, 256), gamma), torch.ones(4, 256))
    report.hold("the same call on the CPU and on the GPU, one after the other", True)


def graphs(report):
    """Captured calls, forward and backward, replayed on other numbers into results that were filled with NaN."""
    x, gamma = torch.randn(64, 1024, device="cuda", requires_grad=True), torch.randn(1024, device="cuda", requires_grad=True)
    q = torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16)

    def step():
        y = kbt.rms_norm(x, gamma)
        return [y, *torch.autograd.grad((y * y).sum(), [x, gamma]), kbt.scaled_softmax(x.detach()), kbt.scaled_dot_product_attention(q, q, q)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    for turn in range(3):
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
            q.copy_(torch.randn_like(q))
            for result in results:
                result.fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        wanted = step()
        worst = max(float((one.double() - other.double()).abs().max()) for one, other in zip(results, wanted))
        report.hold(f"a captured graph, replay {turn}", worst < 1e-4, f"differs by {worst:.3g}")


# ---- microseconds of the host ----

def pairs(device):
    """{name: (a call of ours, PyTorch's own)}."""
    x, w, a = torch.randn(64, 256, device=device), torch.ones(256, device=device), torch.randn(256, 256, device=device).bfloat16()
    h, ones = torch.randn(64, 256, device=device).bfloat16(), torch.ones(64, 256, device=device)
    q = torch.randn(2, 4, 128, 64, device=device, dtype=torch.bfloat16)
    xg, wg = x.clone().requires_grad_(), w.clone().requires_grad_()

    def both(ours, theirs, *given):
        return tuple(lambda one=one: torch.autograd.grad(one(*given), given, ones) for one in (ours, theirs))
    scaled = functools.partial(kbt.scaled_softmax, scale=0.5)
    rms, layer = lambda x, w: F.rms_norm(x, (256,), w, 1e-6), lambda x, w: F.layer_norm(x, (256,), w, w, 1e-6)
    return {"scaled_softmax": (lambda: scaled(x), lambda: torch.softmax(x * 0.5, -1)),
            "rms_norm": (lambda: kbt.rms_norm(x, w), lambda: rms(x, w)),
            "layer_norm": (lambda: kbt.layer_norm(x, w, w), lambda: layer(x, w)),
            "matmul": (lambda: kbt.matmul(h, a), lambda: torch.matmul(h, a)),
            "attention": (lambda: kbt.scaled_dot_product_attention(q, q, q), lambda: F.scaled_dot_product_attention(q, q, q)),
            "scaled_softmax and its gradient": both(scaled, lambda x: torch.softmax(x * 0.5, -1), xg),
            "rms_norm and its gradients": both(kbt.rms_norm, rms, xg, wg),
            "layer_norm and its gradients": both(lambda x, w: kbt.layer_norm(x, w, w), layer, xg, wg)}


def operator(op):
    """The op's own operator of PyTorch."""
    bundle = kbundle.default_bundle(op)
    kbt.register(bundle)
    return getattr(getattr(torch.ops.kbundle, op.replace(".", "_")), "i" + bundle.op(op).interface)


def direct(report):
    """Operators called by hand and by compiled programs: values, gradients, a graph, and that Python is not asked for what is known."""
    softmax, norm = operator("softmax.scaled_forward"), operator("norm.rmsnorm_forward")
    x, w = torch.randn(64, 257, device="cuda"), torch.rand(257, device="cuda")
    asked, real = [], _direct._Long.__call__
    compiled = torch.compile(lambda x, w: kbt.rms_norm(kbt.scaled_softmax(x, 0.5), w), fullgraph=True, backend="aot_eager")
    leaves = x.clone().requires_grad_(), w.clone().requires_grad_()
    wanted = torch.autograd.grad(F.rms_norm(torch.softmax(leaves[0] * 0.5, -1), (257,), leaves[1], 1e-6).sum(), leaves)
    try:
        _direct._Long.__call__ = lambda self, *tensors, **attributes: (asked.append(self.kernel.op), real(self, *tensors, **attributes))[1]
        for turn in range(2):
            del asked[:]
            for one in (x, x.t(), x[::2, 1:]):
                report.hold(f"an operator by hand, turn {turn}, {tuple(one.stride())}",
                            torch.allclose(softmax(one, scale=0.5), torch.softmax(one * 0.5, -1), atol=1e-6))
            found = torch.autograd.grad(compiled(*leaves).sum(), leaves)
            worst = max(float((one - other).abs().max()) for one, other in zip(found, wanted))
            report.hold(f"a compiled program and its gradients, turn {turn}", worst < 1e-3, f"differs by {worst:.3g}")
        report.hold("without Python where the call is known", not asked and _direct.enabled)
    finally:
        _direct._Long.__call__ = real
    norm(x, w)
    graph, given = torch.cuda.CUDAGraph(), x.clone()
    with torch.cuda.graph(graph):
        made = norm(softmax(given, scale=0.5), w)[0]
    for replay in range(2):
        given.copy_(torch.randn_like(given))
        graph.replay()
        wanted = F.rms_norm(torch.softmax(given * 0.5, -1), (257,), w, 1e-6)
        report.hold(f"a captured graph of operators, replay {replay}", torch.allclose(made, wanted, rtol=1e-4, atol=1e-5))


def direct_pairs():
    x, w = torch.randn(64, 256, device="cuda"), torch.ones(256, device="cuda")
    softmax, norm, aten = operator("softmax.scaled_forward"), operator("norm.layernorm_forward"), torch.ops.aten
    return {"softmax by hand": (lambda: softmax(x, scale=1.0), lambda: aten._softmax.default(x, -1, False)),
            "layer_norm by hand": (lambda: norm(x, w, w), lambda: aten.native_layer_norm.default(x, [256], w, w, 1e-6))}


def host_times(report, device, wait):
    calls, rows = {**pairs(device), **direct_pairs()}, []
    times = {name: ([], []) for name in calls}
    for _ in range(ROUNDS):
        for name, two in calls.items():
            for call, found in zip(two, times[name]):
                call()
                wait()
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                found.append((time.perf_counter() - start) / CALLS * 1e6)
                wait()
    for name, (ours, theirs) in times.items():
        ours, theirs = statistics.median(ours), statistics.median(theirs)
        rows.append([name, f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f}"])
        report.bar(f"{name}: the host's time by that of PyTorch's own", ours / theirs, MOST)
    report.table("Microseconds of the host per call of small tensors, medians", ["call", "kbundle.torch", "PyTorch", "ratio"], rows)


def main():
    report = Report("kbundle.torch on CUDA")
    kbundle.use(os.environ.get("KB_BUNDLE", "build/kernels.kb"))
    report.fact("PyTorch", torch.__version__)
    report.hold("calls go through the library's kernel, on CUDA too", _eager.enabled and _eager.cuda)
    report.hold("those that were made before go there in one step", _shortcut.enabled)
    if not torch.cuda.is_available():
        report.hold("PyTorch finds a GPU", False)
        report.finish()
    values(report, "cuda", int(os.environ.get("KB_SEED", random.SystemRandom().randrange(1 << 31))))
    views(report, "cuda")
    for check in (streams, threads, refusals, graphs, direct):
        check(report)
    host_times(report, "cuda", torch.cuda.synchronize)
    report.finish()


if __name__ == "__main__":
    main()
