// Kernels of the quantize ops of a whole tensor, but for that of histories, which is no template
// and would be in every object. The manifest, quantize.toml, says which instances exist and where
// each is legal.
#include "stream.cuh"
#include "transpose.cuh"
