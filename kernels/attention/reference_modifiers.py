"""Score modifiers in float64: the value of a manifest's expression, and its derivative by s."""

import ast
import functools
import math

import numpy as np


class _Dual:
    """A value and its derivative by s."""

    def __init__(self, value, slope=0.0):
        self.value, self.slope = value, slope

    def through(self, value, derivative):
        return _Dual(value, np.where(np.equal(self.slope, 0.0), 0.0, self.slope * derivative))


def _product(a, b):
    return _Dual(a.value * b.value, a.slope * b.value + a.value * b.slope)


def _quotient(a, b):
    return _Dual(a.value / b.value, (a.slope - a.value / b.value * b.slope) / b.value)


def _select(condition, a, b):
    return _Dual(np.where(condition, a.value, b.value), np.where(condition, a.slope, b.slope))


def _power(a, b):
    value = a.value ** b.value
    by_base = a.through(value, b.value * a.value ** (b.value - 1))
    by_exponent = b.through(value, value * np.log(np.where(a.value > 0, a.value, 1.0)))
    return _Dual(value, by_base.slope + by_exponent.slope)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


_OPERATORS = {
    ast.Add: lambda a, b: _Dual(a.value + b.value, a.slope + b.slope),
    ast.Sub: lambda a, b: _Dual(a.value - b.value, a.slope - b.slope),
    ast.Mult: _product, ast.Div: _quotient,
}
_COMPARISONS = {ast.Eq: np.equal, ast.NotEq: np.not_equal, ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater,
                ast.GtE: np.greater_equal}
_FUNCTIONS = {
    "select": _select, "pow": _power,
    "min": lambda *xs: functools.reduce(lambda a, b: _select(a.value <= b.value, a, b), xs),
    "max": lambda *xs: functools.reduce(lambda a, b: _select(a.value >= b.value, a, b), xs),
    "abs": lambda x: x.through(np.abs(x.value), np.where(x.value >= 0, 1.0, -1.0)),
    "exp": lambda x: x.through(np.exp(x.value), np.exp(x.value)),
    "log": lambda x: x.through(np.log(x.value), 1 / x.value),
    "tanh": lambda x: x.through(np.tanh(x.value), 1 - np.tanh(x.value) ** 2),
    "sigmoid": lambda x: x.through(_sigmoid(x.value), _sigmoid(x.value) * (1 - _sigmoid(x.value))),
    "erf": lambda x: x.through(np.vectorize(math.erf)(x.value), 2 / np.sqrt(np.pi) * np.exp(-x.value ** 2)),
    "fast_exp": lambda x: _FUNCTIONS["exp"](x), "fast_tanh": lambda x: _FUNCTIONS["tanh"](x),
    "sqrt": lambda x: x.through(np.sqrt(x.value), 0.5 / np.sqrt(x.value)),
}


class Modifier:
    """A score modifier of the manifest: value and derivative in float64. Scalars and tensors are named in the order in
    which the expression has them; dims are those of each tensor, as in "bq"."""

    def __init__(self, text):
        python = text.replace("&&", " and ").replace("||", " or ").replace("!=", "<>").replace("!", " not ").replace("<>", "!=")
        self.tree = ast.parse(python.strip(), mode="eval").body
        called = {node.func for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        tables = {node.value: node.slice for node in ast.walk(self.tree) if isinstance(node, ast.Subscript)}
        inside = {name for dims in tables.values() for name in ast.walk(dims)}
        names = sorted((node for node in ast.walk(self.tree) if isinstance(node, ast.Name) and node not in called | inside),
                       key=lambda node: node.col_offset)
        self.scalars = list(dict.fromkeys(n.id for n in names if n not in tables and n.id not in ("s", "b", "h", "q", "k")))
        self.dims = {n.id: "".join(dim.id for dim in ast.walk(tables[n]) if isinstance(dim, ast.Name)) for n in names if n in tables}
        self.tensors = list(self.dims)

    def __call__(self, s, indices, lengths, scalars, tensors):
        """(modified, derivative) of s[q, k]; indices and lengths by the names b, h, q, k."""
        names = {name: _Dual(np.float64(value)) for name, value in indices.items()} | {"s": _Dual(s, np.ones_like(s))}
        names |= {name: _Dual(np.float64(np.float32(value))) for name, value in zip(self.scalars, scalars, strict=True)}
        with np.errstate(all="ignore"):
            made = _Evaluation(names, indices, lengths, self.dims, dict(zip(self.tensors, tensors))).of(self.tree)
        return np.broadcast_to(made.value, s.shape), np.broadcast_to(made.slope, s.shape)

    def shapes(self, lengths):
        """{operand: dims} of its tensors, which an op takes flat; lengths by the names b, h, q, k."""
        return {f"score_tensor{i}": (math.prod(lengths[dim] for dim in self.dims[name]),) for i, name in enumerate(self.tensors)}


class _Evaluation:
    """Of one expression at some scores."""

    def __init__(self, names, indices, lengths, dims, tables):
        self.names, self.indices, self.lengths, self.dims, self.tables = names, indices, lengths, dims, tables

    def of(self, node):
        match node:
            case ast.Constant():
                return _Dual(np.float64(node.value))
            case ast.Name():
                return self.names[node.id]
            case ast.Subscript():
                dims, table = self.dims[node.value.id], self.tables[node.value.id]
                return _Dual(table.reshape([self.lengths[dim] for dim in dims])[tuple(self.indices[dim] for dim in dims)])
            case ast.UnaryOp(op=ast.USub()):
                return _OPERATORS[ast.Sub](_Dual(0.0), self.of(node.operand))
            case ast.UnaryOp(op=ast.Not()):
                return np.logical_not(self.of(node.operand))
            case ast.UnaryOp():
                return self.of(node.operand)
            case ast.BinOp():
                return _OPERATORS[type(node.op)](self.of(node.left), self.of(node.right))
            case ast.Compare():
                return _COMPARISONS[type(node.ops[0])](self.of(node.left).value, self.of(node.comparators[0]).value)
            case ast.BoolOp():
                both = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
                return functools.reduce(both, map(self.of, node.values))
            case ast.Call():
                return _FUNCTIONS[node.func.id](*map(self.of, node.args))
