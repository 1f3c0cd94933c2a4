"""What a compiled program says between its devices."""

import collections
import re

import jax

_COLLECTIVE = re.compile(r" = (.*?) (all-gather|all-reduce|reduce-scatter|collective-permute|all-to-all)(?:-start)?\(")


def collectives(function, *arrays):
    """{collective: how many arrays it is of} in the compiled program: XLA joins several reductions into one. An all-to-all counts as
    the gather in whose place it stands, and than which it moves less."""
    found = collections.Counter()
    for shapes, kind in _COLLECTIVE.findall(jax.jit(function).lower(*arrays).compile().as_text()):
        found["all-gather" if kind == "all-to-all" else kind] += 1 if kind == "all-to-all" else shapes.count("[")
    return dict(found)
