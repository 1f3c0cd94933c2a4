"""Derivatives of ops, as data that families give: which op computes the gradients of another, and where its operands come from.

Most of it are names: an operand of the backward op that is called like an operand or a result of the forward op is that, "d" and the
name of a result is what flows back through it, and a result "d" and the name of an operand is that operand's gradient.
"""

from typing import NamedTuple

import torch

from kbundle import _wrappers
from kbundle._errors import Error

GROUP = "kbundle.torch"

_registered = {}


class Derivative(NamedTuple):
    """How an op is differentiated. op: the op that computes gradients; and what names do not say already: operands: of that op, each by the
    names that it may come from, the first present one counts; results: {operand of the forward op: the result that is its gradient};
    attributes: {attribute of that op: a function of the names of operands whose gradients are wanted}."""
    op: str
    operands: dict = {}
    results: dict = {}
    attributes: dict = {}


def register_derivative(op, derivative):
    """Says how an op is differentiated, in this process; packages say it by `DERIVATIVES` of the module of their entry point."""
    if not isinstance(derivative, Derivative):
        raise Error("INVALID_ARGUMENT", "registering a derivative of op %r: %r is none; give a kbundle.torch.Derivative" % (op, derivative))
    _registered[op] = derivative


def derivative_of(op):
    """Its Derivative, or None."""
    if op in _registered:
        return _registered[op]
    for _, module in _wrappers.modules(GROUP):
        found = getattr(module, "DERIVATIVES", {}).get(op)
        if found is not None:
            return found
    return None


class Backward(NamedTuple):
    """A Derivative with its names resolved, in the shape in which calls need it. kept: what a call of the forward op saves, (whether it is a
    result, index) of each; sources: of each operand of the backward op, (whether it is saved, index there or among cotangents) of all that
    it may come from; gradients: for each operand of the forward op the result that is its gradient, or None."""
    op: str
    names: list  # of operands of the forward op
    kept: list
    sources: list
    optional: list
    gradients: list
    attributes: dict  # of the backward op: the names of those it shares with the forward op, and functions of the others
    through: list  # results of the forward op that something flows back through
    without: list  # the others


def resolve(derivative, forward, backward):
    """A Backward of a Derivative and the descriptions of both ops."""
    kinds = {"d" + result.name: ("cotangent", index) for index, result in enumerate(forward.results)}
    kinds.update((result.name, ("result", index)) for index, result in enumerate(forward.results))
    kinds.update((operand.name, ("operand", index)) for index, operand in enumerate(forward.operands))
    origins = []
    for operand in backward.operands:
        names = derivative.operands.get(operand.name, (operand.name,))
        names = (names,) if isinstance(names, str) else names
        missing = [name for name in names if name not in kinds]
        if missing:
            raise Error("INVALID_ARGUMENT", "differentiating op %r by %r: its operand %r is to come from %r; there are %s"
                        % (forward.name, backward.name, operand.name, missing[0], ", ".join(kinds)))
        origins.append([kinds[name] for name in names])
    made = {result.name: index for index, result in enumerate(backward.results)}
    shared = {attribute.name for attribute in forward.attributes}
    attributes = {attribute.name: derivative.attributes.get(attribute.name) for attribute in backward.attributes
                  if attribute.name in derivative.attributes or attribute.name in shared}
    used = {origin for one in origins for origin in one}
    kept = sorted((kind == "result", index) for kind, index in used if kind != "cotangent")
    through = [index for index in range(len(forward.results)) if ("cotangent", index) in used]
    return Backward(
        backward.name, [operand.name for operand in forward.operands], kept,
        [[(False, index) if kind == "cotangent" else (True, kept.index((kind == "result", index))) for kind, index in one] for one in origins],
        [operand.optional for operand in backward.operands],
        [made.get(derivative.results.get(operand.name, "d" + operand.name)) for operand in forward.operands], attributes, through,
        [index for index in range(len(forward.results)) if index not in through])


def save(ctx, backward, tensors, results, attributes):
    """For `gradients`, of a call of the forward op; absent results are None."""
    ctx.set_materialize_grads(False)
    ctx.attributes = attributes
    ctx.save_for_backward(*[results[index] if is_result else tensors[index] for is_result, index in backward.kept])
    if len(backward.through) > 1:  # then it may be that something flows back through others alone
        ctx.results = [None if result is None else (result.shape, result.dtype, result.device) for result in results]
    if backward.without:
        ctx.mark_non_differentiable(*[results[index] for index in backward.without if results[index] is not None])


def gradients(ctx, backward, needs, cotangents, call):
    """Of the operands of the forward op, None of those that have none. needs: of each whether its gradient is wanted; call(op, tensors,
    attributes): results, absent ones None."""
    if all([cotangents[index] is None for index in backward.through]):
        return [None] * len(backward.names)
    saved, tensors = ctx.saved_tensors, []
    for sources, optional in zip(backward.sources, backward.optional):
        for is_saved, index in sources:
            found = saved[index] if is_saved else cotangents[index]
            if found is not None:
                break
        else:
            if not optional:  # nothing flows back through a result whose cotangent the op needs
                shape, dtype, device = ctx.results[next(index for is_saved, index in sources if not is_saved)]
                found = torch.zeros(shape, dtype=dtype, device=device)
        tensors.append(found)
    for name, needed, made in zip(backward.names, needs, backward.gradients):
        if needed and made is None:
            raise Error("UNIMPLEMENTED", "differentiating by op %r: it has no gradient of operand %r; keep it out of what is differentiated "
                        "(detach)" % (backward.op, name))
    attributes = {}
    for name, function in backward.attributes.items():
        if function is not None:
            attributes[name] = function(frozenset(name for name, needed in zip(backward.names, needs) if needed))
        elif name in ctx.attributes:
            attributes[name] = ctx.attributes[name]
    made = call(backward.op, tensors, attributes)
    return [made[index] if needed and index is not None else None for index, needed in zip(backward.gradients, needs)]
