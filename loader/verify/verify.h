// The third pass of every open: does a structurally sound index also make sense? Afterwards every
// number in it may be used without another look. Each refusal names element, value and limit.
#ifndef KBUNDLE_LOADER_VERIFY_H_
#define KBUNDLE_LOADER_VERIFY_H_

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>

#include "kbundle/bundle_generated.h"
#include "kbundle/format.h"
#include "kbundle/limits.h"
#include "kbundle/status.h"
#include "loader/support/absent.h"
#include "loader/support/annotate.h"

namespace kbundle {

// Header fields that need nothing but the header and the file's length; order as in FORMAT.md.
Status VerifyHeader(const Header& header, uint64_t file_size);

// Everything about the index, in time that is bounded by its size (kMaxCheckStepsPerByte).
// `header` has passed VerifyHeader.
Status VerifyIndex(const fb::Index& index, const Header& header);

Status VerifyOp(const fb::Index& index, const fb::Op& op);
Status VerifyTemplate(const fb::Index& index, const fb::Op& op, const fb::Template& row);
Status VerifyBlobs(const fb::Index& index, const Header& header);
Status VerifyVariants(const fb::Index& index, const Header& header);
Status VerifyEntries(const fb::Index& index);
Status VerifyTuned(const fb::Index& index);

// Where a program stands, which decides what it may refer to.
struct ProgramScope {
  const fb::Index& index;
  const fb::Op& op;
  const fb::Template* row = nullptr;  // null: tunables, lets, align and sm_count do not exist
  uint32_t lets = 0;                  // how many lets come before it
  uint32_t lets_with_sm_count = 0;    // bit per let
  bool sm_count = false;              // may it depend on the device's size
  // Structs of this template that were found good: its steps have many in common.
  std::unordered_set<const fb::Struct*>* seen = nullptr;
};
// OK when absent (null or count 0) unless `required`. Sets *uses_sm_count when not null.
Status VerifyProgram(const ProgramScope& scope, const fb::Span* program, bool required,
                     bool* uses_sm_count = nullptr);

// Takes `steps` from what checking this index may cost; kResourceExhausted when that is used up.
// Outside of VerifyIndex there is no end to it.
Status Spend(uint64_t steps);

// kResourceExhausted: more than format.h or limits.h allows.
Status CheckCount(uint64_t found, uint64_t limit, std::string_view what);
// kDataLoss unless index < count.
Status CheckIndex(uint64_t index, uint64_t count, std::string_view what);
// Not null, not empty, bounded, UTF-8 without control characters.
Status CheckName(const flatbuffers::String* name, std::string_view what);
// May be absent or empty; bounded UTF-8.
Status CheckText(const flatbuffers::String* text, std::string_view what);
Status CheckTypeRef(const fb::Op& op, const fb::TypeRef& type);
// kDataLoss when the elements do not lie where their type must: FlatBuffers' verifier looks at a
// vector's length only, which takes 4 bytes.
template <typename T>
Status CheckAligned(const flatbuffers::Vector<T>* vector, std::string_view what) {
  using Element = std::remove_const_t<std::remove_pointer_t<T>>;
  if (vector == nullptr || reinterpret_cast<uintptr_t>(vector->Data()) % alignof(Element) == 0) {
    return Status();
  }
  return DataLoss(fmt::format("{} do not lie at a multiple of {} bytes", what, alignof(Element)));
}
bool IsDType(int number);  // a real one, not kInvalid
Status CheckRules(const ProgramScope& scope,
                  const flatbuffers::Vector<flatbuffers::Offset<fb::Rule>>* rules,
                  std::string_view what);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_VERIFY_H_
