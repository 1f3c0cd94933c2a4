// Settings are thousands and launches cost: cuBLASLt's own check sorts out most, one sample each
// sorts out most of the rest, and the few that remain are timed in earnest against the best named
// one. Less than one percent is noise.
#include "builder/provider/cublaslt/search.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "builder/provider/cublaslt/bench.h"
#include "builder/provider/cublaslt/function.h"

namespace kbundle::builder {
namespace {

// Of cublasLt.h 13.1. A later version's further cluster shapes are not tried.
constexpr int kLastCluster = 51;
constexpr int kCapCustomMax = 7;
constexpr int kOnce = 1, kAgain = 5;  // samples, of all and of the most promising
constexpr size_t kPromising = 24;
constexpr double kFaster = 0.99;  // of the best named one's time: less is noise

size_t SizeOf(int config) { return config >= kLtConfigInner ? sizeof(uint16_t) : sizeof(int32_t); }

struct Timed {
  LtHeuristicResult algorithm;
  double nanoseconds;
};

void FastestFirst(std::vector<Timed>* all, size_t most) {
  std::stable_sort(all->begin(), all->end(),
                   [](const Timed& a, const Timed& b) { return a.nanoseconds < b.nanoseconds; });
  if (all->size() > most) all->resize(most);
}

// The settings near some algorithms that cuBLASLt takes for one product.
class Neighbourhood {
 public:
  Neighbourhood(const CublasLtApi& lt, LtHandle handle, const ProductDescriptors& product,
                int64_t workspace)
      : lt_(lt), handle_(handle), product_(product), workspace_(static_cast<size_t>(workspace)) {}

  Status Find(const std::vector<LtHeuristicResult>& named) {
    KB_RETURN_IF_ERROR(FindFunction(lt_, "cublasLtMatmulAlgoConfigSetAttribute", &set_));
    for (const LtHeuristicResult& one : named) {
      KB_ASSIGN_OR_RETURN(const AlgorithmConfig config, ConfigOf(lt_, one.algorithm));
      tried_.insert(config);
    }
    for (const LtHeuristicResult& one : named) KB_RETURN_IF_ERROR(AddAround(one.algorithm));
    return Status();
  }

  const std::vector<LtHeuristicResult>& found() const { return found_; }

 private:
  Status AddAround(const LtAlgorithm& named) {
    KB_ASSIGN_OR_RETURN(AlgorithmConfig config, ConfigOf(lt_, named));
    int32_t custom_max = 0;
    size_t written = 0;
    KB_RETURN_IF_ERROR(lt_.Check(
        lt_.AlgorithmCapability(&named, kCapCustomMax, &custom_max, sizeof custom_max, &written),
        "reading an algorithm's custom options"));
    const std::pair<int32_t, int32_t> named_split(config[kLtConfigSplitK],
                                                  config[kLtConfigReduction]);
    for (const auto& split : std::set{named_split, std::pair<int32_t, int32_t>(1, 0)}) {
      std::tie(config[kLtConfigSplitK], config[kLtConfigReduction]) = split;
      for (int32_t cluster = 0; cluster <= kLastCluster; ++cluster) {
        config[kLtConfigCluster] = cluster;
        for (int32_t custom = 0; custom <= custom_max; ++custom) {
          config[kLtConfigCustom] = custom;
          if (tried_.insert(config).second) Try(named, config);
        }
      }
    }
    return Status();
  }

  // What cuBLASLt refuses is no error: most settings do not go together.
  void Try(LtAlgorithm algorithm, const AlgorithmConfig& config) {
    for (const int setting :
         {kLtConfigSplitK, kLtConfigReduction, kLtConfigCluster, kLtConfigCustom}) {
      const int32_t value = config[static_cast<size_t>(setting)];
      if (set_(&algorithm, setting, &value, SizeOf(setting)) != kLtSuccess) return;
    }
    LtHeuristicResult result{};
    const int status = lt_.AlgorithmCheck(handle_, &product_.desc, &product_.a, &product_.b,
                                          &product_.c, &product_.d, &algorithm, &result);
    if (status != kLtSuccess || result.workspace_bytes > workspace_) return;
    result.algorithm = algorithm;
    found_.push_back(result);
  }

  const CublasLtApi& lt_;
  const LtHandle handle_;
  const ProductDescriptors& product_;
  const size_t workspace_;
  int (*set_)(LtAlgorithm*, int, const void*, size_t) = nullptr;
  std::set<AlgorithmConfig> tried_;
  std::vector<LtHeuristicResult> found_;
};

// Those that fail when they are launched are left out.
std::vector<Timed> TimeAll(ProductBench& bench, const std::vector<LtHeuristicResult>& algorithms,
                           int samples) {
  std::vector<Timed> timed;
  for (const LtHeuristicResult& one : algorithms) {
    const Result<double> nanoseconds = bench.Time(one.algorithm, samples);
    if (nanoseconds.ok()) timed.push_back({one, *nanoseconds});
  }
  return timed;
}

}  // namespace

Result<AlgorithmConfig> ConfigOf(const CublasLtApi& lt, const LtAlgorithm& algorithm) {
  AlgorithmConfig config{};
  for (int i = 0; i < static_cast<int>(kConfigs); ++i) {
    size_t written = 0;
    KB_RETURN_IF_ERROR(lt.Check(
        lt.AlgorithmConfig(&algorithm, i, &config[static_cast<size_t>(i)], SizeOf(i), &written),
        "reading an algorithm's settings"));
  }
  return config;
}

Result<std::vector<LtHeuristicResult>> SearchNear(const CublasLtApi& lt, LtHandle handle,
                                                  const ProductDescriptors& product,
                                                  const std::vector<LtHeuristicResult>& named,
                                                  int wanted, int64_t workspace,
                                                  TuneDevice& device) {
  Neighbourhood near(lt, handle, product, workspace);
  KB_RETURN_IF_ERROR(near.Find(named));
  KB_ASSIGN_OR_RETURN(const auto bench, ProductBench::Make(lt, handle, product, workspace, device));
  std::vector<Timed> best = TimeAll(*bench, named, kAgain);
  FastestFirst(&best, 1);
  std::vector<Timed> candidates = TimeAll(*bench, near.found(), kOnce);
  FastestFirst(&candidates, kPromising);
  std::vector<LtHeuristicResult> promising;
  for (const Timed& one : candidates) promising.push_back(one.algorithm);
  candidates = TimeAll(*bench, promising, kAgain);
  FastestFirst(&candidates, static_cast<size_t>(wanted));
  KB_RETURN_IF_ERROR(device.Finish());  // of an error that a launch left behind
  std::vector<LtHeuristicResult> found;
  for (const Timed& one : candidates) {
    if (best.empty() || one.nanoseconds < kFaster * best.front().nanoseconds)
      found.push_back(one.algorithm);
  }
  return found;
}

}  // namespace kbundle::builder
