"""kbundle: kernels built once, in one file, launched without compiling anything.

    import kbundle
    bundle = kbundle.open("kernels.kb")
    bundle.ops, bundle.explain("family.op", "bf16[4096,8192]", target="sm_90a", scale=0.5)

    import kbundle.jax as kbj
    y = kbj.call(bundle, "family.op", x, scale=0.5)

Where the caller names no bundle, an op is served by the first that has it: of kbundle.use(), $KBUNDLE_PATH, installed
packages; kbundle.bundles() and `python -m kbundle` show them.

Pure Python over the C ABI of libkbundle.so (ctypes). Importing this module imports neither JAX nor
NumPy. Everything is safe from any thread.
"""

from kbundle._bundle import Bundle
from kbundle._discovery import bundles, default_bundle
from kbundle._errors import Error, InvalidArgument, tag_of
from kbundle._library import library_path
from kbundle._op import Op
from kbundle._open_bundles import find, open, open_library, use
from kbundle._policy import allow_formulas, allow_portable, clear_policy, stats, strict

__version__ = "0.1.0"

__all__ = [
    "Bundle", "Error", "InvalidArgument", "Op", "allow_formulas", "allow_portable", "bundles", "clear_policy", "default_bundle",
    "find", "library_path", "open", "open_library", "stats", "strict", "tag_of", "use",
]
