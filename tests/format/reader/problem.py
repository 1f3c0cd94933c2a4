"""FORMAT.md, section 8, steps 1 to 4: a request bound to an op's interface. Requests that an op refuses are Refused."""

import dataclasses
import math

from format.reader import program

LARGEST = 2**63 - 1


class Refused(Exception):
    pass


@dataclasses.dataclass
class Tensor:
    dtype: int
    dims: list
    strides: list = dataclasses.field(default_factory=list)  # empty: dense

    def stride(self, axis):
        return self.strides[axis] if self.strides else program.checked(math.prod(self.dims[axis + 1:]))


class Problem:
    """operands, results: Tensor or None. attributes: int, float or list, an enum its index, a dtype its number."""

    def __init__(self, reader, op, operands, attributes):
        self.reader, self.op, self.operands = reader, op, operands
        self.results, self.attributes = [None] * len(op.results), []
        self.types, self.symbols, self.lists = [], [0] * len(op.symbols), {}
        self.scope = Scope(reader, self)
        self.bind_attributes(attributes)
        self.bind_types()
        self.bind_shapes()
        if any(self.value(rule.program) == 0 for rule in op.require):
            raise Refused("require")
        self.results = [self.result(result) for result in op.results]

    def value(self, span):
        value = program.run(self.scope, span)
        if isinstance(value, program.Error):
            raise Refused(value.what)
        return value

    def bind_attributes(self, given):
        for attribute in self.op.attributes:
            if attribute.name in given:
                self.attributes.append(self.convert(attribute, given[attribute.name]))
            elif not attribute.has_default:
                raise Refused(f"{attribute.name} is missing")
            else:
                values = list(attribute.floats if self.kind(attribute) in ("kFloat", "kFloatArray") else attribute.integers)
                self.attributes.append(values if self.kind(attribute).endswith("Array") else values[0])

    def kind(self, attribute):
        return self.reader.numbers.name("AttributeType", attribute.type)

    def convert(self, attribute, value):
        if self.kind(attribute) == "kEnum":
            return list(attribute.choices).index(value)
        return self.reader.numbers.number("DType", value) if self.kind(attribute) == "kDType" else value

    def bind_types(self):
        op = self.op
        self.types = [self.attributes[t.attribute] if t.attribute >= 0 else None for t in op.types]
        if any(dtype is not None and dtype not in list(t.dtypes) for dtype, t in zip(self.types, op.types)):
            raise Refused("the attribute's dtype")
        for tensor, spec in zip(self.operands, op.operands):
            if tensor is None:
                if not spec.optional:
                    raise Refused(f"{spec.name} is absent")
            elif spec.type.param < 0:
                if tensor.dtype != spec.type.dtype:
                    raise Refused(f"dtype of {spec.name}")
            else:
                bound = self.types[spec.type.param]
                if tensor.dtype not in list(op.types[spec.type.param].dtypes) or bound not in (None, tensor.dtype):
                    raise Refused(f"dtype of {spec.name}")
                self.types[spec.type.param] = tensor.dtype
        self.types = [t.dtypes[0] if bound is None else bound for bound, t in zip(self.types, op.types)]

    def parts(self, tensor, spec):
        """(Dim, the dims that it stands for) in order."""
        dims, fixed = list(spec.dims), len(spec.dims) - sum(d.ellipsis for d in spec.dims)
        if len(tensor.dims) < fixed or (fixed == len(dims) and len(tensor.dims) != fixed):
            raise Refused(f"rank of {spec.name}")
        at = 0
        for dim in dims:
            width = len(tensor.dims) - fixed if dim.ellipsis else 1
            yield dim, tensor.dims[at:at + width]
            at += width

    def bind_shapes(self):
        pairs = [(t, s) for t, s in zip(self.operands, self.op.operands) if t is not None]
        bound = set()
        for tensor, spec in pairs:
            self.check_size(tensor)
            tensor.strides = self.kept_strides(tensor, spec)
            for dim, part in self.parts(tensor, spec):
                if dim.symbol < 0:
                    continue
                value = math.prod(part)
                if dim.symbol in bound and value != self.symbols[dim.symbol]:
                    raise Refused(f"a dim of {spec.name}")
                if dim.ellipsis and self.lists.setdefault(dim.symbol, part) != part:
                    raise Refused(f"leading dims of {spec.name}")
                bound.add(dim.symbol)
                self.symbols[dim.symbol] = value
        for tensor, spec in pairs:
            if any(dim.symbol < 0 and self.value(dim.program) != part[0] for dim, part in self.parts(tensor, spec)):
                raise Refused(f"a dim of {spec.name}")

    def check_size(self, tensor):
        if math.prod(tensor.dims) * self.reader.numbers.dtype_bytes(tensor.dtype) >= LARGEST or len(tensor.dims) > 16:
            raise Refused("size")

    def kept_strides(self, tensor, spec):
        """Empty where they say nothing: those of dims of size 1, and of dense rows."""
        dims, strides = tensor.dims, list(tensor.strides)
        if not strides:
            return []
        if len(strides) != len(dims):
            raise Refused(f"strides of {spec.name}")
        dense = [math.prod(dims[axis + 1:]) for axis in range(len(dims))]
        strides = [wanted if dim == 1 else stride for dim, stride, wanted in zip(dims, strides, dense)]
        if 0 in dims or strides == dense:
            return []
        if not spec.strided or sum((dim - 1) * stride for dim, stride in zip(dims, strides)) >= LARGEST // 8:
            raise Refused(f"strides of {spec.name}")
        return strides

    def result(self, spec):
        if spec.when is not None and self.value(spec.when.program) == 0:
            return None
        dims = []
        for dim in spec.dims:
            if dim.ellipsis:
                if dim.symbol not in self.lists:
                    raise Refused("dims of an absent operand")
                dims += self.lists[dim.symbol]
            else:
                dims.append(self.symbols[dim.symbol] if dim.symbol >= 0 else self.value(dim.program))
        result = Tensor(spec.type.dtype if spec.type.param < 0 else self.types[spec.type.param], dims)
        if any(dim < 0 for dim in dims):
            raise Refused("a negative dim")
        self.check_size(result)
        operand = self.operands[spec.alias] if spec.alias >= 0 else None
        if spec.alias >= 0 and (operand is None or (operand.dtype, operand.dims) != (result.dtype, dims)):
            raise Refused("an aliasing result")
        return result


class Scope:
    """What programs may ask for: of an op's interface first, of a variant with more."""

    def __init__(self, reader, problem, tunables=(), alignment=16, sm_count=1):
        self.reader, self.index, self.problem = reader, reader.index, problem
        self.tunables, self.alignment, self.sm_count, self.lets = tunables, alignment, sm_count, []
        self.hidden, self.within_dim = frozenset(), False  # symbols that a batch-invariant choice does not see

    def of_a_dim(self):
        """For a program of the interface, which stands for a size of a tensor."""
        scope = Scope(self.reader, self.problem, self.tunables, self.alignment, self.sm_count)
        scope.hidden, scope.within_dim = self.hidden, True
        return scope

    def tensor(self, number):
        operands = self.problem.operands
        return operands[number] if number < len(operands) else self.problem.results[number - len(operands)]

    def bytes_of(self, dtype):
        return self.reader.numbers.dtype_bytes(dtype)
