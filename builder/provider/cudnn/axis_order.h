// How the axes of a tensor lie in memory, by a letter for each: the strides of a dense tensor
// follow.
//
//   axes = "bhsd", order = "bshd"     of dims B, H, S, D: strides S*H*D, D, H*D, 1
//   axes = "bhsd", order = "layout"   as the enum attribute says, whose choices are such words
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDNN_AXIS_ORDER_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDNN_AXIS_ORDER_H_

#include <optional>
#include <string>
#include <vector>

#include "builder/model/family.h"

namespace kbundle::builder {

struct AxisOrder {
  int attribute = -1;                     // whose choice says which order, or -1: there is one
  std::vector<std::vector<int>> choices;  // axes, slowest first
};

// Nothing, and why, where the text is neither the letters of `axes` nor such an attribute.
std::optional<AxisOrder> ParseOrder(const std::string& text, const std::string& axes, const Op& op,
                                    std::string* wrong);

// In elements, one for each dim.
std::vector<Program> DenseStrides(const std::vector<Program>& dims, const AxisOrder& order);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDNN_AXIS_ORDER_H_
