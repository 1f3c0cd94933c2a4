#include "support/open_to_plan.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kbundle/describe.h"
#include "kbundle/sha256.h"
#include "loader/open/index.h"
#include "loader/resolve/resolve.h"
#include "loader/support/rows_of_op.h"
#include "support/bundle_maker.h"
#include "support/run_sample.h"

namespace kbundle::testing {
namespace {

constexpr size_t kIndexAt = sizeof(Header);

// One file in memory, used again and again.
std::string FileOf(const std::string& bytes) {
  static const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  KB_CHECK(ftruncate(fd, 0) == 0);
  KB_CHECK(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return "/proc/self/fd/" + std::to_string(fd);
}

// Its operands by their declarations: a symbol's size is a matter of its number.
ProblemSpec SpecOf(const fb::Op& op, bool optional) {
  constexpr std::array<int64_t, 5> kSizes = {4, 64, 8, 3, 128};
  ProblemSpec spec;
  const auto* operands = op.operands();
  for (uint32_t i = 0; operands != nullptr && i < operands->size(); ++i) {
    const fb::Tensor& operand = *operands->Get(i);
    TensorSpec tensor;
    tensor.present = optional || !operand.optional();
    const int param = operand.type()->param();
    tensor.dtype = static_cast<DType>(param >= 0 ? op.types()->Get(param)->dtypes()->Get(0)
                                                 : operand.type()->dtype());
    for (uint32_t d = 0; operand.dims() != nullptr && d < operand.dims()->size(); ++d) {
      const int symbol = operand.dims()->Get(d)->symbol();
      tensor.dims.push_back(symbol >= 0 ? kSizes[static_cast<size_t>(symbol) % kSizes.size()] : 64);
    }
    spec.operands.push_back(std::move(tensor));
  }
  return spec;
}

void UseVariants(const Bundle& bundle, const Problem& problem, const Device& device) {
  const auto* variants = IndexOf(bundle).variants();
  const RowRange range = VariantRowsOfOp(IndexOf(bundle), problem.op);
  constexpr uint32_t kMost = 24;
  for (uint32_t i = range.first; i < std::min(range.end, range.first + kMost); ++i) {
    if (variants->Get(i)->types() != problem.types) continue;
    for (int64_t alignment : {1, 16}) {
      (void)Resolve(bundle, problem, device, i, alignment).ok();
    }
    (void)bundle.VariantId(i);
  }
}

void UseOp(const std::shared_ptr<const Bundle>& bundle, const fb::Op& op, Runtime& runtime) {
  for (bool optional : {false, true}) {
    const auto problem = bundle->MakeProblem(op.name()->string_view(), SpecOf(op, optional));
    if (!problem.ok()) continue;
    for (const char* target : {"sm_90a", "sm_80", "x86-64-v3"}) {
      const Device device = *DeviceFromTargetName(target);
      (void)Select(*bundle, *problem, device).ok();
      (void)ExplainJson(*bundle, *problem, device);
      UseVariants(*bundle, *problem, device);
    }
    for (Device::Kind kind : {Device::Kind::kCuda, Device::Kind::kHost}) {
      (void)InferJson(*bundle, *problem, kind).ok();
      const auto plan = runtime.MakePlan(bundle, *problem, kind);
      if (!plan.ok() || kind == Device::Kind::kHost) continue;
      FakeAddresses addresses((*plan)->problem());
      (void)(*plan)->Launch(nullptr, addresses.args()).ok();
    }
  }
}

}  // namespace

void RepairHashes(std::string* bytes) {
  if (bytes->size() < kIndexAt) bytes->resize(kIndexAt);
  Header header;
  std::memcpy(&header, bytes->data(), sizeof header);
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.format_major = kFormatMajor;
  header.header_size = sizeof header;
  header.required_features &= kKnownFeatures;
  header.file_size = bytes->size();
  header.index_offset = kIndexAt;
  header.index_size = std::min<uint64_t>(header.index_size, bytes->size() - kIndexAt);
  const uint64_t hashes = PageCount(header.pages_size) * kPageHashBytes;
  if (header.pages_size > header.index_size || hashes > header.index_size - header.pages_size) {
    header.pages_size = 0;
  }
  header.required_features &= ~kFeaturePages;
  if (header.pages_size != 0) header.required_features |= kFeaturePages;
  std::memset(header.reserved, 0, sizeof header.reserved);
  std::memcpy(bytes->data(), &header, sizeof header);
  Rehash(bytes);
}

std::vector<std::string> FuzzSeeds(decltype(BundleMaker::write_index) write_index) {
  std::vector<std::string> seeds;
  for (BundleMaker maker : {SampleMaker(64), PlansMaker(), HostMaker({1, 2, 3}), RunMaker()}) {
    maker.write_index = write_index;
    seeds.push_back(maker.Bytes());
  }
  return seeds;
}

void ChangeNumbers(std::string* bytes, uint32_t seed) {
  const auto next = [&seed] { return (seed = seed * 1664525 + 1013904223) >> 8; };
  Header header;
  if (bytes->size() < kIndexAt + 8) return;
  std::memcpy(&header, bytes->data(), sizeof header);
  const uint64_t size = std::min<uint64_t>(header.index_size, bytes->size() - kIndexAt);
  if (size < 8) return;
  constexpr uint32_t kTelling[] = {0, 1, 2, 0xff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 64};
  for (uint32_t changes = 1 + next() % 4; changes > 0; --changes) {
    const uint32_t width = std::array<uint32_t, 3>{1, 2, 4}[next() % 3];
    char* at = bytes->data() + kIndexAt + next() % (size / width) * width;
    uint32_t value = 0;
    std::memcpy(&value, at, width);
    switch (next() % 5) {
      case 0:
        value += 1 + next() % 8;
        break;
      case 1:
        value -= 1 + next() % 8;
        break;
      case 2:
        value = kTelling[next() % std::size(kTelling)];
        break;
      case 3:
        value ^= 1u << next() % 32;
        break;
      default:  // a number of the same index, from elsewhere
        std::memcpy(&value, bytes->data() + kIndexAt + next() % (size / width) * width, width);
    }
    std::memcpy(at, &value, width);
  }
}

// Opened op by op, a bundle refuses in the end what it refuses at once, and until then gives answers.
void OpenToPlan::RunByOp(const std::string& path, bool sound) {
  const auto bundle = Bundle::Open(path, Checks::kByOp);
  KB_CHECK(bundle.ok() || !sound);
  if (!bundle.ok()) return;
  (void)DescribeJson(**bundle, "", Detail::kName).ok();
  const auto* ops = IndexOf(**bundle).ops();
  for (uint32_t i = 0; ops != nullptr && i < std::min(ops->size(), 8u); ++i) {
    const std::string name(OpName(IndexOf(**bundle), i));
    // Of what was not checked as a whole, each part by those who need it.
    if ((*bundle)->FindInterface(name).ok()) UseOp(*bundle, *ops->Get(i), runtime_);
    const bool works = (*bundle)->FindOp(name).ok();
    KB_CHECK(works || !sound);
    if (!works) continue;
    (void)DescribeJson(**bundle, name, Detail::kInterface).ok();
    UseOp(*bundle, *ops->Get(i), runtime_);
  }
  const auto* variants = IndexOf(**bundle).variants();
  for (uint32_t i = 0; variants != nullptr && i < std::min(variants->size(), 100u); ++i) {
    (void)(*bundle)->VariantId(i);
  }
  KB_CHECK((*bundle)->CheckIndex().ok() == sound);
}

bool OpenToPlan::Run(const std::string& bytes) {
  const std::string path = FileOf(bytes);
  const auto bundle = Bundle::Open(path);
  RunByOp(path, bundle.ok());
  if (!bundle.ok()) return false;
  (void)DescribeJson(**bundle, "", Detail::kWhole).ok();
  const auto* ops = IndexOf(**bundle).ops();
  for (uint32_t i = 0; ops != nullptr && i < std::min(ops->size(), 8u); ++i) {
    (void)DescribeJson(**bundle, ops->Get(i)->name()->str(), Detail::kWhole).ok();
    UseOp(*bundle, *ops->Get(i), runtime_);
  }
  const auto* blobs = IndexOf(**bundle).blobs();
  for (uint32_t i = 0; blobs != nullptr && i < std::min(blobs->size(), 4u); ++i) {
    (void)(*bundle)->ReadBlob(i).ok();
  }
  return true;
}

}  // namespace kbundle::testing
