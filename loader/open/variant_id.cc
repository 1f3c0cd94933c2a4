// "family.op/name[T=bf16,VEC=8]@sm_90a": how people name variants, stable over rebuilds.
#include <fmt/format.h>

#include <algorithm>

#include "kbundle/key.h"
#include "kbundle/nearest.h"
#include "loader/open/bundle_rep.h"
#include "loader/open/variant_rows.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

// Without "@target".
std::string LocalId(const fb::Index& index, const fb::Variant& variant, bool with_point) {
  const fb::Op& op = *index.ops()->Get(variant.op());
  const fb::Template& row = *index.templates()->Get(variant.template_index());
  std::string point;
  const auto add = [&point](std::string_view name, auto value) {
    point += fmt::format("{}{}={}", point.empty() ? "" : ",", name, value);
  };
  for (uint32_t i = 0; with_point && i < Count(op.types()); ++i) {
    add(op.types()->Get(i)->name()->string_view(),
        Name(TypeAt(variant.types(), static_cast<int>(i))));
  }
  for (uint32_t i = 0; with_point && i < Count(row.tunables()); ++i) {
    add(row.tunables()->Get(i)->string_view(), index.constants()->Get(variant.tunables() + i));
  }
  if (!point.empty()) point = "[" + point + "]";
  return fmt::format("{}/{}{}", op.name()->string_view(), row.name()->string_view(), point);
}

std::string_view TargetName(const fb::Index& index, const fb::Variant& variant) {
  return index.targets()->Get(variant.target())->name()->string_view();
}

}  // namespace

// Of the entry that has the variant. Entries cover all variants in order; the row itself may lie
// while its op has not been checked.
uint32_t Bundle::Rep::OpOfVariant(uint32_t variant) const {
  if (Count(index->parts()) != 0) {  // the last whose variants begin by here
    const auto* parts = index->parts();
    uint32_t low = 0, high = parts->size() - 1;
    while (low < high) {
      const uint32_t middle = high - (high - low) / 2;
      if (parts->Get(middle)->variants() <= variant)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }
  uint32_t low = 0, high = Count(index->entries()) - 1;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const fb::Entry& entry = *index->entries()->Get(middle);
    if (entry.first() + entry.count() <= variant)
      low = middle + 1;
    else
      high = middle;
  }
  return index->entries()->Get(low)->op();
}

int64_t StepWorkspace(const fb::Kernel& row) {
  constexpr int64_t kStep = kWorkspaceAlignment;
  return (int64_t{row.workspace()} + kStep - 1) / kStep * kStep;
}

bool Asks(const fb::Index& index, uint32_t variant) {
  const fb::Variant& row = *index.variants()->Get(variant);
  const auto* steps = index.templates()->Get(row.template_index())->steps();
  for (uint32_t i = 0; i < Count(steps); ++i) {
    if (static_cast<StepKind>(steps->Get(i)->kind()) != StepKind::kOwn) continue;
    if (index.kernels()->Get(row.kernels() + i)->blob() == kNoBlob) return true;
  }
  return false;
}

std::optional<uint32_t> EntryOf(const fb::Index& index, const EntryKey& key) {
  const auto key_of = [&index](uint32_t number) {
    const fb::Entry& entry = *index.entries()->Get(number);
    return EntryKey{entry.op(), entry.target(), entry.types()};
  };
  auto [low, end] = EntriesOfOp(index, key.op);
  uint32_t high = end;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (key_of(middle) < key)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == end || key_of(low) != key) return std::nullopt;
  return low;
}

VariantRange VariantsOf(const fb::Index& index, uint32_t op) { return VariantRowsOfOp(index, op); }

std::string TunablesText(const fb::Index& index, uint32_t variant) {
  const fb::Variant& row = *index.variants()->Get(variant);
  const auto* names = index.templates()->Get(row.template_index())->tunables();
  std::string text;
  for (uint32_t i = 0; i < Count(names); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : ", ", names->Get(i)->string_view(),
                        index.constants()->Get(row.tunables() + i));
  }
  return text;
}

std::string Bundle::VariantId(uint32_t variant) const {
  const std::string none = fmt::format("no variant {}", variant);
  if (variant >= Count(rep_->index->variants())) return none;
  if (!rep_->CheckChoicesWith(variant).ok()) return none;
  const fb::Variant& row = *rep_->index->variants()->Get(variant);
  return fmt::format("{}@{}", LocalId(*rep_->index, row, true), TargetName(*rep_->index, row));
}

Result<std::vector<uint32_t>> Bundle::FindVariants(std::string_view id) const {
  const fb::Index& index = *rep_->index;
  const size_t slash = id.find('/');
  if (slash == std::string_view::npos) {
    return InvalidArgument(fmt::format(
        "'{}' is no variant id: write family.op/name[T=bf16,VEC=8], with or without @target", id));
  }
  KB_ASSIGN_OR_RETURN(const uint32_t op, FindOp(id.substr(0, slash)));
  const std::string_view local = id.substr(0, id.rfind('@'));
  const std::string_view target = local.size() == id.size() ? "" : id.substr(local.size() + 1);
  const bool with_point = local.find('[') != std::string_view::npos;
  std::vector<uint32_t> found;
  std::vector<std::string> names;
  const VariantRange range = VariantsOf(index, op);
  for (uint32_t i = range.first; i < range.end; ++i) {
    const fb::Variant& row = *index.variants()->Get(i);
    std::string name = LocalId(index, row, with_point);
    if (name == local && (target.empty() || target == TargetName(index, row))) found.push_back(i);
    if (!target.empty()) name += fmt::format("@{}", TargetName(index, row));
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  }
  if (!found.empty()) return found;
  constexpr size_t kShown = 8;
  const size_t shown = std::min(kShown, names.size());
  return NotFound(fmt::format(
      "bundle '{}' has no variant '{}'{}; it has {}{}", rep_->path, id, DidYouMean(id, names),
      shown == 0 ? "none"
                 : fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", ")),
      names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : ""));
}

}  // namespace kbundle
