"""The one JAX primitive behind every op.

Parameters are plain and hash: bundle name, op name, which operands are present, attributes in the normal
form of kbundle._spec; modes, as a number; and `version`, which no program shows: with other content of the bundle or another policy JAX makes
a call anew instead of taking what it compiled before. Shapes of results, the workspace and "nothing to compute" come from the bundle, by
kb_infer. Features of JAX are used where they are found; versions are never compared.
"""

import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir, xla

from kbundle import _modes, _spec
from kbundle._bundle import CUDA, HOST, Bundle
from kbundle._discovery import default_bundle
from kbundle._dtypes import LONG_NAMES
from kbundle._errors import Error, InvalidArgument
from kbundle._open_bundles import find
from kbundle._policy import formulas, generation
from kbundle.jax import _fork, _formula, _specs
from kbundle.jax._modes import asked
from kbundle.jax._registration import TARGET

# The handler aligns the workspace to 256 bytes inside what XLA gives it.
_WORKSPACE_SLACK = 256

# What _record wants to be told on this thread, for lowering happens on the one that asked for it.
recorder = threading.local()

def _primitive_class():
    """jax.extend.core.Primitive. Importing that module loads Pallas, which takes longer than all of kbundle,
    so the class is taken from a primitive that is loaded already."""
    found = type(getattr(jax.lax, "neg_p", None))
    if hasattr(found, "bind") and hasattr(found, "def_abstract_eval"):
        return found
    from jax.extend.core import Primitive
    return Primitive


call_p = _primitive_class()("kbundle_call")
part_p = _primitive_class()("kbundle_part")  # what one device computes of a call
call_p.multiple_results = part_p.multiple_results = True


def call(bundle, op, *operands, modes=None, formula=None, **attributes):
    """Calls an op of a bundle on arrays; a tuple of results, or the only one. bundle: None is the first that has the op
    (kbundle.bundles). Optional operands may be None and are left out at the end; a result that this call does not have is
    None. Attributes are part of the compiled program: plain values, never traced ones. modes: those of this call, "deterministic",
    "batch_invariant" or both in a tuple; None: those of kbj.modes around it. formula: what XLA is given in the call's place where it does as
    well (_formula.Formula)."""
    modes = asked() if modes is None else _modes.bits("calling op %r" % op, modes)
    formula = None if modes or not formulas() else formula
    if bundle is None:
        bundle = default_bundle(op)
    if not isinstance(bundle, Bundle):
        raise Error("INVALID_ARGUMENT", "calling op %r: %r is no bundle; pass what kbundle.open returned, or None"
                    % (op, bundle))
    for name, value in attributes.items():
        if isinstance(value, jax.core.Tracer):
            raise Error("INVALID_ARGUMENT", "calling op %r: attribute %r is a traced value, but attributes "
                        "are part of the compiled program; pass a Python value (static_argnames), or close "
                        "over it" % (op, name))
    _fork.before_compiling()
    bundle.op(op)  # names what is near
    bundle = find(bundle.name, op)  # what was loaded in its place, if anything was
    normal = bundle.normal_attributes(op, attributes)
    declared = len(bundle.op(op).operands)
    given = list(operands) + [None] * (declared - len(operands))
    present = tuple(operand is not None for operand in given)
    arrays = same_axes([jnp.asarray(operand) for operand in given if operand is not None])
    try:
        inferred = _infer_anywhere([jax.typeof(array) for array in arrays], bundle.name, op, present, normal)
    except InvalidArgument:
        from kbundle.jax._type_errors import type_error
        about_type = type_error(bundle.op(op), present, arrays)
        if about_type is None:
            raise
        raise about_type from None
    outputs = iter(call_p.bind(*arrays, bundle=bundle.name, op=op, present=present, attributes=normal, modes=modes,
                               formula=formula, version=(bundle.content_id, generation())))
    results = tuple(next(outputs) if result["present"] else None for result in inferred["results"])
    return results[0] if len(results) == 1 else results


# ---- shapes ----

def _operands(avals, present):
    return tuple(aval if aval is None else _spec.operand(aval) for aval in _spec.spread(avals, present))


def _infer(kind, avals, bundle, op, present, attributes):
    return find(bundle, op).infer(op, _operands(avals, present), attributes, kind)


def _infer_anywhere(*problem):
    """While a program is traced nobody knows its platform: enough if one of them can run the problem."""
    try:
        return _infer(HOST, *problem)
    except Error as host:
        if host.tag != "NOT_FOUND":
            raise
        try:
            return _infer(CUDA, *problem)
        except Error as cuda:
            both = host.message if host.message == cuda.message else host.message + "; " + cuda.message
            raise Error(host.tag, both) from None


def _present_results(inferred):
    return [(tuple(result["dims"]), np.dtype(jnp.dtype(LONG_NAMES[result["dtype"]])))
            for result in inferred["results"] if result["present"]]


def _abstract_eval(*avals, bundle, op, present, attributes, modes, formula, version):
    inferred = _infer_anywhere(avals, bundle, op, present, attributes)
    results = _present_results(inferred)
    specs = [None] * len(results)
    if _explicit(avals):
        specs = _explicit_specs(avals, bundle, op, present, attributes)[len(avals):]
    return [_result_aval(avals, shape, dtype, spec) for (shape, dtype), spec in zip(results, specs)]


def _result_aval(avals, shape, dtype, spec=None):
    """Like the operands in everything but shape and dtype: mesh, memory, axes of shard_map it varies over. spec: the mesh axes
    that each dim is split over, None of all dims."""
    mesh = _specs.mesh_of(avals)
    mesh = jax.sharding.get_abstract_mesh() if mesh is None else mesh
    sharding = jax.sharding.NamedSharding(mesh, _specs.partition_spec(spec or ((),) * len(shape)))
    if not avals:
        return jax.core.ShapedArray(shape, dtype, sharding=sharding)
    return avals[0].update(shape=shape, dtype=dtype, weak_type=False, sharding=sharding)


# ---- several devices ----

def _division(infer, avals, bundle, op, present, attributes, modes=0, formula=None, version=None):
    """The call as one that devices share. infer(avals, bundle, op, present, attributes)."""
    from kbundle.jax import _partition
    def inferred(operands):
        return infer(operands, bundle, op, present, attributes)
    shapes = [jax.ShapeDtypeStruct(*result) for result in _present_results(inferred(avals))]
    names = [operand.name for operand, there in zip(find(bundle, op).op(op).operands, present) if there]
    bind = functools.partial(part_p.bind, bundle=bundle, op=op, present=present, attributes=attributes, modes=modes,
                             formula=formula, version=version)
    identity = repr((bundle, op, present, attributes, modes, formula))
    return _partition.Division(inferred, bind, [*avals, *shapes], present, op, names, identity)


def explicit(*arrays):
    """Whether types say over which axes of a mesh one of the arrays, of which some may be None, is split."""
    return _explicit([jax.typeof(array) for array in arrays if array is not None])


def _explicit(avals):
    return any(axes is not None for aval in avals for axes in aval.sharding.spec)


def _explicit_specs(avals, *problem):
    """Where operands must lie, then where results do."""
    division = _division(_infer_anywhere, avals, *problem)
    return division.specs([_specs.of_type(aval) for aval in avals], dict(_specs.mesh_of(avals).shape))


def placed(bundle, op, *operands, **attributes):
    """The operands, where a call of the op would bring them: over the same axes inside shard_map, and with explicit axes split
    only where the op is computed in parts. What a wrapper does before its custom_vjp, so that gradients come back to where
    operands were, and have their types."""
    present = tuple(operand is not None for operand in operands)
    bundle = default_bundle(op) if bundle is None else bundle
    arrays = same_axes([operand for operand in operands if operand is not None])
    avals = [jax.typeof(array) for array in arrays]
    if _explicit(avals):
        absent = (False,) * (len(bundle.op(op).operands) - len(present))
        problem = bundle.name, op, present + absent, bundle.normal_attributes(op, attributes)
        arrays = [moved(array, spec) for array, spec in zip(arrays, _explicit_specs(avals, *problem))]
    return tuple(_spec.spread(arrays, present))


def like(gradient, primal):
    """The gradient, split as its primal is where axes are explicit; None of None."""
    if gradient is None or not explicit(gradient, primal):
        return gradient
    return moved(gradient, _specs.of_type(jax.typeof(primal)))


def whole(array):
    """The array, all of it on every device where axes are explicit."""
    return moved(array, ((),) * array.ndim) if explicit(array) else array


def moved(array, spec, beside=None):
    """The array, split over these axes where its type says over which it is. beside: the mesh of one that was made outside of any."""
    aval = jax.typeof(array)
    mesh = _specs.mesh_of([aval]) or beside or jax.sharding.get_abstract_mesh()
    if mesh.empty or _specs.of_type(aval) == spec:
        return array
    return jax.sharding.reshard(array, jax.sharding.NamedSharding(mesh, _specs.partition_spec(spec)))


def varying(array):
    """The axes of a shard_map over which an array is known to differ; empty where nobody keeps track."""
    aval = jax.typeof(array)
    axes = getattr(aval, "vma", None)
    if axes is None:
        axes = getattr(getattr(aval, "mat", None), "varying", ())
    return frozenset(axes)


def same_axes(arrays):
    """Inside shard_map every operand must vary over the same axes: those of all of them together."""
    union = frozenset().union(*(varying(array) for array in arrays)) if arrays else frozenset()
    if not union:
        return arrays
    return [jax.lax.pcast(array, tuple(sorted(union - varying(array), key=str)), to="varying")
            if union - varying(array) else array for array in arrays]


# ---- lowering ----

def _mask(flags):
    bits = sum(1 << index for index, flag in enumerate(flags) if flag)
    return bits - (1 << 64) if bits >= 1 << 63 else bits


def _call_attribute(kind, value):
    value = _spec.plain_value(kind, value)
    if kind == _spec.INT_ARRAY:
        return np.asarray(value, dtype=np.int64)
    if kind == _spec.FLOAT_ARRAY:
        return np.asarray(value, dtype=np.float64)
    return value


def _aliases(description, present, result_present):
    """{position of the operand in the call: position of the result that is written over it}"""
    found = {}
    for index, result in enumerate(description.results):
        if result.alias >= 0 and result_present[index] and present[result.alias]:
            found[sum(present[:result.alias])] = sum(result_present[:index])
    return found


def _note(kind, avals, bundle, op, present, attributes, modes=0, formula=None, version=None):
    if getattr(recorder, "wanted", None) is not None:
        from kbundle.jax import _record
        _record.note(kind, bundle, op, _operands(avals, present), attributes)


def _lower(kind, context, *operands, **problem):
    if not _specs.across_devices(context):
        return _lower_part(kind, context, *operands, **problem)
    _note(kind, context.avals_in, **problem)  # the whole: which parts are made is known when the program is compiled
    return _division(functools.partial(_infer, kind), context.avals_in, **problem).lower(context, operands)


def _lower_part(kind, context, *operands, bundle, op, present, attributes, modes, formula, version):
    inferred = _infer(kind, context.avals_in, bundle, op, present, attributes)
    if inferred["empty"]:  # nothing to compute: no call at all
        shapes = _present_results(inferred)
        zeros = mlir.lower_fun(lambda *_: [jnp.zeros(shape, dtype) for shape, dtype in shapes],
                               multiple_results=True)
        return zeros(context, *operands)
    _note(kind, context.avals_in, bundle, op, present, attributes)  # also what is left to XLA: a kernel takes it where nothing may be
    left = _formula.lowered(formula, kind, context, operands, present, attributes)
    if left is not None:
        return left
    _fork.before_compiling()
    result_present = [result["present"] for result in inferred["results"]]
    workspace = inferred["workspace_bytes"]
    workspace = workspace + _WORKSPACE_SLACK if workspace else 0
    call_attributes = {
        "bundle": bundle, "op": op, "interface": inferred["interface"], "present": _mask(present),
        "results": _mask(result_present), "workspace_bytes": workspace,
    }
    if modes:  # a program that asks for none runs with a libkbundle that knows none
        call_attributes["modes"] = modes
    for name, attribute_kind, value in attributes:
        call_attributes["a." + name] = _call_attribute(attribute_kind, value)
    avals_out = list(context.avals_out)
    if workspace:
        avals_out.append(_result_aval(context.avals_in, (workspace,), np.dtype(np.uint8)))
    rule = jax.ffi.ffi_lowering(
        TARGET, operand_output_aliases=_aliases(find(bundle, op).op(op), present, result_present))
    outputs = rule(context.replace(avals_out=avals_out), *operands, **call_attributes)
    return list(outputs)[:len(context.avals_out)]


# ---- batches and derivatives ----

def _batch(arguments, dims, **parameters):
    from kbundle.jax import _vmap
    return _vmap.batch(call_p, _infer_anywhere, arguments, dims, **parameters)


def _no_derivative(*_, op, **__):
    raise Error("UNIMPLEMENTED", "differentiating op %r: ops have no derivative of their own; use the wrapper "
                "its family brings along, or write a jax.custom_vjp with the backward op" % op)


def _eagerly(*arrays, formula, **parameters):
    """A call by itself: there is nothing around it, and of a formula XLA would make another kernel for each shape."""
    return xla.apply_primitive(call_p, *arrays, formula=None, **parameters)


call_p.def_impl(_eagerly)
for primitive, lower in ((call_p, _lower), (part_p, _lower_part)):
    primitive.def_abstract_eval(_abstract_eval)
    mlir.register_lowering(primitive, functools.partial(lower, HOST), platform="cpu")
    mlir.register_lowering(primitive, functools.partial(lower, CUDA), platform="cuda")
_specs.wants_devices(call_p)
batching.primitive_batchers[call_p] = _batch
ad.primitive_jvps[call_p] = lambda primals, tangents, **parameters: _no_derivative(**parameters)
ad.primitive_transposes[call_p] = lambda *_, **parameters: _no_derivative(**parameters)
