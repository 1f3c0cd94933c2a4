// Is an index sound, in structure and in meaning? Afterwards every number in it may be used without
// another look. Each refusal names element, value and limit.
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

// The index behind a header that has passed VerifyHeader: `bytes`, header.index_size of them. Each
// of the three takes time that is bounded by the size (kMaxCheckStepsPerByte).
//
// Everything.
Status VerifyIndex(const uint8_t* bytes, const Header& header);
// All that belongs to no single op: enough to look for an op, and to read blobs.
Status VerifyOutline(const uint8_t* bytes, const Header& header);
// What the outline leaves out of one op: afterwards it may be used. Requires VerifyOutline, and a
// number of Index.ops. Names the op.
Status VerifyOneOp(const uint8_t* bytes, const Header& header, uint32_t op);

class Structure;
Status VerifyOutlineRows(const fb::Index& index, const Header& header);
Status VerifyOpRows(Structure& structure, const Header& header, uint32_t op);
Status VerifyOp(const fb::Index& index, const fb::Op& op);
Status VerifyTemplate(const fb::Index& index, const fb::Op& op, const fb::Template& row);
Status VerifyBlobs(const fb::Index& index, const Header& header);

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
// Outside of these checks there is no end to it.
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
