"""Random requests near the problems that a bundle lists: sizes, dtypes, attributes and operands changed a little or much."""

import dataclasses
import math
import random

from format.reader import program
from format.reader.problem import Refused

SIZES = [0, 1, 2, 7, 8, 33, 64, 100, 128, 256, 1000, 1024, 2048, 4096, 5120, 65536]
FLOATS = [0.0, 0.125, 0.3, 1.0, -2.5, 1e-5, 1e300]


@dataclasses.dataclass
class Request:
    op: str
    operands: list      # (dtype, dims), with strides behind them where they are given, or None
    attributes: dict

    def arguments(self, reader):
        """Of kbundle explain."""
        names = [operand.name for operand in reader.ops[self.op][1].operands]
        words = [self.op]
        for name, operand in zip(names, self.operands):
            if operand is not None:
                strides = "{" + ",".join(map(str, operand[2])) + "}" if operand[2:] else ""
                words += ["--operand", f"{name}={operand[0]}[{','.join(map(str, operand[1]))}]{strides}"]
        for name, value in self.attributes.items():
            words += ["--attr", f"{name}={written(value)}"]
        return words


def written(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return "[" + ",".join(map(written, value)) + "]" if isinstance(value, list) else str(value)


def named_value(reader, attribute, value):
    """An attribute's stored value as a user writes it."""
    kind = reader.numbers.name("AttributeType", attribute.type)
    if kind in ("kFloat", "kFloatArray"):
        return list(value.floats) if kind == "kFloatArray" else value.floats[0]
    if kind == "kIntArray":
        return list(value.integers)
    number = value.integers[0]
    return {"kBool": bool, "kInt": int, "kDType": lambda n: reader.numbers.name("DType", n),
            "kEnum": lambda n: attribute.choices[n]}[kind](number)


def listed(reader, name):
    """The op's listed problems as requests."""
    op = reader.ops[name][1]
    for stored in op.problems:
        operands = [(reader.numbers.name("DType", t.dtype), list(t.dims)) if t.present else None for t in stored.operands]
        values = {op.attributes[v.attribute].name: named_value(reader, op.attributes[v.attribute], v) for v in stored.attributes}
        yield Request(name, operands, values)


class Mutator:
    def __init__(self, reader, seed):
        self.reader, self.random = reader, random.Random(seed)

    def changed(self, base):
        """Another request for the same op, often one that the op takes."""
        op, pick = self.reader.ops[base.op][1], self.random
        bound = self.reader.problem(base.op, base.operands, base.attributes)
        attributes = dict(base.attributes)
        for attribute in op.attributes:
            if pick.random() < 0.03:
                attributes |= self.attribute(attribute)
        for number in pick.sample(range(len(op.symbols)), min(len(op.symbols), pick.choice([0, 1, 1, 2, 3]))):
            value = bound.symbols[number]
            changed = pick.choice([value * 2, value + 1, value // 2, max(value - 8, 0), pick.choice(SIZES)])
            # What was equal often has to stay so: two names of one size, one of them a dim of an optional operand.
            for other in range(len(op.symbols)) if pick.random() < 0.7 else [number]:
                if bound.symbols[other] == value:
                    bound.symbols[other] = changed
                    if other in bound.lists:
                        bound.lists[other] = [changed]
        if op.types and pick.random() < 0.3:
            number = pick.randrange(len(op.types))
            bound.types[number] = pick.choice(list(op.types[number].dtypes))
        operands = [self.operand(bound, spec, before) for spec, before in zip(op.operands, base.operands)]
        return Request(base.op, operands, attributes)

    def attribute(self, attribute):
        kind, pick = self.reader.numbers.name("AttributeType", attribute.type), self.random
        values = {"kBool": lambda: pick.random() < 0.5, "kInt": lambda: pick.choice([-1, 0, 1, 2, 64, 4096]),
                  "kFloat": lambda: pick.choice(FLOATS), "kEnum": lambda: pick.choice(list(attribute.choices)),
                  "kDType": lambda: pick.choice(["f32", "bf16", "f16", "e4m3"]),
                  "kIntArray": lambda: [pick.randrange(4) for _ in range(pick.randrange(attribute.max_len + 1))],
                  "kFloatArray": lambda: [pick.choice(FLOATS) for _ in range(pick.randrange(attribute.max_len + 1))]}
        return {attribute.name: values[kind]()}

    def operand(self, bound, spec, before):
        if before is None and (not spec.optional or self.random.random() < 0.9):
            return None
        if before is not None and spec.optional and self.random.random() < 0.1:
            return None
        dims = []
        for dim in spec.dims:
            if dim.ellipsis:
                dims += bound.lists.get(dim.symbol, [])
            else:
                dims.append(bound.symbols[dim.symbol] if dim.symbol >= 0 else self.computed(bound, dim.program))
        dtype = bound.types[spec.type.param] if spec.type.param >= 0 else spec.type.dtype
        operand = self.reader.numbers.name("DType", dtype), dims
        return (*operand, self.strides(dims)) if self.random.random() < (0.5 if spec.strided else 0.02) else operand

    def strides(self, dims):
        """Dense ones, or of a part of something larger, or of an axis that is repeated."""
        strides = [math.prod(dims[axis + 1:]) for axis in range(len(dims))]
        if dims and self.random.random() < 0.8:
            axis = self.random.randrange(len(dims))
            strides[axis] = self.random.choice([0, 1, strides[axis] * 2, strides[axis] + 8])
        return strides

    def computed(self, bound, span):
        value = program.run(bound.scope, span)
        return 1 if isinstance(value, program.Error) or value < 0 else value


def requests(reader, count, seed):
    """`count` of them over all ops, the listed ones and others in turn."""
    mutator, bases = Mutator(reader, seed), {}
    for name in reader.ops:
        bases[name] = [base for base in listed(reader, name) if takes(reader, base)]
    names = [name for name, found in bases.items() if found]
    for number in range(count):
        base = mutator.random.choice(bases[names[number % len(names)]])
        yield base if mutator.random.random() < 0.2 else mutator.changed(base)


def takes(reader, request):
    try:
        reader.problem(request.op, request.operands, request.attributes)
    except Refused:
        return False
    return True
