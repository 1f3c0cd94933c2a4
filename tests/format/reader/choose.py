"""FORMAT.md, section 8.5: which variant a problem gets on a device."""

import math
import struct

from format.reader import program
from format.reader.container import NONE, xxh3
from format.reader.problem import Scope

PORTABLE, HOST = 2, 3  # TargetKind
OWN = 4  # StepKind
LIBRARIES = ("cudnn", "cublaslt")


def fit(target, kind, major, minor):
    """0: does not run; else the greater the better."""
    if (target.kind == HOST) != (kind == HOST):
        return 0
    if kind == HOST:
        return target.major if major >= target.major else 0
    if target.kind == PORTABLE:
        return int((major, minor) >= (target.major, target.minor))
    if major != target.major:
        return 0
    if target.feature == ord("a"):
        return 4 if minor == target.minor else 0
    return 0 if minor < target.minor else 3 if target.feature == ord("f") else 2


def ranked_targets(index, kind, major, minor):
    rows = [(fit(t, kind, major, minor), t.major * 256 + t.minor, -i) for i, t in enumerate(index.targets)]
    return [-row[2] for row in sorted(rows, reverse=True) if row[0] > 0]


def match_numbers(problem):
    """What is hashed: everything that code can see but coordinates and floats."""
    op, coordinates = problem.op, set(problem.op.coordinates)
    numbers = [sum(dtype << 8 * i for i, dtype in enumerate(problem.types))]
    for tensor in problem.operands:
        strides = tensor.strides if tensor else []
        numbers += [int(tensor is not None), len(strides), *strides]
    for i, (attribute, value) in enumerate(zip(op.attributes, problem.attributes)):
        kind = problem.kind(attribute)
        if len(op.symbols) + i in coordinates or kind in ("kFloat", "kFloatArray"):
            continue
        numbers += [0, len(value), *value] if kind == "kIntArray" else [int(value), 0]
    return numbers + [value for i, value in enumerate(problem.symbols) if i not in coordinates]


def match_hash(numbers):
    piece = []
    for number in numbers:
        if len(piece) == 128:
            piece = [hash_of(piece)]
        piece.append(number)
    return hash_of(piece)


def hash_of(numbers):
    return xxh3(b"".join(struct.pack("<Q", number & 2**64 - 1) for number in numbers))


def coordinates(problem, hidden=frozenset()):
    """{place: log2} of those that are seen; None where one is not positive, or one that is not seen is no coordinate: then
    nothing tuned is near."""
    op = problem.op
    if hidden - set(op.coordinates):
        return None
    values = {place: problem.symbols[c] if c < len(op.symbols) else problem.attributes[c - len(op.symbols)]
              for place, c in enumerate(op.coordinates) if c not in hidden}
    return {place: round(math.log2(v) * 2**40) / 2**40 for place, v in values.items()} if all(v > 0 for v in values.values()) else None


def batch_symbols(reader, problem):
    """Those of cuts for batches, but of cuts whose condition is false without a look at any of them."""
    cuts = [cut for cut in problem.op.independent if cut.batch]
    scope = Scope(reader, problem)
    scope.hidden = frozenset(symbol for cut in cuts for symbol in cut.symbols)
    return frozenset(symbol for cut in cuts for symbol in cut.symbols if cut.when is None or program.run(scope, cut.when.program) != 0)


class Chooser:
    def __init__(self, reader, problem, op_number, alignment, sm_count, modes=()):
        self.reader, self.index, self.problem, self.op_number = reader, reader.index, problem, op_number
        self.alignment, self.sm_count, self.modes = alignment, sm_count, modes
        self.any_batch = "batch_invariant" in modes
        self.hidden = batch_symbols(reader, problem) if self.any_batch else frozenset()

    def scope(self, variant, hidden=frozenset()):
        """A variant's scope, its lets evaluated; a let that errs spoils only what uses it."""
        row = self.index.variants[variant]
        template = self.index.templates[row.template_index]
        tunables = [self.index.constants[row.tunables + i] for i in range(len(template.tunables))]
        scope = Scope(self.reader, self.problem, tunables, self.alignment, self.sm_count)
        scope.hidden = hidden
        for let in template.lets:
            scope.lets.append(program.run(scope, let.program))
        return scope

    def legal(self, variant):
        scope = self.scope(variant, self.hidden)
        template = self.index.templates[self.index.variants[variant].template_index]
        promises = [getattr(template, mode) for mode in self.modes]
        if None in promises:
            return False
        values = (program.run(scope, rule.program) for rule in [*template.when, *promises])
        return all(value != 0 and not isinstance(value, program.Error) for value in values)

    def variants_of(self, target):
        key = (self.op_number, target, sum(dtype << 8 * i for i, dtype in enumerate(self.problem.types)))
        entry = self.reader.entries.get(key)
        return range(entry.first, entry.first + entry.count) if entry else range(0)

    def first_legal(self, variants):
        return next((variant for variant in variants if self.legal(variant)), None)

    def rows_by_distance(self, target):
        """(tuned row, distance), the nearest first, of equally distant ones in stored order."""
        wanted = coordinates(self.problem, self.hidden)
        rows = self.reader.tuned.get((self.op_number, target, match_hash(match_numbers(self.problem))), [])
        if wanted is None:
            return []
        found = [(row, sum(abs(self.index.coordinates[row.coordinates + i] - w) for i, w in wanted.items())) for row in rows]
        return sorted(found, key=lambda pair: pair[1])

    def meant(self, target, row, distance):
        if self.problem.types != self.reader.types_of(row.winner, len(self.problem.types)):
            return None
        default_won = self.index.evidence[row.evidence].base == row.winner
        return self.first_legal(self.variants_of(target) if self.is_near(distance) and default_won else [row.winner])

    def is_near(self, distance):
        """A neighbour's, not this very problem's: where the batch is not seen they all are."""
        return distance > 0 or self.any_batch

    def asks(self, variant):
        row = self.index.variants[variant]
        steps = self.index.templates[row.template_index].steps
        return any(step.kind == OWN and self.index.kernels[row.kernels + i].blob == NONE for i, step in enumerate(steps))

    def asking_beside(self, target, winner):
        template = self.index.variants[winner].template_index
        return self.first_legal(v for v in self.variants_of(target) if self.index.variants[v].template_index == template and self.asks(v))

    def may_not_load(self, variant):
        template = self.index.templates[self.index.variants[variant].template_index]
        return self.index.providers[template.provider] in LIBRARIES

    def tuned_order(self, targets):
        taken = []
        for target in targets:
            rows = self.rows_by_distance(target)
            if not rows:
                continue
            asking = self.asking_beside(target, rows[0][0].winner) if self.is_near(rows[0][1]) else None
            for first in asking, self.meant(target, *rows[0]):
                if first is not None and first not in taken:
                    yield first, rows[0][1]
                    taken.append(first)
            others = ((t, row) for t in targets for row in self.rows_by_distance(t)) if taken and self.may_not_load(taken[-1]) else ()
            for other, row in others:
                variant = self.meant(other, *row)
                if variant is not None and variant not in taken:
                    yield variant, row[1]
                    taken.append(variant)
                    if not self.may_not_load(variant):
                        break
            break

    def order(self, targets):
        """(variant, how), best first: the list of which the first that can be launched is taken."""
        taken = []
        for variant, distance in self.tuned_order(targets):
            taken.append(variant)
            yield variant, "heuristic" if self.asks(variant) else "nearest" if self.is_near(distance) else "exact"
        for target in targets:
            how = "portable" if self.index.targets[target].kind == PORTABLE else "manifest order"
            yield from ((v, "heuristic" if self.asks(v) else how) for v in self.variants_of(target) if v not in taken and self.legal(v))
