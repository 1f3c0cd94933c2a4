// Many lines, one algorithm: lines are counted by what an algorithm is (target, types, version,
// bytes), because each further point is a variant that is packed, selected among and tuned. Order
// is that of choice where nothing was tuned, so the best ranks come first.
#include "builder/provider/cublaslt/points.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "kbundle/key.h"
#include "kbundle/provider/cublaslt.h"

namespace kbundle::builder {
namespace {

// What makes two lines one point: target, types, version, algorithm.
using Identity = std::tuple<std::string, std::vector<DType>, uint64_t, std::string>;

struct Found {
  const ListedAlgorithm* listed = nullptr;
  int best_rank = std::numeric_limits<int>::max();
  int best_count = 0;  // of problems where it has that rank
  uint64_t workspace = 0;
  std::vector<std::string> problems;
};

std::string BytesOf(const LtAlgorithm& algorithm) {
  return std::string(reinterpret_cast<const char*>(&algorithm), sizeof algorithm);
}

// nullopt: no type of this op.
std::optional<std::vector<DType>> TypesOf(const Op& op, const ListedAlgorithm& listed) {
  if (listed.types.size() != op.types.size()) return std::nullopt;
  std::vector<DType> types;
  for (const std::string& name : listed.types) {
    const std::optional<DType> dtype = ParseDType(name);
    if (!dtype) return std::nullopt;
    types.push_back(*dtype);
  }
  return types;
}

void Count(const ListedAlgorithm& listed, Found* found) {
  found->listed = found->listed == nullptr ? &listed : found->listed;
  found->workspace = std::max(found->workspace, listed.workspace);
  found->problems.push_back(listed.problem.dump());
  if (listed.rank > found->best_rank) return;
  if (listed.rank < found->best_rank) found->best_count = 0;
  found->best_rank = listed.rank;
  ++found->best_count;
}

std::vector<int64_t> TunablesOf(const Found& found, const std::string& bytes) {
  const ListedAlgorithm& listed = *found.listed;
  std::vector<int64_t> tunables = {static_cast<int64_t>(listed.cublas)};
  tunables.insert(tunables.end(), listed.config.begin(), listed.config.end());
  tunables.push_back(found.workspace > 0 ? static_cast<int64_t>(listed.limit) : 0);
  tunables.push_back(static_cast<int64_t>(Xxh3(bytes.data(), bytes.size()) & 0x7fffffff));
  return tunables;
}

std::string StoredBytes(const ListedAlgorithm& listed) {
  StoredAlgorithm stored{};
  stored.cublas_version = listed.cublas;
  std::memcpy(stored.algorithm, &listed.algorithm, sizeof stored.algorithm);
  std::copy(listed.config.begin(), listed.config.end(), stored.config);
  return std::string(reinterpret_cast<const char*>(&stored), sizeof stored);
}

// In place of the points that are types.
void AddAskingPoints(int64_t workspace, Template* variant) {
  if (workspace == 0) variant->points.clear();
  for (Template::Point& point : variant->points) {
    point.tunables.assign(kConfigs + 3, 0);
    point.tunables[kConfigs + 1] = workspace;
    point.asks = true;
  }
}

}  // namespace

std::vector<std::string> AlgorithmTunables() {
  std::vector<std::string> names = {"CUBLAS"};
  names.insert(names.end(), std::begin(kConfigNames), std::end(kConfigNames));
  names.insert(names.end(), {"WORKSPACE", "BLOB"});
  static_assert(kConfigs + 3 <= kMaxTunables);
  return names;
}

Status AddAlgorithmPoints(const Op& op, const std::vector<ListedAlgorithm>& listed,
                          int64_t heuristic_workspace, Template* variant) {
  std::vector<std::vector<DType>> wanted;
  for (const Template::Point& point : variant->points) wanted.push_back(point.types);
  std::map<Identity, Found> found;
  for (const ListedAlgorithm& one : listed) {
    if (one.op != op.name || one.variant != variant->name) continue;
    const auto types = TypesOf(op, one);
    if (!types || std::find(wanted.begin(), wanted.end(), *types) == wanted.end()) continue;
    Count(one, &found[{one.target, *types, one.cublas, BytesOf(one.algorithm)}]);
  }
  struct Row {
    int best_rank, count;  // count: negative, so that more comes first
    Template::Point point;
  };
  std::vector<Row> rows;
  for (const auto& [identity, how] : found) {
    Template::Point point;
    point.target = std::get<0>(identity);
    point.types = std::get<1>(identity);
    point.tunables = TunablesOf(how, std::get<3>(identity));
    point.code = StoredBytes(*how.listed);
    point.listed_for = how.problems;
    rows.push_back({how.best_rank, -how.best_count, std::move(point)});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tie(a.best_rank, a.count, a.point.tunables, a.point.target) <
           std::tie(b.best_rank, b.count, b.point.tunables, b.point.target);
  });
  AddAskingPoints(heuristic_workspace, variant);
  for (Row& row : rows) {
    const bool twice = std::any_of(
        variant->points.begin(), variant->points.end(), [&](const Template::Point& other) {
          return other.types == row.point.types && other.tunables == row.point.tunables &&
                 other.target == row.point.target;
        });
    if (twice) {
      return InvalidArgument(fmt::format(
          "variant {}/{}: two algorithms of equal settings have equal hashes; drop one of them",
          op.name, variant->name));
    }
    variant->points.push_back(std::move(row.point));
  }
  return Status();
}

void AddProbePoints(int64_t workspace_limit, Template* variant) {
  for (Template::Point& point : variant->points) {
    point.tunables.assign(kConfigs + 3, 0);
    point.tunables[kConfigs + 1] = workspace_limit;
    point.code = std::string(sizeof(StoredAlgorithm), '\0');
  }
}

}  // namespace kbundle::builder
