"""Derivatives of ops, as data that families give: which op computes the gradients of another, and where its operands come from. Where no
single op does, as of a product, whose gradients are two products, a function that calls several.

Most of it are names: an operand of the backward op that is called like an operand or a result of the forward op is that, "d" and the
name of a result is what flows back through it, and a result "d" and the name of an operand is that operand's gradient.
"""

import typing
from typing import NamedTuple

import torch

from kbundle import _wrappers
from kbundle._errors import Error

GROUP = "kbundle.torch"

_registered = {}
_found = {}  # what derivative_of said; what packages say stays, and the rest goes by register_derivative


class Derivative(NamedTuple):
    """How an op is differentiated. op: the op that computes gradients; and what names do not say already: operands: of that op, each by the
    names that it may come from, the first present one counts; results: {operand of the forward op: the result that is its gradient};
    attributes: {attribute of that op: a function of the names of operands whose gradients are wanted}."""
    op: str
    operands: dict = {}
    results: dict = {}
    attributes: dict = {}


class DerivativeFunction(NamedTuple):
    """How an op is differentiated where no single op does it. function(flow): {name of an operand: its gradient} of a Flow, None where it is
    zero, with whatever it calls: torch's operators and flow.call. keeps(flow): the names of operands and results of the call that it will
    need, of a Flow that has none of them yet. through: the results that something flows back through; the others have no gradient."""
    function: typing.Callable
    keeps: typing.Callable
    through: tuple


class Flow:
    """Of one call, what a DerivativeFunction is told. flow[name] is an operand or a result that it keeps, or by "d" and the name of a
    result what flows back through that; None where there is none. wanted: the names of operands whose gradients are wanted. shapes: of the
    operands that are given, by their names. attributes: all of the op. call(op, *tensors, **attributes): kbundle.torch.call of the bundle
    that served the call."""
    __slots__ = ("_tensors", "attributes", "call", "shapes", "wanted")

    def __init__(self, wanted, shapes, attributes, call=None, tensors=None):
        self.wanted, self.shapes, self.attributes, self.call, self._tensors = wanted, shapes, attributes, call, tensors

    def __getitem__(self, name):
        return self._tensors[name]


def register_derivative(op, derivative):
    """Says how an op is differentiated, in this process; packages say it by `DERIVATIVES` of the module of their entry point."""
    if not isinstance(derivative, (Derivative, DerivativeFunction)):
        raise Error("INVALID_ARGUMENT", "registering a derivative of op %r: %r is none; give a kbundle.torch.Derivative or DerivativeFunction"
                    % (op, derivative))
    _registered[op] = derivative
    _found.pop(op, None)


def derivative_of(op):
    """Its Derivative or DerivativeFunction, or None."""
    found = _found.get(op)
    if found is None:
        found = _registered.get(op)
        for _, module in _wrappers.modules(GROUP) if found is None else ():
            found = found or getattr(module, "DERIVATIVES", {}).get(op)
        _found[op] = found
    return found


class Backward(NamedTuple):
    """A Derivative with its names resolved, in the shape in which calls need it. kept: what a call of the forward op saves, (whether it is a
    result, index) of each; sources: of each operand of the backward op, (whether it is saved, index there or among cotangents) of all that
    it may come from; gradients: for each operand of the forward op the result that is its gradient, or None."""
    op: str
    names: list  # of operands of the forward op
    kept: list
    through: list  # results of the forward op that something flows back through
    without: list  # the others
    sources: list
    optional: list
    gradients: list
    attributes: dict  # of the backward op: the names of those it shares with the forward op, and functions of the others

    def keep(self, ctx, needs, tensors):
        """What a call saves, in the form of `kept`."""
        return self.kept

    def made(self, ctx, needs, cotangents, call):
        """See `gradients`."""
        saved, tensors = ctx.saved_tensors, []
        for sources, optional in zip(self.sources, self.optional):
            for is_saved, index in sources:
                found = saved[index] if is_saved else cotangents[index]
                if found is not None:
                    break
            else:
                if not optional:  # nothing flows back through a result whose cotangent the op needs
                    shape, dtype, device = ctx.results[next(index for is_saved, index in sources if not is_saved)]
                    found = torch.zeros(shape, dtype=dtype, device=device)
            tensors.append(found)
        for name, needed, made in zip(self.names, needs, self.gradients):
            if needed and made is None:
                raise _has_no_gradient("op %r" % self.op, name)
        attributes = {}
        for name, function in self.attributes.items():
            if function is not None:
                attributes[name] = function(frozenset(name for name, needed in zip(self.names, needs) if needed))
            elif name in ctx.attributes:
                attributes[name] = ctx.attributes[name]
        made = call(self.op, *tensors, **attributes)
        return [made[index] if needed and index is not None else None for index, needed in zip(self.gradients, needs)]


class BackwardFunction:
    """The same of a DerivativeFunction. places: (whether it is a result, index) of what has a name; defaults: attributes of the op."""

    def __init__(self, op, derivative, names, places, through, without, defaults):
        self.op, self.derivative, self.names, self.places, self.through, self.without = op, derivative, names, places, through, without
        self._defaults, self._complete, self._wanted = defaults, ({}, defaults), {}

    def keep(self, ctx, needs, tensors):
        wanted = self._wanted.get(needs := tuple(needs))
        if wanted is None:
            wanted = self._wanted[needs] = frozenset([name for name, needed in zip(self.names, needs) if needed])
        given, complete = self._complete
        if given is not ctx.attributes:  # a site has the same ones each time
            complete = {**self._defaults, **ctx.attributes}
            self._complete = ctx.attributes, complete
        shapes = {name: tensor.shape for name, tensor in zip(self.names, tensors) if tensor is not None}
        ctx.flow = flow = Flow(wanted, shapes, complete)
        ctx.kept = kept = self.derivative.keeps(flow)
        try:
            return [self.places[name] for name in kept]
        except KeyError:
            return [_known(self.places, name, "differentiating op %r by a function: it keeps" % self.op) for name in kept]

    def made(self, ctx, needs, cotangents, call):
        def one_or_all(op, *tensors, **attributes):
            results = call(op, *tensors, **attributes)
            return results[0] if len(results) == 1 else tuple(results)
        tensors, flow = dict(zip(ctx.kept, ctx.saved_tensors)), ctx.flow
        for name, index in zip(self.derivative.through, self.through):
            tensors["d" + name] = cotangents[index]
        made = self.derivative.function(Flow(flow.wanted, flow.shapes, flow.attributes, one_or_all, tensors))
        for name in flow.wanted:
            if name not in made:
                raise _has_no_gradient("a function of op %r" % self.op, name)
        return [made[name] if needed else None for name, needed in zip(self.names, needs)]


def _has_no_gradient(by, name):
    return Error("UNIMPLEMENTED", "differentiating by %s: it has no gradient of operand %r; keep it out of what is differentiated (detach)"
                 % (by, name))


def resolve(derivative, forward, backward):
    """A Backward of a Derivative and the descriptions of both ops."""
    kinds = {"d" + result.name: ("cotangent", index) for index, result in enumerate(forward.results)}
    kinds.update(_places(forward))
    origins = []
    for operand in backward.operands:
        names = derivative.operands.get(operand.name, (operand.name,))
        names = (names,) if isinstance(names, str) else names
        origins.append([_known(kinds, name, "differentiating op %r by %r: its operand %r is to come from"
                               % (forward.name, backward.name, operand.name)) for name in names])
    made = {result.name: index for index, result in enumerate(backward.results)}
    shared = {attribute.name for attribute in forward.attributes}
    attributes = {attribute.name: derivative.attributes.get(attribute.name) for attribute in backward.attributes
                  if attribute.name in derivative.attributes or attribute.name in shared}
    used = {origin for one in origins for origin in one}
    kept = sorted((kind == "result", index) for kind, index in used if kind != "cotangent")
    through = [index for index in range(len(forward.results)) if ("cotangent", index) in used]
    return Backward(
        backward.name, [operand.name for operand in forward.operands], kept, through,
        [index for index in range(len(forward.results)) if index not in through],
        [[(False, index) if kind == "cotangent" else (True, kept.index((kind == "result", index))) for kind, index in one] for one in origins],
        [operand.optional for operand in backward.operands],
        [made.get(derivative.results.get(operand.name, "d" + operand.name)) for operand in forward.operands], attributes)


def resolve_function(derivative, forward):
    """A BackwardFunction of a DerivativeFunction and the description of the op."""
    results = {result.name: index for index, result in enumerate(forward.results)}
    through = [_known(results, name, "differentiating op %r by a function: something is to flow back through" % forward.name)
               for name in derivative.through]
    return BackwardFunction(
        forward.name, derivative, [operand.name for operand in forward.operands],
        {name: (kind == "result", index) for name, (kind, index) in _places(forward).items()}, through,
        [index for index in range(len(forward.results)) if index not in through],
        {attribute.name: attribute.default for attribute in forward.attributes})


def _places(forward):
    """(kind, index) of what has a name in a call; an operand's goes before a result's."""
    places = {result.name: ("result", index) for index, result in enumerate(forward.results)}
    places.update((operand.name, ("operand", index)) for index, operand in enumerate(forward.operands))
    return places


def _known(places, name, where):
    if name not in places:
        raise Error("INVALID_ARGUMENT", "%s %r; there are %s" % (where, name, ", ".join(places)))
    return places[name]


def save(ctx, backward, needs, tensors, results, attributes):
    """For `gradients`, of a call of the forward op; absent results are None."""
    ctx.set_materialize_grads(False)
    ctx.attributes = attributes
    ctx.save_for_backward(*[results[index] if is_result else tensors[index] for is_result, index in backward.keep(ctx, needs, tensors)])
    if len(backward.through) > 1 and type(backward) is Backward:  # then it may be that something flows back through others alone
        ctx.results = [None if result is None else (result.shape, result.dtype, result.device) for result in results]
    without = [results[index] for index in backward.without if results[index] is not None]
    if without:
        ctx.mark_non_differentiable(*without)


def gradients(ctx, backward, needs, cotangents, call):
    """Of the operands of the forward op, None of those that have none. needs: of each whether its gradient is wanted; call(op,
    *tensors, **attributes): results, absent ones None."""
    if all([cotangents[index] is None for index in backward.through]):
        return [None] * len(backward.names)
    return backward.made(ctx, needs, cotangents, call)
