// The kernel of delayed scaling, for the manifest, quantize.toml.
#include "state.cuh"
