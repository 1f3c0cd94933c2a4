// Kernels of the quantize op of rows in groups. The manifest, grouped.toml, says which instances
// exist and where each is legal.
#include "grouped_stream.cuh"
