"""A fork after a JAX backend was started: what is compiled still runs in the child, but compiling anything waits for ever for
threads that the child does not have. We say so instead."""

import os
import sys

from kbundle._errors import Error

_child_of_used_backend = False


def watch():
    """To be called once, when kbundle.jax is imported: in the parent, or in the child already."""
    global _child_of_used_backend
    _child_of_used_backend = _backend_started() and _threads() == 1
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork_in_child)


def before_compiling():
    """To be called before a call is traced or lowered; moving an array to a device hangs in such a child, too."""
    if _child_of_used_backend:
        raise Error("FAILED_PRECONDITION", "compiling a kbundle call: this process was forked from one "
                    "that had used JAX, where a compilation never ends; start workers with the 'spawn' "
                    "or 'forkserver' method, or compile before the fork")


def _after_fork_in_child():
    global _child_of_used_backend
    _child_of_used_backend = _child_of_used_backend or _backend_started()


def _backend_started():
    """Whoever started it. JAX has no public question for this that would not start one."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", None)
    return bool(started()) if started is not None else bool(getattr(bridge, "_backends", None))


def _threads():
    """Of this process; every backend has some of its own, which a forked child lacks. 0: not known."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0
