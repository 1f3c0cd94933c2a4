// What every reader needs of an index: all that belongs to no single op, and which rows are whose.
#include <unordered_set>
#include <utility>

#include "kbundle/target.h"
#include "loader/provider/provider.h"
#include "loader/support/rows_of_op.h"
#include "loader/verify/op_rows.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

Status VerifyNames(const fb::Index& index) {
  KB_RETURN_IF_ERROR(CheckName(index.name(), "bundle name"));
  KB_RETURN_IF_ERROR(CheckCount(Count(index.provenance()), kMaxProvenance, "provenance rows"));
  for (uint32_t i = 0; i < Count(index.provenance()); ++i) {
    const fb::KeyValue& row = *index.provenance()->Get(i);
    KB_VERIFY(CheckName(row.key(), "key"), "provenance {}", i);
    KB_VERIFY(CheckText(row.value(), "value"), "provenance {}", i);
    if (i > 0 && index.provenance()->Get(i - 1)->key()->string_view() >= row.key()->string_view()) {
      return DataLoss(
          fmt::format("provenance '{}' is not sorted or not unique", row.key()->string_view()));
    }
  }
  return Status();
}

Status VerifyTargets(const fb::Index& index) {
  KB_RETURN_IF_ERROR(CheckCount(Count(index.targets()), kMaxTargets, "targets"));
  std::unordered_set<std::string_view> names;
  for (uint32_t i = 0; i < Count(index.targets()); ++i) {
    const fb::Target& target = *index.targets()->Get(i);
    KB_VERIFY(CheckName(target.name(), "name"), "target {}", i);
    const Result<Target> parsed = Target::Parse(target.name()->string_view());
    if (!parsed.ok()) return DataLoss(fmt::format("target {}: {}", i, parsed.status().message()));
    const bool portable = parsed->kind == TargetKind::kCudaPortable;  // lowest capability is free
    if (target.kind() != static_cast<uint8_t>(parsed->kind) ||
        target.feature() != static_cast<uint8_t>(parsed->feature) ||
        (!portable && (target.major() != parsed->major || target.minor() != parsed->minor))) {
      return DataLoss(
          fmt::format("target {} '{}' has kind {}, {}.{}, feature {}: not what its name "
                      "says",
                      i, target.name()->string_view(), target.kind(), target.major(),
                      target.minor(), target.feature()));
    }
    if (!names.insert(target.name()->string_view()).second) {
      return DataLoss(fmt::format("target '{}' appears twice", target.name()->string_view()));
    }
  }
  return Status();
}

// Before the templates, which name them by number.
Status CheckProviders(const fb::Index& index) {
  KB_RETURN_IF_ERROR(CheckCount(Count(index.providers()), kMaxProviders, "providers"));
  for (uint32_t i = 0; i < Count(index.providers()); ++i) {
    KB_VERIFY(CheckName(index.providers()->Get(i), "name"), "provider {}", i);
    const std::string_view name = index.providers()->Get(i)->string_view();
    if (i > 0 && index.providers()->Get(i - 1)->string_view() >= name) {
      return DataLoss(fmt::format("provider '{}' is not sorted or not unique", name));
    }
    if (FindProvider(name) != nullptr) continue;
    return Unimplemented(fmt::format(
        "it has code of provider '{}', which this reader does not know: upgrade kbundle", name));
  }
  return Status();
}

Status VerifyDevices(const fb::Index& index) {
  KB_RETURN_IF_ERROR(CheckCount(Count(index.devices()), kMaxDevices, "devices"));
  for (uint32_t i = 0; i < Count(index.devices()); ++i) {
    KB_VERIFY(CheckName(index.devices()->Get(i), "name"), "device {}", i);
  }
  const uint32_t blobs = Count(index.blobs()), devices = Count(index.devices());
  const auto key = [](const fb::RanOn& row) { return uint64_t{row.blob()} << 32 | row.device(); };
  for (uint32_t i = 0; i < Count(index.ran_on()); ++i) {
    const fb::RanOn& row = *index.ran_on()->Get(i);
    const bool above = i == 0 || key(row) > key(*index.ran_on()->Get(i - 1));
    if (row.blob() < blobs && row.device() < devices && above) continue;
    KB_VERIFY(CheckIndex(row.blob(), blobs, "blob"), "ran_on {}", i);
    KB_VERIFY(CheckIndex(row.device(), devices, "device"), "ran_on {}", i);
    return DataLoss(fmt::format("ran_on {} is not sorted or not unique", i));
  }
  return Status();
}

// The vectors of 64-bit numbers; the rest of an index is made of 32 bits and less. Those inside of
// tables are looked at with the tables.
Status CheckVectors(const fb::Index& index) {
  KB_RETURN_IF_ERROR(CheckAligned(index.constants(), "constants"));
  KB_RETURN_IF_ERROR(CheckAligned(index.variants(), "variants"));
  KB_RETURN_IF_ERROR(CheckAligned(index.entries(), "entries"));
  KB_RETURN_IF_ERROR(CheckAligned(index.blobs(), "blobs"));
  KB_RETURN_IF_ERROR(CheckAligned(index.tuned(), "tuned problems"));
  return CheckAligned(index.coordinates(), "coordinates");
}

// Each begins behind the one before, and none behind the end.
Status CheckPart(const IndexPages& pages, const fb::Part& before, const fb::Part& part) {
  const fb::Index& index = *fb::GetIndex(pages.bytes());
  if (part.tables() < pages.outline_size() || part.tables() % 8 != 0 ||
      uint64_t{part.tables()} + part.tables_size() > pages.size()) {
    return DataLoss(fmt::format("tables of {} bytes at {}, must be at a multiple of 8 in {} to {}",
                                part.tables_size(), part.tables(), pages.outline_size(),
                                pages.size()));
  }
  const auto check = [&](uint32_t (fb::Part::*first)() const, uint64_t count, const char* what) {
    const uint32_t least = (before.*first)(), found = (part.*first)();
    if (found >= least && found <= count) return Status();
    return DataLoss(fmt::format("{} from {} on, must be {} to {}", what, found, least, count));
  };
  KB_RETURN_IF_ERROR(check(&fb::Part::templates, Count(index.templates()), "templates"));
  KB_RETURN_IF_ERROR(check(&fb::Part::entries, Count(index.entries()), "entries"));
  KB_RETURN_IF_ERROR(check(&fb::Part::variants, Count(index.variants()), "variants"));
  return check(&fb::Part::tuned, Count(index.tuned()), "tuned problems");
}

Status CheckParts(const IndexPages& pages) {
  const fb::Index& index = *fb::GetIndex(pages.bytes());
  const uint32_t count = pages.paged() ? Count(index.ops()) : 0;
  if (Count(index.parts()) != count || Count(index.op_names()) != count) {
    return DataLoss(fmt::format("{} parts and {} names of ops, must be {} of both",
                                Count(index.parts()), Count(index.op_names()), count));
  }
  KB_RETURN_IF_ERROR(CheckCount(Count(index.ops()), kMaxOps, "ops"));
  const fb::Part start(0, 0, 0, 0, 0, 0);
  for (uint32_t i = 0; i < count; ++i) {
    KB_VERIFY(CheckName(index.op_names()->Get(i), "name"), "op {}", i);
    const std::string_view name = OpName(index, i);
    if (i > 0 && OpName(index, i - 1) >= name) {
      return DataLoss(
          fmt::format("op '{}' is not above the one before: not sorted or not unique", name));
    }
    const fb::Part& part = *index.parts()->Get(i);
    KB_VERIFY(CheckPart(pages, i == 0 ? start : *index.parts()->Get(i - 1), part), "part {}", i);
    if (i == 0 && part.templates() + part.entries() + part.variants() + part.tuned() != 0) {
      return DataLoss("part 0 does not begin at the first rows");
    }
  }
  return Status();
}

}  // namespace

// Names in order, and templates side by side.
Status VerifyOps(const fb::Index& index) {
  KB_RETURN_IF_ERROR(CheckCount(Count(index.ops()), kMaxOps, "ops"));
  KB_RETURN_IF_ERROR(CheckCount(Count(index.templates()), kMaxTemplates, "variants' templates"));
  uint32_t next_template = 0;
  for (uint32_t i = 0; i < Count(index.ops()); ++i) {
    const fb::Op& op = *index.ops()->Get(i);
    KB_VERIFY(CheckName(op.name(), "name"), "op {}", i);
    const std::string_view name = op.name()->string_view();
    if (i > 0 && index.ops()->Get(i - 1)->name()->string_view() >= name) {
      return DataLoss(
          fmt::format("op '{}' is not above the one before: not sorted or not unique", name));
    }
    const uint64_t end = uint64_t{op.first_template()} + op.template_count();
    if (op.first_template() != next_template || end > Count(index.templates())) {
      return DataLoss(fmt::format("op '{}': templates {} + {}, must begin at {} and end by {}",
                                  name, op.first_template(), op.template_count(), next_template,
                                  Count(index.templates())));
    }
    next_template = static_cast<uint32_t>(end);
  }
  if (next_template == Count(index.templates())) return Status();
  return DataLoss(
      fmt::format("{} of {} templates belong to an op", next_template, Count(index.templates())));
}

// Without all its pages, what is many is looked at op by op.
Status VerifyOutlineRows(const IndexPages& pages, const Header& header, bool whole) {
  const fb::Index& index = *fb::GetIndex(pages.bytes());
  const bool all = whole || !pages.paged();
  KB_RETURN_IF_ERROR(CheckVectors(index));
  KB_RETURN_IF_ERROR(VerifyNames(index));
  KB_RETURN_IF_ERROR(VerifyTargets(index));
  if (all) KB_RETURN_IF_ERROR(VerifyBlobs(index, header));
  KB_RETURN_IF_ERROR(CheckProviders(index));
  KB_RETURN_IF_ERROR(CheckParts(pages));
  if (all) KB_RETURN_IF_ERROR(VerifyOps(index));
  if (all) KB_RETURN_IF_ERROR(VerifyEntries(index));
  KB_RETURN_IF_ERROR(VerifyDevices(index));
  KB_RETURN_IF_ERROR(VerifyTunedDevices(index));
  return all ? VerifyTuned(index) : Status();
}

}  // namespace kbundle
