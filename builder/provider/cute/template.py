"""A launch as the builder's expressions over an op's symbols, from recordings of it."""
import struct

import infer
from infer import DIVISION, Explainer, grouped

FLOAT32_ULPS = 4


class CannotExplain(Exception):
    """A parameter's bytes follow no expression that is known; the message says which."""


def given_up(explainer):
    return ", and the search was given up after %d tries" % infer.MOST_TRIED if explainer.ended else ""


class Problems:
    """What was recorded: columns of atoms, and where each tensor lay, here and there."""

    def __init__(self, recordings, atoms, sm_count, tensors, floats, spans=()):
        self.recordings = recordings
        self.spans = spans       # of each argument that is a tensor: ([address], an atom: how many bytes from its first to its last, [bytes])
        self.explainer = Explainer(atoms)
        self.grids = Explainer({**atoms, "sm_count": sm_count})
        self.tensors = tensors   # {name: ([address], [address elsewhere], bytes of an element)}
        self.floats = floats     # {attribute: [number]}


def number(data, offset, width, signed=False):
    return int.from_bytes(data[offset:offset + width], "little", signed=signed)


def nearest_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def float32_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


class Parameter:
    """One parameter of one launch: its bytes by problem, and which of them say nothing."""

    def __init__(self, problems, launch, name, start, size, unwritten, addressed):
        """unwritten, addressed: which bytes of all parameters are so in any of the recordings."""
        self.problems, self.name, self.size = problems, name, size
        launches = [one.launches[launch] for one in problems.recordings]
        self.bytes = [one.params[start:start + size] for one in launches]
        self.moved = [one.moved[launch].params[start:start + size] for one in problems.recordings]
        self.unwritten = {i - start for i in unwritten}
        self.addressed = {i - start for i in addressed - unwritten}
        begins = list(self.column(0, 8)) if self.whole(0, 8) else []
        self.spans = [(text, bytes_) for addresses, text, bytes_ in problems.spans if addresses == begins]

    def template(self):
        fields, offset = [], 0
        constants = bytearray(self.size)
        while offset < self.size:
            if offset in self.unwritten:
                offset += 1
            elif (found := self.pointer(offset) or self.divisor(offset) or self.field(offset)):
                fields += found
                offset = max(one["offset"] + one.pop("bytes") for one in found)
            elif len({data[offset] for data in self.bytes}) == 1 and offset not in self.addressed:
                constants[offset] = self.bytes[0][offset]
                offset += 1
            else:
                self.fail(offset)
        return {"bytes": bytes(constants).hex(), "fields": fields}

    def fail(self, offset):
        if offset in self.addressed:
            raise CannotExplain("byte %d of parameter %s depends on an address beyond adding an offset to it" % (offset, self.name))
        start = offset - offset % 4
        width = min(4, self.size - start)
        seen = ["%d" % number(data, start, width) for data in self.bytes[:6]]
        raise CannotExplain("the %d bytes at %d of parameter %s follow no known expression%s: for the first problems they "
                            "are %s" % (width, start, self.name, given_up(self.problems.explainer), ", ".join(seen)))

    def whole(self, offset, width):
        return offset % width == 0 and offset + width <= self.size and not self.unwritten & set(range(offset, offset + width))

    def column(self, offset, width, signed=False):
        return tuple(number(data, offset, width, signed) for data in self.bytes)

    def pointer(self, offset):
        inside = set(range(offset, offset + 8))
        if not self.whole(offset, 8) or not inside & self.addressed:
            return None
        here, there = self.column(offset, 8), tuple(number(data, offset, 8) for data in self.moved)
        for name, (first, second, size) in self.problems.tensors.items():
            gaps = tuple(value - base for value, base in zip(here, first))
            if gaps != tuple(value - base for value, base in zip(there, second)) or any(gap % size for gap in gaps):
                continue
            at = self.problems.explainer.explain(tuple(gap // size for gap in gaps))
            if at is not None:
                return [{"offset": offset, "tensor": name, "at": at, "bytes": 8}]
        return None

    def divisor(self, offset):
        """A number, and what divides fast by it: u32 divisor, u32 multiplier, u8 and u8 of shifts.

        Taken together, since for the problems that were seen a shift may well be the same.
        """
        if not self.whole(offset, 4) or not self.whole(offset + 4, 4) or self.unwritten & {offset + 8, offset + 9} \
                or self.size < offset + 10 or self.addressed & set(range(offset, offset + 10)):
            return None
        column = self.column(offset, 4)
        if len(set(column)) == 1 or min(column) < 1:
            return None
        text, places = None, ((4, 4), (8, 1), (9, 1))
        for (form, value), (at, width) in zip(DIVISION, places):
            if tuple(value(d) for d in column) != self.column(offset + at, width):
                return None
        text = self.problems.explainer.explain(column)
        if text is None:
            return None
        found = [{"offset": offset, "type": "u32", "value": text, "bytes": 4}]
        for (form, _), (at, width) in zip(DIVISION, places):
            found.append({"offset": offset + at, "type": "u%d" % (8 * width), "value": form.format(text, grouped(text)), "bytes": width})
        return found

    def field(self, offset):
        """Numbers that differ by problem: of eight bytes where the upper four say nothing else."""
        if offset in self.addressed or all(len({data[offset + i] for data in self.bytes}) == 1
                                           for i in range(min(4 - offset % 4, self.size - offset))):
            return None
        for width in (8, 4, 2, 1):
            if not self.whole(offset, width) or set(range(offset, offset + width)) & self.addressed:
                continue
            upper = [number(data, offset + 4, 4) for data in self.bytes] if width == 8 else [0]
            if 2 * upper.count(0) < len(upper):  # a number of its own
                continue
            if width == 4 and (field := self.float(offset)):
                return field
            for signed in (False, True):  # the one that takes more
                column = self.column(offset, width, signed)
                by_size = [text for span in self.spans if (text := Explainer.by_size(*span, column)) is not None]
                text = by_size[0] if by_size else self.problems.explainer.explain(column)
                if text is not None:
                    return [{"offset": offset, "type": "%s%d" % ("i" if signed else "u", 8 * width), "value": text, "bytes": width}]
        return None

    def float(self, offset):
        """A float attribute as f32, times an f32: a scale that exp2 wants is times log2(e)."""
        column = self.column(offset, 4)
        for name, numbers in self.problems.floats.items():
            rounded = [nearest_float32(x) for x in numbers]
            at = max(range(len(rounded)), key=lambda i: abs(rounded[i]))
            if rounded[at] == 0:
                continue
            ratio = struct.unpack("<f", struct.pack("<I", column[at]))[0] / rounded[at]
            bits = float32_bits(ratio)
            for by in sorted(range(-FLOAT32_ULPS, FLOAT32_ULPS + 1), key=abs):
                if not 0 <= bits + by < 1 << 32:
                    continue
                factor = struct.unpack("<f", struct.pack("<I", bits + by))[0]
                if all(float32_bits(x * factor) == bits_ for x, bits_ in zip(rounded, column)):
                    return [{"offset": offset, "type": "f32", "float": name, "factor": factor, "bytes": 4}]
        return None


def sizes(problems, columns, what):
    texts = []
    for axis, column in zip("xyz", columns):
        text = problems.grids.explain(column) if what == "grid" else problems.explainer.explain(column)
        if text is None:
            raise CannotExplain("%s %s follows no known expression%s: for the first problems it is %s"
                                % (what, axis, given_up(problems.grids), ", ".join(str(x) for x in column[:6])))
        texts.append(text)
    return texts


def template(problems, param_bytes):
    """All that the builder needs, as JSON's values. Every problem launches the same kernels."""
    launches = []
    for at, kernel in enumerate(one.kernel for one in problems.recordings[0].launches):
        same = [recording.launches[at] for recording in problems.recordings]
        if len({one.programmatic for one in same}) != 1:
            raise CannotExplain("whether a launch overlaps the one before depends on the problem")
        unwritten, addressed = (set().union(*(which[at] for which in all_of)) for all_of in
                                ([one.unwritten for one in problems.recordings], [one.addressed for one in problems.recordings]))
        parameters, start = [], 0
        for index, size in enumerate(param_bytes[kernel]):
            parameters.append(Parameter(problems, at, "%d of kernel %d" % (index, at), start, size, unwritten, addressed).template())
            start += size
        clustered = any(x > 1 for one in same for x in one.cluster)
        launches.append({
            "grid": sizes(problems, zip(*[one.grid for one in same]), "grid"),
            "block": sizes(problems, zip(*[one.block for one in same]), "block"),
            "cluster": sizes(problems, zip(*[one.cluster for one in same]), "cluster") if clustered else [],
            "shared": sizes(problems, [[one.shared for one in same]], "shared memory")[0],
            "programmatic": bool(same[0].programmatic),
            "parameters": parameters})
    return launches
