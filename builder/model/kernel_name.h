// The name of a kernel for one point: its placeholders filled in.
#ifndef KBUNDLE_BUILDER_MODEL_KERNEL_NAME_H_
#define KBUNDLE_BUILDER_MODEL_KERNEL_NAME_H_

#include <string>

#include "builder/model/family.h"

namespace kbundle::builder {

enum class TypeNames { kCpp, kPlain };  // "float", or "f32" where a type cannot be part of a name

// "softmax_rows<float, 4>" of "softmax_rows<{T}, {VEC}>".
std::string FillIn(const std::string& kernel, TypeNames types, const Op& op,
                   const Template& variant, const Template::Point& point);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MODEL_KERNEL_NAME_H_
