// Where the scales of FP8 operands lie: what codes are multiplied by again. For CUDA kernels.
#pragma once

namespace grouped {

// Of x, for row m and part k of the depth, 128 long: data[m * row + k * depth]. Steps of 0: one
// scale for all of it.
struct RowScales {
  const float* data;
  long long row, depth;
};

// Of w, for group g and 128 columns n: data[g * group + n * columns + k * depth].
struct MatrixScales {
  const float* data;
  long long group, columns, depth;
};

struct Extent {
  int G, M, N, K;
};

}  // namespace grouped
