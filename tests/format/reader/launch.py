"""FORMAT.md, section 8a: what a variant launches, in the form of `kbundle explain --json`."""

import math
import struct

from format.reader import choose, product, program
from format.reader.container import NONE

KERNEL, MEMSET, COPY, OWN = 1, 2, 3, 4                         # StepKind
OPERAND, RESULT, REGION, INTEGER, FLOAT, ARRAY, MAP, STRUCT = range(1, 9)  # ArgKind
KINDS = {KERNEL: "kernel", MEMSET: "memset", COPY: "copy"}
OWN_KINDS = {"cudnn": "execution plan", "cublaslt": "product"}
WIDTHS = {"bool": (0, 1), "i8": (-2**7, 2**7 - 1), "u8": (0, 2**8 - 1), "i16": (-2**15, 2**15 - 1), "u16": (0, 2**16 - 1),
          "i32": (-2**31, 2**31 - 1), "u32": (0, 2**32 - 1), "i64": (-2**63, 2**63 - 1), "u64": (0, 2**64 - 1)}


class Refused(Exception):
    pass


def rounded_up(value, step):
    return -(-value // step) * step


def as_float(ctype, value):
    """A number as the argument's type holds it, in the way JSON shows it."""
    value = float(value)
    if ctype == "f32" and math.isfinite(value):
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    return value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


class Launch:
    def __init__(self, chooser, variant):
        self.reader, self.index, self.problem = chooser.reader, chooser.index, chooser.problem
        self.row = self.index.variants[variant]
        self.template, self.scope = self.index.templates[self.row.template_index], chooser.scope(variant)
        self.bytes, self.regions, self.offsets, self.sizes = 0, [], [], []
        for region in self.template.regions:
            size = self.size(region.bytes)
            self.regions.append({"region": region.name, "offset": self.bytes, "bytes": size})
            self.offsets.append(self.bytes)
            self.sizes.append(size)
            self.bytes += rounded_up(size, 256)
        self.steps = [s for s in (self.step(i, step) for i, step in enumerate(self.template.steps)) if s is not None]

    def total(self):
        """Bytes of workspace: regions, and every execution plan's own, launched here or not."""
        rows = (self.index.kernels[self.row.kernels + i] for i in range(len(self.template.steps)))
        end = self.offsets[-1] + rounded_up(self.sizes[-1], 256) if self.sizes else 0
        return end + sum(rounded_up(row.workspace, 256) for row in rows)

    def value(self, span):
        value = program.run(self.scope, span)
        if isinstance(value, program.Error):
            raise Refused(value.what)
        return value

    def size(self, span, default=0):
        value = self.value(span) if program.present(span) else default
        if value < 0:
            raise Refused("negative")
        return value

    def extent(self, spans):
        return [self.size(spans[i], 1) if i < len(spans) else 1 for i in range(3)]

    def step(self, number, step):
        if step.when is not None and program.present(step.when.program) and self.value(step.when.program) == 0:
            return None
        row = self.index.kernels[self.row.kernels + number]
        provider = self.index.providers[self.template.provider]
        head = {"step": number + 1, "kind": OWN_KINDS[provider] if step.kind == OWN else KINDS[step.kind]}
        if step.kind == KERNEL:
            return self.kernel(head, step, row)
        if step.kind == OWN and provider == "cudnn":
            own = {"kernel": self.index.symbols[row.symbol], "blob": row.blob, "workspace": {"workspace": self.bytes},
                   "bytes": rounded_up(row.workspace, 256)}
            self.bytes += own["bytes"]
            return head | own | {"args": [self.argument(step, arg) for arg in step.args]}
        if step.kind == OWN:
            found = product.resolve(self, step)
            stored = row.blob != NONE
            asked = {"blob": row.blob if stored else None, "algorithm": "stored" if stored else "heuristic"}
            return None if 0 in found["mnk"][:2] or found["batch"] == 0 else head | asked | found
        return self.transfer(head, step)

    def transfer(self, head, step):
        pointers = {"target": self.pointer(step.target)} | ({"source": self.pointer(step.source)} if step.kind == COPY else {})
        size = self.size(step.bytes)
        if size == 0 or None in pointers.values():
            return None
        return head | pointers | {"bytes": size} | ({"value": step.value} if step.kind == MEMSET else {})

    def kernel(self, head, step, row):
        out = head | {"kernel": self.index.symbols[row.symbol], "blob": row.blob}
        target = self.index.targets[self.row.target]
        if target.kind == choose.HOST and program.present(step.range):
            out |= {"range": self.size(step.range), "grain": max(self.size(step.grain, 1), 1)}
        else:
            out |= {"grid": self.extent(step.grid), "cluster": self.extent(step.cluster),
                    "programmatic": step.programmatic and target.major >= 9,
                    "block": [row.threads, 1, 1] if row.threads else self.extent(step.block),
                    "shared": row.dynamic_shared if row.threads else self.size(step.shared)}
        out["args"] = [self.argument(step, arg) for arg in step.args]
        return None if 0 in out.get("grid", [1]) or out.get("range") == 0 else out

    def tensor(self, arg):
        if arg.kind not in (OPERAND, RESULT):
            return None
        return self.scope.tensor(arg.index if arg.kind == OPERAND else len(self.problem.operands) + arg.index)

    def dtype(self, arg):
        """Of a pointer's elements; 0 where there is none."""
        if arg.kind != REGION:
            tensor = self.tensor(arg)
            return tensor.dtype if tensor else 0
        return self.resolved(self.template.regions[arg.index].type)

    def resolved(self, type_ref):
        return self.problem.types[type_ref.param] if type_ref.param >= 0 else type_ref.dtype

    def pointer(self, arg, offset=0):
        if arg.kind == REGION:
            return {"workspace": self.offsets[arg.index] + offset}
        if self.tensor(arg) is None:
            return None
        side = ("operand", self.problem.op.operands) if arg.kind == OPERAND else ("result", self.problem.op.results)
        return {side[0]: side[1][arg.index].name, "offset": offset}

    def argument(self, step, arg):
        head = {"text": arg.text or ""}
        if arg.kind == MAP:
            return head | self.tensor_map(step.tensor_maps[arg.index])
        if arg.kind == STRUCT:
            made = step.structs[arg.index]
            fields = [self.argument(step, field.arg) | {"offset": field.offset} for field in made.fields]
            return head | {"bytes": len(made.bytes), "fields": fields}
        if arg.kind in (OPERAND, RESULT, REGION):
            return head | {"at": self.pointer(arg, self.offset(arg))}
        ctype = self.reader.numbers.name("DType", arg.ctype)
        if arg.kind == INTEGER:
            return head | {"ctype": ctype, "value": self.fitted(ctype, self.value(arg.program))}
        value = self.problem.attributes[arg.index]
        if arg.kind == ARRAY:
            padded = list(value) + [0] * (arg.count - len(value))
            return head | {"ctype": ctype, "value": [self.fitted(ctype, v) for v in padded]}
        if arg.count > 0:
            value = value[arg.count - 1] if arg.count <= len(value) else 0.0
        if program.present(arg.program):  # the bits of a factor
            factor, = struct.unpack("<d", struct.pack("<q", self.value(arg.program)))
            value = float(as_float(ctype, value)) * factor
        return head | {"ctype": ctype, "value": as_float(ctype, value)}

    def fitted(self, ctype, value):
        if ctype in ("f32", "f64"):
            return as_float(ctype, value)
        if not WIDTHS[ctype][0] <= value <= WIDTHS[ctype][1]:
            raise Refused("does not fit")
        return value

    def offset(self, arg):
        """In bytes."""
        if not program.present(arg.program) or (arg.kind != REGION and self.tensor(arg) is None):
            return 0
        offset, width = self.value(arg.program), self.reader.numbers.dtype_bytes(self.dtype(arg))
        if arg.kind == REGION:
            elements = self.sizes[arg.index] // width
        else:
            tensor = self.tensor(arg)
            elements = math.prod(tensor.dims)
            if elements and tensor.strides:
                elements = 1 + sum((d - 1) * s for d, s in zip(tensor.dims, tensor.strides))
        if elements > 0 and not 0 <= offset < elements:
            raise Refused("outside")
        return offset * width if elements > 0 else 0

    def tensor_map(self, tensor_map):
        tensor, operands = self.scope.tensor(tensor_map.tensor), len(self.problem.operands)
        names = [t.name for t in (*self.problem.op.operands, *self.problem.op.results)]
        side = "operand" if tensor_map.tensor < operands else "result"
        sizes = {key: [self.size(span) for span in getattr(tensor_map, key)] for key in ("dims", "strides", "box", "element_strides")}
        sizes["element_strides"] = sizes["element_strides"] or [1] * len(sizes["dims"])
        return {"tensor_map": None if tensor is None else {side: names[tensor_map.tensor], "offset": 0},
                "dtype": self.reader.numbers.name("DType", self.resolved(tensor_map.type)), **sizes,
                "swizzle": tensor_map.swizzle, "interleave": tensor_map.interleave, "l2": tensor_map.l2, "fill": tensor_map.fill}
