// FlatBuffers' verifier counts a table as often as it is referred to. Its limit grows with the
// index, so that a small file cannot ask for a long check. The generated Verify of Index looks at
// every table there is, so the outline is spelled out here, field by field.
#include "loader/verify/structure.h"

#include <fmt/format.h>

#include "kbundle/format.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

flatbuffers::Verifier::Options Limits(uint64_t index_size) {
  flatbuffers::Verifier::Options options;
  options.max_depth = kMaxIndexDepth;
  options.max_tables = static_cast<flatbuffers::uoffset_t>(MaxIndexTables(index_size));
  return options;
}

Status Judge(bool sound) {
  return sound ? Status() : DataLoss("the index is not a sound FlatBuffer");
}

template <typename T>
const flatbuffers::Table& AsTable(const T& table) {
  return reinterpret_cast<const flatbuffers::Table&>(table);
}

// Its name and where its templates are: what looking for an op needs.
bool IsOpOutline(flatbuffers::Verifier& verifier, const fb::Op& op) {
  const flatbuffers::Table& table = AsTable(op);
  return table.VerifyTableStart(verifier) &&
         table.VerifyOffsetRequired(verifier, fb::Op::VT_NAME) &&
         verifier.VerifyString(op.name()) &&
         table.VerifyField<uint32_t>(verifier, fb::Op::VT_FIRST_TEMPLATE, 4) &&
         table.VerifyField<uint32_t>(verifier, fb::Op::VT_TEMPLATE_COUNT, 4) && verifier.EndTable();
}

// What a field refers to may be read when the field's own place has been looked at: these are given
// how to read it, not what was read.
bool IsText(flatbuffers::Verifier& verifier, const fb::Template& row, flatbuffers::voffset_t field,
            const flatbuffers::String* (fb::Template::*text)() const) {
  return AsTable(row).VerifyOffset(verifier, field) && verifier.VerifyString((row.*text)());
}

bool IsRule(flatbuffers::Verifier& verifier, const fb::Template& row, flatbuffers::voffset_t field,
            const fb::Rule* (fb::Template::*rule)() const) {
  return AsTable(row).VerifyOffset(verifier, field) && verifier.VerifyTable((row.*rule)());
}

bool IsKind(flatbuffers::Verifier& verifier, const fb::Step& step) {
  const flatbuffers::Table& table = AsTable(step);
  return table.VerifyTableStart(verifier) &&
         table.VerifyField<uint8_t>(verifier, fb::Step::VT_KIND, 1) && verifier.EndTable();
}

}  // namespace

Structure::Structure(const IndexPages& pages)
    : pages_(pages), verifier_(pages.bytes(), pages.size(), Limits(pages.size())) {}

Structure::Structure(const IndexPages& pages, const fb::Part* part)
    : pages_(pages),
      verifier_(pages.bytes() + (part ? part->tables() : 0),
                part ? part->tables_size() : pages.size(), Limits(pages.size())) {}

Status Structure::CheckRoot() const {
  constexpr uint64_t kLeast = 12;  // root offset, identifier, a table
  if (pages_.outline_size() < kLeast) {
    return DataLoss(fmt::format("index of {} bytes", pages_.outline_size()));
  }
  if (flatbuffers::BufferHasIdentifier(pages_.bytes(), kIndexIdentifier)) return Status();
  return DataLoss(fmt::format("the index does not carry the identifier {}", kIndexIdentifier));
}

Status Structure::CheckWhole() {
  KB_RETURN_IF_ERROR(CheckRoot());
  KB_RETURN_IF_ERROR(Judge(verifier_.VerifyBuffer<fb::Index>(kIndexIdentifier)));
  whole_ = true;
  return Status();
}

// Of an index with pages, the root table and what it names lie in the outline; but of vectors of
// what is many no more than that they are there, and long enough to hold what they say.
Status Structure::CheckOutline() {
  KB_RETURN_IF_ERROR(CheckRoot());
  flatbuffers::Verifier outline(pages_.bytes(), pages_.outline_size(), Limits(pages_.size()));
  if (outline.VerifyOffset(size_t{0}) == 0 || !IsOutlineSound(outline)) return Judge(false);
  return CheckLongVectors(outline);
}

bool Structure::IsOutlineSound(flatbuffers::Verifier& outline) const {
  const fb::Index& root = index();
  const flatbuffers::Table& table = AsTable(root);
  // A vector of numbers, structs or offsets; what the offsets point to is not looked at.
  const auto is = [&](flatbuffers::voffset_t field, auto get) {
    return table.VerifyOffset(outline, field) && outline.VerifyVector((root.*get)());
  };
  const bool rows =
      table.VerifyTableStart(outline) && table.VerifyOffsetRequired(outline, fb::Index::VT_NAME) &&
      outline.VerifyString(root.name()) && is(fb::Index::VT_PROVENANCE, &fb::Index::provenance) &&
      is(fb::Index::VT_TARGETS, &fb::Index::targets) && is(fb::Index::VT_OPS, &fb::Index::ops) &&
      is(fb::Index::VT_DEVICES, &fb::Index::devices) &&
      is(fb::Index::VT_RAN_ON, &fb::Index::ran_on) &&
      is(fb::Index::VT_TUNED_DEVICES, &fb::Index::tuned_devices) &&
      is(fb::Index::VT_PROVIDERS, &fb::Index::providers) &&
      is(fb::Index::VT_OP_NAMES, &fb::Index::op_names) &&
      is(fb::Index::VT_PARTS, &fb::Index::parts) &&
      table.VerifyField<fb::Sha256>(outline, fb::Index::VT_TUNED_DIGEST, 1);
  if (!rows || !outline.VerifyVectorOfTables(root.provenance()) ||
      !outline.VerifyVectorOfTables(root.targets()) ||
      !outline.VerifyVectorOfStrings(root.devices()) ||
      !outline.VerifyVectorOfStrings(root.tuned_devices()) ||
      !outline.VerifyVectorOfStrings(root.providers()) ||
      !outline.VerifyVectorOfStrings(root.op_names())) {
    return false;
  }
  for (uint32_t i = 0; !pages_.paged() && i < Count(root.ops()); ++i) {
    if (!IsOpOutline(outline, *root.ops()->Get(i))) return false;
  }
  return outline.EndTable();
}

Status Structure::CheckLongVectors(const flatbuffers::Verifier& outline) {
  const fb::Index& root = index();
  const flatbuffers::Table& table = AsTable(root);
  const auto check = [&](flatbuffers::voffset_t field, auto get) {
    const bool there = table.VerifyField<flatbuffers::uoffset_t>(outline, field, 4) &&
                       table.VerifyOffset(verifier_, field);
    if (!there) return Judge(false);
    const auto* vector = (root.*get)();
    if (pages_.paged() && vector != nullptr) {
      KB_RETURN_IF_ERROR(pages_.Need(vector, sizeof(flatbuffers::uoffset_t)));
    }
    return Judge(verifier_.VerifyVector(vector));
  };
  KB_RETURN_IF_ERROR(check(fb::Index::VT_TEMPLATES, &fb::Index::templates));
  KB_RETURN_IF_ERROR(check(fb::Index::VT_CODE, &fb::Index::code));
  KB_RETURN_IF_ERROR(check(fb::Index::VT_CONSTANTS, &fb::Index::constants));
  KB_RETURN_IF_ERROR(check(fb::Index::VT_SYMBOLS, &fb::Index::symbols));
  KB_RETURN_IF_ERROR(check(fb::Index::VT_VARIANTS, &fb::Index::variants));
  KB_RETURN_IF_ERROR(check(fb::Index::VT_ENTRIES, &fb::Index::entries));
  KB_RETURN_IF_ERROR(check(fb::Index::VT_KERNELS, &fb::Index::kernels));
  KB_RETURN_IF_ERROR(check(fb::Index::VT_BLOBS, &fb::Index::blobs));
  KB_RETURN_IF_ERROR(check(fb::Index::VT_TUNED, &fb::Index::tuned));
  KB_RETURN_IF_ERROR(check(fb::Index::VT_EVIDENCE, &fb::Index::evidence));
  return check(fb::Index::VT_COORDINATES, &fb::Index::coordinates);
}

Status Structure::CheckOp(const fb::Op& op) { return Judge(whole_ || op.Verify(verifier_)); }

Status Structure::CheckTemplate(const fb::Template& row) {
  return Judge(whole_ || row.Verify(verifier_));
}

// As the generated Verify of Template does it, but for what is inside of steps, and for rules that
// are the very ones of the last template.
bool Structure::IsChoice(const fb::Template& row) {
  using T = fb::Template;
  const flatbuffers::Table& table = AsTable(row);
  flatbuffers::Verifier& v = verifier_;
  const auto are = [&](flatbuffers::voffset_t field, const Rules* (T::*get)() const,
                       const Rules* known) {
    if (!table.VerifyOffset(v, field)) return false;
    const Rules* rules = (row.*get)();
    return rules == known || (v.VerifyVector(rules) && v.VerifyVectorOfTables(rules));
  };
  const bool sound = table.VerifyTableStart(v) && table.VerifyField<uint32_t>(v, T::VT_OP, 4) &&
                     table.VerifyOffsetRequired(v, T::VT_NAME) && v.VerifyString(row.name()) &&
                     table.VerifyField<uint8_t>(v, T::VT_PROVIDER, 1) &&
                     IsText(v, row, T::VT_SOURCE, &T::source) &&
                     IsText(v, row, T::VT_COMPILER, &T::compiler) &&
                     table.VerifyOffset(v, T::VT_TUNABLES) && v.VerifyVector(row.tunables()) &&
                     v.VerifyVectorOfStrings(row.tunables()) && are(T::VT_LETS, &T::lets, lets_) &&
                     are(T::VT_WHEN, &T::when, when_) && table.VerifyOffset(v, T::VT_REGIONS) &&
                     v.VerifyVector(row.regions()) && v.VerifyVectorOfTables(row.regions()) &&
                     IsRule(v, row, T::VT_DETERMINISTIC, &T::deterministic) &&
                     IsRule(v, row, T::VT_BATCH_INVARIANT, &T::batch_invariant) &&
                     table.VerifyOffset(v, T::VT_STEPS) && v.VerifyVector(row.steps());
  if (!sound) return false;
  for (uint32_t i = 0; i < Count(row.steps()); ++i) {
    if (!IsKind(v, *row.steps()->Get(i))) return false;
  }
  lets_ = row.lets();
  when_ = row.when();
  return v.EndTable();
}

Status Structure::CheckChoice(const fb::Template& row) { return Judge(whole_ || IsChoice(row)); }

Status Structure::CheckString(const flatbuffers::String* text) {
  if (whole_ || !pages_.paged()) return Judge(whole_ || verifier_.VerifyString(text));
  KB_RETURN_IF_ERROR(pages_.Need(text, sizeof(flatbuffers::uoffset_t)));
  const auto size = flatbuffers::ReadScalar<flatbuffers::uoffset_t>(text);
  KB_RETURN_IF_ERROR(pages_.Need(text, sizeof(size) + uint64_t{size} + 1));  // and the end's zero
  return Judge(flatbuffers::Verifier(pages_.bytes(), pages_.size()).VerifyString(text));
}

Status Structure::CheckEvidence(const fb::Evidence& row) {
  return Judge(whole_ || row.Verify(verifier_));
}

}  // namespace kbundle
