"""FORMAT.md, section 7: programs. An error is a value, and what is 64 bits wide stays so."""

import dataclasses
import struct


@dataclasses.dataclass(frozen=True)
class Error:
    what: str


def checked(value):
    return value if -2**63 <= value < 2**63 else Error("overflow")


def divide(a, b):
    """(quotient, rest), towards zero; errors where there is none."""
    if b == 0:
        return Error("division by zero"), Error("division by zero")
    if a == -2**63 and b == -1:
        return Error("overflow"), Error("overflow")
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


def ceil_div(a, b):
    quotient, rest = divide(a, b)
    return quotient if isinstance(quotient, Error) or rest == 0 or (a < 0) != (b < 0) else quotient + 1


BINARY = {32: lambda a, b: checked(a + b), 33: lambda a, b: checked(a - b), 34: lambda a, b: checked(a * b),
          35: lambda a, b: divide(a, b)[0], 36: lambda a, b: divide(a, b)[1], 37: min, 38: max, 39: ceil_div,
          48: lambda a, b: int(a == b), 49: lambda a, b: int(a != b), 50: lambda a, b: int(a < b),
          51: lambda a, b: int(a <= b), 52: lambda a, b: int(a > b), 53: lambda a, b: int(a >= b)}
UNARY = {64: lambda a: checked(-a), 65: lambda a: int(a == 0), 66: lambda a: checked(abs(a)),
         67: lambda a: checked(1 << max(a - 1, 0).bit_length()), 68: lambda a: max(a - 1, 0).bit_length()}


def operate(opcode, stack):
    if opcode in UNARY:
        a = stack.pop()
        return a if isinstance(a, Error) else UNARY[opcode](a)
    if opcode == 80:
        condition, yes, no = stack[-3:]
        del stack[-3:]
        return condition if isinstance(condition, Error) else yes if condition != 0 else no
    a, b = stack[-2:]
    del stack[-2:]
    if isinstance(a, Error):
        return a
    if opcode in (54, 55):  # && and ||: by the first alone where that decides
        return a if (a == 0) == (opcode == 54) else b
    return b if isinstance(b, Error) else BINARY[opcode](a, b)


def hidden_axis(scope, number, axis=None):
    """Whether a tensor's size along an axis (None: its rank) depends on a symbol that the program may not see."""
    if not scope.hidden:
        return False
    op, tensor = scope.problem.op, scope.tensor(number)
    spec = op.operands[number] if number < len(op.operands) else op.results[number - len(op.operands)]
    if axis is None:
        return any(dim.ellipsis and dim.symbol in scope.hidden for dim in spec.dims)
    every = [dim for dim in spec.dims for _ in range(len(tensor.dims) + 1 - len(spec.dims) if dim.ellipsis else 1)]
    dim = every[axis]
    if dim.symbol >= 0:
        return dim.symbol in scope.hidden
    return scope.within_dim or run(scope.of_a_dim(), dim.program) == Error("batch")


def tensor_value(scope, opcode, operand):
    tensor, axis = scope.tensor(operand & 0xff), operand >> 8
    if opcode == 6:
        return int(tensor is not None)
    if opcode == 9:
        return 256 if tensor is None else max(scope.alignment, scope.bytes_of(tensor.dtype))
    if opcode == 10:
        return 0 if tensor is None else Error("batch") if hidden_axis(scope, operand & 0xff) else len(tensor.dims)
    if tensor is None:
        return 0
    if axis >= len(tensor.dims):
        return Error("no such axis")
    looked_at = [axis] if opcode == 11 else [] if tensor.strides else range(axis + 1, len(tensor.dims))
    if any(hidden_axis(scope, operand & 0xff, one) for one in looked_at):
        return Error("batch")
    return tensor.dims[axis] if opcode == 11 else tensor.stride(axis)


def load(scope, opcode, operand):
    problem = scope.problem
    if opcode == 5:
        values, element = problem.attributes[operand & 0xff], operand >> 8
        return values[element] if element < len(values) else Error("no such element")
    simple = {1: lambda: scope.index.constants[operand], 2: lambda: Error("batch") if operand in scope.hidden else problem.symbols[operand],
              3: lambda: int(problem.attributes[operand]), 4: lambda: len(problem.attributes[operand]),
              7: lambda: scope.bytes_of(problem.types[operand]), 8: lambda: problem.types[operand],
              13: lambda: scope.tunables[operand], 14: lambda: scope.lets[operand], 15: lambda: scope.sm_count,
              16: lambda: struct.unpack("<I", struct.pack("<f", problem.attributes[operand]))[0]}
    return simple[opcode]() if opcode in simple else tensor_value(scope, opcode, operand)


def run(scope, span):
    """The value of a program, or an Error."""
    stack = []
    for i in range(span.first, span.first + span.count):
        opcode, operand = scope.index.code[i] & 0xff, scope.index.code[i] >> 8
        stack.append(load(scope, opcode, operand) if opcode < 32 else operate(opcode, stack))
    return stack[0]


def present(span):
    return span is not None and span.count != 0
