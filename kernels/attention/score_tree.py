"""Score modifiers as the builder describes them to Python (builder/score/tree.h), put together element by element from the operations of
whoever computes: `Operations` says which. What does not depend on an element is computed once for all that share it, and factors that
all scores share are carried to where they count: cap * tanh((x * scale) / cap) multiplies x once.
"""
import dataclasses
import functools
import operator

COMPARISONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
LEAVES = {"s", "number", "index", "scalar", "tensor"}
# Finite of what is finite; a quotient is where all elements share the divisor.
BOUNDED = LEAVES | COMPARISONS.keys() | {"+", "-", "*", "/", "min", "max", "abs", "tanh", "fast_tanh", "sigmoid", "erf", "select", "&&", "||", "!"}


class Operations:
    """Of Python's numbers, and of all that takes their operators. Floats unless it is said; integers are whole numbers of places.

    Who computes adds abs, exp, log, tanh, sigmoid, erf, sqrt and pow, and overrides what it has otherwise; fast_exp and fast_tanh where it
    has faster ones of less accuracy.
    """

    def real(self, integer):
        return float(integer)

    def select(self, condition, a, b):
        return a if condition else b

    def both(self, a, b):
        return a and b

    def either(self, a, b):
        return a or b

    def negated(self, a):
        return not a

    def inverse(self, a):
        return 1.0 / a

    def product_sum(self, a, b, c):
        return a * b + c

    def scaled_tanh(self, factor, x):
        return self.tanh(factor * x)

    def fast_exp(self, a):
        return self.exp(a)

    def fast_tanh(self, a):
        return self.tanh(a)


@dataclasses.dataclass
class Scaled:
    """factor * value, where all elements share the factor."""
    factor: object
    value: object


class Modifier:
    """A modifier on a block of scores, of which an element is at a query and a key that lie so far behind the block's first."""

    def __init__(self, tree, operations, *, scale, scalars, first, read):
        """scale: what `s` is of an element. first: by "b", "h", "q", "k" the number of the block's first. read(tensor, place): an element
        of a tensor, with place[dim] = (number of the first, how far behind)."""
        self.tree, self.nodes, self.operations = tree, tree["nodes"], operations
        self.scale, self.scalars, self.first, self.read = scale, scalars, first, read
        self.varies = []  # of each node: with which of "s", "q" and "k"
        for name, *operands in self.nodes:
            self.varies.append("".join(sorted(self._varies(name, operands))))
        self.kept = {}  # what several elements share

    def _varies(self, name, operands):
        if name in ("number", "scalar", "s"):
            return {"s"} if name == "s" else set()
        if name in ("index", "tensor"):
            return set(operands[0] if name == "index" else self.tree["tensors"][operands[0]]) & set("qk")
        return set("".join(self.varies[one] for one in operands))

    def value(self, x, q, k):
        """The modified score of scale * x."""
        return self._element(self.tree["value"], x, q, k)

    def slope(self, x, q, k):
        """Its derivative by the scaled score; None: it is 1."""
        if self.nodes[self.tree["slope"]] == ["number", 1.0]:
            return None
        return self._element(self.tree["slope"], x, q, k)

    def _element(self, root, x, q, k):
        self.x, self.at, self.own = x, {"q": q, "k": k, "b": 0, "h": 0}, {}
        return self._plain(root)

    def _node(self, number):
        varies = self.varies[number]
        known = self.own if "s" in varies else self.kept
        key = (number, *[self.at[dim] for dim in varies if dim != "s"])
        if key not in known:
            known[key] = self._make(*self.nodes[number])
        return known[key]

    def _plain(self, number):
        made = self._node(number)
        if not isinstance(made, Scaled):
            return made
        if ("plain", number) not in self.own:
            self.own["plain", number] = made.value * made.factor
        return self.own["plain", number]

    def _make(self, name, *operands):
        whole = self._whole(name, operands)
        if whole is not None and name != "number":
            return self._real(*whole)
        if name == "s":
            return Scaled(self.scale, self.x)
        if name == "number":
            return operands[0]
        if name == "scalar":
            return self.scalars[operands[0]]
        if name == "tensor":
            dims = self.tree["tensors"][operands[0]]
            return self.read(operands[0], {dim: (self.first[dim], self.at[dim]) for dim in dims})
        if name in COMPARISONS:
            return self._compare(name, *operands)
        if name in ("*", "/") or name == "-" and len(operands) == 1:
            return self._product(name, *operands)
        if name in ("+", "-"):
            return self._sum(name, *operands)
        if name == "tanh" and isinstance(made := self._node(operands[0]), Scaled):
            return self.operations.scaled_tanh(made.factor, made.value)
        return self._call(name, [self._plain(one) for one in operands])

    def _call(self, name, values):
        operations = self.operations
        if name in ("min", "max"):
            a, b = values
            return operations.select(a <= b if name == "min" else a >= b, a, b)
        words = {"select": "select", "&&": "both", "||": "either", "!": "negated"}
        return getattr(operations, words.get(name, name))(*values)

    def _shared_by_all(self, number):
        return not self.varies[number]

    def _product(self, name, a, b=None):
        """A factor that all share is put aside."""
        if b is None:
            made = self._node(a)
            return Scaled(-made.factor, made.value) if isinstance(made, Scaled) else -made
        if name == "*" and self._shared_by_all(a):
            a, b = b, a
        if self._shared_by_all(b) and not self._shared_by_all(a):
            factor = self._plain(b) if name == "*" else self._kept("inverse", b, lambda: self.operations.inverse(self._plain(b)))
            made = self._node(a)
            if isinstance(made, Scaled):
                both = self._kept("factor of %d" % a, b if name == "*" else -1 - b, lambda: made.factor * factor)
                return Scaled(both, made.value)
            return Scaled(factor, made)
        if name == "*":
            return self._plain(a) * self._plain(b)
        return self._plain(a) * self.operations.inverse(self._plain(b))

    def _kept(self, what, number, make):
        if (what, number) not in self.kept:
            self.kept[what, number] = make()
        return self.kept[what, number]

    def _sum(self, name, a, b):
        """Of a product the product and the sum stand together: one instruction."""
        first, second = self._node(a), self._node(b)
        if isinstance(first, Scaled):
            other = self._plain(b)
            return self.operations.product_sum(first.value, first.factor, other if name == "+" else -other)
        if isinstance(second, Scaled):
            factor = second.factor if name == "+" else -second.factor
            return self.operations.product_sum(second.value, factor, first)
        return first + second if name == "+" else first - second

    def _whole(self, name, operands):
        """({index: how often}, number) of a sum of places and whole numbers, else None."""
        if name == "index":
            return {operands[0]: 1}, 0
        if name == "number":
            return ({}, int(operands[0])) if operands[0] == int(operands[0]) and abs(operands[0]) < 1 << 24 else None
        if name not in ("+", "-") or len(operands) != 2:
            return None
        a, b = (self._whole(self.nodes[one][0], self.nodes[one][1:]) for one in operands)
        if a is None or b is None:
            return None
        sign = 1 if name == "+" else -1
        dims = {dim: a[0].get(dim, 0) + sign * b[0].get(dim, 0) for dim in {**a[0], **b[0]}}
        return {dim: times for dim, times in dims.items() if times}, a[1] + sign * b[1]

    def _split(self, dims, number):
        """(what blocks decide, what the element does) of a sum of places."""
        def first():
            terms = [self.first[dim] if times == 1 else self.first[dim] * times for dim, times in sorted(dims.items())]
            return functools.reduce(operator.add, terms)
        here = number + sum(times * self.at[dim] for dim, times in dims.items())
        return self._kept("first", tuple(sorted(dims.items())), first), here

    def _real(self, dims, number):
        if not dims:
            return float(number)
        first, here = self._split(dims, number)
        real = self._kept("real", tuple(sorted(dims.items())), lambda: self.operations.real(first))
        return real + float(here)

    def _compare(self, name, a, b):
        """Of places, whole numbers are compared: one instruction, and nothing is made a float."""
        whole = self._whole("-", (a, b))
        if whole is None:
            return COMPARISONS[name](self._plain(a), self._plain(b))
        if not whole[0]:
            return COMPARISONS[name](whole[1], 0)
        first, here = self._split(*whole)
        return COMPARISONS[name](first, -here)

    def bounded(self, root):
        """Whether "value" or "slope" is finite wherever scores, numbers and tensors are: what is hidden then needs no other care."""
        reached, pending = set(), [self.tree[root]]
        while pending:
            name, *operands = self.nodes[pending.pop()]
            if name not in BOUNDED or name == "/" and not self._shared_by_all(operands[1]):
                return False
            fresh = set() if name in LEAVES else set(operands) - reached
            reached |= fresh
            pending += fresh
        return True
