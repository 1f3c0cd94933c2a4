// The CUDA kernels of the auxiliary loss. The manifest, gradient.toml, says which instances there
// are.
#include "loss.cuh"
