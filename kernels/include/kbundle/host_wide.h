// A float for each lane whose sum is kept in double. For host kernels, beside host_vector.h.
#pragma once

#include "kbundle/host_vector.h"

namespace kbundle {
namespace host {

class WideSum {
 public:
  void Add(Floats v) { sum_ += __builtin_convertvector(v, Doubles); }
  Floats Rounded() const { return __builtin_convertvector(sum_, Floats); }

 private:
  typedef double Doubles __attribute__((vector_size(8 * kLanes)));

  Doubles sum_ = {};
};

}  // namespace host
}  // namespace kbundle
