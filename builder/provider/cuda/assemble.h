// PTX to a cubin by ptxas, without the data that no instruction refers to.
//
// NVRTC writes every constexpr variable that a kernel can see into the PTX as data of the module,
// referred to or not; nvcc does not. Loading a module with data costs far more than loading code:
// on an H200 109 us against 23 us for 41 KB of instructions and 90 bytes of such data, because the
// driver allocates, copies and relocates. The instructions come out the same, byte for byte, but
// for the places of data that they do use.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDA_ASSEMBLE_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDA_ASSEMBLE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "builder/compile/compile.h"

namespace kbundle::builder {

// Leaves out initialized and uninitialized `.global` data that is private to the module and that
// nothing refers to but other such data.
std::string WithoutUnusedData(std::string_view ptx);

// What NVRTC would have told ptxas for these flags; nullopt when one of them is not known here:
// then NVRTC must make the cubin itself.
std::optional<std::vector<std::string>> PtxasFlags(const std::vector<std::string>& flags);

// Whether this unit's cubin is made here.
bool Assembles(const Unit& unit, const Toolchain& tools);

// The cubin; `log` gets what ptxas prints. kInvalidArgument: ptxas refuses the PTX.
Result<std::string> Assemble(const Unit& unit, std::string_view ptx, const CompileContext& context,
                             std::string* log);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDA_ASSEMBLE_H_
