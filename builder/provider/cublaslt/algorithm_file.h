// Algorithms of cuBLASLt as files: what its heuristic answered on a GPU and what was found to be
// faster there, one JSON line a problem and candidate, committed beside the manifest as
// algorithms/<device>.jsonl and read like code.
//
//   {"op": "dense.product", "variant": "cublaslt", "types": ["bf16"], "problem": {..}, "rank": 0,
//    "target": "sm_90a", "device": {"name": "NVIDIA H200", "sm_count": 132}, "cublas": 130100,
//    "config": {"ID": 66, "TILE": 20, ..}, "workspace": 0, "limit": 33554432, "waves": 0.97,
//    "algorithm": BASE64 of 64 bytes}
//
// Lines are sorted; equal answers are equal bytes. A variant's points are the distinct algorithms
// of its lines.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUBLASLT_ALGORITHM_FILE_H_
#define KBUNDLE_BUILDER_PROVIDER_CUBLASLT_ALGORITHM_FILE_H_

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/cublaslt_api.h"
#include "kbundle/status.h"

namespace kbundle::builder {

// By cublasLtMatmulAlgoConfigAttributes_t.
inline constexpr const char* kConfigNames[] = {"ID",     "TILE",   "SPLITK", "REDUCTION", "SWIZZLE",
                                               "CUSTOM", "STAGES", "INNER",  "CLUSTER"};
inline constexpr size_t kConfigs = 9;
static_assert(std::size(kConfigNames) == kConfigs);
using AlgorithmConfig = std::array<int32_t, kConfigs>;  // by LtConfig

// Bytes of workspace that an algorithm may ask for, where nobody says otherwise.
inline constexpr int64_t kAlgorithmWorkspace = 32ll << 20;

struct ListedAlgorithm {
  std::string op, variant, target, device;
  std::vector<std::string> types;  // of the problem, by the op's type parameters
  nlohmann::json problem;          // {"operands": {..}, "attributes": {..}}
  int rank = 0;                    // the heuristic's, best first, then searched ones, fastest first
  int sm_count = 0;
  uint64_t cublas = 0;  // cublasLtGetVersion()
  AlgorithmConfig config{};
  uint64_t workspace = 0;  // that cuBLASLt says it needs for the problem, bytes
  uint64_t limit = 0;      // of workspace, when the heuristic was asked
  double waves = 0;
  LtAlgorithm algorithm{};

  std::string Line() const;  // without "\n"
  // Equal for answers about one problem from one version of cuBLAS on one device model.
  std::string Key() const;
};

// kInvalidArgument: "where: what is wrong".
Result<ListedAlgorithm> ParseAlgorithm(std::string_view line, const std::string& where);
// Errors as "file:line: ...".
Result<std::vector<ListedAlgorithm>> ParseAlgorithms(std::string_view text,
                                                     const std::string& path);
// Of every *.jsonl file of the folder, by name; empty when there is no folder.
Result<std::vector<ListedAlgorithm>> ReadAlgorithms(const std::string& folder);
std::string AlgorithmsText(const std::vector<ListedAlgorithm>& algorithms);
// `fresh`, and those of `old` whose Key() no fresh one has. Of an algorithm with the same settings
// for the same problem the old bytes stay: cuBLASLt fills the rest of them by chance, and what was
// recorded about them stays true.
std::vector<ListedAlgorithm> MergeAlgorithms(const std::vector<ListedAlgorithm>& old,
                                             const std::vector<ListedAlgorithm>& fresh);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUBLASLT_ALGORITHM_FILE_H_
