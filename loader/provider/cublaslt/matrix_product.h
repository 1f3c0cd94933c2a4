// A product of matrices by cuBLASLt, with everything that does not depend on addresses decided when
// a plan is made:
//
//   made once                                          at a launch
//   ---------                                          -----------
//   descriptors, layouts, alpha, beta                  the addresses of a, b, c, d as arguments
//   the algorithm, checked against all of them   --->  bias, aux, scales: addresses that cuBLASLt
//                                                      keeps inside the descriptor, so they go into
//                                                      a copy of it (256 bytes) on the stack
//
// Row-major by swapping. cuBLASLt's matrices are column-major, and the same memory read that way is
// the transpose. So D = op(A) op(B), row-major M x N, is asked for as
//
//     D^T = op(B)^T op(A)^T        N x M, column-major: the very memory of D
//
//   cuBLASLt's   is our   it is transposed    rows x columns in memory order       leading dim
//   A            B        when B is           K x N, or N x K when not transposed  row to row of B
//   B            A        when A is           M x K, or K x M when not transposed  row to row of A
//   C, D         C, D     never               N x M                                row to row of D
//
// (B as K x N row-major is N x K column-major, which is op(B)^T already: no transpose.) Bias runs
// along cuBLASLt's rows, our N. Its "bias gradient of A" sums our B over K, giving N values; "of B"
// sums our A, giving M values. FP8 wants cuBLASLt's A transposed and B not: our B transposed, our A
// not.
#ifndef KBUNDLE_LOADER_MATRIX_PRODUCT_H_
#define KBUNDLE_LOADER_MATRIX_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kbundle/cublaslt_api.h"
#include "kbundle/product_descriptors.h"
#include "loader/provider/cublaslt/resolve_product.h"

namespace kbundle {

// kInvalidArgument: a dtype or an extent that cuBLASLt has no number for. Placeholders stand for
// the addresses inside, aligned like the real ones, as cuBLASLt's checks want to see.
Result<ProductDescriptors> Describe(const CublasLtApi& lt, const ResolvedProduct& product);

// The algorithm in a blob. kDataLoss: it is no algorithm; kFailedPrecondition: it is of another
// version of cuBLAS than this process runs (names both), so another variant may do.
Result<LtAlgorithm> ReadAlgorithm(const CublasLtApi& lt, std::span<const uint8_t> blob);

// One product, ready. A value; `lt` and the handle are borrowed for ever. Immutable, so safe in
// any number of threads and streams at once.
class MatrixProduct {
 public:
  // Checks the algorithm. kFailedPrecondition: cuBLASLt refuses it for this product, or it needs
  // more alignment than there is; kResourceExhausted: it asks for more workspace than the region.
  static Result<MatrixProduct> Make(const CublasLtApi& lt, LtHandle handle,
                                    const ResolvedProduct& product, const LtAlgorithm& algorithm);

  // With what cuBLASLt's heuristic answers about it, asked here and now (heuristic.cc).
  // kFailedPrecondition: nothing that it names can be used.
  static Result<MatrixProduct> MakeByHeuristic(const CublasLtApi& lt, LtHandle handle,
                                               const ResolvedProduct& product);

  const CublasLtApi& library() const { return *lt_; }
  // Enqueues; cuBLASLt's status. No allocation, no lock, no lookup of our own.
  int Enqueue(void* stream, const LaunchArgs& args) const;

 private:
  struct Address {
    LtDescAttribute attribute;
    Pointer pointer;
  };

  MatrixProduct(const CublasLtApi& lt, LtHandle handle) : lt_(&lt), handle_(handle) {}
  Status CheckAlgorithm(const ResolvedProduct& product);
  Status CheckAlignment(const ResolvedProduct& product) const;

  const CublasLtApi* lt_;
  LtHandle handle_;
  ProductDescriptors descriptors_{};
  LtAlgorithm algorithm_{};
  std::vector<Address> addresses_;  // that live in the descriptor
  Pointer a_, b_, c_, d_, workspace_;
  size_t workspace_bytes_ = 0;  // that the algorithm asks for, at most the region's size
  // In the scale type, which is float but for products of f64.
  union Scalar {
    float f32;
    double f64;
  } alpha_{}, beta_{};
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_MATRIX_PRODUCT_H_
