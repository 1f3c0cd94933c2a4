"""FlashAttention-4's kernels with score modifiers, of random shapes: results and gradients against torch in float64, and times beside
torch's flex_attention, compiled, in the same run. The bundle is that of modifier_bundle.py.

Each modifier has a process of its own, so that torch compiles all of them at once; they measure one after the other.
"""

import ast
import fcntl
import json
import os
import statistics
import subprocess
import sys

from conformance import capi
from report import Report

FOLDER = capi.ROOT / "build/attention_modifiers"
HEAD, ROUNDS, SECONDS = 128, 5, 400
WITHIN = {"o": 2e-2, "stats": 1e-4, "dq": 4e-2, "dk": 4e-2, "dv": 4e-2}
WITHIN_FAST = WITHIN | {"stats": 1e-3}  # fast_tanh errs by 2^-11
SOFTCAP_US = {"softcap": 420, "fast_softcap": 240}


# ---- A modifier's text as torch computes it ----

class Source(ast.NodeVisitor):
    """Python of a modifier's text; functions are those of `functions`."""
    OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
                 ast.GtE: ">="}

    def visit_Constant(self, node):
        return repr(float(node.value))

    def visit_Name(self, node):
        return node.id

    def visit_Subscript(self, node):
        return f"{node.value.id}[{', '.join(name.id for name in ast.walk(node.slice) if isinstance(name, ast.Name))}]"

    def visit_UnaryOp(self, node):
        return f"{'negated' if isinstance(node.op, ast.Not) else '-'}({self.visit(node.operand)})"

    def visit_BinOp(self, node):
        return f"({self.visit(node.left)} {self.OPERATORS[type(node.op)]} {self.visit(node.right)})"

    def visit_Compare(self, node):
        return f"({self.visit(node.left)} {self.OPERATORS[type(node.ops[0])]} {self.visit(node.comparators[0])})"

    def visit_BoolOp(self, node):
        return "(" + (" & " if isinstance(node.op, ast.And) else " | ").join(map(self.visit, node.values)) + ")"

    def visit_Call(self, node):
        name = {"min": "least", "max": "most", "abs": "magnitude", "pow": "power"}.get(node.func.id, node.func.id)
        return f"{name}({', '.join(map(self.visit, node.args))})"


def functions():
    import math

    import torch

    def either(of_tensor, of_number):
        return lambda x: of_tensor(x) if isinstance(x, torch.Tensor) else of_number(x)

    def select(condition, a, b):
        if isinstance(condition, bool):
            return a if condition else b
        return torch.where(condition, a, b)

    made = {name: either(getattr(torch, name), getattr(math, name)) for name in ("tanh", "exp", "log", "erf", "sqrt")}
    made |= {f"fast_{name}": made[name] for name in ("tanh", "exp")}
    return made | {"select": select, "least": lambda a, b: select(a <= b, a, b), "most": lambda a, b: select(a >= b, a, b),
                   "magnitude": either(torch.abs, abs), "power": lambda a, b: a ** b, "negated": lambda a: ~a,
                   "sigmoid": either(torch.sigmoid, lambda x: 1 / (1 + math.exp(-x)))}


def torch_modifier(text, names):
    """score_mod(s, b, h, q, k) of flex_attention."""
    python = text.replace("&&", " and ").replace("||", " or ").replace("!=", "<>").replace("!", " not ").replace("<>", "!=")
    body = Source().visit(ast.parse(python.strip(), mode="eval").body)
    scope = functions() | names
    exec(f"def modifier(s, b, h, q, k):\n    return {body}\n", scope)
    return scope["modifier"]


# ---- One modifier ----

class Case:
    def __init__(self, one):
        import torch
        from conformance import runner
        from conformance.modified_attention import FAMILY
        self.torch, self.one = torch, one
        self.batches, self.queries, self.keys, self.heads, self.kv_heads, self.mask = one["shape"]
        modifier = runner.load_reference("attention", [FAMILY]).Modifier(one["text"])
        torch.manual_seed(1)
        normal = lambda length, heads: torch.randn(self.batches, length, heads, HEAD, device="cuda").to(torch.bfloat16)
        self.q, self.dout = normal(self.queries, self.heads), normal(self.queries, self.heads)
        self.k, self.v = normal(self.keys, self.kv_heads), normal(self.keys, self.kv_heads)
        lengths = dict(zip("bhqk", (self.batches, self.heads, self.queries, self.keys)))
        self.tensors = [torch.randn([lengths[dim] for dim in modifier.dims[name]], device="cuda") for name in modifier.tensors]
        self.names = dict(zip(modifier.scalars, one["values"])) | dict(zip(modifier.tensors, self.tensors))
        self.scale = HEAD ** -0.5

    # -- flex_attention --

    def flex(self):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        torch, block_mask = self.torch, None
        if self.mask != "none":
            ahead = self.keys - self.queries
            block_mask = create_block_mask(lambda b, h, q, k: k <= q + ahead, None, None, self.queries, self.keys, device="cuda")
        compiled, modifier = torch.compile(flex_attention, dynamic=False), torch_modifier(self.one["text"], self.names)
        given = [x.transpose(1, 2) for x in (self.q, self.k, self.v)]
        run = lambda q, k, v: compiled(q, k, v, score_mod=modifier, block_mask=block_mask, scale=self.scale,
                                       enable_gqa=self.heads != self.kv_heads)
        leaves = [x.detach().clone().requires_grad_() for x in given]
        saved, dout = run(*leaves), self.dout.transpose(1, 2)

        def forward(_):
            with torch.no_grad():
                return run(*given)

        return forward, lambda _: torch.autograd.grad(saved, leaves, dout, retain_graph=True)

    # -- ours --

    def problem(self, op, operands):
        tensors = [("f32", (x.numel(),)) for x in self.tensors] + [None] * (2 - len(self.tensors))
        attributes = {"scale": self.scale, "mask": self.mask, "score_mod": self.one["name"], "score_scalars": self.one["values"]}
        return capi.Problem(f"attention.{op}", [*operands, None, None, None, None, *tensors], attributes |
                            ({"with_stats": True} if op == "sdpa_forward" else {}))

    def ours(self):
        torch, bundle = self.torch, capi.Bundle(str(FOLDER / "modifiers.kb"))
        spec = lambda x: ("bf16", tuple(x.shape))
        self.o, self.stats = torch.full_like(self.q, float("nan")), torch.full((self.batches, self.heads, self.queries), float("nan"), device="cuda")
        self.gradients = [torch.full_like(x, float("nan")) for x in (self.q, self.k, self.v)]
        qkv = [self.q, self.k, self.v]
        forward = capi.Plan(bundle, self.problem("sdpa_forward", [spec(x) for x in qkv]), capi.CUDA, alignment=16)
        backward = capi.Plan(bundle, self.problem("sdpa_backward", [*map(spec, [*qkv, self.o, self.dout]), ("f32", tuple(self.stats.shape))]),
                             capi.CUDA, alignment=16)
        none = [0] * 4 + [x.data_ptr() for x in self.tensors] + [0] * (2 - len(self.tensors))
        given = [[x.data_ptr() for x in of] + none for of in (qkv, [*qkv, self.o, self.dout, self.stats])]
        results = [[self.o.data_ptr(), self.stats.data_ptr()], [*[x.data_ptr() for x in self.gradients], 0]]
        room = [torch.empty(max(1, plan.workspace_bytes), dtype=torch.uint8, device="cuda") for plan in (forward, backward)]

        def launch(number, plan):
            plan.launch(given[number], results[number], room[number].data_ptr(), torch.cuda.current_stream().cuda_stream)
        self.kept = bundle, room
        return (lambda _: launch(0, forward)), (lambda _: launch(1, backward))

    # -- float64 --

    def errors(self):
        """{result: error, relative to the largest magnitude} of one head of keys in the last batch. Where float32 may see another slope
        of the modifier than float64, on the other side of a corner of it, a score's share of the gradients says nothing."""
        torch, b, kv = self.torch, self.batches - 1, self.kv_heads - 1
        group = self.heads // self.kv_heads
        first = kv * group
        own = slice(first, first + group)
        double = lambda x: x.to(torch.float64)
        q = double(self.q[b, :, own]).transpose(0, 1).requires_grad_()
        k, v = (double(x[b, :, kv]).requires_grad_() for x in (self.k, self.v))
        names = {name: double(x) if isinstance(x, torch.Tensor) else x for name, x in self.names.items()}
        place = [torch.full((), b, device="cuda"), torch.arange(first, first + group, device="cuda")[:, None, None],
                 torch.arange(self.queries, device="cuda")[None, :, None], torch.arange(self.keys, device="cuda")[None, None, :]]
        modifier = lambda scores: torch_modifier(self.one["text"], names)(scores, *place)
        plain = self.scale * q @ k.T
        scores, sure = modifier(plain), self.sure(modifier, plain.detach())
        if self.mask != "none":
            scores = torch.where(place[3] <= place[2] + self.keys - self.queries, scores, -torch.inf)
        o = torch.softmax(scores, -1) @ v
        gradients = torch.autograd.grad(o, (q, k, v), double(self.dout[b, :, own]).transpose(0, 1))
        wanted = dict(zip(WITHIN, (o, torch.logsumexp(scores, -1), *gradients)))
        found = dict(zip(WITHIN, (self.o[b, :, own].transpose(0, 1), self.stats[b, own], self.gradients[0][b, :, own].transpose(0, 1),
                                  self.gradients[1][b, :, kv], self.gradients[2][b, :, kv])))
        told = {"dq": sure.all(-1, keepdim=True), "dk": sure.all(1).all(0)[:, None]}
        return {name: float(((double(found[name]) - wanted[name]) * told.get(name, 1)).abs().max() / wanted[name].abs().max()) for name in WITHIN}

    def sure(self, modifier, scores):
        """Of which scores the slope is the same a little below and above."""
        def slope(at):
            at = at.requires_grad_()
            return self.torch.autograd.grad(modifier(at).sum(), at)[0]
        near = 1e-5 * (1 + scores.abs())
        return (slope(scores - near) - slope(scores + near)).abs() <= 1e-2


def child(number):
    import torch_side
    case = Case(json.loads((FOLDER / "modifiers.json").read_text())["cases"][number])
    ours = case.ours()
    for one in ours:
        one(0)
    result = {"errors": case.errors()}
    case.torch.cuda.synchronize()
    print(json.dumps(result), flush=True)
    flex = case.flex()
    for one in flex:
        one(0)
    case.torch.cuda.synchronize()
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        captured = lambda f: torch_side.Captured(f, 1, 4)
        sides = [captured(ours[0]), captured(ours[1]), captured(flex[0]), torch_side.Eager(flex[1], 1, 4)]
        bursts = [[side.burst() for side in sides] for _ in range(ROUNDS)]
    print(json.dumps(result | {"us": [statistics.median(column) for column in zip(*bursts)]}))


def geometric(ratios):
    return statistics.geometric_mean(ratios) if ratios else 0.0


def main():
    if sys.argv[1:2] == ["child"]:
        return child(int(sys.argv[2]))
    report = Report("score modifiers as FlashAttention-4 kernels")
    if not report.hold("modifiers.kb is there", (FOLDER / "modifiers.kb").exists(), "make it with tests/gpu/unlisted/modifier_bundle.py"):
        report.finish()
    cases = json.loads((FOLDER / "modifiers.json").read_text())["cases"]
    (FOLDER / "lock").touch()
    runs = [subprocess.Popen([sys.executable, __file__, "child", str(i)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
            for i in range(len(cases))]
    rows, ratios = [], ([], [])
    for one, run in zip(cases, runs):
        try:
            out, err = run.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            out, err = run.communicate()
        found = json.loads(out.splitlines()[-1]) if out.strip() else {}
        name = f"{one['name']} {tuple(one['shape'])}"
        within = WITHIN_FAST if "fast_" in one["text"] else WITHIN
        wrong = {part: error for part, error in found.get("errors", {"nothing": 1.0}).items() if not error <= within.get(part, 0)}
        report.hold(f"{name}: within the family's tolerances of float64", not wrong, f"{wrong} {err[-1500:] if not found else ''}")
        if "us" not in found:
            report.hold(f"{name}: torch compiled flex_attention", False, err[-600:])
            continue
        us = found["us"]
        for list_, ratio in zip(ratios, (us[2] / us[0], us[3] / us[1])):
            list_.append(ratio)
        worst = max(found["errors"][part] / within[part] for part in within)
        rows.append([name, *(f"{x:.1f}" for x in (us[0], us[2], us[1], us[3])), f"{us[2] / us[0]:.2f}", f"{us[3] / us[1]:.2f}", f"{worst:.2f}"])
        if one["name"] in SOFTCAP_US:
            report.bar(f"{one['name']} (4, 2048, 16, 128), forward", us[0], SOFTCAP_US[one["name"]], "us")
    report.table("Microseconds, and of flex_attention; error in tolerances", ["modifier (B, SQ, SKV, H, HKV, mask)", "forward", "flex", "backward",
                                                                              "flex", "times", "times", "error"], rows)
    report.bar("forward, flex_attention's time over ours, geometric mean", geometric(ratios[0]), 1.4, at_least=True)
    report.bar("backward, flex_attention's time over ours, geometric mean", geometric(ratios[1]), 2.0, at_least=True)
    report.finish()


if __name__ == "__main__":
    main()
