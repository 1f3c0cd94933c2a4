"""vmap of a call, by the rule that the op's manifest gives.

"leading": the batch joins the dims of the op's `rows..`, in one call, where that is known to be the same as a
loop; else, and by "loop", a loop over the batch. "none": an error.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from kbundle._errors import Error
from kbundle._open_bundles import find
from kbundle.jax import _primitive, _specs


def batch(call_p, infer, arguments, dims, *, bundle, op, present, attributes, modes, formula, version):
    """The batching rule of call_p. infer(avals, bundle, op, present, attributes): what kb_infer says."""
    description = find(bundle, op).op(op)
    problem = dict(bundle=bundle, op=op, present=present, attributes=attributes)
    if description.vmap == "none":
        raise NotImplementedError("[kbundle:UNIMPLEMENTED] vmap of op %r: its manifest says vmap = \"none\"; "
                                  "call it once per element, or batch through its own dimensions" % op)
    size = next(array.shape[dim] for array, dim in zip(arguments, dims) if dim is not None)
    if description.vmap == "leading":
        joined = _join(infer, description, arguments, dims, size, problem)
        if joined is not None:
            wide, axes = joined
            return call_p.bind(*wide, **problem, modes=modes, formula=formula, version=version), axes
    outputs = _loop(call_p, arguments, dims, size, dict(problem, modes=modes, formula=formula, version=version))
    return outputs, [0] * len(outputs)


# ---- one call ----

def _join(infer, description, arguments, dims, size, problem):
    """(operands with the batch in front of their `rows..`, axes of the batch in the results), or None where a call
    of them might differ from a loop: an operand has the batch and no `rows..`, or a result has none, which would
    be summed over the batch; there are two lists of such dims; or another dim depends on how many rows there are."""
    given = [operand.ellipsis for operand, there in zip(description.operands, problem["present"]) if there]
    one = infer([_unbatched(array, dim) for array, dim in zip(arguments, dims)], *problem.values())
    made = [(result.ellipsis, tuple(found["dims"]))
            for result, found in zip(description.results, one["results"]) if found["present"]]
    if any(ellipsis is None for ellipsis, dim in zip(given, dims) if dim is not None):
        return None
    if any(ellipsis is None for ellipsis, _ in made):
        return None
    if len({ellipsis["name"] for ellipsis in given + [ellipsis for ellipsis, _ in made] if ellipsis}) != 1:
        return None
    wide = [array if ellipsis is None else _with_batch(array, dim, ellipsis["axis"], size)
            for array, dim, ellipsis in zip(arguments, dims, given)]
    try:
        all_at_once = infer([jax.typeof(array) for array in wide], *problem.values())
    except Error:
        return None
    shapes = [tuple(found["dims"]) for found in all_at_once["results"] if found["present"]]
    if shapes != [shape[:ellipsis["axis"]] + (size,) + shape[ellipsis["axis"]:] for ellipsis, shape in made]:
        return None
    return wide, [ellipsis["axis"] for ellipsis, _ in made]


def _unbatched(array, dim):
    """An array's aval without the batch."""
    shape = array.shape if dim is None else array.shape[:dim] + array.shape[dim + 1:]
    return jax.ShapeDtypeStruct(shape, array.dtype)


def _with_batch(array, dim, axis, size):
    """The batch as dimension `axis`; repeated where the array has none."""
    if dim is not None:
        return jnp.moveaxis(array, dim, axis)
    return jnp.broadcast_to(jnp.expand_dims(array, axis), array.shape[:axis] + (size,) + array.shape[axis:])


# ---- a loop ----

def _loop(call_p, arguments, dims, size, parameters):
    mapped = [jnp.moveaxis(array, dim, 0) for array, dim in zip(arguments, dims) if dim is not None]
    others = [array for array, dim in zip(arguments, dims) if dim is None]

    def one(elements, others):
        elements, others = iter(elements), iter(others)
        return call_p.bind(*_primitive.same_axes([next(others if dim is None else elements) for dim in dims]), **parameters)

    if size == 0:
        shapes = jax.eval_shape(one, [jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in mapped], others)
        return [jnp.zeros((0,) + shape.shape, shape.dtype) for shape in shapes]

    def loop(mapped, others):
        return jax.lax.map(functools.partial(one, others=others), mapped)
    axes = next((spec[0] for spec in map(_spec, mapped) if spec[0]), ())
    return _on_each_device(loop, mapped, others, axes) if axes else loop(mapped, others)


def _spec(array):
    return _specs.of_type(jax.typeof(array))


def _on_each_device(loop, mapped, others, axes):
    """The loop where types say that the batch is split over axes of a mesh: each device goes over its own items."""
    def only(spec):
        return tuple(tuple(axis for axis in one if axis not in axes) for one in spec)
    mapped = [_primitive.moved(array, (axes, *only(_spec(array)[1:]))) for array in mapped]
    others = [_primitive.moved(array, only(_spec(array))) for array in others]
    mesh = _specs.mesh_of(map(jax.typeof, mapped))
    batch = _specs.partition_spec((axes,))
    return jax.shard_map(loop, mesh=mesh, in_specs=(batch, PartitionSpec()), out_specs=batch, axis_names=set(axes))(mapped, others)
