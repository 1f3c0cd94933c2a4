// The provider cublaslt in a bundle: what its own steps, products of matrices by cuBLASLt, hold.
// FORMAT.md says what follows from it.
#ifndef KBUNDLE_PROVIDER_CUBLASLT_H_
#define KBUNDLE_PROVIDER_CUBLASLT_H_

#include <cstdint>

namespace kbundle {

// The blob of its own steps: one configured algorithm of cuBLASLt, good for every problem
// that cuBLASLt's own check of it accepts.
struct StoredAlgorithm {
  uint64_t cublas_version;  // cublasLtGetVersion(): another version cannot read the algorithm
  uint64_t algorithm[8];    // cublasLtMatmulAlgo_t
  int32_t config[9];  // what cuBLASLt reads out of it, by cublasLtMatmulAlgoConfigAttributes_t
  int32_t reserved;   // zero
};
static_assert(sizeof(StoredAlgorithm) == 112);

// A product of matrices: D = alpha op(A) op(B) + beta C with an epilogue, as an own step.
//   args      a pointer for each ProductTensor, then alpha and beta (kFloat or kInteger); kind 0:
//             not named, of alpha 1, of beta 0
//   programs  one for each ProductNumber, then one for each ProductCondition; absent: the default
enum class ProductTensor : uint8_t {
  kD = 0,
  kA,
  kB,
  kC,
  kBias,
  kBiasGradient,
  kAux,  // the one that is present, of up to four
  kAux2,
  kAux3,
  kAux4,
  kAScale,
  kBScale,
  kCScale,
  kDScale,
  kDAmax,
  kWorkspace,
  kCount
};
enum class ProductNumber : uint8_t {
  kM = 0,
  kN,
  kK,
  kBatch,
  kLeadingA,
  kLeadingB,
  kLeadingC,
  kLeadingD,
  kLeadingAux,
  kStrideA,  // from one product of the batch to the next
  kStrideB,
  kStrideC,
  kStrideD,
  kStrideAux,
  kStrideBias,
  kCount
};
enum class ProductCondition : uint8_t {
  kTransposeA = 0,
  kTransposeB,
  kRelu,
  kGelu,
  kReluGradient,
  kGeluGradient,
  kBiasGradientOfA,
  kBiasGradientOfB,
  kTf32,
  kFastAccumulation,
  kCount
};

inline constexpr auto kProductTensors = static_cast<uint32_t>(ProductTensor::kCount);
inline constexpr auto kProductNumbers = static_cast<uint32_t>(ProductNumber::kCount);
inline constexpr auto kProductConditions = static_cast<uint32_t>(ProductCondition::kCount);
inline constexpr uint32_t kProductAlpha = kProductTensors, kProductBeta = kProductTensors + 1;
inline constexpr uint32_t kProductArgs = kProductTensors + 2;
inline constexpr uint32_t kProductPrograms = kProductNumbers + kProductConditions;

}  // namespace kbundle

#endif  // KBUNDLE_PROVIDER_CUBLASLT_H_
