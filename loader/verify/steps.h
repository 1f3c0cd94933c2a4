// What checks of steps are made of, for the providers' own as well.
#ifndef KBUNDLE_LOADER_VERIFY_STEPS_H_
#define KBUNDLE_LOADER_VERIFY_STEPS_H_

#include <cstdint>
#include <string_view>

#include "kbundle/bundle_generated.h"
#include "kbundle/status.h"
#include "loader/verify/verify.h"

namespace kbundle {

inline constexpr uint32_t kMaxGridDims = 3;

// `least` to `most` programs, none of them absent.
Status VerifyPrograms(const ProgramScope& scope,
                      const flatbuffers::Vector<const fb::Span*>* programs, uint32_t least,
                      uint32_t most, std::string_view what);
// An operand, result or region that exists.
Status VerifyPointer(const ProgramScope& scope, const fb::Arg& arg);
// A pointer that a step may write through: an operand belongs to the caller, so only one that a
// result is written over may change.
Status VerifyWritten(const ProgramScope& scope, const fb::Arg& arg);
// Any argument but a tensor map and a struct; its text and program with it.
Status VerifyArg(const ProgramScope& scope, const fb::Arg& arg);

// Whether the step says nothing of how a kernel is launched: grid, block, cluster, shared, range,
// grain, programmatic, tensor maps, structs.
bool NothingOfAKernel(const fb::Step& step);

// One step of a template, its `when` included.
Status VerifyStep(const ProgramScope& scope, const fb::Step& step);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_VERIFY_STEPS_H_
