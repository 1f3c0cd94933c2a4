// cuBLASLt as one table of functions, resolved at run time: nothing is linked, and a process that
// never asks for a matrix product never looks for the library.
//
// The types and numbers below are cuBLASLt's ABI. They are spelled out here, not taken from
// cublasLt.h, because a CUDA toolkit of Python wheels has no cuBLAS headers; where the header is
// there, a test compares every one of them with it.
#ifndef KBUNDLE_CUBLASLT_API_H_
#define KBUNDLE_CUBLASLT_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kbundle/status.h"

namespace kbundle {

// What cuBLASLt calls opaque structs: plain data, made in place by *Init, copied freely (no address
// of their own inside), without a destructor.
struct LtMatrixLayout {
  uint64_t data[8];
};
struct LtProductDesc {
  uint64_t data[32];
};
struct LtPreference {
  uint64_t data[8];
};
// One configured algorithm; may be stored, and used again with the same version of cuBLAS.
struct LtAlgorithm {
  uint64_t data[8];
};
struct LtHeuristicResult {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  int32_t status;
  float waves;
  int32_t reserved[4];
};
using LtHandle = void*;

enum LtStatus : int { kLtSuccess = 0, kLtNotInitialized = 1, kLtNotSupported = 15 };

// Of LtMatrixLayout.
enum LtLayoutAttribute : int { kLtLayoutBatchCount = 5, kLtLayoutBatchStride = 6 };

// Of LtProductDesc.
enum LtDescAttribute : int {
  kLtDescTransA = 3,
  kLtDescTransB = 4,
  kLtDescEpilogue = 7,
  kLtDescBias = 8,
  kLtDescBiasBatchStride = 10,
  kLtDescAux = 11,
  kLtDescAuxLeading = 12,
  kLtDescAuxBatchStride = 13,
  kLtDescAScale = 17,
  kLtDescBScale = 18,
  kLtDescCScale = 19,
  kLtDescDScale = 20,
  kLtDescAmaxD = 21,
  kLtDescAuxType = 22,
  kLtDescFastAccumulation = 25,
  kLtDescBiasType = 26,
};

// Epilogues are made of these bits; kLtEpilogueDefault stands alone.
enum LtEpilogue : uint32_t {
  kLtEpilogueDefault = 1,
  kLtEpilogueRelu = 2,
  kLtEpilogueBias = 4,
  kLtEpilogueReluGradient = 8,
  kLtEpilogueBiasGradient = 16,  // with the gradient of relu or gelu
  kLtEpilogueGelu = 32,
  kLtEpilogueGeluGradient = 64,
  kLtEpilogueAux = 128,
  kLtEpilogueBiasGradientA = 256,
  kLtEpilogueBiasGradientB = 512,
};

enum LtComputeType : int { kLtCompute32F = 68, kLtCompute64F = 70, kLtCompute32FFastTf32 = 77 };

enum LtDataType : int {
  kLt32F = 0,
  kLt64F = 1,
  kLt16F = 2,
  kLt16BF = 14,
  kLt8FE4M3 = 28,
  kLt8FE5M2 = 29,
};

enum LtPreferenceAttribute : int {
  kLtPreferenceWorkspace = 1,
  kLtPreferenceAlignmentA = 5,
  kLtPreferenceAlignmentB = 6,
  kLtPreferenceAlignmentC = 7,
  kLtPreferenceAlignmentD = 8,
};

// Least alignment that an algorithm needs of a matrix, in bytes.
enum LtCapability : int {
  kLtCapAlignmentA = 16,
  kLtCapAlignmentB = 17,
  kLtCapAlignmentC = 18,
  kLtCapAlignmentD = 19,
};

// What can be read of an algorithm. INNER and CLUSTER are 16 bits wide, the others 32.
enum LtConfig : int {
  kLtConfigId = 0,
  kLtConfigTile = 1,
  kLtConfigSplitK = 2,
  kLtConfigReduction = 3,
  kLtConfigSwizzle = 4,
  kLtConfigCustom = 5,
  kLtConfigStages = 6,
  kLtConfigInner = 7,
  kLtConfigCluster = 8,
};

struct CublasLtApi {
  const char* (*StatusName)(int) = nullptr;
  const char* (*StatusString)(int) = nullptr;
  size_t (*Version)() = nullptr;
  int (*Create)(LtHandle*) = nullptr;
  int (*LayoutInit)(LtMatrixLayout*, size_t, int type, uint64_t rows, uint64_t columns,
                    int64_t leading) = nullptr;
  int (*LayoutSet)(LtMatrixLayout*, int attribute, const void*, size_t) = nullptr;
  int (*DescInit)(LtProductDesc*, size_t, int compute_type, int scale_type) = nullptr;
  int (*DescSet)(LtProductDesc*, int attribute, const void*, size_t) = nullptr;
  int (*AlgorithmCheck)(LtHandle, const LtProductDesc*, const LtMatrixLayout* a,
                        const LtMatrixLayout* b, const LtMatrixLayout* c, const LtMatrixLayout* d,
                        const LtAlgorithm*, LtHeuristicResult*) = nullptr;
  int (*PreferenceInit)(LtPreference*, size_t) = nullptr;
  int (*PreferenceSet)(LtPreference*, int attribute, const void*, size_t) = nullptr;
  int (*AlgorithmHeuristic)(LtHandle, const LtProductDesc*, const LtMatrixLayout* a,
                            const LtMatrixLayout* b, const LtMatrixLayout* c,
                            const LtMatrixLayout* d, const LtPreference*, int wanted,
                            LtHeuristicResult*, int* found) = nullptr;
  int (*AlgorithmConfig)(const LtAlgorithm*, int attribute, void*, size_t, size_t*) = nullptr;
  int (*AlgorithmCapability)(const LtAlgorithm*, int attribute, void*, size_t, size_t*) = nullptr;
  int (*Multiply)(LtHandle, const LtProductDesc*, const void* alpha, const void* a,
                  const LtMatrixLayout*, const void* b, const LtMatrixLayout*, const void* beta,
                  const void* c, const LtMatrixLayout*, void* d, const LtMatrixLayout*,
                  const LtAlgorithm*, void* workspace, size_t workspace_bytes,
                  void* stream) = nullptr;
  // The rest of the library, for whoever also searches near its answers (kbundle algorithms).
  void* library = nullptr;

  // The process's libcublasLt: one that it has loaded already wins (version 13 before 12), else
  // libcublasLt.so.13 as the dynamic linker finds it. Once found it stays, never closed; safe from
  // any thread. kUnavailable: there is none, and what to install; kFailedPrecondition: which
  // function it lacks.
  static Result<const CublasLtApi*> Get();
  // For tests: what Get answers from now on, borrowed; null: the process's library again.
  static void Replace(const CublasLtApi* api);

  // OK, or "doing: CUBLAS_STATUS_X (15): text".
  Status Check(int status, const std::string& doing) const;
};

// "13.1.0" of 130100.
std::string CublasVersionText(uint64_t version);

}  // namespace kbundle

#endif  // KBUNDLE_CUBLASLT_API_H_
