// Promise: what the loader spells out of cuBLASLt's ABI is what cuBLASLt's own header says, where
// there is one.
#include <gtest/gtest.h>

#include "kbundle/cublaslt_api.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace kbundle {
namespace {

static_assert(sizeof(LtMatrixLayout) == sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(LtProductDesc) == sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(LtPreference) == sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtHeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(LtHeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(LtHeuristicResult, status) ==
              offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(LtHeuristicResult, waves) ==
              offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

struct Pair {
  int64_t ours, theirs;
};

TEST(CublasLtHeader, HasTheLoadersNumbers) {
  const Pair pairs[] = {
      {kLtSuccess, CUBLAS_STATUS_SUCCESS},
      {kLtNotInitialized, CUBLAS_STATUS_NOT_INITIALIZED},
      {kLtNotSupported, CUBLAS_STATUS_NOT_SUPPORTED},
      {kLtLayoutBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT},
      {kLtLayoutBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET},
      {kLtDescTransA, CUBLASLT_MATMUL_DESC_TRANSA},
      {kLtDescTransB, CUBLASLT_MATMUL_DESC_TRANSB},
      {kLtDescEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE},
      {kLtDescBias, CUBLASLT_MATMUL_DESC_BIAS_POINTER},
      {kLtDescBiasBatchStride, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE},
      {kLtDescAux, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER},
      {kLtDescAuxLeading, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD},
      {kLtDescAuxBatchStride, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE},
      {kLtDescAScale, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER},
      {kLtDescBScale, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER},
      {kLtDescCScale, CUBLASLT_MATMUL_DESC_C_SCALE_POINTER},
      {kLtDescDScale, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER},
      {kLtDescAmaxD, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER},
      {kLtDescAuxType, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE},
      {kLtDescFastAccumulation, CUBLASLT_MATMUL_DESC_FAST_ACCUM},
      {kLtDescBiasType, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE},
      {kLtCompute32F, CUBLAS_COMPUTE_32F},
      {kLtCompute64F, CUBLAS_COMPUTE_64F},
      {kLtCompute32FFastTf32, CUBLAS_COMPUTE_32F_FAST_TF32},
      {kLt32F, CUDA_R_32F},
      {kLt64F, CUDA_R_64F},
      {kLt16F, CUDA_R_16F},
      {kLt16BF, CUDA_R_16BF},
      {kLt8FE4M3, CUDA_R_8F_E4M3},
      {kLt8FE5M2, CUDA_R_8F_E5M2},
      {kLtPreferenceWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES},
      {kLtPreferenceAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES},
      {kLtPreferenceAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES},
      {kLtPreferenceAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES},
      {kLtPreferenceAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES},
      {kLtCapAlignmentA, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES},
      {kLtCapAlignmentB, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES},
      {kLtCapAlignmentC, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES},
      {kLtCapAlignmentD, CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES},
      {kLtConfigId, CUBLASLT_ALGO_CONFIG_ID},
      {kLtConfigTile, CUBLASLT_ALGO_CONFIG_TILE_ID},
      {kLtConfigSplitK, CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
      {kLtConfigReduction, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME},
      {kLtConfigSwizzle, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING},
      {kLtConfigCustom, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION},
      {kLtConfigStages, CUBLASLT_ALGO_CONFIG_STAGES_ID},
      {kLtConfigInner, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID},
      {kLtConfigCluster, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID},
  };
  for (size_t i = 0; i < std::size(pairs); ++i) EXPECT_EQ(pairs[i].ours, pairs[i].theirs) << i;
}

TEST(CublasLtHeader, MakesItsEpiloguesOfTheLoadersBits) {
  const uint32_t relu = kLtEpilogueRelu, gelu = kLtEpilogueGelu, aux = kLtEpilogueAux,
                 bias = kLtEpilogueBias, gradient = kLtEpilogueBiasGradient;
  const uint32_t drelu = kLtEpilogueReluGradient | aux, dgelu = kLtEpilogueGeluGradient | aux;
  const Pair pairs[] = {
      {kLtEpilogueDefault, CUBLASLT_EPILOGUE_DEFAULT},
      {bias, CUBLASLT_EPILOGUE_BIAS},
      {relu, CUBLASLT_EPILOGUE_RELU},
      {relu | bias, CUBLASLT_EPILOGUE_RELU_BIAS},
      {relu | aux, CUBLASLT_EPILOGUE_RELU_AUX},
      {relu | aux | bias, CUBLASLT_EPILOGUE_RELU_AUX_BIAS},
      {gelu, CUBLASLT_EPILOGUE_GELU},
      {gelu | bias, CUBLASLT_EPILOGUE_GELU_BIAS},
      {gelu | aux, CUBLASLT_EPILOGUE_GELU_AUX},
      {gelu | aux | bias, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
      {drelu, CUBLASLT_EPILOGUE_DRELU},
      {drelu | gradient, CUBLASLT_EPILOGUE_DRELU_BGRAD},
      {dgelu, CUBLASLT_EPILOGUE_DGELU},
      {dgelu | gradient, CUBLASLT_EPILOGUE_DGELU_BGRAD},
      {kLtEpilogueBiasGradientA, CUBLASLT_EPILOGUE_BGRADA},
      {kLtEpilogueBiasGradientB, CUBLASLT_EPILOGUE_BGRADB},
  };
  for (size_t i = 0; i < std::size(pairs); ++i) EXPECT_EQ(pairs[i].ours, pairs[i].theirs) << i;
}

}  // namespace
}  // namespace kbundle
#else
TEST(CublasLtHeader, HasTheLoadersNumbers) { GTEST_SKIP() << "no cublasLt.h beside cuda.h"; }
#endif
