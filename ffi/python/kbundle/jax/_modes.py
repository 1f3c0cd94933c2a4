"""Modes around a part of a program. They are part of what JAX traces, so a jitted function that was called under others is traced anew."""

import jax

from kbundle import _modes
from kbundle._errors import Error

# A feature of newer JAX: without it a function that is compiled already would go on under its own modes.
_make = getattr(jax, "make_user_context", None)
_asked = _make(0) if _make is not None else None


def asked():
    """Modes of the calls that are traced now, as a number."""
    return 0 if _asked is None else _asked.value


def modes(*, deterministic=None, batch_invariant=None):
    """A context manager: calls that are traced inside ask for variants that promise this. True and False say so, None leaves a mode as it
    is outside. An op that no variant of which promises it is a NOT_FOUND error that says what each promises.

    deterministic: every launch gives the same bits. batch_invariant: what an item of a batch gets has the same bits whatever else is in
    the batch, and however much; what is a sum over the batch, as gradients of weights, is no item's. A backward pass belongs inside as
    well: it is traced where jax.grad or the function of jax.vjp is called."""
    changed = _modes.changed("kbj.modes", asked(), deterministic=deterministic, batch_invariant=batch_invariant)
    if _asked is None:
        raise Error("UNIMPLEMENTED", "kbj.modes: this JAX (%s) has no jax.make_user_context, by which compiled functions notice modes; "
                    "install a newer one, or give modes= to kbj.call" % jax.__version__)
    return _asked(changed)
