"""The attention ops against jax.nn.dot_product_attention and torch's scaled_dot_product_attention, both on cuDNN, on the problems of
the manifest, forward, and forward with backward: device time and accuracy in one run on the same data. Softcap against torch's
flex_attention.

How times are taken: peers.py, torch_side.py. Errors are those of the first and the last kv-head (of long sequences the first) with
its query heads against float64, relative, root mean square, of ours and of JAX's.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import attention
import launch_cost
import peers
import torch_side
from conformance import capi, devices, runner
from report import Report

ROOT = capi.ROOT
SECONDS = 400  # after which no further problem is begun
SET_COUNT, LONG = 2, 4096
NAMED = (1, 8192, 16, 128)
TFLOPS = 500  # only to guess how many calls make a burst
BACKWARD, FORWARD = "attention.sdpa_backward", "attention.sdpa_forward"


def problems(bundle):
    """(operands, attributes) of the listed forward problems of 16 bits without a modifier or dropout."""
    for problem, operands, attributes in attention.listed(bundle, FORWARD, None):
        if operands[0][0] in ("bf16", "f16") and "score_mod" not in attributes and operands[6] is None:
            yield operands, attributes


def label_of(operands, attributes):
    what = [f"{k}={v}" for k, v in attributes.items() if k in ("mask", "window", "window_right", "layout")]
    what += [name for name, o in zip(("bias", "q_lengths", "kv_lengths"), operands[3:6]) if o]
    q, k, v = (o[1] for o in operands[:3])
    sizes = [x for x in (k, v) if x != q]
    return " ".join([operands[0][0], "x".join(map(str, q)), *(f"on {'x'.join(map(str, x))}" for x in dict.fromkeys(sizes)), *what])


class Data:
    """Sets of operands and a gradient of o: the first is that of the case, on the host; others are rolled along the batch or sequence."""

    def __init__(self, case, attributes):
        q, v = case.host[0], case.host[2]
        dims = q.shape[:-1] + v.shape[-1:]
        self.host = [*case.host[:6], case.tensors.rng.standard_normal(dims, np.float32).astype(q.dtype)]
        axis = 2 if attributes.get("layout") == "bhsd" else 1
        first = [None if x is None else jnp.asarray(x) for x in self.host]
        roll = lambda x, i: x if i in (3, 4, 5) or x is None else jnp.roll(x, 1, axis)
        self.sets = [first] + [[roll(x, i) for i, x in enumerate(first)] for _ in range(SET_COUNT - 1)]
        jax.block_until_ready(self.sets)


class Ours:
    """Launches of the variants that the loader chooses, on the arrays of JAX."""

    def __init__(self, cuda, bundle, operands, attributes, sets, variants=(None, None)):
        self.cuda, self.bundle, self.sets, self.buffers = cuda, bundle, sets, []
        self.forward_plan, self.forward_pointers = None, []
        self.backward_plan, self.backward_pointers = None, []
        (self.b, *_), tail = operands[0][1], [None] * (len(operands) - 6)
        problem = capi.Problem(FORWARD, operands, attributes)
        self.forward_plan, space = self.plan(problem, variants[0])
        self.results = [self.empty(problem) for _ in sets]
        for arrays, results in zip(sets, self.results):
            self.forward_pointers.append((self.pointers([*arrays[:6], *tail]), self.pointers(results), space))
        self.gradients = []
        if attributes.get("with_stats"):
            self.add_backward(operands, attributes, sets, variants[1], tail)

    def add_backward(self, operands, attributes, sets, variant, tail):
        o, stats = self.results[0]
        own = {k: v for k, v in attributes.items() if k != "with_stats"}
        like_o = (operands[0][0], o.dims)
        problem = capi.Problem(BACKWARD, [*operands[:3], like_o, like_o, ("f32", stats.dims), *operands[3:]], own)
        self.backward_plan, space = self.plan(problem, variant)
        self.gradients = [self.empty(problem) for _ in sets]
        for arrays, (o, stats), gradients in zip(sets, self.results, self.gradients):
            given = [*arrays[:3], o, arrays[6], stats, *arrays[3:6], *tail]
            self.backward_pointers.append((self.pointers(given), self.pointers(gradients), space))

    def plan(self, problem, variant):
        if variant:
            self.bundle.force(variant)
        try:
            plan = capi.Plan(self.bundle, problem, capi.CUDA, alignment=16)
        finally:
            self.bundle.clear_policy()
        self.buffers.append(devices.Buffer(self.cuda, "u8", [max(256, plan.workspace_bytes)]))
        return plan, self.buffers[-1].address

    def empty(self, problem):
        inferred = self.bundle.infer(problem, capi.CUDA)["results"]
        made = [devices.Buffer(self.cuda, r["dtype"], r["dims"]).poison() if r["present"] else None for r in inferred]
        self.buffers += [b for b in made if b]
        return made

    @staticmethod
    def pointers(arrays):
        return capi.Plan.pointers([None if x is None else x.address if isinstance(x, devices.Buffer) else x.unsafe_buffer_pointer() for x in arrays])

    def forward(self, number):
        self.forward_plan.launch(*self.forward_pointers[number], self.cuda.stream)

    def backward(self, number):
        self.backward_plan.launch(*self.backward_pointers[number], self.cuda.stream)

    def both(self, number):
        self.forward(number)
        self.backward(number)

    def found(self):
        """o, dq, dk, dv of the first set."""
        return [buffer.get() for buffer in [self.results[0][0], *(self.gradients[0][:3] if self.gradients else [])]]

    def free(self):
        for buffer in self.buffers:
            buffer.free()


def by_jax(attributes):
    """(forward, forward with gradients) of (q, k, v, bias, q_lengths, kv_lengths, dout), sequences before heads."""
    window = attributes.get("window", -1), attributes.get("window_right", 0)  # cuDNN through JAX refuses what looks ahead

    def forward(q, k, v, bias, q_lengths, kv_lengths, dout=None):
        return jax.nn.dot_product_attention(q, k, v, bias, scale=attributes["scale"], is_causal=attributes.get("mask") == "causal",
                                            query_seq_lengths=q_lengths, key_value_seq_lengths=kv_lengths,
                                            local_window_size=window if window[0] >= 0 else None, implementation="cudnn")

    def both(q, k, v, bias, q_lengths, kv_lengths, dout):
        o, pull = jax.vjp(lambda q, k, v: forward(q, k, v, bias, q_lengths, kv_lengths), q, k, v)
        return o, *pull(dout)

    return forward, both


def jax_sets(data, attributes):
    swap = attributes.get("layout") == "bhsd"
    return [[jnp.swapaxes(x, 1, 2) if swap and i in (0, 1, 2, 6) else x for i, x in enumerate(arrays)] for arrays in data.sets]


def torch_sides(data, attributes, calls, refused, label):
    """Forward and both by torch, or None where its attention on cuDNN has no such mask."""
    if attributes.get("window", -1) >= 0 or any(x is not None for x in data.host[4:6]):
        refused[f"{label}: torch"] = "its attention on cuDNN has neither windows nor lengths"
        return [None, None]
    sets = [[None if x is None else np.asarray(x) for x in [*arrays[:4], arrays[6]]] for arrays in data.sets]
    side = torch_side.CudnnAttention(sets, attributes.get("layout") == "bhsd", attributes.get("mask") == "causal", attributes["scale"])
    ways = [side.forward, side.both] if attributes.get("with_stats") else [side.forward]

    def made(way):
        found = peers.attempt(f"{label}: torch, captured", lambda: torch_side.Captured(way, SET_COUNT, calls), refused)
        return found or peers.attempt(f"{label}: torch", lambda: torch_side.Eager(way, SET_COUNT, calls), refused)

    return ([made(way) for way in ways] + [None])[:2]


def exact_parts(case, dout, with_gradients):
    """[(b, query heads, kv-heads, [o, dq, dk, dv] in float64, heads first)] of the heads that are looked at."""
    length = case.host[0].shape[2 if case.attributes.get("layout") == "bhsd" else 1]
    for b, kv in list(case.chosen())[:1 if length >= LONG else 2]:
        part, q_heads, kv_heads = case.part(b, kv)
        o, stats = case.reference.sdpa_forward(*part, **case.numbers(), layout="bhsd", with_stats=True)[:2]
        wanted = [o]
        if with_gradients:
            given = attention.heads_first(dout, case.attributes)[b:b + 1, q_heads].astype(np.float64)
            wanted += case.reference.sdpa_backward(*part[:3], o, given, stats, *part[3:], **case.numbers(), layout="bhsd")[:3]
        yield b, q_heads, kv_heads, wanted


def errors(parts, found, layout, lengths):
    """Relative errors of o, dq, dk, dv; what lies behind a length is left out."""
    attributes = {"layout": layout}
    worst = []
    for number, array in enumerate(found):
        array, pairs = attention.heads_first(np.asarray(array), attributes), []
        for b, q_heads, kv_heads, wanted in parts:
            if number < len(wanted):
                limit = lengths[1 if number > 1 else 0]
                end = None if limit is None else int(limit[b])
                pairs.append((array[b:b + 1, kv_heads if number > 1 else q_heads, :end], wanted[number][:, :, :end]))
        if pairs:
            worst.append(peers.relative_error(*(np.concatenate([p[i].astype(np.float64).ravel() for p in pairs]) for i in (0, 1))))
    return worst


def measured(cuda, bundle, reference, operands, attributes, refused):
    label = label_of(operands, attributes)
    case = attention.Case(cuda, reference, operands, attributes)
    data = Data(case, attributes)
    case.tensors.free()
    trains = bool(attributes.get("with_stats"))
    us = max(20.0, attention.flops(operands, attributes, False) / TFLOPS / 1e6)
    calls = max(4, min(24, int(1500 / us)))
    ours, sets = Ours(cuda, bundle, operands, attributes, data.sets), jax_sets(data, attributes)
    ways = list(zip(("forward", "both"), by_jax(attributes)))[:2 if trains else 1]
    try:
        sides = [peers.GraphSide(cuda, ours.forward, SET_COUNT, calls), None, None, None, None, None]
        if trains:
            sides[3] = peers.GraphSide(cuda, ours.both, SET_COUNT, max(2, calls // 2))
        for i, (name, way) in enumerate(ways):
            sides[3 * i + 1] = peers.attempt(f"{label}: jax {name}", lambda: peers.JaxSide(way, sets, max(2, calls // (i + 1))), refused)
        sides[2], sides[5] = torch_sides(data, attributes, max(2, calls // 2), refused, label)
        times = peers.by_turns(sides)
        parts = list(exact_parts(case, data.host[6], trains))
        lengths, layout = data.host[4:6], attributes.get("layout", "bshd")
        mine = errors(parts, ours.found(), layout, lengths)
        theirs = None
        if sides[1]:
            ran = [x for x in jax.tree.leaves(jax.jit(ways[-1][1])(*sets[0]))][:4]
            theirs = errors(parts, ran, "bshd", lengths)
        names = [p and p.variant.split("/")[1].split("[")[0] for p in (ours.forward_plan, ours.backward_plan)]
        return {"label": label, "operands": operands, "attributes": attributes, "times": times, "errors": (mine, theirs), "variants": names}
    finally:
        ours.free()


def judge(report, found):
    for way, at in (("forward", 0), ("forward and backward", 3)):
        rows = [f for f in found if f["times"][at] and any(f["times"][at + 1:at + 3])]
        best = {f["label"]: min(t for t in f["times"][at + 1:at + 3] if t) for f in rows}
        slower = [f"{f['label']}: {f['times'][at]:.1f} against {best[f['label']]:.1f} us" for f in rows
                  if f["times"][at] > best[f["label"]] * peers.NOISE]
        report.bar(f"{way}: problems compared", len(rows), 15, at_least=True)
        report.hold(f"{way}: never slower than jax's or torch's cuDNN by more than 2 %", not slower, "; ".join(slower))
        for f in rows:
            if f["operands"][0][1] == NAMED and f["attributes"].get("mask") == "causal" and "window" not in f["attributes"]:
                report.bar(f"{way}, causal 8K d128: time of the faster peer's", f["times"][at] / best[f["label"]], peers.NOISE)
    worse = [f"{f['label']}, {name}: {mine:.3g} against {theirs:.3g}" for f in found if f["errors"][1]
             for name, mine, theirs in zip(("o", "dq", "dk", "dv"), *f["errors"]) if not mine <= 1.1 * theirs]
    report.hold("errors at most 1.1 times those of jax's cuDNN, gradients included", not worse, "; ".join(worse))


def softcap(report, cuda, bundle, reference, refused):
    """Ours as chosen, and our own kernels by force, against flex_attention."""
    for problem, operands, attributes in attention.listed(bundle, FORWARD, cuda):
        if attributes.get("score_mod") == "softcap" and operands[0][0] == "bf16":
            break
    case = attention.Case(cuda, reference, operands, attributes)
    data = Data(case, attributes)
    case.tensors.free()
    heads_first = [np.swapaxes(data.host[i], 1, 2) for i in (0, 1, 2, 6)]
    flex = torch_side.FlexSoftcap(*heads_first, attributes["scale"], attributes["score_scalars"][0])
    chosen = Ours(cuda, bundle, operands, attributes, data.sets)
    own_ids = [own_variant(bundle, plan.problem) for plan in (chosen.forward_plan, chosen.backward_plan)]
    own = Ours(cuda, bundle, operands, attributes, data.sets, own_ids)
    graph = lambda way: peers.GraphSide(cuda, way, SET_COUNT, 4)
    sides = [peers.attempt("flex_attention forward, captured", lambda: torch_side.Captured(flex.forward, 1, 4), refused)
             or torch_side.Eager(flex.forward, 1, 8), torch_side.Eager(flex.backward, 1, 4)]
    sides += [graph(way) for way in (chosen.forward, chosen.backward, own.forward, own.backward)]
    flex_us, flex_back, us, back, own_us, own_back = peers.by_turns(sides)
    report.fact("softcap, us: flex_attention forward, backward; ours; our own kernels",
                [round(x, 1) for x in (flex_us, flex_back, us, back, own_us, own_back)])
    report.bar("softcap forward, times faster than flex_attention", flex_us / us, 2.4, at_least=True)
    report.bar("softcap backward, times faster than flex_attention", flex_back / back, 2.2, at_least=True)
    report.bar("softcap forward of our own kernel, of flex_attention's speed", flex_us / own_us, 0.9, at_least=True)
    report.bar("softcap backward of our own kernel, of flex_attention's speed", flex_back / own_back, 0.9, at_least=True)
    chosen.free()
    own.free()


def own_variant(bundle, problem):
    """The first legal variant that is a kernel of our own."""
    bundle.clear_policy()
    candidates = bundle.explain(problem, capi.CUDA)["candidates"]
    return next(c["id"] for c in candidates if c["legal"] and "/cudnn" not in c["id"])


def table(report, found):
    number = peers.number
    each = lambda values: ", ".join(f"{x:.2g}" for x in values or [])
    head = ["problem", "variants", "forward", "jax", "torch", "both", "jax", "torch", "errors of o, dq, dk, dv", "jax's errors"]
    report.table("Microseconds of a call", head, [[f["label"], ", ".join(filter(None, f["variants"])), *map(number, f["times"]),
                                                   each(f["errors"][0]), each(f["errors"][1])] for f in found])


def main():
    report, found, refused = Report("attention_peers"), [], {}

    def section():
        start, cuda = time.monotonic(), devices.Cuda()
        jax.block_until_ready(jnp.zeros(1))
        launch_cost.library("libcudnn.so.9")
        bundle = capi.Bundle(sys.argv[1] if len(sys.argv) > 1 else attention.BUNDLE)
        reference = runner.load_reference("attention", [ROOT / "kernels"])
        for operands, attributes in list(problems(bundle)):
            label = label_of(operands, attributes)
            if time.monotonic() - start > SECONDS:
                refused[label] = "no time was left"
                continue
            with torch_side.released():
                one = peers.attempt(label, lambda: measured(cuda, bundle, reference, operands, attributes, refused), refused)
            if one:
                found.append(one)
                print("    ", label, *one["variants"], *(peers.number(t) or "-" for t in one["times"]), *one["errors"], flush=True)
            jax.clear_caches()
        judge(report, found)
        softcap(report, cuda, bundle, reference, refused)
        report.fact("seconds", round(time.monotonic() - start, 1))

    peers.finish(report, section, refused, lambda: table(report, found))


if __name__ == "__main__":
    main()
