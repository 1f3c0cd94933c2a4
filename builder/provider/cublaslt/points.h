// The points of a variant of provider cublaslt: not a grid, but the distinct algorithms that its
// files list, as tunables that can be read. The algorithm itself travels with the point.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUBLASLT_POINTS_H_
#define KBUNDLE_BUILDER_PROVIDER_CUBLASLT_POINTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "builder/model/family.h"
#include "builder/provider/cublaslt/algorithm_file.h"

namespace kbundle::builder {

// CUBLAS (the version), the settings of kConfigNames, WORKSPACE (bytes that it may ask for: 0, or
// the limit under which it was listed) and BLOB (31 bits of a hash, so that algorithms that differ
// in nothing readable have ids of their own).
std::vector<std::string> AlgorithmTunables();

// Points for every algorithm listed for this op's variant whose types the variant has, in an order
// that depends on nothing but the lines: by the best rank in any problem, then by in how many
// problems, then by tunables. Adds to `variant`, whose points are its types. heuristic_workspace:
// 0, or what a point for each of the types may ask for that asks the heuristic where it runs; it
// stands first.
Status AddAlgorithmPoints(const Op& op, const std::vector<ListedAlgorithm>& listed,
                          int64_t heuristic_workspace, Template* variant);

// In place of algorithms: one point of each of the variant's types whose WORKSPACE is the limit,
// to ask the heuristic with.
void AddProbePoints(int64_t workspace_limit, Template* variant);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUBLASLT_POINTS_H_
