"""Calls that are left to XLA: a formula that a family's wrapper gives along with a call takes its place on a GPU where the problem is so small
that a kernel of XLA's own, which it makes of the formula and of what is around it, is ahead of one that it must call.

A call costs XLA more of the host's time than a kernel of its own does, and nothing is fused with it. Of small problems that is all the
time there is; how small is measured, for each op (its family's README.md). What a formula gives is held to what the op promises.
Variants that someone forced or denied, and modes, are asked of kernels: then nothing is left, nor of a call outside any program, for which XLA
would have to compile. kbundle.allow_formulas(False) says so for all.
"""

import jax
from jax.interpreters import mlir

from kbundle import _spec
from kbundle._bundle import CUDA

KINDS = {CUDA}  # XLA's kernels for CPUs are behind the host variants, small problems or not

# A feature of newer JAX: without it there are no sums in float64, and nothing is left.
_with_64_bits = getattr(jax, "enable_x64", None)


class Formula:
    """function(*operands, **attributes) gives an op's results in its order, None for those that the call does not have, of the dtypes that
    they have in the op; it is traced with 64-bit types, of which each is asked for by name. Operands that are absent are None.
    when(*avals, **attributes): which problems are left, by operands' shapes and dtypes."""

    def __init__(self, function, when):
        self._function, self._when = function, when

    def __repr__(self):
        return self._function.__qualname__

    def takes(self, avals, attributes):
        return self._when(*avals, **attributes)

    def results(self, operands, attributes):
        """Traced, by JAX's own rules whatever those of the program around it are."""
        with _with_64_bits(True), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return self._function(*operands, **attributes)


def formula(when):
    """A decorator that makes a Formula of a function."""
    return lambda function: Formula(function, when)


def few_bytes(most, when=None):
    """Problems whose first operand has at most so many bytes, `most` or what a function of it says; when(**attributes): of which attributes,
    if not of all."""
    def takes(first, *_, **attributes):
        allowed = most(first) if callable(most) else most
        return first.size * first.dtype.itemsize <= allowed and (when is None or when(**attributes))
    return takes


def lowered(found, kind, context, operands, present, attributes):
    """The results of the formula instead of the call's, or None where the problem is not left to XLA."""
    if found is None or kind not in KINDS or _with_64_bits is None:
        return None
    how = {name: _spec.plain_value(of, value) for name, of, value in attributes}
    if not found.takes(_spec.spread(context.avals_in, present), how):
        return None

    def results(*arrays):
        return [result for result in found.results(_spec.spread(arrays, present), how) if result is not None]
    return mlir.lower_fun(results, multiple_results=True)(context, *operands)
