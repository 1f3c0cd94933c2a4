// What makes one algorithm look better than it is: operands in the cache (so sets of them are
// rotated, twice the cache together), zeros that draw no power (so random bits of usual magnitude),
// and few or many launches a sample (so one number for all, fixed by the first). Only the ratios
// are used.
#include "builder/provider/cublaslt/bench.h"

#include <algorithm>
#include <random>

#include "builder/provider/cublaslt/function.h"

namespace kbundle::builder {
namespace {

// Of cublasLt.h: what a descriptor says of itself.
enum DescNumber : int { kDescScaleType = 1 };
enum LayoutNumber : int { kLayoutType = 0, kLayoutColumns = 3, kLayoutLeading = 4 };

constexpr double kSampleNanoseconds = 200e3;
constexpr int kMostLaunches = 32, kMostSets = 32;
constexpr int64_t kPatternBytes = 8 << 20;

template <typename Value>
Result<Value> Ask(const CublasLtApi& lt, const char* function, const void* of, int attribute) {
  using Getter = int (*)(const void*, int, void*, size_t, size_t*);
  Getter get = nullptr;
  KB_RETURN_IF_ERROR(FindFunction(lt, function, &get));
  Value value{};
  size_t written = 0;
  KB_RETURN_IF_ERROR(lt.Check(get(of, attribute, &value, sizeof value, &written), function));
  return value;
}

template <typename Value>
Result<Value> OfLayout(const CublasLtApi& lt, const LtMatrixLayout& layout, int attribute) {
  return Ask<Value>(lt, "cublasLtMatrixLayoutGetAttribute", &layout, attribute);
}

template <typename Value>
Result<Value> OfDesc(const CublasLtApi& lt, const LtProductDesc& desc, int attribute) {
  return Ask<Value>(lt, "cublasLtMatmulDescGetAttribute", &desc, attribute);
}

// Elements of 1/2 to 2 of either sign: sums neither overflow nor vanish, and their bits toggle as
// those of real data do, on which a GPU at its power limit depends.
struct Pattern {
  int bytes;       // of an element
  uint64_t keep;   // random bits: sign and mantissa, and the lowest of the exponent
  uint64_t fixed;  // the exponent's other bits, of 1/2
};

Pattern PatternOf(int type) {
  switch (type) {
    case kLt16BF:
      return {2, 0x80ff, 0x3f00};
    case kLt16F:
      return {2, 0x87ff, 0x3800};
    case kLt8FE4M3:
      return {1, 0x8f, 0x30};
    case kLt8FE5M2:
      return {1, 0x87, 0x38};
    case kLt64F:
      return {8, 0x801fffffffffffff, 0x3fe0000000000000};
    default:
      return {4, 0x80ffffff, 0x3f000000};
  }
}

std::vector<uint8_t> RandomNumbers(int type, int64_t bytes) {
  const Pattern pattern = PatternOf(type);
  std::vector<uint8_t> numbers(static_cast<size_t>(bytes));
  std::mt19937_64 random(1);
  for (size_t at = 0; at < numbers.size(); at += static_cast<size_t>(pattern.bytes)) {
    const uint64_t element = (random() & pattern.keep) | pattern.fixed;
    for (int byte = 0; byte < pattern.bytes; ++byte) {
      numbers[at + static_cast<size_t>(byte)] = static_cast<uint8_t>(element >> (8 * byte));
    }
  }
  return numbers;
}

}  // namespace

Result<std::unique_ptr<ProductBench>> ProductBench::Make(const CublasLtApi& lt, LtHandle handle,
                                                         const ProductDescriptors& product,
                                                         int64_t workspace, TuneDevice& device) {
  std::unique_ptr<ProductBench> bench(new ProductBench(lt, handle, product, workspace, device));
  KB_ASSIGN_OR_RETURN(const Matrix a, bench->Measure(product.a));
  KB_ASSIGN_OR_RETURN(const Matrix b, bench->Measure(product.b));
  KB_ASSIGN_OR_RETURN(const Matrix d, bench->Measure(product.d));
  KB_ASSIGN_OR_RETURN(const auto scale, OfDesc<int32_t>(lt, product.desc, kDescScaleType));
  bench->double_scale_ = scale == kLt64F;
  KB_ASSIGN_OR_RETURN(bench->workspace_, bench->Allocate(workspace));
  KB_RETURN_IF_ERROR(bench->MakeSets(a, b, d));
  KB_RETURN_IF_ERROR(bench->SetAddresses(d));
  return bench;
}

ProductBench::~ProductBench() {
  for (void* address : allocated_) device_.Free(address);
}

// Leading dimension x columns x batch covers every element that the layout can reach.
Result<ProductBench::Matrix> ProductBench::Measure(const LtMatrixLayout& layout) const {
  KB_ASSIGN_OR_RETURN(const auto type, OfLayout<uint32_t>(lt_, layout, kLayoutType));
  KB_ASSIGN_OR_RETURN(const auto columns, OfLayout<uint64_t>(lt_, layout, kLayoutColumns));
  KB_ASSIGN_OR_RETURN(const auto leading, OfLayout<int64_t>(lt_, layout, kLayoutLeading));
  KB_ASSIGN_OR_RETURN(const auto batch, OfLayout<int32_t>(lt_, layout, kLtLayoutBatchCount));
  KB_ASSIGN_OR_RETURN(const auto stride, OfLayout<int64_t>(lt_, layout, kLtLayoutBatchStride));
  const int64_t one = leading * static_cast<int64_t>(columns);
  const int size = PatternOf(static_cast<int>(type)).bytes;
  return Matrix{static_cast<int>(type), (one + std::max<int64_t>(0, stride) * (batch - 1)) * size};
}

Result<void*> ProductBench::Allocate(int64_t bytes) {
  KB_ASSIGN_OR_RETURN(void* address, device_.Allocate(bytes));
  allocated_.push_back(address);
  return address;
}

Status ProductBench::MakeSets(const Matrix& a, const Matrix& b, const Matrix& d) {
  const int64_t bytes = a.bytes + b.bytes + d.bytes;
  const int64_t past_cache = (2 * device_.cache_bytes() + bytes - 1) / bytes;
  for (int64_t i = 0; i < std::clamp<int64_t>(past_cache, 1, kMostSets); ++i) {
    Set set;
    KB_ASSIGN_OR_RETURN(set.a, Allocate(a.bytes));
    KB_ASSIGN_OR_RETURN(set.b, Allocate(b.bytes));
    KB_ASSIGN_OR_RETURN(set.d, Allocate(d.bytes));
    if (i == 0) {
      KB_RETURN_IF_ERROR(FillRandom(set.a, a));
      KB_RETURN_IF_ERROR(FillRandom(set.b, b));
    } else {
      KB_RETURN_IF_ERROR(device_.Copy(set.a, sets_[0].a, a.bytes));
      KB_RETURN_IF_ERROR(device_.Copy(set.b, sets_[0].b, b.bytes));
    }
    sets_.push_back(set);
  }
  return device_.Finish();
}

Status ProductBench::FillRandom(void* to, const Matrix& matrix) {
  const std::vector<uint8_t> numbers =
      RandomNumbers(matrix.type, std::min(matrix.bytes, kPatternBytes));
  for (int64_t at = 0; at < matrix.bytes; at += kPatternBytes) {
    KB_RETURN_IF_ERROR(device_.Upload(static_cast<char*>(to) + at, numbers.data(),
                                      std::min(kPatternBytes, matrix.bytes - at)));
  }
  return Status();
}

// Real memory in place of the placeholders: bias and aux have at most 4 bytes an element of D.
Status ProductBench::SetAddresses(const Matrix& d) {
  const int64_t wide = 4 * std::max<int64_t>(d.bytes, 4096);
  for (const auto attribute : {kLtDescBias, kLtDescAux, kLtDescAScale, kLtDescBScale, kLtDescCScale,
                               kLtDescDScale, kLtDescAmaxD}) {
    KB_ASSIGN_OR_RETURN(const auto placeholder, OfDesc<void*>(lt_, product_.desc, attribute));
    if (placeholder == nullptr) continue;
    const bool scalar = attribute != kLtDescBias && attribute != kLtDescAux;
    KB_ASSIGN_OR_RETURN(void* address, Allocate(scalar ? 256 : wide));
    const float one = 1;
    KB_RETURN_IF_ERROR(scalar ? device_.Upload(address, &one, sizeof one)
                              : device_.Fill(address, 0, wide));
    KB_RETURN_IF_ERROR(lt_.Check(lt_.DescSet(&product_.desc, attribute, &address, sizeof address),
                                 "giving a product its addresses"));
  }
  return device_.Finish();
}

Status ProductBench::Launch(const LtAlgorithm& algorithm, int number) {
  const float ones[] = {1, 0};
  const double wide_ones[] = {1, 0};
  const void* alpha = double_scale_ ? static_cast<const void*>(&wide_ones[0]) : &ones[0];
  const void* beta = double_scale_ ? static_cast<const void*>(&wide_ones[1]) : &ones[1];
  const Set& set = sets_[static_cast<size_t>(number) % sets_.size()];
  return lt_.Check(
      lt_.Multiply(handle_, &product_.desc, alpha, set.a, &product_.a, set.b, &product_.b, beta,
                   set.d, &product_.c, set.d, &product_.d, &algorithm, workspace_,
                   static_cast<size_t>(workspace_bytes_), device_.stream()),
      "multiplying");
}

Result<double> ProductBench::Time(const LtAlgorithm& algorithm, int samples) {
  const auto launch = [&](int number) { return Launch(algorithm, number); };
  if (launches_ == 0) {  // from the first algorithm on, so that all are timed alike
    KB_ASSIGN_OR_RETURN(const auto once, device_.Prepare(1, launch));
    KB_ASSIGN_OR_RETURN(const double nanoseconds, once->Run());
    launches_ = static_cast<int>(
        std::clamp<double>(kSampleNanoseconds / std::max(nanoseconds, 1.0), 1, kMostLaunches));
  }
  KB_ASSIGN_OR_RETURN(const auto timed, device_.Prepare(launches_, launch));
  std::vector<double> times;
  for (int i = 0; i < samples; ++i) {
    KB_ASSIGN_OR_RETURN(const double nanoseconds, timed->Run());
    times.push_back(nanoseconds / launches_);
  }
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace kbundle::builder
