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

bool IsText(flatbuffers::Verifier& verifier, const fb::Template& row, flatbuffers::voffset_t field,
            const flatbuffers::String* text) {
  return AsTable(row).VerifyOffset(verifier, field) && verifier.VerifyString(text);
}

template <typename T>
bool AreTables(flatbuffers::Verifier& verifier, const fb::Template& row,
               flatbuffers::voffset_t field,
               const flatbuffers::Vector<flatbuffers::Offset<T>>* tables) {
  return AsTable(row).VerifyOffset(verifier, field) && verifier.VerifyVector(tables) &&
         verifier.VerifyVectorOfTables(tables);
}

bool IsRule(flatbuffers::Verifier& verifier, const fb::Template& row, flatbuffers::voffset_t field,
            const fb::Rule* rule) {
  return AsTable(row).VerifyOffset(verifier, field) && verifier.VerifyTable(rule);
}

bool IsKind(flatbuffers::Verifier& verifier, const fb::Step& step) {
  const flatbuffers::Table& table = AsTable(step);
  return table.VerifyTableStart(verifier) &&
         table.VerifyField<uint8_t>(verifier, fb::Step::VT_KIND, 1) && verifier.EndTable();
}

// As the generated Verify of Template does it, but for what is inside of steps.
bool IsChoice(flatbuffers::Verifier& verifier, const fb::Template& row) {
  using T = fb::Template;
  const flatbuffers::Table& table = AsTable(row);
  const bool sound =
      table.VerifyTableStart(verifier) && table.VerifyField<uint32_t>(verifier, T::VT_OP, 4) &&
      table.VerifyOffsetRequired(verifier, T::VT_NAME) && verifier.VerifyString(row.name()) &&
      table.VerifyField<uint8_t>(verifier, T::VT_PROVIDER, 1) &&
      IsText(verifier, row, T::VT_SOURCE, row.source()) &&
      IsText(verifier, row, T::VT_COMPILER, row.compiler()) &&
      table.VerifyOffset(verifier, T::VT_TUNABLES) && verifier.VerifyVector(row.tunables()) &&
      verifier.VerifyVectorOfStrings(row.tunables()) &&
      AreTables(verifier, row, T::VT_LETS, row.lets()) &&
      AreTables(verifier, row, T::VT_WHEN, row.when()) &&
      AreTables(verifier, row, T::VT_REGIONS, row.regions()) &&
      IsRule(verifier, row, T::VT_DETERMINISTIC, row.deterministic()) &&
      IsRule(verifier, row, T::VT_BATCH_INVARIANT, row.batch_invariant()) &&
      table.VerifyOffset(verifier, T::VT_STEPS) && verifier.VerifyVector(row.steps());
  if (!sound) return false;
  for (uint32_t i = 0; i < Count(row.steps()); ++i) {
    if (!IsKind(verifier, *row.steps()->Get(i))) return false;
  }
  return verifier.EndTable();
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

Status Structure::CheckChoice(const fb::Template& row) {
  return Judge(whole_ || IsChoice(verifier_, row));
}

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
