// What a step passes against what the compiled kernel takes: number, size and type of parameters,
// and who may write where.
//
// A tensor's pointer has its dtype's C++ type. `void*`, pointers to single bytes and to types that
// are not known here (structs) take any memory; integers point at integers of their size, whatever
// their sign, and 16-bit ones at the bits of any 16-bit number. An operand that no result aliases
// is bound to `const T*`, and a result to `const T*` only where another step writes it. Numbers
// agree in kind, size and sign: i64 is `long long` or `long`, never `double` or a pointer.
#ifndef KBUNDLE_BUILDER_COMPILE_CHECK_ARGUMENTS_H_
#define KBUNDLE_BUILDER_COMPILE_CHECK_ARGUMENTS_H_

#include <optional>
#include <string>
#include <vector>

#include "builder/model/family.h"
#include "builder/store/kernel_info.h"

namespace kbundle::builder {

struct StepKernel {
  const Step* step = nullptr;
  const KernelInfo* kernel = nullptr;             // null: the step launches none of ours
  std::optional<std::vector<std::string>> types;  // of its parameters, where they are known
};

struct Finding {
  SourceSpan where;  // the argument, or the step
  std::string message, note;
};

// steps: all of the variant, in order.
std::vector<Finding> CheckArguments(const Op& op, const Template& variant,
                                    const Template::Point& point,
                                    const std::vector<StepKernel>& steps);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_CHECK_ARGUMENTS_H_
