// Proves, while a kernel is compiled, that its structs are what the manifest fills: every field of
// this name stands where it is written, has the type of what is written, and there is no other.
//
// The proof is C++ behind the author's source, one static_assert a line, so the compiler itself is
// asked; a line that fails is reported where the manifest says the field. It makes no code.
#ifndef KBUNDLE_BUILDER_COMPILE_STRUCT_CHECKS_H_
#define KBUNDLE_BUILDER_COMPILE_STRUCT_CHECKS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "builder/model/family.h"
#include "builder/source/tree.h"

namespace kbundle::builder {

struct StructCheck {
  std::string line;
  SourceSpan where;
  bool operator==(const StructCheck& other) const { return line == other.line; }
};

// Of all structs of these steps of the variant, at this point; without repetitions.
std::vector<StructCheck> StructChecks(const Op& op, const Template& variant,
                                      const Template::Point& point, std::span<const Step> steps);

// The tree with the checks behind its first file.
SourceTree WithStructChecks(const SourceTree& tree, const std::vector<StructCheck>& checks);

// What a compiler's log says of checks that failed, in the manifest's lines; "" when none did.
std::string FailedStructChecks(std::string_view log, const std::vector<StructCheck>& checks,
                               const SourceFiles& manifest);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_STRUCT_CHECKS_H_
