// Is an index sound, in structure and in meaning? Afterwards every number in it may be used without
// another look. Each refusal names element, value and limit.
#ifndef KBUNDLE_LOADER_VERIFY_H_
#define KBUNDLE_LOADER_VERIFY_H_

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "kbundle/bundle_generated.h"
#include "kbundle/format.h"
#include "kbundle/limits.h"
#include "kbundle/status.h"
#include "loader/support/absent.h"
#include "loader/support/annotate.h"
#include "loader/verify/index_pages.h"

namespace kbundle {

// Header fields that need nothing but the header and the file's length; order as in FORMAT.md.
Status VerifyHeader(const Header& header, uint64_t file_size);

// The index behind a header that has passed VerifyHeader. Each of these takes time that is
// bounded by the size (kMaxCheckStepsPerByte), and reads the pages that it looks at.
//
// Everything.
Status VerifyIndex(const IndexPages& pages, const Header& header);
// All that belongs to no single op: enough to look for an op.
Status VerifyOutline(const IndexPages& pages, const Header& header);
// What the outline leaves out of one op: afterwards it may be used, and the blobs that it names be
// read. Requires VerifyOutline, and a number of Index.ops. Names the op.
Status VerifyOneOp(const IndexPages& pages, const Header& header, uint32_t op);
// Of that, what needs none of its variants: afterwards the op's own table, its entries, tuned rows
// and the keys of its variants may be used.
Status VerifyInterface(const IndexPages& pages, const Header& header, uint32_t op);
// Of that, what choosing among the variants of one of the op's entries looks at (Depth::kChoice):
// the variants, and their templates that are not `known` (by number), which are then: afterwards
// one may be chosen. Requires VerifyInterface. Two templates of one name are not seen here. From
// any thread: of two that check the same, each finds the same.
Status VerifyOneEntry(const IndexPages& pages, const Header& header, uint32_t op, uint32_t entry,
                      std::atomic<bool>* known);
// All of one variant, whose entry VerifyOneEntry has passed, and of its template if that is not
// `known` (by number), which is then: afterwards it may be launched.
Status VerifyOneVariant(const IndexPages& pages, const Header& header, uint32_t op,
                        uint32_t variant, std::atomic<bool>* known);
// One row of blobs and its base's, of an index with pages, where they may not have been looked at.
Status VerifyOneBlob(const IndexPages& pages, const Header& header, uint32_t blob);

// How much of a variant and its template is looked at. Of many that one is chosen from, steps are
// most of what there is to check, and the code, symbols and blobs that these name.
enum class Depth : uint8_t {
  kChoice,  // tunables, lets, rules, promises, workspace; of steps how many and of which kind; of
            // kernels' rows the workspace, and that there is a number of a blob or whom to ask
  kAll,
};

class Structure;
// whole: every page is there.
Status VerifyOutlineRows(const IndexPages& pages, const Header& header, bool whole);
// variants: those, their templates and kernels with it.
Status VerifyOpRows(Structure& structure, const Header& header, uint32_t op, bool variants);
// Variants [first, end) of the op.
Status VerifyVariantRows(Structure& structure, const Header& header, uint32_t op, uint32_t first,
                         uint32_t end, Depth depth, std::atomic<bool>* known);
Status VerifyBlobs(const fb::Index& index, const Header& header);

// Of how many symbols an op's check remembers which it has seen; at others it looks again. An index
// may have 65,536 ops, each with a memory of its own to clear.
inline constexpr uint32_t kMostRemembered = 1u << 16;

// What was found good of an op's templates, which have most in common, as their steps have:
// structs, and programs, as far as there is room for them. Small, because the first use of a page
// of memory costs more than checking some programs again.
class SoundParts {
 public:
  using Rules = flatbuffers::Vector<flatbuffers::Offset<fb::Rule>>;

  // From here on structs, and programs that know tunables or lets, stand in a template with so many
  // of these, of which those lets use sm_count. What was good in another like it stays so.
  void Enter(uint32_t tunables, uint32_t lets, uint32_t lets_with_sm_count, uint32_t regions) {
    const std::array<uint32_t, 4> next = {tunables, lets, lets_with_sm_count, regions};
    if (next == known_) return;
    known_ = next;
    for (Program& program : programs_) program.of_template = 0;
    structs.clear();
    when = nullptr;
  }

  // Whether lets were found good in a template with so many tunables: what a let may refer to is
  // these, its op and the lets before it.
  bool HasLets(uint32_t tunables, const std::vector<uint64_t>& programs) const {
    return !lets.empty() && tunables == tunables_of_lets && programs == lets;
  }
  // Whether these are the last template's own, texts and all: a writer may share them.
  bool HasLets(uint32_t tunables, const Rules* rules) const {
    return !lets.empty() && tunables == tunables_of_lets && rules == rules_of_lets;
  }

  bool HasProgram(const fb::Span& program) const {
    const Program& known = programs_[PlaceOf(program)];
    return known.first == program.first() &&
           (known.of_op == program.count() || known.of_template == program.count());
  }
  // It does not know sm_count. knows_template: but a tunable or a let.
  void AddProgram(const fb::Span& program, bool knows_template) {
    Program& known = programs_[PlaceOf(program)];
    if (known.first != program.first()) known = {.first = program.first()};
    const auto count = static_cast<uint16_t>(program.count());
    (knows_template ? known.of_template : known.of_op) = count;
  }

  std::unordered_set<const fb::Struct*> structs;
  // Of the last template: its lets' places in Index.code with their counts, and which of the lets
  // use sm_count.
  std::vector<uint64_t> lets;
  uint32_t tunables_of_lets = 0, lets_with_sm_count = 0;
  const Rules* rules_of_lets = nullptr;
  const Rules* when = nullptr;  // of the last template

 private:
  struct Program {
    uint32_t first = 0;                   // place in Index.code
    uint16_t of_op = 0, of_template = 0;  // instructions; 0: none was found good
  };
  static_assert(kMaxProgramLength <= UINT16_MAX);
  // Its own place, or one behind that which is free; where others have all of these, its own.
  size_t PlaceOf(const fb::Span& program) const {
    constexpr size_t kTries = 4;
    for (size_t i = 0; i < kTries; ++i) {
      const size_t place = (program.first() + i) % programs_.size();
      const Program& there = programs_[place];
      if (there.first == program.first() || (there.of_op | there.of_template) == 0) return place;
    }
    return program.first() % programs_.size();
  }
  std::array<Program, 1024> programs_ = {};
  std::array<uint32_t, 4> known_ = {};
};

// Where a program stands, which decides what it may refer to.
struct ProgramScope {
  const IndexPages& pages;
  const fb::Op& op;
  const fb::Index& index = *fb::GetIndex(pages.bytes());
  const fb::Template* row = nullptr;  // null: tunables, lets, align and sm_count do not exist
  uint32_t lets = 0;                  // how many lets come before it
  uint32_t lets_with_sm_count = 0;    // bit per let
  bool sm_count = false;              // may it depend on the device's size
  SoundParts* sound = nullptr;        // of a template, once its lets are good
};
Status VerifyOp(const ProgramScope& scope);
Status VerifyTemplate(const IndexPages& pages, const fb::Op& op, const fb::Template& row,
                      Depth depth, SoundParts* sound);
// OK when absent (null or count 0) unless `required`. Sets *uses_sm_count when not null.
Status VerifyProgram(const ProgramScope& scope, const fb::Span* program, bool required,
                     bool* uses_sm_count = nullptr);

// Takes `steps` from what checking this index may cost; kResourceExhausted when that is used up.
// Outside of these checks there is no end to it.
Status Spend(uint64_t steps);

// kResourceExhausted: more than format.h or limits.h allows.
Status TooMany(uint64_t found, uint64_t limit, std::string_view what);
inline Status CheckCount(uint64_t found, uint64_t limit, std::string_view what) {
  return found <= limit ? Status() : TooMany(found, limit, what);
}
// kDataLoss unless index < count.
Status NotThere(uint64_t index, uint64_t count, std::string_view what);
inline Status CheckIndex(uint64_t index, uint64_t count, std::string_view what) {
  return index < count ? Status() : NotThere(index, count, what);
}
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
// Rows of a vector of the root, which exist: afterwards they may be read, of vectors of tables or
// texts where these are. `rows` may be null for none.
template <typename T>
Status NeedRows(const IndexPages& pages, const flatbuffers::Vector<T>* rows, uint64_t first,
                uint64_t count) {
  if (count == 0 || !pages.paged()) return Status();
  constexpr uint64_t kSize = flatbuffers::IndirectHelper<T>::element_stride;
  return pages.Need(rows->Data() + first * kSize, count * kSize);
}
bool IsDType(int number);  // a real one, not kInvalid
Status CheckRules(const ProgramScope& scope,
                  const flatbuffers::Vector<flatbuffers::Offset<fb::Rule>>* rules,
                  std::string_view what);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_VERIFY_H_
