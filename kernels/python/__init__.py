"""kbundle_kernels: the ops of kbundle's own families in one bundle, and their functions for JAX and PyTorch.

Nothing here is called by name: kbundle finds BUNDLE, kbundle_kernels.jax and kbundle_kernels.pytorch as entry points, and
serves them as kbundle.default_bundle(op), kbundle.jax.<function> and kbundle.torch.<function>. Importing this module imports nothing.
"""

import os

BUNDLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels.kb")
