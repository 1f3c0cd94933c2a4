// Which algorithms cuBLASLt has for the problems that manifests list: its heuristic's candidates,
// asked on the GPU that they are for, and faster ones near them. Nothing of this is in the loader.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUBLASLT_LIST_H_
#define KBUNDLE_BUILDER_PROVIDER_CUBLASLT_LIST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "builder/provider/cublaslt/algorithm_file.h"
#include "kbundle/status.h"

namespace kbundle::builder {

struct ListOptions {
  std::vector<std::string> paths;  // folders with op families, or single manifests
  std::string target;              // of this machine's GPU
  std::string op;                  // only this one; empty: all
  std::string problems;            // a file of problems to list for beside the manifests' own
  bool missing = false;            // only of that file, where there is one, and only what no line
                                   // of this GPU and cuBLAS lists yet
  int device = 0;
  int candidates = 16;  // of the heuristic, a problem and variant, at most
  int near = 4;         // faster ones near them (provider/cublaslt/search.h), at most
  int64_t workspace = kAlgorithmWorkspace;  // bytes that an algorithm may ask for
  // Takes what was found for one problem, before the next is asked about: a kill costs one problem.
  std::function<Status(const std::string& folder, const std::vector<ListedAlgorithm>&)> keep;
};

struct ListedFamilies {
  // By the folder beside the manifest that the variants name; what is in it already not included.
  // Empty where ListOptions::keep took them.
  std::map<std::string, std::vector<ListedAlgorithm>> by_folder;
  std::string device;
  int problems = 0, algorithms = 0, near = 0;  // near: of the algorithms, how many were searched
  std::vector<std::string> without;            // "op(problem) by variant: what cuBLASLt says"
  std::vector<std::string> unsearched;         // "op(problem): why nothing near was timed"
  int passed_over = 0;                         // problems of the file that are of other families
};

// kUnavailable: no GPU, driver or cuBLAS here; kFailedPrecondition: the GPU is not the target's;
// kInvalidArgument: no variant of provider cublaslt.
Result<ListedFamilies> ListAlgorithms(const ListOptions& options);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUBLASLT_LIST_H_
