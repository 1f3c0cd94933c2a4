// The CUDA kernels of top-k routing. The manifest, router.toml, says which instances there are.
#include "forward.cuh"
