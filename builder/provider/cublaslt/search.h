// Algorithms of cuBLASLt near those that its heuristic names, found by timing them on this GPU.
//
// The heuristic names a few settings by a model of the GPU. Where a product has few rows, the same
// tile with K in one piece, or with another cluster, is faster than all it names: on an H200,
// 8 x 4096 x 4096 of bf16 takes 10.7 us instead of 12.5. So of every tile that it names all cluster
// shapes and custom options are tried, K split as named and whole, as far as cuBLASLt's check takes
// them. What is found is only nominated: `kbundle tune` checks its numbers and decides.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUBLASLT_SEARCH_H_
#define KBUNDLE_BUILDER_PROVIDER_CUBLASLT_SEARCH_H_

#include <cstdint>
#include <vector>

#include "builder/device/device.h"
#include "builder/provider/cublaslt/algorithm_file.h"
#include "kbundle/cublaslt_api.h"
#include "kbundle/product_descriptors.h"
#include "kbundle/status.h"

namespace kbundle::builder {

Result<AlgorithmConfig> ConfigOf(const CublasLtApi& lt, const LtAlgorithm& algorithm);

// At most `wanted`, fastest first: of settings near `named` those that are faster than all of it,
// and need no more than `workspace` bytes. `named`: the heuristic's for this product, not empty.
Result<std::vector<LtHeuristicResult>> SearchNear(const CublasLtApi& lt, LtHandle handle,
                                                  const ProductDescriptors& product,
                                                  const std::vector<LtHeuristicResult>& named,
                                                  int wanted, int64_t workspace,
                                                  TuneDevice& device);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUBLASLT_SEARCH_H_
