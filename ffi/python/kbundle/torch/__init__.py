"""kbundle in PyTorch programs.

    import kbundle, kbundle.torch as kbt
    bundle = kbundle.open("kernels.kb")
    y = kbt.call(bundle, "family.op", x, None, scale=0.5)

An op is an operator of torch (torch.ops.kbundle.<family>_<op>), made of what its bundle says: eager and under torch.compile without a graph
break, torch.export, torch.func.vmap and CUDA graphs, on CPU and CUDA, on the current stream. Gradients flow where the op's family says which
op (Derivative) or which function (DerivativeFunction) computes them. Functions that installed packages bring along are
kbundle.torch.<function>, see dir(kbundle.torch).

A process that loads a program which another exported imports this module, opens the bundle and calls register(bundle) first.
"""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("kbundle.torch needs PyTorch, which this Python does not have: pip install torch, or kbundle[torch]",
                              name="torch") from None

from kbundle import _wrappers
from kbundle._discovery import default_bundle
from kbundle._open_bundles import use
from kbundle.torch._derivatives import Derivative, DerivativeFunction, register_derivative
from kbundle.torch._operators import call, register
from kbundle.torch._shortcut import shortcut

__all__ = ["Derivative", "DerivativeFunction", "call", "default_bundle", "register", "register_derivative", "shortcut", "use"]


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    found = globals()[name] = _wrappers.wrapper(__name__, name)  # what is installed stays; the next time costs nothing
    return found


def __dir__():
    return sorted(set(__all__) | set(_wrappers.wrappers(__name__)))
