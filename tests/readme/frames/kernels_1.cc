// What the host kernel of the page calls.
#include "kbundle/host_kernel.h"
#include "kbundle/score_math.h"

static void SoftmaxOfRow(float* y, const float* x, float scale, int32_t K) {
  float most = x[0] * scale, sum = 0;
  for (int32_t k = 0; k < K; ++k) most = x[k] * scale > most ? x[k] * scale : most;
  for (int32_t k = 0; k < K; ++k) sum += y[k] = kbundle::score::Exp(x[k] * scale - most);
  for (int32_t k = 0; k < K; ++k) y[k] /= sum;
}

// @BLOCK@
