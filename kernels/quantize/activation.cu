// Kernels of the quantize ops with an activation in front. The manifest, activation.toml, says
// which instances exist and where each is legal.
#include "activation.cuh"
