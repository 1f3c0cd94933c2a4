// The C types of kernels' parameters, as a compiler told them: "float*", "const float*", "long
// int".
#ifndef KBUNDLE_BUILDER_COMPILE_PARAMETER_TYPES_H_
#define KBUNDLE_BUILDER_COMPILE_PARAMETER_TYPES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kbundle::builder {

using ParameterTypes = std::map<std::string, std::vector<std::string>>;  // by symbol

// As one text, for the store; `text` may be anything.
std::string Serialize(const ParameterTypes& types);
ParameterTypes ParseParameterTypes(std::string_view text);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_PARAMETER_TYPES_H_
