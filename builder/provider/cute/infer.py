"""From numbers to the expressions that made them: what a launch's bytes are, in the symbols of an op.

    problem 1:  B = 4, S = 2048, H = 16     00 04 00 00
    problem 2:  B = 1, S = 3000, H = 24     40 02 00 00      ->  (B * H) * ceil_div(S, 128)
    problem 3:  ...

What fits all problems is only a guess; the builder proves it on others, or fails.
"""
import functools

# Divisors that kernels cut sizes by.
TILES = sorted({2 ** i for i in range(1, 13)} | set(range(8, 513, 8)))
MOST_FACTORS, MOST_PAIRED = 5, 56
MOST_TRIED = 300_000  # for one column, a few seconds: all of FlashAttention-4's are found within 13,000
TWO32 = 1 << 32
LARGE_TENSOR = 1 << 17  # bytes from which a tensor map has one flag more


def next_pow2(x):
    return 1 << max(0, x - 1).bit_length()


def ceil_log2(x):
    return max(0, x - 1).bit_length()


# Multiplier and shifts of a division by what is known ahead (Granlund and Montgomery).
DIVISION = (("4294967296 * (next_pow2({0}) - {1}) / {1} + 1", lambda d: TWO32 * (next_pow2(d) - d) // d + 1),
            ("min(ceil_log2({0}), 1)", lambda d: min(ceil_log2(d), 1)),
            ("max(ceil_log2({0}) - 1, 0)", lambda d: max(ceil_log2(d) - 1, 0)))


def grouped(text):
    plain = text.replace("_", "a").isalnum()
    call = text.startswith(("ceil_div(", "max(", "min(", "next_pow2(", "ceil_log2(")) and balanced(text[text.index("("):])
    return text if plain or call else "(%s)" % text


def balanced(text):
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return i == len(text) - 1
    return False


@functools.cache
def cut(column, tile):
    """How many tiles each makes, which explainers of the same atoms share."""
    return tuple(-(-x // tile) for x in column)


class Factor:
    """An atom, or how many tiles it makes: of most the first problem is all that is looked at."""

    def __init__(self, text, column, tile=1):
        self.text = text if tile == 1 else "ceil_div(%s, %d)" % (text, tile)
        self.atom, self.tile = column, tile
        self.first = -(-column[0] // tile)

    def column(self):
        return self.atom if self.tile == 1 else cut(self.atom, self.tile)

    def quotients(self, column):
        """Of a column that it divides; else None."""
        if self.first <= 0 or column[0] % self.first != 0:
            return None
        values = self.column()
        if not all(f > 0 and x % f == 0 for f, x in zip(values, column)):
            return None
        return tuple(x // f for f, x in zip(values, column))


class Explainer:
    """Finds expressions for columns of numbers, one number a problem. `atoms`: {text: column}."""

    def __init__(self, atoms):
        self.atoms = {}
        seen = set()
        for text, column in atoms.items():
            column = tuple(column)
            if len(set(column)) > 1 and column not in seen:
                seen.add(column)
                self.atoms[text] = column
        self.found = {}      # column: expression
        self.known = {}      # explained columns that others may be made of
        self.divisors = {}   # those that a fast division may be by
        self.hopeless = {}  # (column, factors to go): of how many that was tried in vain
        self.left = 0       # how many expressions may still be tried for a column
        self.ended = False  # whether a search was given up for that
        self.factors = [Factor(text, column) for text, column in self.atoms.items()]
        for text, column in self.atoms.items():
            largest = max(column) if min(column) >= 0 else 0
            self.factors += [Factor(text, column, tile) for tile in TILES if largest > tile]

    def explain(self, column):
        """An expression, or None. Constants are expressions too."""
        column = tuple(column)
        if column in self.found:
            return self.found[column]
        self.left = MOST_TRIED
        for way in (self.constant, self.atom, self.division, self.linear, self.threshold, self.simple, self.pair, self.product,
                    self.shifted, self.divided):
            text = way(column)
            if text is not None:
                self.found[column] = text
                self.learn(text, column)
                return text
        return None

    def spend(self, tries):
        """Whether as many may still be tried: what follows no rule would otherwise be searched for hours."""
        self.left -= tries
        self.ended = self.ended or self.left <= 0
        return self.left > 0

    def learn(self, text, column):
        if len(set(column)) > 1 and min(column) >= 0:
            self.known[text] = column
            if all(0 < x < TWO32 for x in column):
                self.divisors[text] = column

    def constant(self, column):
        return str(column[0]) if len(set(column)) == 1 else None

    def atom(self, column):
        for text, values in self.atoms.items():
            if values == column:
                return text
        return None

    def linear(self, column):
        """c * atom + d"""
        other = next(i for i, x in enumerate(column) if x != column[0])
        for text, values in self.atoms.items():
            run = values[other] - values[0]
            if run == 0 or (column[other] - column[0]) % run != 0:
                continue
            times = (column[other] - column[0]) // run
            rest = column[0] - times * values[0]
            if times != 0 and all(times * a + rest == x for a, x in zip(values, column)):
                scaled = text if times == 1 else "%s * %d" % (grouped(text), times)
                return scaled if rest == 0 else "%s %s %d" % (scaled, "-" if rest < 0 else "+", abs(rest))
        return None

    def simple(self, column):
        """A product of few: of many, one fits sooner by chance."""
        return self.product(column, 1) or self.product(column, 2)

    def product(self, column, most=MOST_FACTORS):
        """A product of atoms, of ceil_div(atom, tile), and a number."""
        if any(x <= 0 for x in column):
            return None
        return self.factored(column, self.factors, most)

    def factored(self, column, factors, most):
        """factors: in their order, of which no earlier one is tried again."""
        if len(set(column)) == 1:
            return str(column[0])
        if most == 0 or len(factors) <= self.hopeless.get((column, most), -1):
            return None
        left = len(factors)
        if not self.spend(left):
            return None
        dividing = [(one, rest) for one in factors if (rest := one.quotients(column)) is not None]
        factors = [one for one, _ in dividing]
        for number, (one, quotients) in enumerate(dividing):
            rest = self.factored(quotients, factors[number:], most - 1)
            if rest is not None:
                return grouped(one.text) if rest == "1" else "%s * %s" % (grouped(one.text), rest)
        if self.left > 0:
            self.hopeless[column, most] = left
        return None

    def shifted(self, column):
        for by in (1, -1):
            text = self.product(tuple(x + by for x in column))
            if text is not None:
                return "%s %s 1" % (text, "-" if by > 0 else "+")
        return None

    def divided(self, column):
        """A product by a power of two, or by sixteenths of bytes, as in a tensor map's strides."""
        for by in (2, 4, 8, 16):
            text = self.product(tuple(x * by for x in column))
            if text is not None:
                return "%s / %d" % (text, by)
        return None

    def pair(self, column):
        """Two known columns and one operator."""
        known = list(self.atoms.items())
        known += [item for item in self.known.items() if item[0] not in self.atoms][:MOST_PAIRED]
        constants = [("1", (1,) * len(column)), ("0", (0,) * len(column))]
        for name, form, value in (("max", "max({0}, {1})", max), ("min", "min({0}, {1})", min),
                                  ("+", "{0} + {1}", lambda a, b: a + b), ("-", "{0} - {1}", lambda a, b: a - b),
                                  ("/", "{0} / {1}", lambda a, b: a // b), ("%", "{0} % {1}", lambda a, b: a % b),
                                  ("up", "ceil_div({0}, {1})", lambda a, b: -(-a // b))):
            for left, a in known:
                if not self.spend(len(known)):
                    return None
                for right, b in known + constants:
                    if name in ("/", "%", "up") and any(y <= 0 or x < 0 for x, y in zip(a, b)):
                        continue
                    if all(value(x, y) == z for x, y, z in zip(a, b, column)):
                        inside = name in ("max", "min", "up")
                        return form.format(left if inside else grouped(left), right if inside else grouped(right))
        return None

    def division(self, column):
        """What divides fast by a known number."""
        for text, values in self.divisors.items():
            for form, value in DIVISION:
                if all(value(d) == x for d, x in zip(values, column)):
                    return form.format(text, grouped(text))
        return None

    @staticmethod
    def by_size(span, bytes_, column):
        """One of two numbers, by whether the tensor that a map describes spans enough bytes for one flag more. That others, in the problems
        that are looked at, reach that size in the same ones says nothing."""
        below, above = ({x for x, size in zip(column, bytes_) if (size >= LARGE_TENSOR) == large} for large in (False, True))
        if len(below) != 1 or len(above) != 1 or below == above:
            return None
        return "%s >= %d ? %d : %d" % (grouped(span), LARGE_TENSOR, *above, *below)

    def threshold(self, column):
        """One of two numbers, by whether something reaches a power of two: a tensor map's flags, by the bytes it spans."""
        if len(set(column)) != 2:
            return None
        first, others = column[0], []
        for text, values in [*self.atoms.items(), *self.known.items()]:
            low = [x for x, y in zip(values, column) if y == first]
            high = [x for x, y in zip(values, column) if y != first]
            below, above = first, next(y for y in column if y != first)
            if min(low) > max(high):
                low, high, below, above = high, low, above, below
            powers = [1 << bit for bit in range(63) if max(low) < 1 << bit <= min(high)]
            form = "%s >= %d ? %d : %d"
            if LARGE_TENSOR in powers:
                return form % (grouped(text), LARGE_TENSOR, above, below)
            if max(low) < min(high) and len(powers) == 1:
                others.append(form % (grouped(text), powers[0], above, below))
        return others[0] if others else None
