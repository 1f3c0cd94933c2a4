// The order matters: what a check uses has been checked before it. What may be shared by many rows
// costs steps, so that a small file cannot ask for a long check.
#include "loader/verify/verify.h"

#include <cstring>
#include <unordered_set>

#include "kbundle/dtype.h"
#include "kbundle/key.h"
#include "kbundle/target.h"
#include "kbundle/utf8.h"
#include "loader/provider/provider.h"

namespace kbundle {
namespace {

Status CheckMagic(const Header& header) {
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) == 0) return Status();
  std::string found;
  for (uint8_t byte : header.magic) found += fmt::format("{:02x} ", byte);
  found.pop_back();
  if (std::memcmp(header.magic + 1, kMagic + 1, 5) == 0) {
    return DataLoss(fmt::format(
        "the first bytes are {}: a transfer as text changed the file; copy it again as binary",
        found));
  }
  return DataLoss(fmt::format(
      "not a kbundle file: the first bytes are {}, a bundle begins 89 4b 42 4e 44 4c 0d 0a",
      found));
}

Status CheckVersion(const Header& header) {
  if (header.format_major == 0) return DataLoss("format version 0 does not exist");
  if (header.format_major <= kFormatMajor) return Status();
  return Unimplemented(
      fmt::format("written by format {}.{}, this reads up to {}.{}: upgrade kbundle",
                  header.format_major, header.format_minor, kFormatMajor, kFormatMinor));
}

Status CheckHeaderHash(Header header) {
  const uint64_t stored = header.header_xxh3;
  header.header_xxh3 = 0;
  const uint64_t computed = Xxh3(&header, sizeof(header));
  if (stored == computed) return Status();
  return DataLoss(
      fmt::format("header hash {:016x}, its bytes give {:016x}: damaged; copy or build "
                  "the file again",
                  stored, computed));
}

Status CheckHeaderFields(const Header& header) {
  if (header.header_size != sizeof(Header)) {
    return DataLoss(fmt::format("header size {}, must be {}", header.header_size, sizeof(Header)));
  }
  for (uint8_t byte : header.reserved) {
    if (byte != 0) return DataLoss("reserved header bytes are not zero");
  }
  if (header.index_offset != sizeof(Header)) {
    return DataLoss(fmt::format("index at {}, must be at {}", header.index_offset, sizeof(Header)));
  }
  KB_RETURN_IF_ERROR(CheckCount(header.index_size, kMaxIndexBytes, "index bytes"));
  if (header.index_size > header.file_size - header.index_offset) {
    return DataLoss(fmt::format("index of {} bytes ends after the file of {}", header.index_size,
                                header.file_size));
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

bool HasOffset(const fb::Arg& arg) {
  return arg.kind() <= static_cast<int>(ArgKind::kRegion) && !Absent(arg.program());
}

// Of the templates: the feature bits that a file with them must have.
uint64_t FeaturesOf(const fb::Index& index) {
  uint64_t features = 0;
  for (uint32_t t = 0; t < Count(index.templates()); ++t) {
    for (const fb::Step* step : *index.templates()->Get(t)->steps()) {
      if (Count(step->structs()) != 0) features |= kFeatureStructs;
      for (uint32_t a = 0; a < Count(step->args()); ++a) {
        if (HasOffset(*step->args()->Get(a))) features |= kFeatureOffsets;
      }
    }
  }
  return features;
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

Status VerifyTemplatesOf(const fb::Index& index, uint32_t number, uint32_t* next) {
  const fb::Op& op = *index.ops()->Get(number);
  const uint64_t end = uint64_t{op.first_template()} + op.template_count();
  if (op.first_template() != *next || end > Count(index.templates())) {
    return DataLoss(fmt::format("templates {} + {}, must begin at {} and end by {}",
                                op.first_template(), op.template_count(), *next,
                                Count(index.templates())));
  }
  *next = static_cast<uint32_t>(end);
  std::unordered_set<std::string_view> names;
  for (uint32_t i = op.first_template(); i < end; ++i) {
    const fb::Template& row = *index.templates()->Get(i);
    KB_VERIFY(CheckName(row.name(), "name"), "template {}", i);
    if (row.op() != number) return DataLoss(fmt::format("template {} says op {}", i, row.op()));
    if (!names.insert(row.name()->string_view()).second &&
        !(i > op.first_template() && ArePartsOfOne(*index.templates()->Get(i - 1), row))) {
      return DataLoss(fmt::format("template '{}' appears twice", row.name()->string_view()));
    }
    KB_VERIFY(VerifyTemplate(index, op, row), "variant '{}'", row.name()->string_view());
  }
  return Status();
}

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
    KB_VERIFY(VerifyOp(index, op), "op '{}'", name);
    KB_VERIFY(VerifyTemplatesOf(index, i, &next_template), "op '{}'", name);
  }
  if (next_template == Count(index.templates())) return Status();
  return DataLoss(
      fmt::format("{} of {} templates belong to an op", next_template, Count(index.templates())));
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
  for (uint32_t i = 0; i < Count(index.ran_on()); ++i) {
    const fb::RanOn& row = *index.ran_on()->Get(i);
    KB_VERIFY(CheckIndex(row.blob(), Count(index.blobs()), "blob"), "ran_on {}", i);
    KB_VERIFY(CheckIndex(row.device(), Count(index.devices()), "device"), "ran_on {}", i);
    if (i == 0) continue;
    const fb::RanOn& before = *index.ran_on()->Get(i - 1);
    if (std::pair(before.blob(), before.device()) >= std::pair(row.blob(), row.device())) {
      return DataLoss(fmt::format("ran_on {} is not sorted or not unique", i));
    }
  }
  return Status();
}

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
  for (uint32_t i = 0; i < Count(index.symbols()); ++i) {
    KB_VERIFY(CheckName(index.symbols()->Get(i), "name"), "symbol {}", i);
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

// Of the index that this thread checks; none: no end.
thread_local uint64_t* steps_left = nullptr;

class StepLimit {
 public:
  explicit StepLimit(uint64_t index_size)
      : steps_(kMaxCheckSteps + kMaxCheckStepsPerByte * index_size) {
    steps_left = &steps_;
  }
  ~StepLimit() { steps_left = nullptr; }
  StepLimit(const StepLimit&) = delete;
  StepLimit& operator=(const StepLimit&) = delete;

 private:
  uint64_t steps_;
};

}  // namespace

Status Spend(uint64_t steps) {
  if (steps_left == nullptr) return Status();
  if (*steps_left < steps) {
    return ResourceExhausted(
        "its names, programs and times are used so often that checking them has no end: build the "
        "file with kbundle");
  }
  *steps_left -= steps;
  return Status();
}

bool IsDType(int number) { return number > 0 && number < kDTypeCount; }

Status CheckCount(uint64_t found, uint64_t limit, std::string_view what) {
  if (found <= limit) return Status();
  return ResourceExhausted(fmt::format("{} {}, at most {} are allowed", found, what, limit));
}

Status CheckIndex(uint64_t index, uint64_t count, std::string_view what) {
  if (index < count) return Status();
  return DataLoss(fmt::format("{} {} does not exist, there are {}", what, index, count));
}

Status CheckName(const flatbuffers::String* name, std::string_view what) {
  if (name == nullptr || name->size() == 0) return DataLoss(fmt::format("{} is empty", what));
  KB_RETURN_IF_ERROR(CheckText(name, what));
  const std::string_view text = name->string_view();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = c >= 0x80 && c < 0xa0 && static_cast<unsigned char>(text[i - 1]) == 0xc2;
    if (c >= 0x20 && c != 0x7f && !c1) continue;
    return DataLoss(fmt::format("{} has control character {:#04x}", what, c));
  }
  return Status();
}

Status CheckText(const flatbuffers::String* text, std::string_view what) {
  if (text == nullptr) return Status();
  if (text->size() > kMaxNameBytes) {
    return ResourceExhausted(
        fmt::format("{} has {} bytes, at most {} are allowed", what, text->size(), kMaxNameBytes));
  }
  KB_RETURN_IF_ERROR(Spend(text->size()));
  const size_t bad = NotUtf8(text->string_view());
  if (bad == text->size()) return Status();
  return DataLoss(fmt::format("{} is not UTF-8: byte {} is {:#04x}", what, bad,
                              static_cast<unsigned char>(text->string_view()[bad])));
}

Status CheckTypeRef(const fb::Op& op, const fb::TypeRef& type) {
  if (type.param() == -1) {
    return IsDType(type.dtype()) ? Status()
                                 : DataLoss(fmt::format("unknown dtype {}", type.dtype()));
  }
  return CheckIndex(static_cast<uint8_t>(type.param()), Count(op.types()), "type parameter");
}

Status VerifyHeader(const Header& header, uint64_t file_size) {
  KB_RETURN_IF_ERROR(CheckMagic(header));
  KB_RETURN_IF_ERROR(CheckVersion(header));
  KB_RETURN_IF_ERROR(CheckHeaderHash(header));
  if (const uint64_t unknown = header.required_features & ~kKnownFeatures; unknown != 0) {
    return Unimplemented(
        fmt::format("it needs feature bits {:#x}, this reader knows {:#x}: upgrade kbundle",
                    unknown, kKnownFeatures));
  }
  if (header.file_size != file_size) {
    return DataLoss(fmt::format("{}: its header says {} bytes, it has {}; copy the file again",
                                file_size < header.file_size ? "truncated" : "extended",
                                header.file_size, file_size));
  }
  return CheckHeaderFields(header);
}

Status VerifyIndex(const fb::Index& index, const Header& header) {
  const StepLimit limit(header.index_size);
  KB_RETURN_IF_ERROR(CheckVectors(index));
  KB_RETURN_IF_ERROR(VerifyNames(index));
  KB_RETURN_IF_ERROR(VerifyTargets(index));
  KB_RETURN_IF_ERROR(VerifyBlobs(index, header));
  KB_RETURN_IF_ERROR(CheckProviders(index));
  KB_RETURN_IF_ERROR(VerifyOps(index));
  if (const uint64_t missing = FeaturesOf(index) & ~header.required_features; missing != 0) {
    return DataLoss((missing & kFeatureOffsets) != 0
                        ? "offsets of pointers without their feature bit"
                        : "structs without their feature bit");
  }
  KB_RETURN_IF_ERROR(VerifyVariants(index, header));
  KB_RETURN_IF_ERROR(VerifyEntries(index));
  KB_RETURN_IF_ERROR(VerifyDevices(index));
  return VerifyTuned(index);
}

}  // namespace kbundle
