"""A call whose operands lie on several devices: which part of it each device computes.

Under a plain jit XLA asks, for it alone sees where arrays lie: Shardy propagates shardings by the rule below, and the
partitioner then wants the program of one device. With explicit axes they are part of types, and result_specs says what they are.
"""

import copyreg
import functools
import math
import warnings

import jax
import jax.numpy as jnp
from jax.interpreters import mlir
from jax.sharding import NamedSharding

from kbundle._errors import Error
from kbundle.jax import _cuts
from kbundle.jax._specs import partition_spec, spec_of


class GatheredWarning(UserWarning):
    """An operand is sharded along a dim that its op does not compute in parts, so every device gets all of that dim."""


class Division:
    """One call on many devices. infer(avals): what kb_infer says of operands like these; bind(*arrays): the call on one device;
    avals: the operands, then the results; name: the op's, and operand_names, for warnings; identity: a text that tells calls apart."""

    def __init__(self, infer, bind, avals, present, name, operand_names, identity):
        self._infer, self._bind, self._avals, self._name, self._identity = infer, bind, avals, name, identity
        self._operand_names = operand_names
        self._operands = sum(present)
        self._shapes = [tuple(aval.shape) for aval in avals]
        self._cuts = _cuts.read(infer(avals[:self._operands]), present)

    def choose(self, specs, sizes):
        """(mesh axes of each cut, where every tensor then lies). Parts that are no problem of the op are not made."""
        chosen = _cuts.choose(self._cuts, self._shapes, specs, self._operands, sizes)
        while any(chosen) and not self._legal(chosen, sizes):
            last = max(index for index, axes in enumerate(chosen) if axes)
            chosen[last] = ()
        self._warn(specs, sizes)
        return chosen, _cuts.specs_of(self._cuts, chosen, self._shapes)

    def specs(self, operand_specs, sizes):
        """Where operands must lie, then where results do, given where operands are."""
        return self.choose([*operand_specs, *(((),) * len(shape) for shape in self._shapes[self._operands:])], sizes)[1]

    def _legal(self, chosen, sizes):
        specs = _cuts.specs_of(self._cuts, chosen, self._shapes)
        parts = [jax.ShapeDtypeStruct([size // math.prod(sizes[axis] for axis in axes) for size, axes in zip(shape, spec)], aval.dtype)
                 for shape, spec, aval in zip(self._shapes, specs, self._avals)]
        try:
            inferred = self._infer(parts[:self._operands])
        except Error:
            return False
        found = [tuple(result["dims"]) for result in inferred["results"] if result["present"]]
        return found == [part.shape for part in parts[self._operands:]]

    def _warn(self, specs, sizes):
        for tensor, dim in _cuts.gathered(self._cuts, specs, self._operands, sizes):
            warnings.warn("%s: operand %r is sharded over %s along dim %d of %s, along which the op is not computed in parts: it is "
                          "gathered. Shard dims that its manifest calls independent, or call it inside jax.shard_map"
                          % (self._name, self._operand_names[tensor], ", ".join(map(repr, specs[tensor][dim])), dim,
                             list(self._shapes[tensor])), GatheredWarning, stacklevel=2)

    # ---- what XLA asks ----

    def lower(self, context, operands):
        """The call in a program for many devices."""
        from jax.experimental.custom_partitioning import custom_partitioning
        _let_executables_be_serialized()
        call = custom_partitioning(lambda *arrays: self._bind(*arrays))
        call.def_partition(self._partition, infer_sharding_from_operands=self._infer_sharding, sharding_rule=self._rule())
        results = mlir.lower_fun(lambda *arrays: call(*arrays), multiple_results=True)(context, *operands)
        _identify(results[0].owner if results else None, self._identity)
        return results

    def _rule(self):
        from jax.experimental.custom_partitioning import ArrayMapping, CompoundFactor, SdyShardingRule
        sizes, mappings = {}, []
        whole = set()
        for tensor in _cuts.factors(self._cuts, self._shapes):
            mapping = []
            for factors in tensor:
                names = [name for name, _ in factors]
                if len(factors) > 1:
                    sizes.update(factors)
                else:
                    whole.update(names)
                mapping.append(CompoundFactor(*names) if len(names) > 1 else names[0])
            mappings.append(ArrayMapping(*mapping))
        given = {name: size for name, size in sizes.items() if name not in whole}
        return SdyShardingRule(tuple(mappings[:self._operands]), tuple(mappings[self._operands:]), **given)

    def _partition(self, mesh, arguments, results):
        tensors = [*arguments, *results]
        if not all(isinstance(tensor.sharding, NamedSharding) for tensor in tensors):
            raise NotImplementedError("[kbundle:UNIMPLEMENTED] dividing %s: a sharding has no mesh with named axes; give arrays a "
                                      "jax.sharding.NamedSharding, or call it inside jax.shard_map" % self._name)
        chosen, specs = self.choose([spec_of(tensor.sharding.spec, tensor.ndim) for tensor in tensors], dict(mesh.shape))
        shardings = [NamedSharding(mesh, partition_spec(spec)) for spec in specs]
        return mesh, self._program_of_one(chosen), shardings[self._operands:], tuple(shardings[:self._operands])

    def _infer_sharding(self, mesh, arguments, results):
        """GSPMD's question, where JAX does without Shardy."""
        specs = self.specs([spec_of(argument.sharding.spec, argument.ndim) for argument in arguments], dict(mesh.shape))
        return [NamedSharding(mesh, partition_spec(spec)) for spec in specs[self._operands:]]

    def _program_of_one(self, chosen):
        """What one device computes, as a function. It knows of no mesh: with explicit axes JAX from 0.11 on would take a psum for one
        between arrays of all devices, and refuse it."""
        def part(*arrays):
            with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
                return self._part(chosen, arrays)
        return part

    def _part(self, chosen, arrays):
        made = [(cut, axes) for cut, axes in zip(self._cuts, chosen) if axes]
        arrays = list(arrays)
        for cut, axes in made:
            for tensor in cut.once:
                arrays[tensor] = jnp.where(jax.lax.axis_index(axes) == 0, arrays[tensor], jnp.zeros_like(arrays[tensor]))
        outputs = self._bind(*arrays)
        for cut, axes in made:
            outputs = [jax.lax.psum(output, axes) if self._operands + at in cut.sums else output for at, output in enumerate(outputs)]
        return outputs


def _identify(operation, identity):
    """JAX's call names its rule by an address. Users whose persistent cache shall find the program have JAX leave that out of the key
    (jax_remove_custom_partitioning_ptr_from_cache_key): then this tells calls apart that would be equal otherwise."""
    if operation is not None and "call_target_name" in operation.attributes:
        text = mlir.ir.StringAttr.get(identity)
        operation.attributes["mhlo.frontend_attributes"] = mlir.ir.DictAttr.get({"kbundle_call": text})


@functools.lru_cache(maxsize=None)
def _let_executables_be_serialized():
    """An executable keeps what the compiler asked about parts, closures among it, though nobody asks again: pickled they are nothing."""
    try:
        from jax._src.custom_partitioning import _ShardingCallbackInfo
    except ImportError:
        return
    copyreg.pickle(_ShardingCallbackInfo, lambda asked: (object, ()))
