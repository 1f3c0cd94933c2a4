// The algebra is in the header. cuBLASLt's check of an algorithm is trusted for all but alignment,
// which it leaves out; what it refuses is an answer about this problem, so another variant may do.
#include "loader/provider/cublaslt/matrix_product.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "kbundle/provider/cublaslt.h"
#include "loader/plan/addresses.h"

namespace kbundle {
namespace {

using Matrix = ResolvedProduct::Matrix;

Result<int> DataType(DType dtype, const char* what) {
  switch (dtype) {
    case DType::kF16:
      return static_cast<int>(kLt16F);
    case DType::kBF16:
      return static_cast<int>(kLt16BF);
    case DType::kF32:
      return static_cast<int>(kLt32F);
    case DType::kF64:
      return static_cast<int>(kLt64F);
    case DType::kE4M3:
      return static_cast<int>(kLt8FE4M3);
    case DType::kE5M2:
      return static_cast<int>(kLt8FE5M2);
    default:
      return InvalidArgument(fmt::format(
          "{} of a product is {}, cuBLASLt takes f16, bf16, f32, f64, e4m3, e5m2: restrict the "
          "variant's types",
          what, Name(dtype)));
  }
}

bool IsFp8(DType dtype) { return dtype == DType::kE4M3 || dtype == DType::kE5M2; }

int ComputeType(const ResolvedProduct& product) {
  if (product.a.dtype == DType::kF64) return kLtCompute64F;
  const bool rounds = product.tf32 && product.a.dtype == DType::kF32;
  return rounds ? kLtCompute32FFastTf32 : kLtCompute32F;
}

// A matrix of `rows` rows of `columns` elements, as cuBLASLt sees that memory.
Status InitLayout(const CublasLtApi& lt, const char* what, const Matrix& matrix, DType dtype,
                  int64_t rows, int64_t columns, int64_t batch, LtMatrixLayout* layout) {
  std::memset(layout, 0, sizeof *layout);
  if (matrix.leading < columns) {
    return InvalidArgument(fmt::format("rows of {} are {} elements apart, but have {}", what,
                                       matrix.leading, columns));
  }
  KB_ASSIGN_OR_RETURN(const int type, DataType(dtype, what));
  const std::string doing = fmt::format("describing {} to cuBLASLt", what);
  KB_RETURN_IF_ERROR(
      lt.Check(lt.LayoutInit(layout, sizeof *layout, type, columns, rows, matrix.leading), doing));
  if (batch == 1) return Status();
  const auto count = static_cast<int32_t>(batch);
  KB_RETURN_IF_ERROR(
      lt.Check(lt.LayoutSet(layout, kLtLayoutBatchCount, &count, sizeof count), doing));
  return lt.Check(
      lt.LayoutSet(layout, kLtLayoutBatchStride, &matrix.batch_stride, sizeof matrix.batch_stride),
      doing);
}

// What cuBLASLt documents for sums in float32 or float64. Of others its heuristic and its check say
// yes all the same: a float32 product into bfloat16 writes float32, past the end of d.
Status CheckDtypes(const ResolvedProduct& product) {
  const DType a = product.a.dtype, b = product.b.dtype, d = product.d.dtype;
  const bool wide = a == DType::kF32 || a == DType::kF64, fp8 = IsFp8(a) && IsFp8(b);
  const bool factors = fp8 ? a != DType::kE5M2 || b != DType::kE5M2 : a == b;
  const bool result = fp8 ? d != DType::kF64 : wide ? d == a : d == a || d == DType::kF32;
  if (factors && result) return Status();
  return InvalidArgument(fmt::format(
      "a product of {} and {} into {}: cuBLASLt multiplies two of one type into that type, or of "
      "16 bits into f32, and FP8 but e5m2 by e5m2: restrict the variant's types, by `keep`",
      Name(a), Name(b), Name(d)));
}

Status CheckExtents(const ResolvedProduct& product) {
  for (const int64_t extent : {product.m, product.n, product.k, product.batch}) {
    if (extent >= 1 && extent <= std::numeric_limits<int32_t>::max()) continue;
    return InvalidArgument(fmt::format(
        "a product of {} x {} x {}, batch {}: cuBLASLt takes 1 to 2147483647 of each: use another "
        "variant",
        product.m, product.n, product.k, product.batch));
  }
  return Status();
}

// Sets attributes of a descriptor until one fails.
class DescWriter {
 public:
  DescWriter(const CublasLtApi& lt, LtProductDesc* desc) : lt_(lt), desc_(desc) {}

  template <typename T>
  void Set(LtDescAttribute attribute, T value) {
    if (status_ == kLtSuccess) status_ = lt_.DescSet(desc_, attribute, &value, sizeof value);
  }
  // Something that is aligned like the address to come.
  void Placeholder(LtDescAttribute attribute, const Pointer& pointer, int64_t alignment) {
    constexpr uintptr_t kAnywhere = uintptr_t{1} << 32;
    const auto address = kAnywhere + static_cast<uintptr_t>(alignment);
    if (Present(pointer)) Set(attribute, reinterpret_cast<void*>(address));
  }
  int status() const { return status_; }

 private:
  const CublasLtApi& lt_;
  LtProductDesc* desc_;
  int status_ = kLtSuccess;
};

struct Named {
  LtDescAttribute attribute;
  Pointer ResolvedProduct::*pointer;
};
constexpr Named kScales[] = {{kLtDescAScale, &ResolvedProduct::b_scale},
                             {kLtDescBScale, &ResolvedProduct::a_scale},
                             {kLtDescCScale, &ResolvedProduct::c_scale},
                             {kLtDescDScale, &ResolvedProduct::d_scale},
                             {kLtDescAmaxD, &ResolvedProduct::d_amax}};

Status DescribeEpilogue(const ResolvedProduct& product, DescWriter& writer) {
  writer.Set(kLtDescEpilogue, product.epilogue);
  if (Present(product.bias.at)) {
    KB_ASSIGN_OR_RETURN(const int type, DataType(product.bias.dtype, "the bias"));
    writer.Placeholder(kLtDescBias, product.bias.at, product.alignment);
    writer.Set(kLtDescBiasType, int32_t{type});
    if (product.batch > 1) writer.Set(kLtDescBiasBatchStride, product.bias.batch_stride);
  }
  if (Present(product.aux.at)) {
    writer.Placeholder(kLtDescAux, product.aux.at, product.alignment);
    writer.Set(kLtDescAuxLeading, product.aux.leading);
    if (product.batch > 1) writer.Set(kLtDescAuxBatchStride, product.aux.batch_stride);
    // A bit mask has no type.
    constexpr uint32_t kOfGelu = kLtEpilogueGelu | kLtEpilogueGeluGradient;
    if ((product.epilogue & kOfGelu) != 0) {
      KB_ASSIGN_OR_RETURN(const int type, DataType(product.aux.dtype, "aux"));
      writer.Set(kLtDescAuxType, int32_t{type});
    }
  }
  return Status();
}

Status DescribeOperation(const CublasLtApi& lt, const ResolvedProduct& product,
                         LtProductDesc* desc) {
  std::memset(desc, 0, sizeof *desc);
  const int scale_type = product.a.dtype == DType::kF64 ? kLt64F : kLt32F;
  constexpr char kDoing[] = "describing a product to cuBLASLt";
  KB_RETURN_IF_ERROR(
      lt.Check(lt.DescInit(desc, sizeof *desc, ComputeType(product), scale_type), kDoing));
  DescWriter writer(lt, desc);
  // Swapped: see the header.
  writer.Set(kLtDescTransA, int32_t{product.transpose_b});
  writer.Set(kLtDescTransB, int32_t{product.transpose_a});
  KB_RETURN_IF_ERROR(DescribeEpilogue(product, writer));
  for (const Named& scale : kScales) {
    writer.Placeholder(scale.attribute, product.*scale.pointer, product.alignment);
  }
  if (product.fast_accumulation) writer.Set(kLtDescFastAccumulation, int8_t{1});
  return lt.Check(writer.status(), kDoing);
}

}  // namespace

Result<ProductDescriptors> Describe(const CublasLtApi& lt, const ResolvedProduct& product) {
  KB_RETURN_IF_ERROR(CheckExtents(product));
  KB_RETURN_IF_ERROR(CheckDtypes(product));
  ProductDescriptors result;
  result.workspace_bytes = product.workspace_bytes;
  result.alignment = product.alignment;
  KB_RETURN_IF_ERROR(DescribeOperation(lt, product, &result.desc));
  const int64_t m = product.m, n = product.n, k = product.k, batch = product.batch;
  KB_RETURN_IF_ERROR(InitLayout(lt, "b", product.b, product.b.dtype, product.transpose_b ? n : k,
                                product.transpose_b ? k : n, batch, &result.a));
  KB_RETURN_IF_ERROR(InitLayout(lt, "a", product.a, product.a.dtype, product.transpose_a ? k : m,
                                product.transpose_a ? m : k, batch, &result.b));
  KB_RETURN_IF_ERROR(InitLayout(lt, "d", product.d, product.d.dtype, m, n, batch, &result.d));
  // Without a C, D stands in for it, read by nobody; but C cannot be FP8.
  const bool own = Present(product.c.at);
  const DType type = own                      ? product.c.dtype
                     : IsFp8(product.d.dtype) ? DType::kBF16
                                              : product.d.dtype;
  KB_RETURN_IF_ERROR(
      InitLayout(lt, "c", own ? product.c : product.d, type, m, n, batch, &result.c));
  return result;
}

Result<LtAlgorithm> ReadAlgorithm(const CublasLtApi& lt, std::span<const uint8_t> blob) {
  StoredAlgorithm stored;
  if (blob.size() != sizeof stored) {
    return DataLoss(fmt::format("an algorithm of {} bytes, it has {}: rebuild the bundle",
                                blob.size(), sizeof stored));
  }
  std::memcpy(&stored, blob.data(), sizeof stored);
  const uint64_t live = lt.Version();
  if (stored.cublas_version != live) {
    return FailedPrecondition(
        fmt::format("the algorithm is for cuBLAS {}, this process has {}: install nvidia-cublas "
                    "{}, or list the algorithms of {} and rebuild the bundle",
                    CublasVersionText(stored.cublas_version), CublasVersionText(live),
                    CublasVersionText(stored.cublas_version), CublasVersionText(live)));
  }
  LtAlgorithm algorithm;
  std::memcpy(algorithm.data, stored.algorithm, sizeof algorithm.data);
  for (int i = kLtConfigId; i <= kLtConfigCluster; ++i) {
    int32_t value = 0;  // little-endian, so that 16 bits fill its lower half
    const size_t size = i >= kLtConfigInner ? sizeof(uint16_t) : sizeof(int32_t);
    size_t written = 0;
    const int status = lt.AlgorithmConfig(&algorithm, i, &value, size, &written);
    if (status == kLtSuccess && value == stored.config[i]) continue;
    return DataLoss(
        fmt::format("cuBLASLt reads setting {} of the algorithm as {} (status {}), the bundle says "
                    "{}: rebuild the bundle",
                    i, value, status, stored.config[i]));
  }
  return algorithm;
}

Result<MatrixProduct> MatrixProduct::Make(const CublasLtApi& lt, LtHandle handle,
                                          const ResolvedProduct& product,
                                          const LtAlgorithm& algorithm) {
  MatrixProduct result(lt, handle);
  KB_ASSIGN_OR_RETURN(result.descriptors_, Describe(lt, product));
  result.algorithm_ = algorithm;
  KB_RETURN_IF_ERROR(result.CheckAlgorithm(product));
  result.a_ = product.a.at;
  result.b_ = product.b.at;
  result.d_ = product.d.at;
  result.c_ = Present(product.c.at) ? product.c.at : product.d.at;
  result.workspace_ = product.workspace;
  const auto add = [&result](LtDescAttribute attribute, const Pointer& pointer) {
    if (Present(pointer)) result.addresses_.push_back({attribute, pointer});
  };
  add(kLtDescBias, product.bias.at);
  add(kLtDescAux, product.aux.at);
  for (const Named& scale : kScales) add(scale.attribute, product.*scale.pointer);
  const double beta = Present(product.c.at) ? product.beta : 0;
  if (product.a.dtype == DType::kF64) {
    result.alpha_.f64 = product.alpha;
    result.beta_.f64 = beta;
  } else {
    result.alpha_.f32 = static_cast<float>(product.alpha);
    result.beta_.f32 = static_cast<float>(beta);
  }
  return result;
}

Status MatrixProduct::CheckAlgorithm(const ResolvedProduct& product) {
  LtHeuristicResult found{};
  const int status =
      lt_->AlgorithmCheck(handle_, &descriptors_.desc, &descriptors_.a, &descriptors_.b,
                          &descriptors_.c, &descriptors_.d, &algorithm_, &found);
  if (status != kLtSuccess) {
    Status refused = lt_->Check(
        status, fmt::format("checking the algorithm for a product of {} x {} x {}, batch {}",
                            product.m, product.n, product.k, product.batch));
    // Whatever it says, the answer is about this problem; another variant may do.
    return FailedPrecondition(refused.message());
  }
  if (found.workspace_bytes > static_cast<size_t>(product.workspace_bytes)) {
    return ResourceExhausted(
        fmt::format("the algorithm needs {} bytes of workspace here, its region has {}",
                    found.workspace_bytes, product.workspace_bytes));
  }
  workspace_bytes_ = found.workspace_bytes;
  return CheckAlignment(product);
}

// cuBLASLt's check leaves this out: what the algorithm needs of addresses and of the bytes between
// rows and between products of the batch.
Status MatrixProduct::CheckAlignment(const ResolvedProduct& product) const {
  const Matrix& c = Present(product.c.at) ? product.c : product.d;
  const std::pair<int, const Matrix*> needs[] = {{kLtCapAlignmentA, &product.b},
                                                 {kLtCapAlignmentB, &product.a},
                                                 {kLtCapAlignmentC, &c},
                                                 {kLtCapAlignmentD, &product.d}};
  for (const auto& [capability, matrix] : needs) {
    uint32_t needed = 0;
    size_t written = 0;
    const int status =
        lt_->AlgorithmCapability(&algorithm_, capability, &needed, sizeof needed, &written);
    KB_RETURN_IF_ERROR(lt_->Check(status, "asking which alignment the algorithm needs"));
    if (needed == 0) continue;
    const int64_t element = SizeOf(matrix->dtype);
    const int64_t between = product.batch > 1 ? matrix->batch_stride * element : 0;
    const int64_t least = std::gcd(std::gcd(product.alignment, matrix->leading * element), between);
    if (least % needed == 0) continue;
    return FailedPrecondition(
        fmt::format("the algorithm needs addresses and rows aligned to {} bytes, here they are to "
                    "{}: say so in the variant's `when`",
                    needed, least));
  }
  return Status();
}

int MatrixProduct::Enqueue(void* stream, const LaunchArgs& args) const {
  const LtProductDesc* desc = &descriptors_.desc;
  LtProductDesc own;  // not initialized: costs nothing where there are no addresses inside
  if (!addresses_.empty()) {
    own = descriptors_.desc;
    for (const Address& address : addresses_) {
      const void* at = address.pointer.At(args);
      const int status = lt_->DescSet(&own, address.attribute, &at, sizeof at);
      if (status != kLtSuccess) [[unlikely]]
        return status;
    }
    desc = &own;
  }
  return lt_->Multiply(handle_, desc, &alpha_, b_.At(args), &descriptors_.a, a_.At(args),
                       &descriptors_.b, &beta_, c_.At(args), &descriptors_.c, d_.At(args),
                       &descriptors_.d, &algorithm_, workspace_.At(args), workspace_bytes_, stream);
}

Result<std::vector<ProductDescriptors>> DescribeProducts(const CublasLtApi& lt,
                                                         const Bundle& bundle,
                                                         const Problem& problem,
                                                         const Device& device, uint32_t variant) {
  KB_ASSIGN_OR_RETURN(const Resolution resolution,
                      Resolve(bundle, problem, device, variant, kVectorAlignment));
  std::vector<ProductDescriptors> result;
  for (const ResolvedStep& step : resolution.steps) {
    if (step.own == nullptr) continue;
    KB_ASSIGN_OR_RETURN(const ProductDescriptors descriptors, Describe(lt, ProductStep::Of(step)));
    result.push_back(descriptors);
  }
  return result;
}

}  // namespace kbundle
