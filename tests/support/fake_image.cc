#include "support/fake_image.h"

#include <cstring>
#include <sstream>

namespace kbundle::testing {
namespace {

// magic, size of the whole image, then one line a kernel: symbol threads shared count sizes...
constexpr char kImageMagic[8] = {'F', 'A', 'K', 'E', 'C', 'U', 'B', 'N'};
constexpr size_t kImageHeader = sizeof(kImageMagic) + sizeof(uint32_t);

}  // namespace

uint32_t FakeImageSize(const char* image) {
  uint32_t size = 0;
  if (std::memcmp(image, kImageMagic, sizeof(kImageMagic)) != 0) return 0;
  std::memcpy(&size, image + sizeof(kImageMagic), sizeof(size));
  return size;
}

std::vector<FakeKernel> ParseFakeImage(const char* image) {
  std::istringstream text(std::string(image + kImageHeader, FakeImageSize(image) - kImageHeader));
  std::vector<FakeKernel> kernels;
  size_t count = 0;
  text >> count;
  for (size_t i = 0; i < count; ++i) {
    FakeKernel kernel;
    size_t parameters = 0;
    text >> kernel.symbol >> kernel.max_threads >> kernel.static_shared >> parameters;
    kernel.parameter_sizes.resize(parameters);
    for (uint32_t& bytes : kernel.parameter_sizes) text >> bytes;
    kernels.push_back(kernel);
  }
  return kernels;
}

std::vector<uint8_t> FakeImage(const std::vector<FakeKernel>& kernels, size_t size, uint32_t seed) {
  std::ostringstream text;
  text << kernels.size() << '\n';
  for (const FakeKernel& kernel : kernels) {
    text << kernel.symbol << ' ' << kernel.max_threads << ' ' << kernel.static_shared << ' '
         << kernel.parameter_sizes.size();
    for (uint32_t bytes : kernel.parameter_sizes) text << ' ' << bytes;
    text << '\n';
  }
  std::string body = text.str();
  while (kImageHeader + body.size() < size) {
    seed = seed * 1664525 + 1013904223;
    body.push_back(static_cast<char>(seed >> 24));
  }
  const auto total = static_cast<uint32_t>(kImageHeader + body.size());
  std::vector<uint8_t> image(total);
  std::memcpy(image.data(), kImageMagic, sizeof(kImageMagic));
  std::memcpy(image.data() + sizeof(kImageMagic), &total, sizeof(total));
  std::memcpy(image.data() + kImageHeader, body.data(), body.size());
  return image;
}

}  // namespace kbundle::testing
