"""Shapes of results whose operands' sizes are symbols of torch.compile: the same expressions that the bundle has as texts ("T[rows.., K]",
"f32[B, layout == 'bshd' ? Q2 : Q1]"), computed in Python over sizes that need not be numbers.

What is computed so is held against what the bundle says of an example's sizes; where both differ, or a text cannot be read, the
caller falls back to numbers.
"""

import math
import re

_TOKEN = re.compile(r"\s*(?:(\d+)|('[^']*')|([A-Za-z_]\w*)|(==|!=|<=|>=|&&|\|\||[-+*/%<>!?:(),]))")
_LEVELS = (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"))


class Unknown(Exception):
    """A text that this module cannot compute."""


def terms(shape):
    """What stands between the brackets of a shape, cut at the commas that are nobody's argument."""
    inner = shape[shape.index("[") + 1:shape.rindex("]")]
    found, depth, begin = [], 0, 0
    for at, sign in enumerate(inner):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            found.append(inner[begin:at])
            begin = at + 1
    return [term.strip() for term in [*found, inner[begin:]] if term.strip()]


def bind(description, operands, attributes):
    """{name: size, list of sizes, or attribute} of what the operands' shapes name. operands: shapes, or None where absent."""
    known = {attribute.name: attribute.default for attribute in description.attributes}
    known.update(attributes)
    for declared, shape in zip(description.operands, operands):
        if shape is None:
            continue
        names, sizes = terms(declared.shape), list(shape)
        many = next((index for index, name in enumerate(names) if name.endswith("..")), None)
        if many is not None:
            count = len(sizes) - len(names) + 1
            if count < 0:
                raise Unknown(declared.shape)
            known.setdefault(names[many], sizes[many:many + count])
            known.setdefault(names[many].removesuffix(".."), math.prod(sizes[many:many + count]))
            del names[many], sizes[many:many + count]
        if len(names) != len(sizes):
            raise Unknown(declared.shape)
        for name, size in zip(names, sizes):
            if name.isidentifier():
                known.setdefault(name, size)
    return known


def dims(shape, known):
    """The sizes of a shape's text."""
    found = []
    for term in terms(shape):
        if term.endswith(".."):
            if term not in known:
                raise Unknown(term)
            found += known[term]
        else:
            found.append(_Reader(term, known).whole())
    return found


class _Reader:
    """A recursive descent over one expression. Values are sizes, truth values and texts; of a choice the other side is read and thrown away."""

    def __init__(self, text, known):
        self._known, self._tokens, at = known, [], 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if not match:
                raise Unknown(text)
            self._tokens.append(match.groups())
            at = match.end()

    def whole(self):
        value = self._choice()
        if self._tokens:
            raise Unknown("something follows the expression")
        return value

    def _sign(self, *wanted):
        if self._tokens and self._tokens[0][3] in wanted:
            return self._tokens.pop(0)[3]
        return None

    def _must(self, sign):
        if not self._sign(sign):
            raise Unknown("%r is missing" % sign)

    def _choice(self):
        value = self._level(0)
        if self._sign("?"):
            first = self._choice()
            self._must(":")
            second = self._choice()
            return first if value else second
        return value

    def _level(self, level):
        if level == len(_LEVELS):
            return self._primary()
        left = self._level(level + 1)
        while sign := self._sign(*_LEVELS[level]):
            left = _computed(sign, left, self._level(level + 1))
        return left

    def _primary(self):
        if self._sign("("):
            value = self._choice()
            self._must(")")
            return value
        if self._sign("!"):
            return not self._primary()
        if self._sign("-"):
            return -self._primary()
        if not self._tokens or self._tokens[0][3]:
            raise Unknown("an operand is missing")
        number, text, name, _ = self._tokens.pop(0)
        if number or text:
            return int(number) if number else text[1:-1]
        if self._sign("("):
            arguments = [self._choice()]
            while self._sign(","):
                arguments.append(self._choice())
            self._must(")")
            return _called(name, arguments)
        if self._known.get(name) is None:
            raise Unknown(name)
        return self._known[name]


def _computed(sign, left, right):
    if sign in ("/", "%"):  # rounded towards zero there, down here: the same of sizes
        return left // right if sign == "/" else left % right
    return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right, "==": lambda: left == right,
            "!=": lambda: left != right, "<": lambda: left < right, "<=": lambda: left <= right, ">": lambda: left > right,
            ">=": lambda: left >= right, "&&": lambda: left and right, "||": lambda: left or right}[sign]()


def _called(name, arguments):
    if name == "ceil_div" and len(arguments) == 2:
        return -(-arguments[0] // arguments[1])
    raise Unknown(name)
