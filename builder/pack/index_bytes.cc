// FlatBuffers are written from their end. So first, and last in the bytes, come the tables of one
// op after the other, then the vectors of what is many, sorted by op: these are the pages. Before
// them stand their hashes, and before those what every reader needs.
//
//   root, names, targets, ops, parts | hashes of pages | variants, kernels, .. | op n .. op 1, op 0
#include "builder/pack/index_bytes.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "builder/pack/shared_tables.h"
#include "kbundle/format.h"
#include "kbundle/sha256.h"
#include "kbundle/status.h"

namespace kbundle::builder {
namespace {

using flatbuffers::Offset;
using flatbuffers::String;
using flatbuffers::Vector;

// By number of Index.evidence: the op that names it; op 0 where none does.
std::vector<uint32_t> OpsOfEvidence(const fb::IndexT& index) {
  std::vector<uint32_t> ops(index.evidence.size());
  for (const fb::Tuned& row : index.tuned) ops[row.evidence()] = row.op();
  return ops;
}

template <typename Row>
uint32_t FirstOf(const std::vector<Row>& rows, uint32_t op) {
  const auto place = std::partition_point(rows.begin(), rows.end(),
                                          [op](const Row& row) { return row.op() < op; });
  return static_cast<uint32_t>(place - rows.begin());
}

class Writer {
 public:
  Writer(const fb::IndexT& index, bool share) : index_(index), share_(share) {}

  IndexBytes Write() {
    for (uint32_t op = 0; op < index_.ops.size(); ++op) WriteTables(op);
    WriteLongVectors();
    builder_.Align(8);
    IndexBytes out;
    out.pages_size = builder_.GetSize();
    const std::string hashes(PageCount(out.pages_size) * kPageHashBytes, '\0');
    builder_.PushBytes(reinterpret_cast<const uint8_t*>(hashes.data()), hashes.size());
    WriteOutline();
    out.bytes.assign(reinterpret_cast<const char*>(builder_.GetBufferPointer()),
                     builder_.GetSize());
    PlaceParts(&out.bytes);
    HashPages(&out);
    return out;
  }

 private:
  void WriteTables(uint32_t op) {
    SharedTables tables(share_);
    builder_.Align(8);
    const uint32_t end = builder_.GetSize();
    ops_.emplace_back(end + tables.Add(*index_.ops[op]));
    const auto first = static_cast<uint32_t>(templates_.size());
    while (templates_.size() < index_.templates.size() &&
           index_.templates[templates_.size()]->op == op) {
      templates_.emplace_back(end + tables.Add(*index_.templates[templates_.size()]));
    }
    for (uint32_t i = 0; i < evidence_.size(); ++i) {
      if (op_of_evidence_[i] == op) evidence_[i] = end + tables.Add(*index_.evidence[i]);
    }
    const std::string_view bytes = tables.Bytes();
    builder_.PushBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    // For now the place is counted from the end.
    parts_.emplace_back(builder_.GetSize(), static_cast<uint32_t>(bytes.size()), first,
                        FirstOf(index_.entries, op), FirstOf(index_.variants, op),
                        FirstOf(index_.tuned, op));
  }

  void WriteLongVectors() {
    coordinates_at_ = Numbers(index_.coordinates);
    evidence_at_ = Tables<fb::Evidence>(evidence_);
    tuned_at_ = Rows(index_.tuned);
    blobs_at_ = Rows(index_.blobs);
    kernels_at_ = Rows(index_.kernels);
    variants_at_ = Rows(index_.variants);
    entries_at_ = Rows(index_.entries);
    symbols_at_ = Texts(index_.symbols);
    constants_at_ = Numbers(index_.constants);
    code_at_ = Numbers(index_.code);
    templates_at_ = Tables<fb::Template>(templates_);
  }

  void WriteOutline() {
    std::vector<std::string> op_names;
    for (const auto& op : index_.ops) op_names.push_back(op->name);
    const auto name = builder_.CreateString(index_.name);
    const auto provenance = All(index_.provenance);
    const auto targets = All(index_.targets);
    const auto devices = Texts(index_.devices), tuned_devices = Texts(index_.tuned_devices);
    const auto providers = Texts(index_.providers), names = Texts(op_names);
    const auto ran_on = Rows(index_.ran_on);
    const auto parts = Rows(parts_);
    const auto ops = Tables<fb::Op>(ops_);
    builder_.Finish(
        fb::CreateIndex(builder_, name, provenance, targets, ops, templates_at_, code_at_,
                        constants_at_, symbols_at_, variants_at_, entries_at_, kernels_at_,
                        blobs_at_, devices, ran_on, tuned_at_, evidence_at_, coordinates_at_,
                        tuned_devices, index_.tuned_digest.get(), providers, names, parts),
        kIndexIdentifier);
  }

  // Where tables are is known when all is written.
  void PlaceParts(std::string* bytes) const {
    const auto* parts = fb::GetIndex(bytes->data())->parts();
    char* at = bytes->data() + (reinterpret_cast<const char*>(parts->Data()) - bytes->data());
    for (const fb::Part& part : parts_) {
      const fb::Part placed(static_cast<uint32_t>(bytes->size()) - part.tables(),
                            part.tables_size(), part.templates(), part.entries(), part.variants(),
                            part.tuned());
      std::memcpy(at, &placed, sizeof placed);
      at += sizeof placed;
    }
  }

  static void HashPages(IndexBytes* out) {
    const uint64_t outline = out->bytes.size() - out->pages_size;
    char* hash = out->bytes.data() + outline - PageCount(out->pages_size) * kPageHashBytes;
    for (uint64_t at = outline; at < out->bytes.size(); at += kIndexPageBytes) {
      const Sha256Digest digest = Sha256Of(
          out->bytes.data() + at, std::min<uint64_t>(kIndexPageBytes, out->bytes.size() - at));
      hash = std::copy(digest.begin(), digest.end(), hash);
    }
  }

  // Vectors: nothing where there is none, as generated code does.
  template <typename T>
  Offset<Vector<Offset<T>>> Tables(const std::vector<uint32_t>& places) {
    if (places.empty()) return 0;
    const std::vector<Offset<T>> offsets(places.begin(), places.end());
    return builder_.CreateVector(offsets);
  }
  template <typename Row>
  Offset<Vector<Offset<typename Row::TableType>>> All(
      const std::vector<std::unique_ptr<Row>>& rows) {
    std::vector<uint32_t> places;
    for (const auto& row : rows) places.push_back(Row::TableType::Pack(builder_, row.get()).o);
    return Tables<typename Row::TableType>(places);
  }
  Offset<Vector<Offset<String>>> Texts(const std::vector<std::string>& texts) {
    return texts.empty() ? 0 : builder_.CreateVectorOfStrings(texts);
  }
  template <typename T>
  Offset<Vector<T>> Numbers(const std::vector<T>& numbers) {
    return numbers.empty() ? 0 : builder_.CreateVector(numbers);
  }
  template <typename T>
  Offset<Vector<const T*>> Rows(const std::vector<T>& rows) {
    return rows.empty() ? 0 : builder_.CreateVectorOfStructs(rows);
  }

  const fb::IndexT& index_;
  const bool share_;
  const std::vector<uint32_t> op_of_evidence_ = OpsOfEvidence(index_);
  flatbuffers::FlatBufferBuilder builder_;
  // Places of tables, counted from the end.
  std::vector<uint32_t> ops_, templates_;
  std::vector<uint32_t> evidence_ = std::vector<uint32_t>(index_.evidence.size());
  std::vector<fb::Part> parts_;
  Offset<Vector<double>> coordinates_at_;
  Offset<Vector<Offset<fb::Evidence>>> evidence_at_;
  Offset<Vector<const fb::Tuned*>> tuned_at_;
  Offset<Vector<const fb::Blob*>> blobs_at_;
  Offset<Vector<const fb::Kernel*>> kernels_at_;
  Offset<Vector<const fb::Variant*>> variants_at_;
  Offset<Vector<const fb::Entry*>> entries_at_;
  Offset<Vector<Offset<String>>> symbols_at_;
  Offset<Vector<int64_t>> constants_at_;
  Offset<Vector<uint32_t>> code_at_;
  Offset<Vector<Offset<fb::Template>>> templates_at_;
};

bool TakenByReaders(const std::string& bytes) {
  flatbuffers::Verifier::Options options;
  options.max_depth = kMaxIndexDepth;
  options.max_tables = static_cast<flatbuffers::uoffset_t>(MaxIndexTables(bytes.size()));
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
                                 options);
  return verifier.VerifyBuffer<fb::Index>(kIndexIdentifier);
}

}  // namespace

IndexBytes WriteIndexBytes(const fb::IndexT& index) {
  if (!index.ops.empty()) {
    IndexBytes shared = Writer(index, true).Write();
    return TakenByReaders(shared.bytes) ? shared : Writer(index, false).Write();
  }
  flatbuffers::FlatBufferBuilder plain;
  plain.Finish(fb::Index::Pack(plain, &index), kIndexIdentifier);
  return {{reinterpret_cast<const char*>(plain.GetBufferPointer()), plain.GetSize()}, 0};
}

}  // namespace kbundle::builder
