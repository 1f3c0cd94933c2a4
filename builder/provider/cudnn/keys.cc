// What a variant of cuDNN says beside its steps. Its graph is in the steps; a source holds kernels
// that run beside it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "builder/provider/cudnn/graph.h"
#include "builder/provider/cudnn/manifest.h"
#include "builder/provider/cudnn/profile.h"
#include "kbundle/provider/cudnn.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

// Plans for one GPU do not run on another; cuDNN would plan them all the same.
void CheckProfile(const VariantTable& table, const PlanKeys& keys, const Node& node) {
  const int version = nlohmann::json::parse(keys.profile).value("deviceVer", 0);
  for (const std::string& name : table.variant.targets) {
    const Result<Target> target = Target::Parse(name);
    if (!target.ok() || target->kind != TargetKind::kCuda) continue;  // told before
    const int least = target->major * 100 + target->minor * 10;
    const bool fits = target->feature == 'a' ? version == least
                                             : version >= least && version / 100 == target->major;
    if (fits) continue;
    table.diagnostics.Error(
        node.where,
        fmt::format("profile '{}' is of a GPU of compute capability {}.{}, on which {} does not "
                    "run",
                    node.text, version / 100, version / 10 % 10, name),
        "`kbundle profile` writes one on a GPU of the target");
  }
}

void ReadVersion(const VariantTable& table, const Node& node, PlanKeys* keys) {
  int major = 0, minor = 0, patch = 0, end = 0;
  const bool three =
      std::sscanf(node.text.c_str(), "%2d.%2d.%2d%n", &major, &minor, &patch, &end) == 3;
  if (three && static_cast<size_t>(end) == node.text.size() && major == 9) {
    const int version = major * 10000 + minor * 100 + patch;
    const auto& before = keys->versions;
    if (std::find(before.begin(), before.end(), version) != before.end()) {
      table.diagnostics.Error(node.where, fmt::format("cuDNN {} stands here twice", node.text));
    }
    keys->versions.push_back(version);
    return;
  }
  table.diagnostics.Error(node.where, fmt::format("'{}' is no version of cuDNN 9", node.text),
                          "three numbers, as in \"9.19.0\": a plan runs on that version alone");
}

}  // namespace

void ReadPlanKeys(VariantTable& table) {
  auto keys = std::make_shared<PlanKeys>();
  table.variant.compiler = "cudnn";
  ReadSource(table, /*required=*/false);
  RefuseKeys(table, {"compiler", "portable", "flags", "max_spill"},
             "cuDNN makes the code; its graph is in the steps");
  RefuseKeys(table, {"tunables", "keep"}, "it has a point for each listed problem");
  table.fields.Require("targets", Kind::kArray);
  ReadTargets(table);
  if (const Node* profile = table.fields.Require("profile", Kind::kString)) {
    Result<std::string> text = DeviceProfile(profile->text, table.directory);
    if (text.ok()) {
      keys->profile = std::move(text).value();
      CheckProfile(table, *keys, *profile);
    } else {
      table.diagnostics.Error(profile->where, text.status().message());
    }
  }
  keys->plans = table.fields.TakeInteger("plans", 1, 1, kMaxPlans);
  keys->max_workspace =
      table.fields.TakeInteger("max_workspace", kMaxStepWorkspace, 0, kMaxStepWorkspace);
  table.fields.Require("cudnn", Kind::kArray);
  for (const Node* version : table.fields.TakeTexts("cudnn")) {
    ReadVersion(table, *version, keys.get());
  }
  table.variant.own = std::move(keys);
}

}  // namespace kbundle::builder
