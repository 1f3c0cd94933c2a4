// fast_tanh and fast_exp of score modifiers: on a GPU one instruction of the special function unit,
// for authors whom its errors suit; elsewhere what score_math.h has.
//
//   GPU, relative errors   FastTanh 2^-11 (PTX, tanh.approx.f32)
//                          FastExp 2^-22 + |x| 2^-23 (of ex2.approx.ftz, and of x * log2(e))
#pragma once

#include "kbundle/score_math.h"

namespace kbundle {
namespace score {

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

KB_SCORE float FastTanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KB_SCORE float FastExp(float x) { return device::Exp2(x * 1.44269504f); }

#else

KB_SCORE float FastTanh(float x) { return Tanh(x); }
KB_SCORE float FastExp(float x) { return Exp(x); }

#endif

}  // namespace score
}  // namespace kbundle
