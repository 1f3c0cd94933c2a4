// A product in numbers: its programs evaluated, what it leaves out filled in, its epilogue put
// together from what is asked for and what is present.
#ifndef KBUNDLE_LOADER_RESOLVE_PRODUCT_H_
#define KBUNDLE_LOADER_RESOLVE_PRODUCT_H_

#include <cstdint>

#include "kbundle/bundle_generated.h"
#include "loader/resolve/resolve.h"
#include "loader/resolve/resolver.h"

namespace kbundle {

// D = alpha op(A) op(B) + beta C with an epilogue, batched. Matrices are row-major: op(A) is M x K,
// op(B) K x N, C and D M x N; leading and strides are in elements (bits where aux is a bit mask).
struct ResolvedProduct {
  struct Matrix {
    Pointer at;  // kNull: absent
    DType dtype = DType::kInvalid;
    int64_t leading = 0;       // from a row as it lies in memory to the next
    int64_t batch_stride = 0;  // 0: every product of the batch reads the same
    bool operator==(const Matrix&) const = default;
  };
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;  // A lies as K x M, B as N x K
  Matrix a, b, c, d;
  Matrix aux;   // before the activation; a bit mask for relu
  Matrix bias;  // N values added to every row, or their gradient; leading is not used
  Pointer a_scale, b_scale, c_scale, d_scale, d_amax;  // f32 scalars
  uint32_t epilogue = 1;                               // cublasLtEpilogue_t
  bool tf32 = false;                                   // f32 operands may be rounded to TF32
  bool fast_accumulation = false;
  double alpha = 1, beta = 0;
  Pointer workspace;
  int64_t workspace_bytes = 0;
  int64_t alignment = 1;  // of every address
  bool operator==(const ResolvedProduct&) const = default;
};

inline bool Present(const Pointer& pointer) { return pointer.from != Pointer::From::kNull; }

// What ResolvedStep::own is of a step of provider cublaslt.
class ProductStep final : public OwnStep {
 public:
  explicit ProductStep(const ResolvedProduct& product) : product_(product) {}
  const ResolvedProduct& product() const { return product_; }
  bool Equals(const OwnStep& other) const override {
    return product_ == static_cast<const ProductStep&>(other).product_;
  }
  static const ResolvedProduct& Of(const ResolvedStep& step) {
    return static_cast<const ProductStep&>(*step.own).product();
  }

 private:
  const ResolvedProduct product_;
};

// kOutOfRange: an expression failed, or an extent is negative. kFailedPrecondition: this problem
// wants an epilogue that cuBLASLt does not have.
Result<ResolvedProduct> ResolveProduct(const fb::Step& step, const Resolver& resolver);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_RESOLVE_PRODUCT_H_
