// A product that no record names. cuBLASLt's heuristic knows its kernels better than a neighbour's
// record does, and is asked once, when the plan is made: its first answer that passes our own
// checks is taken, so that the same library on the same machine always gives the same algorithm.
#include <fmt/format.h>

#include <algorithm>

#include "loader/provider/cublaslt/matrix_product.h"

namespace kbundle {
namespace {

constexpr int kAnswers = 8;  // hardly ever is the first refused

}  // namespace

Result<std::vector<LtHeuristicResult>> AskHeuristic(const CublasLtApi& lt, LtHandle handle,
                                                    const ProductDescriptors& product, int wanted) {
  LtPreference preference{};
  int status = lt.PreferenceInit(&preference, sizeof preference);
  const auto set = [&](LtPreferenceAttribute attribute, auto value) {
    if (status == kLtSuccess) {
      status = lt.PreferenceSet(&preference, attribute, &value, sizeof value);
    }
  };
  set(kLtPreferenceWorkspace, static_cast<uint64_t>(product.workspace_bytes));
  for (const auto attribute : {kLtPreferenceAlignmentA, kLtPreferenceAlignmentB,
                               kLtPreferenceAlignmentC, kLtPreferenceAlignmentD}) {
    set(attribute, static_cast<uint32_t>(product.alignment));
  }
  KB_RETURN_IF_ERROR(lt.Check(status, "telling cuBLASLt what is preferred"));
  std::vector<LtHeuristicResult> results(static_cast<size_t>(wanted));
  int found = 0;
  KB_RETURN_IF_ERROR(
      lt.Check(lt.AlgorithmHeuristic(handle, &product.desc, &product.a, &product.b, &product.c,
                                     &product.d, &preference, wanted, results.data(), &found),
               "asking cuBLASLt's heuristic"));
  results.resize(static_cast<size_t>(std::clamp(found, 0, wanted)));
  std::erase_if(results, [](const LtHeuristicResult& r) { return r.status != kLtSuccess; });
  return results;
}

Result<MatrixProduct> MatrixProduct::MakeByHeuristic(const CublasLtApi& lt, LtHandle handle,
                                                     const ResolvedProduct& product) {
  KB_ASSIGN_OR_RETURN(const ProductDescriptors descriptors, Describe(lt, product));
  const auto answers = AskHeuristic(lt, handle, descriptors, kAnswers);
  std::string refused = answers.ok() ? "it knows none" : answers.status().message();
  for (size_t i = 0; answers.ok() && i < answers->size(); ++i) {
    Result<MatrixProduct> made = Make(lt, handle, product, (*answers)[i].algorithm);
    if (made.ok()) return made;
    if (i == 0) refused = made.status().message();
  }
  return FailedPrecondition(fmt::format(
      "cuBLASLt's heuristic has no algorithm for a product of {} x {} x {}, batch {}, within {} "
      "bytes of workspace: {}",
      product.m, product.n, product.k, product.batch, product.workspace_bytes, refused));
}

}  // namespace kbundle
