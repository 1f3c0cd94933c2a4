// What cuBLASLt is told about a matrix product, without algorithm and addresses: for whoever asks
// which algorithms it may use. Launching needs none of this.
#ifndef KBUNDLE_PRODUCT_DESCRIPTORS_H_
#define KBUNDLE_PRODUCT_DESCRIPTORS_H_

#include <cstdint>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/cublaslt_api.h"
#include "kbundle/problem.h"
#include "kbundle/target.h"

namespace kbundle {

// a, b, c, d are cuBLASLt's: a is the bundle's b (loader/provider/cublaslt/matrix_product.h has
// the algebra).
struct ProductDescriptors {
  LtProductDesc desc;
  LtMatrixLayout a, b, c, d;
  int64_t workspace_bytes;  // of the region that the step names
  int64_t alignment;        // bytes that every address is a multiple of
};

// What cuBLASLt's heuristic names within the descriptors' workspace and alignment, best first, at
// most `wanted`. An error of cuBLASLt's is about the product.
Result<std::vector<LtHeuristicResult>> AskHeuristic(const CublasLtApi& lt, LtHandle handle,
                                                    const ProductDescriptors& product, int wanted);

// Of every product step that `variant` would enqueue for the problem with 16-byte aligned
// addresses. Errors as those of making a plan with it.
Result<std::vector<ProductDescriptors>> DescribeProducts(const CublasLtApi& lt,
                                                         const Bundle& bundle,
                                                         const Problem& problem,
                                                         const Device& device, uint32_t variant);

}  // namespace kbundle

#endif  // KBUNDLE_PRODUCT_DESCRIPTORS_H_
