// What one op has for itself, in the order in which each uses the other.
#include <unordered_set>

#include "loader/verify/op_rows.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

bool HasOffset(const fb::Arg& arg) {
  return arg.kind() <= static_cast<int>(ArgKind::kRegion) && !Absent(arg.program());
}

// The feature bits that a file with this template must have.
uint64_t FeaturesOf(const fb::Template& row) {
  uint64_t features = 0;
  for (const fb::Step* step : *row.steps()) {
    if (Count(step->structs()) != 0) features |= kFeatureStructs;
    for (uint32_t a = 0; a < Count(step->args()); ++a) {
      if (HasOffset(*step->args()->Get(a))) features |= kFeatureOffsets;
    }
  }
  return features;
}

Status CheckFeatures(const fb::Template& row, const Header& header) {
  const uint64_t missing = FeaturesOf(row) & ~header.required_features;
  if (missing == 0) return Status();
  return DataLoss((missing & kFeatureOffsets) != 0 ? "offsets of pointers without their feature bit"
                                                   : "structs without their feature bit");
}

// The table says what the outline says of the op.
Status CheckPartOf(const OpRows& rows) {
  if (rows.part == nullptr) return Status();
  if (View(rows.op.name()) != OpName(rows.index, rows.number)) {
    return DataLoss("its table has another name");
  }
  const RowRange templates =
      RowsOfPart(rows.index, rows.number, &fb::Part::templates, Count(rows.index.templates()));
  const uint64_t end = uint64_t{rows.op.first_template()} + rows.op.template_count();
  if (rows.op.first_template() == templates.first && end == templates.end) return Status();
  return DataLoss(fmt::format("templates {} + {}, must begin at {} and end by {}",
                              rows.op.first_template(), rows.op.template_count(), templates.first,
                              templates.end));
}

// Of one variant, whose points are launched differently: their ids must not meet.
bool ArePartsOfOne(const fb::Template& before, const fb::Template& row) {
  if (before.name()->string_view() != row.name()->string_view()) return false;
  if (before.provider() != row.provider() || Count(before.tunables()) != Count(row.tunables())) {
    return false;
  }
  for (uint32_t i = 0; i < Count(row.tunables()); ++i) {
    if (View(before.tunables()->Get(i)) != View(row.tunables()->Get(i))) return false;
  }
  return true;
}

}  // namespace

Status VerifyTemplateOf(const OpRows& rows, uint32_t number, Depth depth, SoundParts* sound) {
  const bool all = depth == Depth::kAll;
  KB_RETURN_IF_ERROR(NeedRows(rows.pages, rows.index.templates(), number, 1));
  const fb::Template& row = *rows.index.templates()->Get(number);
  KB_VERIFY(all ? rows.structure.CheckTemplate(row) : rows.structure.CheckChoice(row),
            "template {}", number);
  KB_VERIFY(CheckName(row.name(), "name"), "template {}", number);
  if (row.op() != rows.number) {
    return DataLoss(fmt::format("template {} says op {}", number, row.op()));
  }
  KB_VERIFY(VerifyTemplate(rows.pages, rows.op, row, depth, sound), "variant '{}'",
            View(row.name()));
  if (all) KB_VERIFY(CheckFeatures(row, rows.header), "variant '{}'", View(row.name()));
  return Status();
}

Status VerifyTemplatesOf(const OpRows& rows) {
  const fb::Op& op = rows.op;
  const uint32_t end = op.first_template() + op.template_count();
  std::unordered_set<std::string_view> names;
  SoundParts sound;
  const auto* templates = rows.index.templates();
  KB_RETURN_IF_ERROR(NeedRows(rows.pages, templates, op.first_template(), op.template_count()));
  for (uint32_t i = op.first_template(); i < end; ++i) {
    KB_RETURN_IF_ERROR(VerifyTemplateOf(rows, i, Depth::kAll, &sound));
    const fb::Template& row = *templates->Get(i);
    const std::string_view name = row.name()->string_view();
    if (!names.insert(name).second &&
        !(i > op.first_template() && ArePartsOfOne(*templates->Get(i - 1), row))) {
      return DataLoss(fmt::format("template '{}' appears twice", name));
    }
  }
  return Status();
}

Status VerifyOpRows(Structure& structure, const Header& header, uint32_t op, bool variants) {
  OpRows rows{.header = header, .structure = structure, .number = op};
  const auto check = [&rows, variants] {
    if (rows.part != nullptr) {
      KB_RETURN_IF_ERROR(rows.pages.Need(rows.part->tables(), rows.part->tables_size()));
    }
    KB_RETURN_IF_ERROR(rows.structure.CheckOp(rows.op));
    KB_RETURN_IF_ERROR(CheckPartOf(rows));
    KB_RETURN_IF_ERROR(VerifyOp({.pages = rows.pages, .op = rows.op}));
    KB_RETURN_IF_ERROR(VerifyEntriesOf(rows));
    if (variants) KB_RETURN_IF_ERROR(VerifyTemplatesOf(rows));
    if (variants) KB_RETURN_IF_ERROR(VerifyVariantsOf(rows));
    return VerifyTunedOf(rows);
  };
  KB_VERIFY(check(), "op '{}'", OpName(rows.index, op));
  return Status();
}

Status VerifyVariantRows(Structure& structure, const Header& header, uint32_t op, uint32_t first,
                         uint32_t end, Depth depth, std::atomic<bool>* known) {
  OpRows rows{.header = header, .structure = structure, .number = op};
  SoundParts sound;
  rows.symbols.resize(std::min(Count(rows.index.symbols()), kMostRemembered));
  const auto check = [&](const fb::Variant& row) {
    KB_RETURN_IF_ERROR(CheckTemplateNumber(rows, row));
    const uint32_t number = row.template_index();
    if (!known[number].load(std::memory_order_acquire)) {
      KB_RETURN_IF_ERROR(VerifyTemplateOf(rows, number, depth, &sound));
      known[number].store(true, std::memory_order_release);
    }
    return VerifyVariantOf(rows, row, depth);
  };
  for (uint32_t i = first; i < end; ++i) {
    KB_VERIFY(check(*rows.index.variants()->Get(i)), "op '{}': variant {}", OpName(rows.index, op),
              i);
  }
  return Status();
}

}  // namespace kbundle
