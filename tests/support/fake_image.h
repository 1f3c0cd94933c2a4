// What the fake driver takes for a cubin: an image that describes itself, because a driver is given
// no length.
#ifndef KBUNDLE_TESTS_SUPPORT_FAKE_IMAGE_H_
#define KBUNDLE_TESTS_SUPPORT_FAKE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kbundle::testing {

struct FakeKernel {
  std::string symbol;
  std::vector<uint32_t> parameter_sizes;
  int max_threads = 1024;
  int static_shared = 0;
};

// Bytes that the fake driver takes for a cubin. `size`: at least this many, filled from `seed`.
std::vector<uint8_t> FakeImage(const std::vector<FakeKernel>& kernels, size_t size = 0,
                               uint32_t seed = 1);

// Bytes of the whole image; 0: it is none.
uint32_t FakeImageSize(const char* image);
std::vector<FakeKernel> ParseFakeImage(const char* image);

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_FAKE_IMAGE_H_
