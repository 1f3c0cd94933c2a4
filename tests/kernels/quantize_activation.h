// What the activations of quantize are by their formulas in double, for tests of their kernels.
#ifndef KBUNDLE_TESTS_KERNELS_QUANTIZE_ACTIVATION_H_
#define KBUNDLE_TESTS_KERNELS_QUANTIZE_ACTIVATION_H_

#include <algorithm>
#include <cmath>

#include "quantize/activation.cuh"

namespace quantize {

// Of x, times its gate where there is one.
inline double ActivationInDouble(const Activation& how, double x, double gate, bool gated) {
  const double clamped = std::min(x, double{how.limit});
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  const double y = how.function == kGelu          ? 0.5 * x * (1 + std::tanh(u))
                   : how.function == kSilu        ? x / (1 + std::exp(-x))
                   : how.function == kClampedSilu ? clamped / (1 + std::exp(-how.alpha * clamped))
                   : how.function == kRelu        ? std::max(x, 0.0)
                                                  : std::pow(std::max(x, 0.0), 2);
  if (how.function == kClampedSilu)
    gate = std::clamp(gate, -double{how.limit}, double{how.limit}) + how.offset;
  return gated ? y * gate : y;
}

}  // namespace quantize

#endif  // KBUNDLE_TESTS_KERNELS_QUANTIZE_ACTIVATION_H_
