// Kernels of the quantize ops of a whole tensor. The manifest, quantize.toml, says which instances
// exist and where each is legal.
#include "state.cuh"
#include "stream.cuh"
#include "transpose.cuh"
