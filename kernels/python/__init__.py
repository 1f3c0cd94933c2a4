"""kbundle_kernels: the ops of kbundle's own families in one bundle, and their functions for JAX.

Nothing here is called by name: kbundle finds BUNDLE and kbundle_kernels.jax as entry points, and serves both as
kbundle.default_bundle(op) and kbundle.jax.<function>. Importing this module imports nothing.
"""

import os

BUNDLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels.kb")
