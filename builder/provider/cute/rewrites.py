"""CuTe DSL rewrites a function's code when it is first traced: a tenth of a compilation, lost with the process that compiled.
A child says which functions it rewrote; the process that forks rewrites them as well, and children after it find it done.
"""
import contextlib
import inspect
import sys


def dsl():
    from cutlass.base_dsl.dsl import BaseDSL
    return BaseDSL


def noted():
    """A list of (module, qualified name) that grows with each function that is rewritten from now on."""
    names, rewrite = [], dsl()._preprocess_and_replace_code

    def note(function):
        fresh = not getattr(function, "_preprocessed", False)
        rewrite(function)
        if fresh:
            names.append((function.__module__, function.__qualname__))

    dsl()._preprocess_and_replace_code = staticmethod(note)
    return names


def repeat(names):
    """Rewrites these, but what is defined inside of functions, of which each call makes another."""
    for module, name in names:
        found = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        found = inspect.unwrap(found) if callable(found) else None
        if inspect.isfunction(found) and (found.__module__, found.__qualname__) == (module, name):
            with contextlib.suppress(Exception):  # whatever is wrong, a child says it better
                dsl()._preprocess_and_replace_code(found)
