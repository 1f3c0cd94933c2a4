// Kernels of the quantize ops that lead a gradient back through an activation. The manifest,
// activation.toml, says which instances exist and where each is legal.
#include "gradient.cuh"
