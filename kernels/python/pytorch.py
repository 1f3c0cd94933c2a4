"""Every function for PyTorch that a family brings along, and how its ops are differentiated. The modules beside this one are
kernels/<family>/pytorch.py as <family>.py and pytorch_<more>.py there as <family>_<more>.py."""

import importlib
import pkgutil

__all__ = []
DERIVATIVES = {}
for _info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
    _module = importlib.import_module(__name__ + "." + _info.name)
    DERIVATIVES.update(getattr(_module, "DERIVATIVES", {}))
    for _name in _module.__all__:
        if _name in __all__:
            raise ImportError("both %s and %s have %s" % (globals()[_name].__module__, _module.__name__, _name))
        globals()[_name] = getattr(_module, _name)
        __all__.append(_name)
