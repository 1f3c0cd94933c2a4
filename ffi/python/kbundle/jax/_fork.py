"""A fork after a JAX backend was used: what is compiled still runs in the child, but compiling anything
waits for ever for threads that the child does not have. We say so instead."""

import os

from kbundle._errors import Error

_compiled_here = False
_child_of_used_backend = False


def _after_fork_in_child():
    global _child_of_used_backend
    _child_of_used_backend = _child_of_used_backend or _compiled_here


def watch():
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork_in_child)


def before_lowering():
    """To be called whenever a call is compiled."""
    global _compiled_here
    if _child_of_used_backend:
        raise Error("FAILED_PRECONDITION", "compiling a kbundle call: this process was forked from one "
                    "that had used JAX, where a compilation never ends; start workers with the 'spawn' "
                    "or 'forkserver' method, or compile before the fork")
    _compiled_here = True
