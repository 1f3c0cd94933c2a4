"""kbundle in JAX programs.

    import kbundle, kbundle.jax as kbj
    bundle = kbundle.open("kernels.kb")
    y = kbj.call(bundle, "family.op", x, None, scale=0.5)

`call` works eagerly and under jit, vmap, scan, cond, shard_map and jax.export, on CPU and CUDA. Ops have no
derivative of their own; the wrappers that installed packages bring along (kbj.<wrapper>, see dir(kbundle.jax))
have one. A compiled program names its bundle: a process that loads one from the persistent cache
or from an export first imports this module and opens the bundle.

Operands that are sharded over devices stay where they are along the dims that the op's manifest calls independent; along
others they are gathered, and a GatheredWarning says so. Inside jax.shard_map each device calls with its own shards.

Importing this module starts no backend.
"""

import importlib

from kbundle import _wrappers
from kbundle._discovery import default_bundle
from kbundle._open_bundles import use
from kbundle.jax import _fork, _registration
from kbundle.jax._modes import modes
from kbundle.jax._primitive import call

_registration.register()
_fork.watch()

__all__ = ["GatheredWarning", "call", "check_ranks", "default_bundle", "disabled_checks", "modes", "record_problems", "use"]

# Names that most programs never use, and where they are: imported when they are first asked for.
_LATER = {"GatheredWarning": "_partition", "check_ranks": "_ranks", "record_problems": "_record"}


def disabled_checks():
    """What jax.export has to be told so that it lets kbundle's calls pass:
    jax.export.export(f, disabled_checks=kbj.disabled_checks()).

    Without it JAX refuses "custom calls whose targets have no compatibility guarantees". kbundle gives one: an exported
    program runs with every bundle of its name whose op has the same interface (Op.interface), and is refused by others."""
    import jax.export
    return [jax.export.DisabledSafetyCheck.custom_call(_registration.TARGET)]


def __getattr__(name):
    if name.startswith("_"):  # asked first where a wrapper's own file imports a module of this package
        raise AttributeError(name)
    if name in _LATER:
        found = globals()[name] = getattr(importlib.import_module("%s.%s" % (__name__, _LATER[name])), name)
        return found
    return _wrappers.wrapper(__name__, name)


def __dir__():
    return sorted(set(__all__) | set(_wrappers.wrappers(__name__)))
