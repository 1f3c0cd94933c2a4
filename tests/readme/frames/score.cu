// A kernel with one modifier compiled in, and what the page says of the header (score_checks.h, which the test writes).
#include <cuda_bf16.h>

#include "score_checks.h"
#include "score_mods.h"

struct Scalars {
  float value[8];
};

template <typename T, int MOD>
__global__ void attend(T* o, const T* q, const T* k, const T* v, Scalars scalars,
                       const float* tensor0, const float* tensor1) {
  ScoreArgs args = {{}, tensor0, tensor1, 1, 2, 3};
  for (int i = 0; i < 8; ++i) args.scalars[i] = scalars.value[i];
  const float s = static_cast<float>(q[0]) * static_cast<float>(k[0]);
  float modified =
      ScoreMod<MOD>::Apply(s, 0, 0, 0, 0, args) + ScoreMod<MOD>::Slope(s, 0, 0, 0, 0, args);
  o[0] = static_cast<T>(modified * static_cast<float>(v[0]));
}
