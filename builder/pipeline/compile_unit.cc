// The whole build is planned and then cut down to one label, so the unit is what a build would make
// of it. The store is asked before and after: an object that is not kept is no result.
#include "builder/pipeline/compile_unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "builder/compile/keep_variants.h"
#include "builder/pipeline/build_work.h"
#include "builder/pipeline/compile_all.h"
#include "builder/support/json_text.h"
#include "builder/support/temporary_folder.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Seconds = std::chrono::duration<double>;

// Leaves the units of these labels and the variants that use them, which then have no others.
void KeepUnits(const std::string& label, Work* work) {
  std::vector<VariantUse> kept;
  for (VariantUse& use : work->variants) {
    bool wanted = false;
    for (uint32_t& unit : use.units) {
      if (unit == kNoUnit) continue;
      if (work->units[unit].label == label) {
        wanted = true;
      } else {
        unit = kNoUnit;
      }
    }
    if (wanted) kept.push_back(std::move(use));
  }
  KeepVariants(std::move(kept), work);
}

class OneUnit {
 public:
  OneUnit(const BuildOptions& options, const WantedUnit& wanted, Reporter* reporter)
      : options_(options),
        wanted_(wanted),
        reporter_(*reporter),
        asked_(&options_, reporter),
        work_(asked_.work()) {}

  Result<UnitReport> Run() {
    const auto start = std::chrono::steady_clock::now();
    KB_ASSIGN_OR_RETURN(const ObjectStore store,
                        ObjectStore::Open(options_.cache_dir, options_.shared_cache));
    KB_RETURN_IF_ERROR(StoresTakeIt(store));
    KB_RETURN_IF_ERROR(Plan(store));
    CompileContext context;
    KB_RETURN_IF_ERROR(FindTools(options_, work_, &context));
    ToolDigests digests(store.folder());
    UnitBuilder units(options_, &work_, &context, &store, &digests, &reporter_);
    KB_RETURN_IF_ERROR(units.LookUp());
    KB_ASSIGN_OR_RETURN(const int unit, Choose(units.inputs()));
    KB_RETURN_IF_ERROR(Make(unit, &units));
    units.TypesOf(unit);
    units.Share(unit);
    KB_RETURN_IF_ERROR(StoresTakeIt(store));
    report_.seconds = Seconds(std::chrono::steady_clock::now() - start).count();
    return report_;
  }

 private:
  // What is made is worth nothing where it is not kept.
  static Status StoresTakeIt(const ObjectStore& store) {
    for (const Status& refused : {store.refusal(), store.shared_refusal()}) {
      if (refused.ok()) continue;
      return FailedPrecondition("the code object is made for the cache: " + refused.message() +
                                "; --cache and --shared-cache name others");
    }
    return Status();
  }

  Status Plan(const ObjectStore& store) {
    KB_RETURN_IF_ERROR(asked_.ReadFamilies());
    KB_RETURN_IF_ERROR(asked_.Plan(store));
    if (wanted_.label.empty()) return Status();
    std::vector<std::string> labels;
    for (const Unit& unit : work_.units) labels.push_back(unit.label);
    if (std::find(labels.begin(), labels.end(), wanted_.label) == labels.end()) {
      return NotFound(fmt::format("no code object '{}' of these manifests and targets{}",
                                  wanted_.label, DidYouMean(wanted_.label, labels)));
    }
    KeepUnits(wanted_.label, &work_);
    return Status();
  }

  Result<int> Choose(const std::vector<UnitInputs>& inputs) const {
    const auto found = std::find_if(inputs.begin(), inputs.end(), [this](const UnitInputs& one) {
      return one.key == wanted_.key;
    });
    if (!wanted_.key.empty() && found == inputs.end()) return OtherKey(inputs);
    if (wanted_.key.empty() && inputs.size() > 1) {
      std::string keys;
      for (const UnitInputs& one : inputs) keys += "\n  --key " + one.key;
      return InvalidArgument(
          fmt::format("{} code objects are called '{}'; their flags differ; say which:{}",
                      inputs.size(), wanted_.label, keys));
    }
    const auto unit = wanted_.key.empty() ? 0 : static_cast<int>(found - inputs.begin());
    if (wanted_.inputs.empty()) return unit;
    const std::string differs = WhatDiffers(inputs[unit], wanted_.inputs);
    if (!differs.empty()) return OtherInputs(unit, differs);
    return unit;
  }

  Status OtherKey(const std::vector<UnitInputs>& inputs) const {
    if (wanted_.label.empty()) {
      return NotFound(fmt::format(
          "none of the {} code objects of these manifests and targets has the key {}: the plan was "
          "made of other sources, options or tools; --unit and --input name what differs",
          inputs.size(), wanted_.key));
    }
    if (!wanted_.inputs.empty()) {
      const std::string differs = WhatDiffers(inputs[0], wanted_.inputs);
      return OtherInputs(0, differs.empty() ? "kbundle itself changed" : differs);
    }
    std::string names;
    for (const auto& [name, digest] : inputs[0].named) {
      names += fmt::format("\n  --input '{}={}'", name, digest.substr(0, 16));
    }
    return FailedPrecondition(fmt::format(
        "{}: its key is {} here, not {}: the plan was made of other sources, options or tools; "
        "compare what there is here with the plan's inputs:{}",
        wanted_.label, inputs[0].key, wanted_.key, names));
  }

  Status OtherInputs(int unit, const std::string& differs) const {
    return FailedPrecondition(
        fmt::format("{}: not as where the plan was made: {}; nothing was compiled; make the plan "
                    "again here, or bring the sources and tools that it was made of",
                    work_.units[unit].label, differs));
  }

  Status Make(int unit, UnitBuilder* units) {
    report_.label = work_.units[unit].label;
    report_.key = units->inputs()[unit].key;
    report_.compiled = units->IsMissing(unit);
    if (report_.compiled) {
      KB_RETURN_IF_ERROR(TemporaryFolder::Make().status());
      const auto start = std::chrono::steady_clock::now();
      const Status status = units->Compile(unit);
      report_.compile_seconds = Seconds(std::chrono::steady_clock::now() - start).count();
      if (!status.ok()) {
        reporter_.Failure(units->FailureText(unit, status));
        return Status(status.code(), report_.label + " failed; nothing was kept");
      }
    }
    const Object& object = units->objects()[unit];
    report_.bytes = object.code.size();
    if (object.code.empty()) report_.refused = object.log;
    return Status();
  }

  const BuildOptions& options_;
  const WantedUnit& wanted_;
  Reporter& reporter_;
  BuildWork asked_;
  Work& work_;
  UnitReport report_;
};

}  // namespace

std::string UnitReport::ToJson() const {
  nlohmann::json json = {{"unit", label},
                         {"key", key},
                         {"compiled", compiled},
                         {"bytes", bytes},
                         {"seconds", seconds},
                         {"refused", refused},
                         {"compile_seconds", compile_seconds}};
  return JsonText(json);
}

Result<UnitReport> CompileOneUnit(const BuildOptions& options, const WantedUnit& wanted,
                                  Reporter& reporter) {
  return OneUnit(options, wanted, &reporter).Run();
}

}  // namespace kbundle::builder
