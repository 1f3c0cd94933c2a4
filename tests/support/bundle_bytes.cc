// A bundle maker's rows as the bytes of a file: sorted, packed, hashed, and lied about.
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "kbundle/key.h"
#include "kbundle/sha256.h"
#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle::testing {
namespace {

std::string Compress(const std::vector<uint8_t>& bytes, const std::vector<uint8_t>& base) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, 12);
  if (!base.empty()) ZSTD_CCtx_refPrefix(context, base.data(), base.size());
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress2(context, out.data(), out.size(), bytes.data(), bytes.size());
  ZSTD_freeCCtx(context);
  if (ZSTD_isError(size)) RefuseToMake(ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

std::string PackIndex(const fb::IndexT& index) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::Index::Pack(builder, &index), kIndexIdentifier);
  return std::string(reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize());
}

uint64_t AlignUp(uint64_t value) {
  return (value + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
}

// Offsets of stored frames behind an index of that size.
void PlaceBlobs(uint64_t index_size, const std::vector<std::string>& frames, fb::IndexT* index) {
  uint64_t end = sizeof(Header) + index_size;
  for (size_t i = 0; i < std::min(frames.size(), index->blobs.size()); ++i) {
    fb::Blob& row = index->blobs[i];
    row = fb::Blob(AlignUp(end), static_cast<uint32_t>(frames[i].size()), row.size(), row.xxh3(),
                   row.sha256(), row.base(), row.format());
    end = row.offset() + frames[i].size();
  }
}

}  // namespace

void BundleMaker::SortRows(fb::IndexT& out) const {
  const auto key = [](const fb::Variant& v) { return EntryKey{v.op(), v.target(), v.types()}; };
  std::sort(out.variants.begin(), out.variants.end(), [&](const auto& a, const auto& b) {
    return std::pair(key(a), a.rank()) < std::pair(key(b), b.rank());
  });
  std::sort(out.ran_on.begin(), out.ran_on.end(), [](const auto& a, const auto& b) {
    return std::pair(a.blob(), a.device()) < std::pair(b.blob(), b.device());
  });
  out.entries.clear();
  for (uint32_t i = 0; i < out.variants.size();) {
    uint32_t end = i + 1;
    while (end < out.variants.size() && key(out.variants[end]) == key(out.variants[i])) ++end;
    const fb::Variant& v = out.variants[i];
    out.entries.emplace_back(v.types(), v.op(), v.target(), uint16_t{0}, i, end - i);
    i = end;
  }
}

std::string BundleMaker::Bytes() {
  std::vector<std::string> frames;
  index.blobs.clear();
  bool deltas = false;
  for (uint32_t i = 0; i < blobs_.size(); ++i) {
    const MadeBlob& blob = blobs_[i];
    const bool delta = blob.base != kNoBlob;
    frames.push_back(
        Compress(blob.bytes, delta ? blobs_[blob.base].bytes : std::vector<uint8_t>()));
    if (change_frame) change_frame(frames.back(), i);
    const Sha256Digest digest = Sha256Of(blob.bytes.data(), blob.bytes.size());
    index.blobs.emplace_back(0, 0, static_cast<uint32_t>(blob.bytes.size()),
                             Xxh3(blob.bytes.data(), blob.bytes.size()),
                             fb::Sha256(flatbuffers::span<const uint8_t, 32>(digest)), blob.base,
                             static_cast<uint32_t>(blob.format));
    deltas |= delta;
  }
  // Work on a copy: sorting and lies are for the file only.
  flatbuffers::FlatBufferBuilder copier;
  copier.Finish(fb::Index::Pack(copier, &index));
  fb::IndexT out;
  fb::GetIndex(copier.GetBufferPointer())->UnPackTo(&out);
  SortRows(out);
  uint64_t pages_size = 0;
  const auto pack = [&] { return write_index ? write_index(out, &pages_size) : PackIndex(out); };
  PlaceBlobs(pack().size(), frames, &out);  // struct vectors: the size does not change
  const size_t sound_size = pack().size();
  if (change_index) change_index(out);
  std::string packed = pack();
  if (packed.size() != sound_size) {
    PlaceBlobs(packed.size(), frames, &out);  // the lie is not about where blobs are
    packed = pack();
  }
  if (change_index_bytes) change_index_bytes(packed);

  std::string bytes(sizeof(Header), '\0');
  bytes += packed;
  for (const std::string& frame : frames) {
    bytes.resize(AlignUp(bytes.size()));
    bytes += frame;
  }
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.format_major = kFormatMajor;
  header.format_minor = kFormatMinor;
  header.header_size = sizeof(Header);
  header.required_features = deltas ? kFeatureDeltaFrames : 0;
  if (has_offsets_) header.required_features |= kFeatureOffsets;
  if (has_structs_) header.required_features |= kFeatureStructs;
  if (asking_) header.required_features |= kFeatureAsking;
  header.file_size = bytes.size();
  header.index_offset = sizeof(Header);
  header.index_size = packed.size();
  header.pages_size = pages_size;
  if (pages_size != 0) header.required_features |= kFeaturePages;
  if (change_header) change_header(header);
  std::memcpy(bytes.data(), &header, sizeof(header));
  Rehash(&bytes);
  return bytes;
}

std::shared_ptr<const Bundle> BundleMaker::Open(const std::string& path) {
  WriteFile(path, Bytes());
  auto bundle = Bundle::Open(path);
  if (!bundle.ok()) RefuseToMake(bundle.status().ToString());
  return *bundle;
}

namespace {

// Where the header has room for them.
void RehashPages(const Header& header, char* index) {
  const uint64_t hashes = PageCount(header.pages_size) * kPageHashBytes;
  if (header.pages_size > header.index_size || hashes > header.index_size - header.pages_size) {
    return;
  }
  const uint64_t outline = header.index_size - header.pages_size;
  char* hash = index + outline - hashes;
  for (uint64_t at = outline; at < header.index_size; at += kIndexPageBytes) {
    const Sha256Digest digest =
        Sha256Of(index + at, std::min(kIndexPageBytes, header.index_size - at));
    hash = std::copy(digest.begin(), digest.end(), hash);
  }
}

}  // namespace

void Rehash(std::string* bytes) {
  Header header;
  std::memcpy(&header, bytes->data(), sizeof(header));
  if (header.index_offset <= bytes->size() &&
      header.index_size <= bytes->size() - header.index_offset) {
    char* index = bytes->data() + header.index_offset;
    RehashPages(header, index);
    const uint64_t outline = header.index_size - std::min(header.pages_size, header.index_size);
    header.index_xxh3 = Xxh3(index, outline);
    const Sha256Digest digest = Sha256Of(index, outline);
    std::memcpy(header.index_sha256, digest.data(), digest.size());
  }
  header.header_xxh3 = 0;
  header.header_xxh3 = Xxh3(&header, sizeof(header));
  std::memcpy(bytes->data(), &header, sizeof(header));
}

}  // namespace kbundle::testing
