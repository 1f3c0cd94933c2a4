"""What is chosen beside the quickest legal variant, of problems drawn anew in every run (KB_SEED): launches in captured graphs, in turns, of
every variant that is legal. A rule of a manifest that picks a slow one shows here, whatever the shapes are that the rule was made with.

KB_SECONDS is what the section is allowed, of which half goes to draws; KB_ONLY names an op, or the beginning of one.
"""

import collections
import os
import pathlib
import random
import time
from statistics import geometric_mean

import numpy as np

from bandwidth import random_bf16
from conformance import capi, devices
from report import Report
from unlisted import drawn

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = ROOT / "build/kernels.kb"
SECONDS = 200
MOST = 1 << 27                 # elements of one tensor
TURNS, EACH, SPAN_US = 3, 3, 200  # times of graphs that span as long, by turns
MEAN, WORST_MEAN = 1.05, 1.10  # chosen by quickest, geometric: of all ops, of any
MOST_GROUPS, GROUPS = 512, [2, 4, 8, 16, 40, 64, 128]
FEWEST = 8                     # problems of an op that say something


class Sizes(tuple):
    """The operand that says how many rows each group has: equal parts of those of the first operand."""

    def __new__(cls, groups):
        return super().__new__(cls, ("i32", (groups,)))


class Draw:
    """Problems of ops: operands as (dtype, dims) or None, and attributes."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def size(self, least, most, steps=(1, 8, 64, 128)):
        size = least * (most / least) ** self.chance.random()
        step = self.chance.choice(steps)
        return int(max(least, min(most, round(size / step) * step)))

    def rows(self, width, most=200_000):
        return self.size(1, max(2, min(most, MOST // width)), (1, 1, 16, 128))

    def width(self, most):
        """Of a row: one in five has few elements."""
        return self.size(1, 256, (1, 8)) if self.chance.random() < 0.2 else self.size(256, most)

    def dtype(self):
        return self.chance.choice(["bf16", "bf16", "f16", "f32"])

    def softmax(self, op):
        dtype, width = self.dtype(), self.size(16, 32768)
        if "causal" in op:
            width = min(width, 8192)
            x = dtype, (self.size(1, max(1, min(1024, MOST // width ** 2)), (1,)), width, width)
        elif "masked" in op:
            queries, batch, heads = self.size(1, 2048), self.size(1, 16, (1,)), self.size(1, 32, (1,))
            batch = max(1, min(batch, MOST // (queries * heads * width)))
            x = dtype, (batch, max(1, min(heads, MOST // (queries * width))), queries, width)
            return [x, ("u8", (self.chance.choice([1, batch]), 1, queries, width))], {"scale": 0.5}
        else:
            x = dtype, (self.rows(width), width)
        return [x, x] if "backward" in op else [x], {"scale": 0.5}

    def norm(self, op):
        dtype, width = self.dtype(), self.width(16384)
        rows = self.rows(width)
        x, row, weight = (dtype, (rows, width)), ("f32", (rows,)), (self.chance.choice([dtype, dtype, "f32"]), (width,))
        residual, layer = x if self.chance.random() < 0.3 else None, op.startswith("layer")
        if "backward" in op:
            return [x, x, *[row] * (2 if layer else 1), weight, residual], {}
        operands = [x, weight, *[weight] * layer, residual]
        if "quantize" not in op:
            return operands, {}
        scale = ("f32", (1,)) if self.chance.random() < 0.6 else None
        return [*operands, scale], {"out_dtype": "e4m3", "transposed": scale is not None and self.chance.random() < 0.3}

    def cross_entropy(self, op):
        dtype, width = self.dtype(), self.width(200_000)
        rows = max(1, min(self.size(1, 16384, (1, 128)), MOST // width))
        x, labels, row = (dtype, (rows, width)), ("i32", (rows,)), ("f32", (rows,))
        more = {"loss_backward": [row, row], "reduced_backward": [row, ("f32", ()), None], "loss_and_gradient": [None],
                "reduced_and_gradient": [None]}
        return [x, labels, *more.get(op, [])], {}

    def quantize(self, op):
        dtype, width, one = self.dtype(), self.size(64, 16384, (8, 64, 128)), ("f32", (1,))
        rows, how = max(1, min(self.size(1, 32768, (1, 16, 128)), MOST // (2 * width))), {"out_dtype": "e4m3"}
        x = dtype, (rows, width)
        if op == "dequantize":
            return [("e4m3", (rows, width)), one], {"out_dtype": dtype}
        if op.endswith("activation"):
            return [(dtype, (rows, self.chance.choice([1, 2]), width)), one], how | {"function": "gelu", "transposed": self.chance.random() < 0.5}
        if op == "per_tensor_grouped":
            return [x, Sizes(self.chance.choice(GROUPS)), None], how | {"transposed": self.chance.random() < 0.5}
        if op.startswith("per_tensor"):
            return [x, self.chance.choice([one, None])], how
        return [x], {} if op == "amax" else how

    def router(self, op):
        experts, k = self.chance.choice([8, 16, 32, 60, 64, 128, 160, 256, 384, 512]), self.chance.choice([1, 2, 4, 6, 8])
        dtype, tokens, k = self.dtype(), self.size(1, 65536, (1, 16, 128)), min(k, experts)
        logits, score = (dtype, (tokens, experts)), {"score_function": self.chance.choice(["softmax", "sigmoid"])}
        if op == "scores_backward":
            return [("f32", logits[1]), logits], score
        if op == "topk_backward":
            dense = self.chance.random() < 0.5
            return [logits, ("i32", (tokens, k)), logits if dense else None, None if dense else (dtype, (tokens, k))], score
        if op == "aux_loss":
            return [logits, Sizes(experts)], {"k": k, "coefficient": 0.01, "total_num_tokens": tokens}
        return [logits] if op == "scores" else [logits, None], {"k": k}

    def grouped(self, op):
        depth, width = (self.size(16, 8192, (16, 64, 128)) // 16 * 16 for _ in range(2))
        groups = max(1, min(self.chance.choice(GROUPS), MOST // (depth * width)))
        rows, dtype = self.size(1, min(32768, MOST // max(depth, width)), (1, 16, 128)), self.chance.choice(["bf16", "f16"])
        x, out, sizes = (dtype, (rows, depth)), {"out_dtype": dtype}, Sizes(groups)
        if op == "weight_gradient":
            return [x, (dtype, (rows, width)), sizes], out
        if op == "matmul":
            turned, bias = self.chance.random() < 0.5, (dtype, (groups, width))
            w = dtype, (groups, width, depth) if turned else (groups, depth, width)
            return [x, w, sizes, self.chance.choice([bias, None])], out | {"trans_w": turned}
        pieces = -(-depth // 128)
        scales = ("f32", (rows, pieces)), ("f32", (groups, -(-width // 128), pieces))
        return [("e4m3", (rows, depth)), ("e4m3", (groups, width, depth)), *scales, sizes, None], {"out_dtype": "bf16"}


OPS = {"softmax": ["scaled_forward", "scaled_backward", "scaled_causal_forward", "scaled_causal_backward", "scaled_masked_forward"],
       "norm": ["rmsnorm_forward", "layernorm_forward", "rmsnorm_backward", "layernorm_backward", "rmsnorm_quantize", "layernorm_quantize"],
       "cross_entropy": ["loss_forward", "loss_and_gradient", "loss_backward", "reduced_forward", "reduced_and_gradient", "reduced_backward"],
       "quantize": ["per_tensor", "amax", "dequantize", "per_group", "per_tile", "per_tensor_activation", "per_tensor_grouped"],
       "grouped": ["matmul", "scaled_matmul", "weight_gradient"],
       "router": ["topk", "topk_rows", "scores", "scores_backward", "topk_backward", "aux_loss"]}


class Bench:
    """Launches of variants on buffers that all problems share: random numbers, labels, masks, scales of 1."""

    def __init__(self):
        self.cuda, self.bundle = devices.Cuda(), capi.Bundle(BUNDLE)
        make = lambda dtype, count: devices.Buffer(self.cuda, dtype, (count,))
        self.floats, self.results = [make("bf16", 2 * MOST) for _ in range(4)], [make("bf16", 2 * MOST) for _ in range(8)]
        for seed, buffer in enumerate(self.floats):
            random_bf16(self.cuda, buffer, seed)
        self.labels = make("i32", 1 << 20).put(np.arange(1 << 20) % 31)
        self.mask = make("u8", MOST).put(np.random.default_rng(0).random(MOST, np.float32) < 0.2)
        self.ones, self.sizes = make("f32", 1 << 20).put(np.ones(1 << 20)), make("i32", MOST_GROUPS)

    def addresses(self, operands):
        wide = iter(self.floats)
        for operand in operands:
            if operand is None:
                yield None
            elif isinstance(operand, Sizes):
                ends = np.linspace(0, operands[0][1][0], operand[1][0] + 1).astype(np.int32)
                yield self.sizes.put(np.pad(np.diff(ends), (0, MOST_GROUPS - operand[1][0]))).address
            elif operand[0] in ("i32", "u8"):
                yield (self.labels if operand[0] == "i32" else self.mask).address
            else:
                yield self.ones.address if len(operand[1]) == 1 and operand[0] == "f32" else next(wide).address

    def ready(self, problem, variant, pointers):
        """(graph, launches in it, workspace, plan) of the variant, forced."""
        self.bundle.force(variant)
        plan = capi.Plan(self.bundle, problem, self.cuda.kind)
        self.bundle.clear_policy()
        workspace = self.cuda.allocate(max(1, plan.workspace_bytes))
        launch = lambda: plan.launch(*pointers, workspace, self.cuda.stream)
        once = self.cuda.capture(launch)
        us = min(self.cuda.graph_us(once, 2))
        self.cuda.call("cuGraphExecDestroy", once)
        count = max(1, min(40, int(SPAN_US / max(us, 2))))
        return self.cuda.capture(lambda: [launch() for _ in range(count)]), count, workspace, plan

    def times(self, problem, operands):
        """(the chosen variant, {variant: us}) of the legal ones."""
        results = [r["present"] for r in self.bundle.infer(problem, self.cuda.kind)["results"]]
        own = iter(self.results)
        pointers = [capi.Plan.pointers(list(self.addresses(operands))),
                    capi.Plan.pointers([next(own).address if present else None for present in results])]
        chosen = capi.Plan(self.bundle, problem, self.cuda.kind).variant
        legal = self.bundle.legal(problem, self.cuda.kind)
        ready, found = {v: self.ready(problem, v, pointers) for v in legal}, collections.defaultdict(list)
        for _ in range(TURNS):
            for variant, (graph, count, *_) in ready.items():
                found[variant] += [us / count for us in self.cuda.graph_us(graph, EACH)]
        for graph, _, workspace, _ in ready.values():
            self.cuda.call("cuGraphExecDestroy", graph)
            self.cuda.free(workspace)
        return chosen, {v: sorted(us)[len(us) // 2] for v, us in found.items()}


def short(variant):
    return variant.split("/")[1].split("@")[0]


def main():
    report, bench, seed = Report("choices"), Bench(), drawn.seed()
    report.fact("seed", seed)
    draw, until = Draw(seed), time.monotonic() + float(os.environ.get("KB_SECONDS", SECONDS)) / 2
    ops = [(family, op) for family, names in OPS.items() for op in names if f"{family}.{op}".startswith(os.environ.get("KB_ONLY", ""))]
    found, number = collections.defaultdict(list), 0
    while time.monotonic() < until:
        family, op = ops[number % len(ops)]
        number += 1
        operands, how = getattr(draw, family)(op)
        chosen, us = bench.times(capi.Problem(f"{family}.{op}", operands, how), operands)
        best = min(us, key=us.get)
        shapes = " ".join(f"{dtype}{list(dims)}" for dtype, dims in filter(None, operands[:2]))
        found[f"{family}.{op}"].append((us[chosen] / us[best], f"{shapes} {how or ''}", short(chosen), us[chosen], short(best), us[best]))
    rows, worst = [], []
    for op, problems in found.items():
        ratios = [one[0] for one in problems]
        typical = geometric_mean(ratios)
        rows.append([op, len(ratios), f"{typical:.3f}", f"{sum(r > 1.1 for r in ratios) / len(ratios):.2f}", f"{max(ratios):.2f}"])
        worst += [[op, text, a, f"{x:.2f}", b, f"{y:.2f}"] for _, text, a, x, b, y in sorted(problems, reverse=True)[:3]]
        if len(ratios) >= FEWEST:
            report.bar(f"{op}: chosen by quickest, geometric mean", typical, WORST_MEAN)
    report.bar("chosen by quickest, geometric mean of all", geometric_mean([one[0] for problems in found.values() for one in problems]), MEAN)
    report.table("Chosen by quickest", ["op", "problems", "mean", "beyond 1.1", "most"], rows)
    report.table("The three worst of each, us", ["op", "problem", "chosen", "us", "quickest", "us"], worst)
    report.finish()


if __name__ == "__main__":
    main()
