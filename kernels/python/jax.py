"""Every function for JAX that a family brings along. The modules beside this one are kernels/<family>/jax.py as <family>.py
and jax_<more>.py there as <family>_<more>.py."""

import importlib
import pkgutil

import kbundle_kernels

__all__ = []
for _info in sorted(pkgutil.iter_modules(kbundle_kernels.__path__), key=lambda info: info.name):
    if _info.name != "jax" and not _info.ispkg:  # those of pytorch/ are for PyTorch
        _module = importlib.import_module("kbundle_kernels." + _info.name)
        for _name in _module.__all__:
            if _name in __all__:
                raise ImportError("both %s and %s have %s" % (globals()[_name].__module__, _module.__name__, _name))
            globals()[_name] = getattr(_module, _name)
            __all__.append(_name)
