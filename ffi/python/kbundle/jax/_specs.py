"""Where the dims of an array lie, as JAX says it and as tuples of mesh axes; and whether a program is for several devices at all.

Every call asks this. What follows when it is for several is _partition's, which nobody loads before.
"""

from jax.sharding import PartitionSpec


def spec_of(spec, rank):
    """A PartitionSpec as a tuple of mesh axes for each dim."""
    dims = [() if axes is None or axes is PartitionSpec.UNCONSTRAINED else axes if isinstance(axes, tuple) else (axes,) for axes in spec]
    return tuple(dims) + ((),) * (rank - len(dims))


def of_type(aval):
    """The same of an array's type."""
    return spec_of(aval.sharding.spec, aval.ndim)


def mesh_of(avals):
    """The mesh of the first type that has one, or None."""
    return next((aval.sharding.mesh for aval in avals if not aval.sharding.mesh.empty), None)


def partition_spec(spec):
    return PartitionSpec(*(axes if len(axes) > 1 else axes[0] if axes else None for axes in spec))


def across_devices(context):
    """Whether a program is for several devices under a mesh. Not so where each device runs a program of its own (shard_map), and
    for jax.export, which could not keep a rule: there XLA gathers."""
    module = context.module_context
    if getattr(module.lowering_parameters, "for_export", False):
        return False
    axes = module.axis_context
    return getattr(axes, "num_devices", 1) > 1 and bool(getattr(axes, "device_assignment", None)) and axes.abstract_mesh is not None


def wants_devices(primitive):
    """Has JAX say which devices and which mesh a program is for when it lowers a primitive; without it calls are not divided.
    As of any such primitive, a program for an AbstractMesh, which has no devices, is then refused."""
    try:
        from jax._src.dispatch import prim_requires_devices_during_lowering
    except ImportError:
        return
    prim_requires_devices_during_lowering.add(primitive)
