// A manifest says which tensors may be there and when what holds; a problem decides. What cuBLASLt
// has no epilogue for is refused here by name, before a descriptor is made.
#include "loader/provider/cublaslt/resolve_product.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "kbundle/cublaslt_api.h"
#include "kbundle/provider/cublaslt.h"

namespace kbundle {
namespace {

using Matrix = ResolvedProduct::Matrix;

constexpr int64_t kMaskRow = 128;  // a row of relu's bit mask is a multiple of so many bits

class ProductResolver {
 public:
  ProductResolver(const fb::Step& step, const Resolver& resolver)
      : step_(step), resolver_(resolver) {}

  Result<ResolvedProduct> Run() {
    KB_RETURN_IF_ERROR(ReadConditions());
    out_.transpose_a = Is(ProductCondition::kTransposeA);
    out_.transpose_b = Is(ProductCondition::kTransposeB);
    out_.tf32 = Is(ProductCondition::kTf32);
    out_.fast_accumulation = Is(ProductCondition::kFastAccumulation);
    KB_RETURN_IF_ERROR(Number(ProductNumber::kM, "m", 0, &out_.m));
    KB_RETURN_IF_ERROR(Number(ProductNumber::kN, "n", 0, &out_.n));
    KB_RETURN_IF_ERROR(Number(ProductNumber::kK, "k", 0, &out_.k));
    KB_RETURN_IF_ERROR(Number(ProductNumber::kBatch, "batch", 1, &out_.batch));
    ReadTensors();
    KB_RETURN_IF_ERROR(ReadAux());
    KB_RETURN_IF_ERROR(ReadEpilogue());
    KB_RETURN_IF_ERROR(ReadLayouts());
    KB_RETURN_IF_ERROR(Scalar(kProductAlpha, "alpha", 1, &out_.alpha));
    KB_RETURN_IF_ERROR(Scalar(kProductBeta, "beta", 0, &out_.beta));
    out_.alignment = resolver_.alignment();
    return out_;
  }

 private:
  const fb::Arg& Arg(ProductTensor tensor) const {
    return *step_.args()->Get(static_cast<uint32_t>(tensor));
  }
  Pointer At(ProductTensor tensor) const { return resolver_.PointerOf(Arg(tensor)); }
  bool Is(ProductCondition condition) const { return is_[static_cast<size_t>(condition)]; }

  Status ReadConditions() {
    for (uint32_t i = 0; i < is_.size(); ++i) {
      const fb::Span& program = *step_.programs()->Get(kProductNumbers + i);
      if (program.count() == 0) continue;
      KB_ASSIGN_OR_RETURN(const int64_t value, resolver_.Eval(program, "a condition"));
      is_[i] = value != 0;
    }
    return Status();
  }

  Status Number(ProductNumber number, const char* what, int64_t otherwise, int64_t* out) const {
    const fb::Span& program = *step_.programs()->Get(static_cast<uint32_t>(number));
    *out = otherwise;
    if (program.count() == 0) return Status();
    KB_ASSIGN_OR_RETURN(*out, resolver_.Eval(program, what));
    if (*out >= 0) return Status();
    return OutOfRange(fmt::format("{} is {}, which is negative", what, *out));
  }

  Status Scalar(uint32_t place, const char* what, double otherwise, double* out) const {
    const fb::Arg& arg = *step_.args()->Get(place);
    *out = otherwise;
    if (arg.kind() == 0) return Status();
    if (static_cast<ArgKind>(arg.kind()) == ArgKind::kFloat) {
      *out = resolver_.FloatOf(arg);
      return Status();
    }
    KB_ASSIGN_OR_RETURN(const int64_t value, resolver_.Eval(*arg.program(), what));
    *out = static_cast<double>(value);
    return Status();
  }

  void ReadTensors() {
    const auto matrix = [this](ProductTensor tensor) {
      return Matrix{At(tensor), resolver_.DTypeOf(Arg(tensor)), 0, 0};
    };
    out_.a = matrix(ProductTensor::kA);
    out_.b = matrix(ProductTensor::kB);
    out_.c = matrix(ProductTensor::kC);
    out_.d = matrix(ProductTensor::kD);
    out_.bias = matrix(ProductTensor::kBias);
    out_.a_scale = At(ProductTensor::kAScale);
    out_.b_scale = At(ProductTensor::kBScale);
    out_.c_scale = At(ProductTensor::kCScale);
    out_.d_scale = At(ProductTensor::kDScale);
    out_.d_amax = At(ProductTensor::kDAmax);
    out_.workspace = At(ProductTensor::kWorkspace);
    if (Present(out_.workspace)) {
      out_.workspace_bytes = resolver_.BytesOf(Arg(ProductTensor::kWorkspace));
    }
  }

  Status ReadAux() {
    for (const ProductTensor tensor :
         {ProductTensor::kAux, ProductTensor::kAux2, ProductTensor::kAux3, ProductTensor::kAux4}) {
      const Pointer at = At(tensor);
      if (!Present(at)) continue;
      if (Present(out_.aux.at)) return NoEpilogue("two aux tensors");
      out_.aux = {at, resolver_.DTypeOf(Arg(tensor)), 0, 0};
    }
    return Status();
  }

  // The bits of cublasLtEpilogue_t: an activation or its gradient, with what stands beside it.
  Status ReadEpilogue() {
    const uint32_t forward = (Is(ProductCondition::kRelu) ? kLtEpilogueRelu : 0u) |
                             (Is(ProductCondition::kGelu) ? kLtEpilogueGelu : 0u);
    const uint32_t backward = (Is(ProductCondition::kReluGradient) ? kLtEpilogueReluGradient : 0u) |
                              (Is(ProductCondition::kGeluGradient) ? kLtEpilogueGeluGradient : 0u);
    const uint32_t activation = forward | backward;
    if ((activation & (activation - 1)) != 0) return NoEpilogue("several activations");
    uint32_t bits = activation;
    const bool aux = Present(out_.aux.at);
    if (aux && activation == 0) return NoEpilogue("aux without an activation");
    if (!aux && backward != 0) return NoEpilogue("an activation's gradient without aux");
    if (aux) bits |= kLtEpilogueAux;
    if (Present(out_.bias.at)) {
      if (backward != 0) return NoEpilogue("a bias beside an activation's gradient");
      bits |= kLtEpilogueBias;
    }
    KB_RETURN_IF_ERROR(AddBiasGradient(activation, backward, &bits));
    out_.epilogue = bits == 0 ? static_cast<uint32_t>(kLtEpilogueDefault) : bits;
    return Status();
  }

  // cuBLASLt's A is our B (matrix_product.h).
  Status AddBiasGradient(uint32_t activation, uint32_t backward, uint32_t* bits) {
    const Pointer gradient = At(ProductTensor::kBiasGradient);
    if (!Present(gradient)) return Status();
    if (Present(out_.bias.at)) return NoEpilogue("a bias and its gradient");
    const bool of_a = Is(ProductCondition::kBiasGradientOfA);
    const bool of_b = Is(ProductCondition::kBiasGradientOfB);
    if (of_a && of_b) return NoEpilogue("a bias gradient of both a and b");
    if ((of_a || of_b) && activation != 0) {
      return NoEpilogue("a bias gradient of a or b beside an activation");
    }
    if (!of_a && !of_b && backward == 0) {
      return NoEpilogue("a bias gradient of d without an activation's gradient");
    }
    *bits |= of_a   ? kLtEpilogueBiasGradientB
             : of_b ? kLtEpilogueBiasGradientA
                    : kLtEpilogueBiasGradient;
    out_.bias = {gradient, resolver_.DTypeOf(Arg(ProductTensor::kBiasGradient)), 0, 0};
    return Status();
  }

  static Status NoEpilogue(const char* what) {
    return FailedPrecondition(fmt::format(
        "cuBLASLt has no epilogue of {}: keep such problems from the variant with `when`", what));
  }

  // Dense where nothing is said.
  Status ReadLayouts() {
    const int64_t m = out_.m, n = out_.n, k = out_.k;
    const int64_t a_columns = out_.transpose_a ? m : k, b_columns = out_.transpose_b ? k : n;
    KB_RETURN_IF_ERROR(Layout(&out_.a, ProductNumber::kLeadingA, ProductNumber::kStrideA, "a",
                              out_.transpose_a ? k : m, a_columns));
    KB_RETURN_IF_ERROR(Layout(&out_.b, ProductNumber::kLeadingB, ProductNumber::kStrideB, "b",
                              out_.transpose_b ? n : k, b_columns));
    KB_RETURN_IF_ERROR(
        Layout(&out_.c, ProductNumber::kLeadingC, ProductNumber::kStrideC, "c", m, n));
    KB_RETURN_IF_ERROR(
        Layout(&out_.d, ProductNumber::kLeadingD, ProductNumber::kStrideD, "d", m, n));
    if (Present(out_.aux.at)) {
      const bool mask = Is(ProductCondition::kRelu) || Is(ProductCondition::kReluGradient);
      const int64_t row = mask ? (n + kMaskRow - 1) / kMaskRow * kMaskRow : n;
      KB_RETURN_IF_ERROR(
          Layout(&out_.aux, ProductNumber::kLeadingAux, ProductNumber::kStrideAux, "aux", m, row));
    }
    return Number(ProductNumber::kStrideBias, "stride_bias", 0, &out_.bias.batch_stride);
  }

  Status Layout(Matrix* matrix, ProductNumber leading, ProductNumber stride, const char* what,
                int64_t rows, int64_t columns) const {
    KB_RETURN_IF_ERROR(
        Number(leading, fmt::format("ld_{}", what).c_str(), columns, &matrix->leading));
    int64_t dense = 0;
    if (__builtin_mul_overflow(rows, matrix->leading, &dense)) {
      return OutOfRange(fmt::format("{} rows of {}, {} elements apart, overflow 64 bits", rows,
                                    what, matrix->leading));
    }
    return Number(stride, fmt::format("stride_{}", what).c_str(), dense, &matrix->batch_stride);
  }

  const fb::Step& step_;
  const Resolver& resolver_;
  ResolvedProduct out_;
  std::array<bool, kProductConditions> is_{};
};

}  // namespace

Result<ResolvedProduct> ResolveProduct(const fb::Step& step, const Resolver& resolver) {
  return ProductResolver(step, resolver).Run();
}

}  // namespace kbundle
