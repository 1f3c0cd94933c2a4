"""A mesh of 4 x 2 devices, and what a compiled program says between them."""

import collections
import re

import jax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

_COLLECTIVE = re.compile(r" = (.*?) (all-gather|all-reduce|reduce-scatter|collective-permute|all-to-all)(?:-start)?\(")


def collectives(function, *arrays):
    """{collective: how many arrays it is of} in the compiled program: XLA joins several reductions into one. An all-to-all counts as
    the gather in whose place it stands, and than which it moves less."""
    found = collections.Counter()
    for shapes, kind in _COLLECTIVE.findall(jax.jit(function).lower(*arrays).compile().as_text()):
        found["all-gather" if kind == "all-to-all" else kind] += 1 if kind == "all-to-all" else shapes.count("[")
    return dict(found)


@pytest.fixture(scope="session")
def mesh():
    assert len(jax.devices()) == 8
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


@pytest.fixture
def put(mesh):
    """An array, sharded as a PartitionSpec's arguments say."""
    return lambda array, *spec: jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))


@pytest.fixture
def explicit():
    """A mesh whose axes are part of types, set for the test."""
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        yield lambda array, *spec: jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))
