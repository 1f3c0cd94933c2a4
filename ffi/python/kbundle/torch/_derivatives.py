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
    """A Derivative with its names resolved: for each operand of the backward op its sources, of ("operand", index), ("result", index) and
    ("cotangent", index); and for each operand of the forward op the result that is its gradient, or None."""
    op: str
    sources: list
    optional: list
    gradients: list
    attributes: dict  # of the backward op: the names of those it shares with the forward op, and functions of the others


def resolve(derivative, forward, backward):
    """A Backward of a Derivative and the descriptions of both ops."""
    kinds = {"d" + result.name: ("cotangent", index) for index, result in enumerate(forward.results)}
    kinds.update((result.name, ("result", index)) for index, result in enumerate(forward.results))
    kinds.update((operand.name, ("operand", index)) for index, operand in enumerate(forward.operands))
    sources = []
    for operand in backward.operands:
        names = derivative.operands.get(operand.name, (operand.name,))
        names = (names,) if isinstance(names, str) else names
        missing = [name for name in names if name not in kinds]
        if missing:
            raise Error("INVALID_ARGUMENT", "differentiating op %r by %r: its operand %r is to come from %r; there are %s"
                        % (forward.name, backward.name, operand.name, missing[0], ", ".join(kinds)))
        sources.append([kinds[name] for name in names])
    made = {result.name: index for index, result in enumerate(backward.results)}
    gradients = [made.get(derivative.results.get(operand.name, "d" + operand.name)) for operand in forward.operands]
    shared = {attribute.name for attribute in forward.attributes}
    attributes = {attribute.name: derivative.attributes.get(attribute.name) for attribute in backward.attributes
                  if attribute.name in derivative.attributes or attribute.name in shared}
    return Backward(backward.name, sources, [operand.optional for operand in backward.operands], gradients, attributes)


def save(ctx, backward, tensors, results, attributes):
    """For `gradients`, of a call of the forward op."""
    ctx.set_materialize_grads(False)
    ctx.attributes, ctx.described = attributes, [(result.shape, result.dtype, result.device) for result in results]
    wanted = {source for sources in backward.sources for source in sources}
    ctx.save_for_backward(*[tensor if ("operand", index) in wanted else None for index, tensor in enumerate(tensors)],
                          *[result if ("result", index) in wanted else None for index, result in enumerate(results)])
    ctx.mark_non_differentiable(*[result for index, result in enumerate(results) if ("cotangent", index) not in wanted])


def gradients(ctx, backward, names, needs, cotangents, call, is_absent):
    """Of the operands of the forward op, None of those that have none. names: of those operands; needs: those whose gradient is wanted;
    call(op, tensors, attributes)."""
    if all(cotangent is None for cotangent in cotangents):
        return [None] * len(names)
    saved = ctx.saved_tensors
    given = {("operand", index): tensor for index, tensor in enumerate(saved[:len(names)])}
    given.update((("result", index), None if tensor is None or is_absent(tensor) else tensor)
                 for index, tensor in enumerate(saved[len(names):]))
    given.update((("cotangent", index), cotangent) for index, cotangent in enumerate(cotangents))
    tensors = []
    for sources, optional in zip(backward.sources, backward.optional):
        found = next((given[source] for source in sources if given[source] is not None), None)
        if found is None and not optional:  # nothing flows back through a result whose cotangent the op needs
            [index] = [index for kind, index in sources if kind == "cotangent"]
            shape, dtype, device = ctx.described[index]
            found = torch.zeros(shape, dtype=dtype, device=device)
        tensors.append(found)
    missing = [name for name, made in zip(names, backward.gradients) if name in needs and made is None]
    if missing:
        raise Error("UNIMPLEMENTED", "differentiating by op %r: it has no gradient of operand %r; keep it out of what is differentiated "
                    "(detach)" % (backward.op, missing[0]))
    attributes = {name: ctx.attributes[name] if function is None else function(needs)
                  for name, function in backward.attributes.items() if function is not None or name in ctx.attributes}
    made = call(backward.op, tensors, attributes)
    return [None if index is None or name not in needs else made[index] for name, index in zip(names, backward.gradients)]
