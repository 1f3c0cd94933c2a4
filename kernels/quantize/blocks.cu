// Kernels of the quantize ops with a scale for each block. The manifest, blocks.toml, says which
// instances exist and where each is legal.
#include "mx.cuh"
