"""The family attention with other score modifiers and other problems: a copy of kernels/attention whose manifest has what is asked for;
and random modifiers.
"""

import itertools
import json
import pathlib
import random
import re
import shutil

import numpy as np

from conformance import runner

FAMILY = pathlib.Path(__file__).resolve().parents[2] / "kernels/attention"


class Grammar:
    """Random expressions whose values and slopes stay moderate for scores of about 1, so that a result says whether the right
    expression was computed and not how 16 bits round. Any of the grammar, whatever its values: tests/builder/score_random.h."""

    UNARY = ("tanh({})", "sigmoid({})", "erf({})", "abs({})", "sqrt(abs({}) + 0.5)", "log(abs({}) + 1.5)", "exp(-abs({}))", "-({})",
             "pow(abs({}) + 0.5, 1.5)")
    BINARY = ("({} + {})", "({} - {})", "({} * {})", "min({}, {})", "max({}, {})", "{} / (abs({}) + 1.5)")
    LEAVES = ("s", "s", "s", "cap", "gain", "table", "other", "0.25", "1.75", "(k - q) / 64")
    INDICES = [dims for count in (1, 2, 3, 4) for dims in itertools.combinations("bhqk", count)]

    def __init__(self, seed):
        self.random, self.reference = random.Random(seed), runner.load_reference("attention", [FAMILY])
        self.unused = []  # index sets that no `table` of late had

    def tensors(self):
        """Two tensors: of the first every index set in turn, in any order but for b, which comes first."""
        self.unused = self.unused or self.random.sample(self.INDICES, len(self.INDICES))
        for name, dims in (("table", self.unused[-1]), ("other", self.random.choice(self.INDICES))):
            rest = [dim for dim in dims if dim != "b"]
            yield name, f"{name}[{', '.join(['b'] * ('b' in dims) + self.random.sample(rest, len(rest)))}]"

    def number(self, depth):
        if depth == 0 or self.random.random() < 0.1:
            return self.random.choice(self.LEAVES)
        if self.random.random() < 0.2:
            return f"select({self.truth(depth - 1)}, {self.number(depth - 1)}, {self.number(depth - 1)})"
        text = self.random.choice(self.UNARY if self.random.random() < 0.45 else self.BINARY)
        return text.format(*(self.number(depth - 1) for _ in range(text.count("{}"))))

    def truth(self, depth):
        a, b = (self.random.choice(("q", "k", "k - q", "2 * k", "q + 20")) for _ in range(2))
        test = f"{a} {self.random.choice(('<', '<=', '>', '>=', '!=', '=='))} {b}"
        if depth and self.random.random() < 0.4:
            return f"({test} {self.random.choice(('&&', '||'))} {self.truth(depth - 1)})"
        return f"!({test})" if self.random.random() < 0.2 else test

    def modifier(self):
        """(text, reference.Modifier, values of its scalars) of one that depends on s and on each of its tensors and stays moderate."""
        lengths = dict(zip("bhqk", (3, 4, 130, 200)))
        while True:
            tensors = dict(self.tensors())
            text = re.sub("table|other", lambda name: tensors[name.group()], self.number(4))
            modifier = self.reference.Modifier(text)
            if "table" not in modifier.tensors:
                continue
            values = [round(self.random.uniform(0.4, 2.0), 2) for _ in modifier.scalars]
            sampled = np.random.default_rng(0).standard_normal((130, 200)) * 1.5
            indices = dict(zip("bhqk", (0, 1, np.arange(130)[:, None], np.arange(200)[None, :])))
            tables = [np.full(shape, 0.7) for shape in modifier.shapes(lengths).values()]
            value, slope = modifier(sampled, indices, lengths, values, tables)
            moderate = np.isfinite(value).all() and np.isfinite(slope).all() and abs(value).max() < 40 and abs(slope).max() < 20
            if not moderate or np.mean(abs(slope) > 0.05) <= 0.2 or not 12 < len(text) < 400:
                continue
            if all(self.moves(modifier, sampled, indices, lengths, values, tables, i) for i in range(len(tables))):
                self.unused.pop()
                return text, modifier, values

    @staticmethod
    def moves(modifier, sampled, indices, lengths, values, tables, number):
        """Whether a tensor shows in many of the scores that a query sees, with a causal mask as without: behind a condition that never
        holds, wrong numbers of it would be right."""
        before, _ = modifier(sampled, indices, lengths, values, tables)
        after, _ = modifier(sampled, indices, lengths, values, [-table if i == number else table for i, table in enumerate(tables)])
        seen = indices["k"] <= indices["q"]
        return min(np.mean(abs(after - before)[part] > 0.02) for part in (seen, ~seen)) > 0.1

    def modifiers(self, names):
        return {name: self.modifier() for name in names}


def texts(modifiers):
    return {name: text for name, (text, _, _) in modifiers.items()}


def as_toml(problem):
    return "  { " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in problem.items()) + " },\n"


def write(folder, expressions, problems, variants, change=lambda block: block):
    """Copies the family to `folder` with these modifiers ({name: expression}), the ops of `problems` ({op: [problem, ..]}) with those, and of
    the variants those of these names; `change` may edit a variant. All else is left for what extends it."""
    shutil.copytree(FAMILY, folder, ignore=shutil.ignore_patterns("tuning", "*.toml", "*.jsonl", "jax*.py", "README.md", "__pycache__"))
    for path in FAMILY.glob("*.toml"):
        head, *blocks = re.split(r"(?m)^(?=\[\[?op\.\w+(?:\.variant)?\])", path.read_text())
        if path.name == "attention.toml":
            lines = "".join(f"  {name} = {json.dumps(expression)}\n" for name, expression in expressions.items())
            head = re.sub(r"(?m)^problems .*\n", "", head.split("  [family.score_mods]\n")[0] + f"  [family.score_mods]\n{lines}\n")
            head = re.sub(r'UNNUMBERED = """.*?"""', """UNNUMBERED = "score_mod == 'none'\"""", head, flags=re.S)  # its modifiers are gone
        (folder / path.name).write_text(head + "".join(_edited(block, problems, variants, change) for block in blocks))


def _edited(block, problems, variants, change):
    header, body = block.split("\n", 1)
    op = re.match(r"\[\[?op\.(\w+)", header).group(1)
    if not header.startswith("[["):
        mine = "".join(map(as_toml, problems.get(op, ())))
        return f"{header}\n" + (f"problems = [\n{mine}]\n" if op in problems else "abstract = true\n") + body
    name = (re.search(r'^name\s*= "(\w+)"', body, re.M) or re.search(r'^extends\s*= "(?:\w+\.)?(\w+)"', body, re.M)).group(1)
    return change(block) if op in problems and name in variants else f"{header}\nabstract = true\n{body}"
