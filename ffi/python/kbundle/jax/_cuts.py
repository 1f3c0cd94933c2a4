"""Which mesh axes divide a call. Plain Python over shapes and specs; nothing here knows JAX.

A cut (of kb_infer) is a dim of some operands and results along which the problem falls into parts. A spec is, for
each dim of a tensor, the tuple of mesh axes that it is sharded over. Tensors are numbered: operands, then results.
"""

import math
from typing import NamedTuple


class Cut(NamedTuple):
    dims: dict       # {tensor: its dim that is divided}
    sums: frozenset  # tensors that are the sum of the parts'
    once: frozenset  # tensors that all parts but one get as zeros


def read(inferred, present):
    """Cuts of what kb_infer said, with the tensors that are there numbered as a call has them."""
    there = list(present) + [result["present"] for result in inferred["results"]]
    number = {at: sum(there[:at]) for at, one in enumerate(there) if one}
    cuts = []
    for cut in inferred["cuts"]:
        dims = {number[at]: dim for at, dim in enumerate(cut["operands"] + cut["results"]) if dim >= 0}
        cuts.append(Cut(dims, frozenset(number[len(present) + at] for at in cut["sums"]),
                        frozenset(number[at] for at in cut["once"])))
    return cuts


def choose(cuts, shapes, specs, operands, sizes):
    """The mesh axes of each cut, () where it is not made. specs: of all tensors, () for each dim of one that says nothing;
    operands: how many tensors are operands; sizes: {axis: devices}.

    Where operands lie goes before where results shall lie, since a result is put elsewhere after it is made; then the
    manifest's order goes. No axis divides twice, no dim either, and parts are equally large."""
    chosen, used, divided = [()] * len(cuts), set(), set()
    for wanted in (range(operands), range(operands, len(shapes))):
        for index, cut in enumerate(cuts):
            if chosen[index] or divided & set(cut.dims.items()):
                continue
            for tensor in wanted:
                axes = _usable(specs[tensor][cut.dims[tensor]], cut, shapes, used, sizes) if tensor in cut.dims else ()
                if axes:
                    chosen[index] = axes
                    used.update(axes)
                    divided.update(cut.dims.items())
                    break
    return chosen


def _usable(axes, cut, shapes, used, sizes):
    """As many of the axes, the outermost first, as are free and divide every dim evenly."""
    axes = tuple(axes)
    while axes:
        parts = math.prod(sizes[axis] for axis in axes)
        if not used & set(axes) and all(shapes[tensor][dim] % parts == 0 for tensor, dim in cut.dims.items()):
            return axes
        axes = axes[:-1]
    return ()


def specs_of(cuts, chosen, shapes):
    """Where every tensor lies when the cuts are made so."""
    specs = [[()] * len(shape) for shape in shapes]
    for cut, axes in zip(cuts, chosen):
        for tensor, dim in cut.dims.items() if axes else ():
            specs[tensor][dim] = axes
    return [tuple(spec) for spec in specs]


def gathered(cuts, specs, operands, sizes):
    """[(operand, dim)] of what is sharded along no cut at all."""
    divisible = set().union(*(cut.dims.items() for cut in cuts))
    return [(tensor, dim) for tensor in range(operands) for dim, axes in enumerate(specs[tensor])
            if math.prod(sizes[axis] for axis in axes) > 1 and (tensor, dim) not in divisible]


def factors(cuts, shapes):
    """For each dim of each tensor its factors, outermost first, as [(name, size)]: the dims of a cut share one, which is as
    large as the smallest of them. What belongs to no cut has a factor of its own."""
    named = {}
    for index, cut in enumerate(cuts):
        least = min(shapes[tensor][dim] for tensor, dim in cut.dims.items())
        if any(item in named for item in cut.dims.items()) or any(shapes[t][d] % least for t, d in cut.dims.items()):
            continue
        for tensor, dim in cut.dims.items():
            rest = shapes[tensor][dim] // least
            inner = [("t%dd%dinner" % (tensor, dim), rest)] if rest > 1 else []
            named[tensor, dim] = [("cut%d" % index, least)] + inner
    return [[named.get((tensor, dim), [("t%dd%d" % (tensor, dim), size)]) for dim, size in enumerate(shape)]
            for tensor, shape in enumerate(shapes)]
