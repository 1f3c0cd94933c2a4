// A product of matrices as a manifest describes it.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUBLASLT_PRODUCT_H_
#define KBUNDLE_BUILDER_PROVIDER_CUBLASLT_PRODUCT_H_

#include <optional>
#include <string>
#include <vector>

#include "builder/model/step.h"
#include "builder/model/variant.h"

namespace kbundle::builder {

// A product of matrices by cuBLASLt.
struct Product : ProviderPart {
  std::vector<std::optional<Arg>> tensors;   // by ProductTensor
  std::vector<Program> numbers, conditions;  // by ProductNumber, ProductCondition; may be empty
  std::optional<Arg> alpha, beta;            // kFloat or kInteger
};

// What a variant of provider cublaslt keeps.
struct AlgorithmKeys : ProviderPart {
  std::string folder;      // of its algorithms, as written, relative to the manifest
  bool heuristic = false;  // what no record names is asked for where it runs
};

inline const Product& ProductOf(const Step& step) { return static_cast<const Product&>(*step.own); }
inline const AlgorithmKeys& AlgorithmKeysOf(const Template& variant) {
  return static_cast<const AlgorithmKeys&>(*variant.own);
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUBLASLT_PRODUCT_H_
