"""A second reader of bundles, written from schemas/FORMAT.md and bundle.fbs alone: it shares no code with kbundle.

It opens a file, verifies it, chooses a variant for a problem and says what would be launched.
"""

import pathlib

from format.reader import choose, container, launch, numbers, problem

SCHEMAS = pathlib.Path(__file__).resolve().parents[3] / "schemas"
Refused = problem.Refused


class Reader:
    def __init__(self, path):
        self.file = container.File(pathlib.Path(path), (SCHEMAS / "bundle.fbs").read_text())
        self.index = self.file.index
        self.numbers = numbers.Numbers((SCHEMAS / "FORMAT.md").read_text())
        self.ops = {op.name: (number, op) for number, op in enumerate(self.index.ops)}
        self.entries = {(e.op, e.target, e.types): e for e in self.index.entries}
        self.tuned = {}
        for row in self.index.tuned:
            self.tuned.setdefault((row.op, row.target, row.match), []).append(row)

    def types_of(self, variant, count):
        return [self.index.variants[variant].types >> 8 * i & 0xff for i in range(count)]

    def problem(self, op, operands, attributes):
        """operands: (dtype, dims, strides where it has any) or None. Raises Refused."""
        tensors = [o and problem.Tensor(self.numbers.number("DType", o[0]), *map(list, o[1:])) for o in operands]
        return problem.Problem(self, self.ops[op][1], tensors, attributes)

    def variant_id(self, variant):
        row = self.index.variants[variant]
        op, template = self.index.ops[row.op], self.index.templates[row.template_index]
        point = [f"{t.name}={self.numbers.name('DType', dtype)}" for t, dtype in
                 zip(op.types, self.types_of(variant, len(op.types)))]
        point += [f"{name}={self.index.constants[row.tunables + i]}" for i, name in enumerate(template.tunables)]
        written = f"[{','.join(point)}]" if point else ""
        return f"{op.name}/{template.name}{written}@{self.index.targets[row.target].name}"

    def explain(self, asked, device, alignment=16, sm_count=132, modes=()):
        """device: (TargetKind, major, minor); modes: names. What `kbundle explain --json` says of the choice and its launch."""
        kind, major, minor = device
        chooser = choose.Chooser(self, asked, self.ops[asked.op.name][0], alignment, sm_count, modes)
        for variant, how in chooser.order(choose.ranked_targets(self.index, kind, major, minor)):
            try:
                found = launch.Launch(chooser, variant)
            except launch.Refused:
                if "batch_invariant" in modes:
                    break
                continue
            made = {"alignment": alignment, "sm_count": sm_count, "workspace": found.regions, "steps": found.steps}
            return {"chosen": self.variant_id(variant), "choice": how, "workspace_bytes": found.total(), "launch": made}
        return {"chosen": None, "choice": None, "workspace_bytes": None, "launch": None}
