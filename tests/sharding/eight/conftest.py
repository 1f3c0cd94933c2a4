"""A mesh of 4 x 2 devices."""

import jax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec


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
