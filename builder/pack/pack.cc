// Offsets of blobs stand in an index whose size decides them. A FlatBuffers struct takes the same
// room whatever its numbers are, so the index is written twice, the first time only to learn its
// size.
//
//   header | outline | pages | pad | frame | pad | frame ..  at multiples of kBlobAlignment
#include "builder/pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "builder/pack/bases.h"
#include "builder/pack/frames.h"
#include "builder/pack/index_bytes.h"
#include "builder/pack/index_writer.h"
#include "builder/support/schedule.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

constexpr uint32_t kNone = kNoBlob;

uint64_t AlignBlob(uint64_t offset) {
  return (offset + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
}

// What only a provider reads is of one format in the file.
uint32_t StoredFormat(ObjectFormat format) {
  const bool own = format == ObjectFormat::kExecutionPlan || format == ObjectFormat::kAlgorithm;
  return own ? static_cast<uint32_t>(fb::BlobFormat::Own) : static_cast<uint32_t>(format);
}

struct Blob {
  const Object* object = nullptr;
  uint32_t rank = 0;  // of the first variant that has it
  Sha256Digest sha256{};
  uint32_t base = kNone;  // proposed; dropped where a delta does not pay
  std::string frame;
};

class Packer {
 public:
  explicit Packer(const PackInput& input) : input_(input), work_(*input.work), writer_(&index_) {}

  Result<std::string> Run() {
    AddNames();
    KB_RETURN_IF_ERROR(AddOps());
    KB_RETURN_IF_ERROR(MakeFrames());
    AddRanOn();
    if (input_.tuned != nullptr) AddTuned(*input_.tuned);
    return File();
  }

 private:
  void AddNames() {
    index_.name = input_.name;
    std::map<std::string, std::string> sorted(input_.provenance.begin(), input_.provenance.end());
    for (const auto& [key, value] : sorted) {
      auto row = std::make_unique<fb::KeyValueT>();
      row->key = key;
      row->value = value;
      index_.provenance.push_back(std::move(row));
    }
    for (const Target& target : work_.targets) {
      auto row = std::make_unique<fb::TargetT>();
      row->name = target.ToString();
      row->kind = static_cast<uint8_t>(target.kind);
      row->major = target.major;
      row->minor = target.minor;
      row->feature = static_cast<uint8_t>(target.feature);
      index_.targets.push_back(std::move(row));
    }
  }

  const Template& TemplateOf(const VariantUse& use) const {
    return work_.ops[use.op].op->templates[use.template_index];
  }
  EntryKey KeyOf(const VariantUse& use) const {
    return {use.op, static_cast<uint16_t>(use.target),
            PackTypes(TemplateOf(use).points[use.point].types)};
  }

  // One op after the other, with all that it has.
  Status AddOps() {
    if (work_.variants.size() > kMaxVariants) {
      return ResourceExhausted(fmt::format("{} variants, at most {}; prune the grids with keep",
                                           work_.variants.size(), kMaxVariants));
    }
    std::vector<const VariantUse*> sorted;
    for (const VariantUse& use : work_.variants) sorted.push_back(&use);
    std::sort(sorted.begin(), sorted.end(), [this](const VariantUse* a, const VariantUse* b) {
      return std::tuple(KeyOf(*a), a->rank) < std::tuple(KeyOf(*b), b->rank);
    });
    auto next = sorted.begin();
    for (uint32_t op = 0; op < work_.ops.size(); ++op) {
      writer_.AddOp(*work_.ops[op].op);
      for (; next != sorted.end() && (*next)->op == op; ++next) {
        KB_RETURN_IF_ERROR(AddVariant(**next));
      }
    }
    return Status();
  }

  static EntryKey KeyOf(const fb::Variant& row) { return {row.op(), row.target(), row.types()}; }

  Status AddVariant(const VariantUse& use) {
    const EntryKey key = KeyOf(use);
    const auto number = static_cast<uint32_t>(index_.variants.size());
    if (number == 0 || KeyOf(index_.variants.back()) != key) {
      index_.entries.emplace_back(key.types, key.op, key.target, 0, number, 0);
    }
    const uint32_t first = index_.entries.back().first();
    index_.entries.back() = fb::Entry(key.types, key.op, key.target, 0, first, number + 1 - first);
    KB_ASSIGN_OR_RETURN(const uint32_t kernels, AddKernels(use));
    const Template::Point& point = TemplateOf(use).points[use.point];
    index_.variants.emplace_back(key.types, key.op,
                                 index_.ops[use.op]->first_template + use.template_index, use.rank,
                                 writer_.InternConstants(point.tunables), kernels, key.target, 0);
    return Status();
  }

  Result<uint32_t> AddKernels(const VariantUse& use) {
    std::vector<fb::Kernel> rows;
    for (size_t step = 0; step < use.kernels.size(); ++step) {
      const std::string& kernel = use.kernels[step];
      if (kernel.empty()) {
        rows.emplace_back(kNone, 0, 0, 0, 0, 0, 0, 0);
        continue;
      }
      const uint32_t unit = use.units[step];
      if (unit == kNoUnit) {  // its provider asks a library when a plan is made
        rows.emplace_back(kNone, writer_.InternSymbol(kernel), 0, 0, 0, 0, 0, 0);
        asking_ = true;
        continue;
      }
      const Object& object = (*input_.objects)[unit];
      const auto info = std::find_if(object.kernels.begin(), object.kernels.end(),
                                     [&](const KernelInfo& k) { return k.kernel == kernel; });
      if (info == object.kernels.end()) {
        return Internal(fmt::format("{} holds no '{}'", work_.units[unit].label, kernel));
      }
      rows.emplace_back(BlobOf(use, unit, object), writer_.InternSymbol(info->symbol),
                        info->registers, info->spill_bytes, info->static_shared,
                        info->dynamic_shared, info->threads, info->workspace);
    }
    return writer_.InternKernels(rows);
  }

  uint32_t BlobOf(const VariantUse& use, uint32_t number, const Object& object) {
    const auto [unit, fresh_unit] = blob_of_unit_.try_emplace(number, 0);
    if (!fresh_unit) return unit->second;
    const auto [found, fresh] =
        blob_of_content_.try_emplace(object.sha256, static_cast<uint32_t>(blobs_.size()));
    if (fresh) {
      blobs_.push_back({&object, use.rank, object.sha256, kNone, ""});
      siblings_[{work_.ops[use.op].family->name, use.target}].push_back(found->second);
    }
    return unit->second = found->second;
  }

  Status MakeFrames() {
    for (const auto& [where, group] : siblings_) KB_RETURN_IF_ERROR(SetBases(group));
    return RunAll(blobs_.size(), input_.jobs, [&](size_t i) { return MakeFrameOf(&blobs_[i]); });
  }

  Status SetBases(const std::vector<uint32_t>& group) {
    std::vector<Sibling> siblings;
    for (uint32_t blob : group)
      siblings.push_back({&blobs_[blob].object->code, blobs_[blob].sha256, blobs_[blob].rank});
    KB_ASSIGN_OR_RETURN(const std::vector<uint32_t> bases,
                        ChooseBases(siblings, *input_.store, input_.jobs));
    for (size_t i = 0; i < group.size(); ++i) {
      if (bases[i] < group.size() && bases[i] != i) blobs_[group[i]].base = group[bases[i]];
    }
    return Status();
  }

  Status MakeFrameOf(Blob* blob) const {
    if (blob->object->code.size() > kMaxBlobBytes) {
      return ResourceExhausted(fmt::format("a code object of {} bytes, at most {}",
                                           blob->object->code.size(), kMaxBlobBytes));
    }
    FrameInput frame{&blob->object->code, blob->sha256, nullptr, {}};
    KB_ASSIGN_OR_RETURN(blob->frame, MakeFrame(frame, *input_.store));
    if (blob->base == kNone) return Status();
    const Blob& base = blobs_[blob->base];
    frame.base = &base.object->code;
    frame.base_sha256 = base.sha256;
    KB_ASSIGN_OR_RETURN(std::string delta, MakeFrame(frame, *input_.store));
    if (delta.size() < blob->frame.size()) {
      blob->frame = std::move(delta);
    } else {
      blob->base = kNone;
    }
    return Status();
  }

  void AddRanOn() {
    std::set<std::string> devices;
    std::set<std::pair<uint32_t, std::string>> facts;
    std::map<std::string, uint32_t> by_digest;
    for (uint32_t i = 0; i < blobs_.size(); ++i) by_digest[ToHex(blobs_[i].sha256)] = i;
    for (const RanOnFact& fact : input_.ran_on) {
      const auto found = by_digest.find(fact.sha256);
      if (found == by_digest.end()) continue;
      devices.insert(fact.device);
      facts.emplace(found->second, fact.device);
    }
    index_.devices.assign(devices.begin(), devices.end());
    for (const auto& [blob, device] : facts) {
      const auto number = std::distance(devices.begin(), devices.find(device));
      index_.ran_on.emplace_back(blob, static_cast<uint32_t>(number));
    }
  }

  void AddTuned(const EmbeddedRecords& tuned) {
    index_.tuned = tuned.rows;
    index_.coordinates = tuned.coordinates;
    index_.tuned_devices = tuned.devices;
    for (const fb::EvidenceT& evidence : tuned.evidence) {
      index_.evidence.push_back(std::make_unique<fb::EvidenceT>(evidence));
    }
    index_.tuned_digest =
        std::make_unique<fb::Sha256>(flatbuffers::span<const uint8_t, 32>(tuned.digest));
  }

  // The index's size does not depend on the offsets in it: written once to learn it, then for good.
  Result<std::string> File() {
    const uint64_t index_size = WriteIndex(0).bytes.size();
    const IndexBytes index = WriteIndex(sizeof(Header) + index_size);
    KB_CHECK(index.bytes.size() == index_size);
    if (index_size > kMaxIndexBytes) {
      return ResourceExhausted(
          fmt::format("index of {} bytes, at most {}", index_size, kMaxIndexBytes));
    }
    std::string file(sizeof(Header), '\0');
    file += index.bytes;
    for (size_t i = 0; i < blobs_.size(); ++i) {
      file.resize(index_.blobs[i].offset(), '\0');
      file += blobs_[i].frame;
    }
    const Header header = MakeHeader(index, file.size());
    std::memcpy(file.data(), &header, sizeof header);
    return file;
  }

  IndexBytes WriteIndex(uint64_t end) {
    index_.blobs.clear();
    for (const Blob& blob : blobs_) {
      const std::string& code = blob.object->code;
      const uint64_t offset = AlignBlob(end);
      end = offset + blob.frame.size();
      index_.blobs.emplace_back(offset, static_cast<uint32_t>(blob.frame.size()),
                                static_cast<uint32_t>(code.size()), Xxh3(code.data(), code.size()),
                                fb::Sha256(flatbuffers::span<const uint8_t, 32>(blob.sha256)),
                                blob.base, StoredFormat(blob.object->format));
    }
    return WriteIndexBytes(index_);
  }

  Header MakeHeader(const IndexBytes& index, uint64_t file_size) const {
    Header header{};
    std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
    header.format_major = kFormatMajor;
    header.format_minor = kFormatMinor;
    header.header_size = sizeof(Header);
    const bool deltas = std::any_of(blobs_.begin(), blobs_.end(),
                                    [](const Blob& blob) { return blob.base != kNone; });
    header.required_features = deltas ? kFeatureDeltaFrames : 0;
    if (writer_.has_offsets()) header.required_features |= kFeatureOffsets;
    if (writer_.has_structs()) header.required_features |= kFeatureStructs;
    if (asking_) header.required_features |= kFeatureAsking;
    if (index.pages_size != 0) header.required_features |= kFeaturePages;
    header.file_size = file_size;
    header.index_offset = sizeof(Header);
    header.index_size = index.bytes.size();
    header.pages_size = index.pages_size;
    const uint64_t outline = header.index_size - header.pages_size;
    header.index_xxh3 = Xxh3(index.bytes.data(), outline);
    const Sha256Digest digest = Sha256Of(index.bytes.data(), outline);
    std::copy(digest.begin(), digest.end(), header.index_sha256);
    header.header_xxh3 = Xxh3(&header, sizeof header);
    return header;
  }

  const PackInput& input_;
  const Work& work_;
  fb::IndexT index_;
  IndexWriter writer_;
  std::vector<Blob> blobs_;
  std::map<uint32_t, uint32_t> blob_of_unit_;
  std::map<Sha256Digest, uint32_t> blob_of_content_;
  // Blobs by family and target.
  std::map<std::pair<std::string, uint32_t>, std::vector<uint32_t>> siblings_;
  bool asking_ = false;  // a variant asks a heuristic
};

}  // namespace

Result<std::string> Pack(const PackInput& input) { return Packer(input).Run(); }

}  // namespace kbundle::builder
