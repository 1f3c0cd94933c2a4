"""Arguments of wrappers, checked, or an error that says whose argument it is, what was found and what is allowed: those that are part of
the compiled program as plain values, and operands of floats as arrays. `where` is the wrapper's name. An InvalidArgument is a ValueError too.

NumPy's scalars and arrays of no dimension count as the number they hold; flags are no numbers, and numbers no flags.
"""

import math

import jax
import jax.numpy as jnp

from kbundle._errors import Error


def refuse(where, name, value, allowed):
    """An InvalidArgument to raise."""
    found = repr(value)
    if isinstance(value, jax.core.Tracer):
        found, allowed = "a traced value", allowed + ", part of the compiled program: a plain Python value (static_argnames)"
    return Error("INVALID_ARGUMENT", "%s: %s is %s; it must be %s" % (where, name, found, allowed))


def plain(value):
    """The Python value of a scalar of any kind; anything else as it is."""
    if not isinstance(value, jax.core.Tracer) and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def _array(where, name, value):
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError) as error:  # ValueError: of None, and of lists that are no rectangle
        if isinstance(value, (list, tuple)):
            raise
        raise TypeError("%s requires ndarray or scalar arguments, got %s for %s" % (where, type(value), name)) from error


def rows(array):
    """[.., N] as [rows, N], where N is 0 too."""
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


def real(where, name, value):
    """An array of real numbers, whatever dtype they have, for what is converted: complex numbers, which would lose a part, keys and whatever is no
    array are a TypeError."""
    array = _array(where, name, value)
    if not (array.dtype == jnp.bool_ or jnp.issubdtype(array.dtype, jnp.integer) or jnp.issubdtype(array.dtype, jnp.floating)):
        raise TypeError("%s: %s is %s; it must be real numbers" % (where, name, array.dtype))
    return array


def floats(where, name, value):
    """An array of float32, float16 or bfloat16. Bools and integers become float32, as jax.numpy makes floats of them where it divides; float64,
    for which there are no kernels, and whatever is no array is a TypeError."""
    array = _array(where, name, value)
    if array.dtype == jnp.bool_ or jnp.issubdtype(array.dtype, jnp.integer):
        array = array.astype(jnp.float32)
    if array.dtype not in (jnp.float32, jnp.float16, jnp.bfloat16):
        raise TypeError("%s: %s is %s; it must be float32, float16 or bfloat16; convert it with astype" % (where, name, array.dtype))
    return array


def int32(array):
    """Integers of any dtype as int32. What that has no room for becomes the nearest number that it has: a size, length or index that is
    beyond all bounds stays so, where its low bits could be one that is not."""
    limits = jnp.iinfo(array.dtype)
    if limits.bits > 32 or limits.max >= 2**31:
        array = jnp.clip(array, max(limits.min, -2**31), 2**31 - 1)
    return array.astype(jnp.int32)


def flag(where, name, value):
    """bool."""
    if isinstance(plain(value), bool):
        return plain(value)
    raise refuse(where, name, value, "True or False")


def integer(where, name, value, least=0, most=2**63 - 1):
    """int, least <= it <= most."""
    found = plain(value)
    if isinstance(found, int) and not isinstance(found, bool) and least <= found <= most:
        return found
    raise refuse(where, name, value, "an integer, %d or more" % least if most == 2**63 - 1
                 else "an integer from %d to %d" % (least, most))


def number(where, name, value, least=-math.inf, most=math.inf):
    """float, finite, least <= it <= most."""
    found = plain(value)
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        try:
            result = float(found)
        except OverflowError:
            result = math.inf
        if math.isfinite(result) and least <= result <= most:
            return result
    limits = "" if least == -math.inf else " from %g to %g" % (least, most)
    raise refuse(where, name, value, "a finite number" + limits)


def choice(where, name, value, allowed):
    """One of a tuple of strings, True, False and None."""
    found = plain(value)
    for one in allowed:
        if found is one or (isinstance(found, str) and found == one):
            return one
    spelled = [repr(one) for one in allowed]
    raise refuse(where, name, value, " or ".join([", ".join(spelled[:-1]), spelled[-1]] if spelled[1:] else spelled))
