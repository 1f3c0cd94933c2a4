// Problems from a file need an outline to be understood, and so a Work, which they then change:
// hence work is planned, problems are added, and work is planned again.
#include "builder/pipeline/build_work.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "builder/compile/keep_variants.h"
#include "builder/manifest/find.h"
#include "builder/manifest/manifest.h"
#include "builder/pack/embed_records.h"
#include "builder/pack/outline.h"
#include "builder/pipeline/expand_targets.h"
#include "builder/pipeline/lean.h"
#include "builder/problem/add.h"
#include "builder/problem/file.h"
#include "builder/provider/provider.h"
#include "builder/support/temporary_folder.h"
#include "kbundle/bundle.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

constexpr int kLongestCompile = 7 * 24 * 3600;

std::vector<std::string> DefaultTargets() {
  return {"sm_80", "sm_90a", "sm_100f", "portable", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
}

// As `kbundle extract` takes ids: the grid point and the target may be left out.
bool IsNamedBy(const std::string& label, const std::string& name) {
  const std::string local = label.substr(0, label.rfind('@')), target = label.substr(local.size());
  const std::string bare = local.substr(0, local.find('['));
  return name == label || name == local || name == bare || name == bare + target;
}

Result<std::chrono::seconds> CompileLimit() {
  const char* set = getenv("KBUNDLE_COMPILE_TIMEOUT");
  if (set == nullptr || *set == '\0') return std::chrono::seconds(600);
  const std::string text = set;
  int seconds = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (end.ec == std::errc() && end.ptr == text.data() + text.size() && seconds >= 1 &&
      seconds <= kLongestCompile) {
    return std::chrono::seconds(seconds);
  }
  return InvalidArgument(
      fmt::format("KBUNDLE_COMPILE_TIMEOUT is '{}': the seconds that a compile may take, a whole "
                  "number from 1 to {}; unset it for 600",
                  text, kLongestCompile));
}

}  // namespace

Result<std::vector<const Provider*>> WantedProviders(const std::vector<std::string>& names) {
  std::vector<const Provider*> wanted;
  for (const std::string& name : names) {
    wanted.push_back(FindProvider(name));
    if (wanted.back() != nullptr) continue;
    std::vector<std::string_view> there;
    for (const Provider* provider : Providers()) there.push_back(provider->name());
    return InvalidArgument(
        fmt::format("--provider: '{}' is none; there are {}", name, fmt::join(there, ", ")));
  }
  return wanted;
}

Status BuildWork::ReadFamilies() {
  KB_ASSIGN_OR_RETURN(const FoundManifests found, SearchManifests(options_.paths));
  for (const std::string& path : found.foreign) {
    reporter_.Note("note: " + path + " has no [family] and is passed over");
  }
  for (const std::string& manifest : found.families) {
    KB_ASSIGN_OR_RETURN(Family family, ReadManifest(manifest));
    families_.push_back(std::move(family));
  }
  return Status();
}

Status BuildWork::Plan(const ObjectStore& store) {
  std::vector<Target> targets;
  for (const std::string& name :
       options_.targets.empty() ? DefaultTargets() : ExpandTargets(options_.targets)) {
    Result<Target> target = Target::Parse(name);
    if (!target.ok()) return std::move(target).status().Annotate("--target");
    targets.push_back(*target);
  }
  KB_ASSIGN_OR_RETURN(const std::vector<const Provider*> providers,
                      WantedProviders(options_.providers));
  KB_ASSIGN_OR_RETURN(work_, PlanWork(families_, targets, providers));
  if (!options_.problems.empty()) {
    KB_RETURN_IF_ERROR(AddListed(store));
    KB_ASSIGN_OR_RETURN(work_, PlanWork(families_, targets, providers));
  }
  if (!options_.only.empty()) return KeepOnly();
  if (options_.lean) {
    KB_ASSIGN_OR_RETURN(const std::vector<FoundRecords> records, FindRecords(families_));
    left_out_ = KeepChoosable(records, &work_);
  }
  if (!work_.variants.empty()) return Status();
  return NothingFor(targets, providers);
}

Status BuildWork::NothingFor(const std::vector<Target>& asked,
                             const std::vector<const Provider*>& providers) const {
  std::vector<std::string> names = DefaultTargets(), there, wanted;
  for (const Family& family : families_) {
    for (const Op& op : family.ops) {
      for (const Template& variant : op.templates) {
        names.insert(names.end(), variant.targets.begin(), variant.targets.end());
      }
    }
  }
  std::vector<Target> targets;
  for (const std::string& name : names) {
    if (const Result<Target> target = Target::Parse(name); target.ok()) targets.push_back(*target);
  }
  KB_ASSIGN_OR_RETURN(const Work all, PlanWork(families_, targets, providers));
  for (const Target& target : all.targets) there.push_back(target.ToString());
  for (const Target& target : asked) wanted.push_back(target.ToString());
  return InvalidArgument(fmt::format(
      "no variant of these manifests is for --target {}; nothing to build; they have variants "
      "for {}",
      fmt::join(wanted, ","),
      there.empty() ? "no target" : fmt::format("{}", fmt::join(there, ", "))));
}

// Leaves the named variant (or unit) and what it needs.
Status BuildWork::KeepOnly() {
  std::vector<std::string> labels;
  const auto label_of = [this](const VariantUse& use) {
    const Op& op = *work_.ops[use.op].op;
    const Template& variant = op.templates[use.template_index];
    return VariantLabel(op, variant, variant.points[use.point], work_.targets[use.target]);
  };
  std::vector<VariantUse> kept;
  for (const VariantUse& use : work_.variants) {
    labels.push_back(label_of(use));
    const bool named = IsNamedBy(labels.back(), options_.only);
    const bool own = std::any_of(use.units.begin(), use.units.end(), [&](uint32_t unit) {
      return unit != kNoUnit && work_.units[unit].label == options_.only;
    });
    if (named || own) kept.push_back(use);
  }
  if (kept.empty()) {
    return NotFound(
        fmt::format("--only: no variant '{}'{}", options_.only, DidYouMean(options_.only, labels)));
  }
  KeepVariants(std::move(kept), &work_);
  return Status();
}

// The loader binds the problems of --problems to the interfaces. Some variants are made for
// single problems, so this comes before anything is compiled.
Status BuildWork::AddListed(const ObjectStore& store) {
  KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
  KB_ASSIGN_OR_RETURN(const auto bundle,
                      OutlineBundle(work_, store, "outline", folder.path() + "/outline.kb"));
  KB_ASSIGN_OR_RETURN(const int passed_over, AddProblems(options_.problems, *bundle, &families_));
  if (passed_over > 0) reporter_.Note("note: " + PassedOver(passed_over, options_.problems));
  for (Family& family : families_) {
    for (Op& op : family.ops) SetProblemPoints(&op);
  }
  return Status();
}

Status FindTools(const BuildOptions& options, const Work& work, CompileContext* context) {
  KB_ASSIGN_OR_RETURN(context->limit, CompileLimit());
  return FindCompilers(work, options.python, context);
}

}  // namespace kbundle::builder
