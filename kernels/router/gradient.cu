// The CUDA kernels of the router's gradients. The manifest, gradient.toml, says which instances
// there are.
#include "backward.cuh"
