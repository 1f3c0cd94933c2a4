// FlatBuffers' verifier counts a table as often as it is referred to. Its limit grows with the
// index, so that a small file cannot ask for a long check. The generated Verify of Index looks at
// every table there is, so the outline is spelled out here, field by field.
#include "loader/verify/structure.h"

#include <fmt/format.h>

#include "kbundle/format.h"

namespace kbundle {
namespace {

flatbuffers::Verifier::Options Limits(uint64_t index_size) {
  flatbuffers::Verifier::Options options;
  options.max_depth = 16;
  // A table is at least 8 bytes: the limit grows with the index and no further.
  options.max_tables = static_cast<flatbuffers::uoffset_t>(index_size / 8 + 16);
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

}  // namespace

Structure::Structure(const uint8_t* bytes, uint64_t size)
    : bytes_(bytes), size_(size), verifier_(bytes, size, Limits(size)) {}

Status Structure::CheckRoot() const {
  constexpr uint64_t kLeast = 12;  // root offset, identifier, a table
  if (size_ < kLeast) return DataLoss(fmt::format("index of {} bytes", size_));
  if (flatbuffers::BufferHasIdentifier(bytes_, kIndexIdentifier)) return Status();
  return DataLoss(fmt::format("the index does not carry the identifier {}", kIndexIdentifier));
}

Status Structure::CheckWhole() {
  KB_RETURN_IF_ERROR(CheckRoot());
  KB_RETURN_IF_ERROR(Judge(verifier_.VerifyBuffer<fb::Index>(kIndexIdentifier)));
  whole_ = true;
  return Status();
}

Status Structure::CheckOutline() {
  KB_RETURN_IF_ERROR(CheckRoot());
  return Judge(verifier_.VerifyOffset(size_t{0}) != 0 && IsOutlineSound());
}

bool Structure::IsOutlineSound() {
  const fb::Index& root = index();
  const flatbuffers::Table& table = AsTable(root);
  // A vector of numbers, structs or offsets; what the offsets point to is not looked at.
  const auto is = [&](flatbuffers::voffset_t field, auto get) {
    return table.VerifyOffset(verifier_, field) && verifier_.VerifyVector((root.*get)());
  };
  const bool rows =
      table.VerifyTableStart(verifier_) &&
      table.VerifyOffsetRequired(verifier_, fb::Index::VT_NAME) &&
      verifier_.VerifyString(root.name()) && is(fb::Index::VT_PROVENANCE, &fb::Index::provenance) &&
      is(fb::Index::VT_TARGETS, &fb::Index::targets) && is(fb::Index::VT_OPS, &fb::Index::ops) &&
      is(fb::Index::VT_TEMPLATES, &fb::Index::templates) &&
      is(fb::Index::VT_CODE, &fb::Index::code) &&
      is(fb::Index::VT_CONSTANTS, &fb::Index::constants) &&
      is(fb::Index::VT_SYMBOLS, &fb::Index::symbols) &&
      is(fb::Index::VT_VARIANTS, &fb::Index::variants) &&
      is(fb::Index::VT_ENTRIES, &fb::Index::entries) &&
      is(fb::Index::VT_KERNELS, &fb::Index::kernels) &&
      is(fb::Index::VT_BLOBS, &fb::Index::blobs) &&
      is(fb::Index::VT_DEVICES, &fb::Index::devices) &&
      is(fb::Index::VT_RAN_ON, &fb::Index::ran_on) && is(fb::Index::VT_TUNED, &fb::Index::tuned) &&
      is(fb::Index::VT_EVIDENCE, &fb::Index::evidence) &&
      is(fb::Index::VT_COORDINATES, &fb::Index::coordinates) &&
      is(fb::Index::VT_TUNED_DEVICES, &fb::Index::tuned_devices) &&
      is(fb::Index::VT_PROVIDERS, &fb::Index::providers) &&
      table.VerifyField<fb::Sha256>(verifier_, fb::Index::VT_TUNED_DIGEST, 1);
  if (!rows || !verifier_.VerifyVectorOfTables(root.provenance()) ||
      !verifier_.VerifyVectorOfTables(root.targets()) ||
      !verifier_.VerifyVectorOfStrings(root.devices()) ||
      !verifier_.VerifyVectorOfStrings(root.tuned_devices()) ||
      !verifier_.VerifyVectorOfStrings(root.providers())) {
    return false;
  }
  for (uint32_t i = 0; root.ops() != nullptr && i < root.ops()->size(); ++i) {
    if (!IsOpOutline(verifier_, *root.ops()->Get(i))) return false;
  }
  return verifier_.EndTable();
}

Status Structure::CheckOp(const fb::Op& op) { return Judge(whole_ || op.Verify(verifier_)); }

Status Structure::CheckTemplate(const fb::Template& row) {
  return Judge(whole_ || row.Verify(verifier_));
}

Status Structure::CheckString(const flatbuffers::String* text) {
  return Judge(whole_ || verifier_.VerifyString(text));
}

Status Structure::CheckEvidence(const fb::Evidence& row) {
  return Judge(whole_ || row.Verify(verifier_));
}

}  // namespace kbundle
