// Promise: whatever an index says under right hashes, the loader answers with a value: no crash, no
// access outside, no undefined behaviour, no time without end. Built by scripts/fuzz.
#include <cstdint>
#include <cstring>
#include <string>

#include "support/open_to_plan.h"

using kbundle::testing::ChangeNumbers;
using kbundle::testing::OpenToPlan;
using kbundle::testing::RepairHashes;

extern "C" {

size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Mostly numbers of the index, which keep its structure; else whatever libFuzzer thinks of.
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (seed % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string bytes(reinterpret_cast<const char*>(data), size);
  ChangeNumbers(&bytes, seed);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  RepairHashes(&bytes);
  static OpenToPlan& loader = *new OpenToPlan;
  loader.Run(bytes);
  return 0;
}

}  // extern "C"
