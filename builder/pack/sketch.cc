// MinHash over aligned blocks: the smallest hashes are a sample of the blocks that does not depend
// on where they stand, so two texts sample alike what they share.
#include "builder/pack/sketch.h"

#include <algorithm>

#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

constexpr size_t kBlock = 16, kHashes = 64;

}  // namespace

Sketch SketchOf(std::string_view bytes) {
  Sketch hashes;
  for (size_t at = 0; at + kBlock <= bytes.size(); at += kBlock) {
    hashes.push_back(Xxh3(bytes.data() + at, kBlock));
  }
  std::sort(hashes.begin(), hashes.end());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  if (hashes.size() > kHashes) hashes.resize(kHashes);
  return hashes;
}

size_t Common(const Sketch& a, const Sketch& b) {
  size_t common = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    common += a[i] == b[j];
    const bool next_a = a[i] <= b[j], next_b = b[j] <= a[i];
    i += next_a;
    j += next_b;
  }
  return common;
}

}  // namespace kbundle::builder
