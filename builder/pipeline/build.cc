// Manifests and sources to one bundle: plan, compile, check, pack, publish.
#include "builder/pipeline/build.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "builder/compile/check_variants.h"
#include "builder/compile/keep_variants.h"
#include "builder/compile/learned.h"
#include "builder/manifest/find.h"
#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "builder/pack/embed_records.h"
#include "builder/pack/outline.h"
#include "builder/pack/pack.h"
#include "builder/pack/provenance.h"
#include "builder/pack/ran_on_file.h"
#include "builder/pipeline/compile_all.h"
#include "builder/pipeline/expand_targets.h"
#include "builder/pipeline/lean.h"
#include "builder/pipeline/output.h"
#include "builder/problem/add.h"
#include "builder/problem/file.h"
#include "builder/provider/provider.h"
#include "builder/support/files.h"
#include "builder/support/json_text.h"
#include "builder/support/temporary_folder.h"
#include "kbundle/bundle.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

std::vector<std::string> DefaultTargets() {
  return {"sm_80", "sm_90a", "sm_100f", "portable", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
}

std::chrono::seconds CompileLimit() {
  const char* set = getenv("KBUNDLE_COMPILE_TIMEOUT");
  const long seconds = set != nullptr ? std::strtol(set, nullptr, 10) : 0;
  return std::chrono::seconds(seconds > 0 ? seconds : 600);
}

// As `kbundle extract` takes ids: the grid point and the target may be left out.
bool IsNamedBy(const std::string& label, const std::string& name) {
  const std::string local = label.substr(0, label.rfind('@')), target = label.substr(local.size());
  const std::string bare = local.substr(0, local.find('['));
  return name == label || name == local || name == bare || name == bare + target;
}

class BundleBuild {
 public:
  BundleBuild(const BuildOptions& options, Reporter* reporter, const std::atomic<bool>* cancel)
      : options_(options), reporter_(*reporter), cancel_(*cancel) {}

  Result<BuildReport> Run() {
    const auto start = std::chrono::steady_clock::now();
    KB_ASSIGN_OR_RETURN(const ObjectStore store,
                        ObjectStore::Open(options_.cache_dir, options_.shared_cache));
    KB_RETURN_IF_ERROR(Plan(store));
    KB_RETURN_IF_ERROR(FindTools());
    ToolDigests digests(store.folder());
    UnitBuilder units(options_, &work_, &context_, &store, &digests, &reporter_);
    KB_RETURN_IF_ERROR(units.LookUp());
    report_.variants = static_cast<int>(work_.variants.size());
    report_.objects = static_cast<int>(work_.units.size());
    report_.reused = report_.objects - units.missing();
    if (options_.dry_run) report_.units = units.Units();
    if (options_.explain || options_.dry_run) {
      for (const std::string& note : work_.notes) reporter_.Note(note);
      units.Explain();
    }
    if (!options_.dry_run) {
      KB_RETURN_IF_ERROR(units.CompileMissing(cancel_, &report_));
      LeaveOutRefused(units.objects());
      KB_RETURN_IF_ERROR(PutLearned(units.objects()));
      KB_RETURN_IF_ERROR(Check(units.objects(), units.ReadTypes()));
      if (options_.only.empty()) KB_RETURN_IF_ERROR(WriteBundle(units.objects(), store, &digests));
    }
    WarnOfRefusals(store);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    report_.seconds = elapsed.count();
    return report_;
  }

 private:
  void WarnOfRefusals(const ObjectStore& store) {
    if (const Status refused = store.refusal(); !refused.ok()) {
      Warn("nothing new is kept in the cache, the next build compiles it again: " +
           refused.message() + "; --cache names another");
    }
    if (const Status refused = store.shared_refusal(); !refused.ok()) {
      Warn("nothing new is kept in the shared cache: " + refused.message() +
           "; with :ro behind its name it is only read");
    }
  }

  Status Plan(const ObjectStore& store) {
    if (options_.output.empty() && !options_.dry_run && options_.only.empty()) {
      return InvalidArgument("no output file: say where to write the bundle, -o OUT.kb");
    }
    KB_ASSIGN_OR_RETURN(const FoundManifests found, SearchManifests(options_.paths));
    for (const std::string& path : found.foreign) {
      reporter_.Note("note: " + path + " has no [family] and is passed over");
    }
    for (const std::string& manifest : found.families) {
      KB_ASSIGN_OR_RETURN(Family family, ReadManifest(manifest));
      families_.push_back(std::move(family));
    }
    if (!options_.output.empty() && !options_.dry_run && options_.only.empty()) {
      KB_RETURN_IF_ERROR(CheckBundleOutput(options_.output, families_, options_.force));
    }
    std::vector<Target> targets;
    for (const std::string& name :
         options_.targets.empty() ? DefaultTargets() : ExpandTargets(options_.targets)) {
      Result<Target> target = Target::Parse(name);
      if (!target.ok()) return std::move(target).status().Annotate("--target");
      targets.push_back(*target);
    }
    KB_ASSIGN_OR_RETURN(const std::vector<const Provider*> providers, WantedProviders());
    KB_ASSIGN_OR_RETURN(work_, PlanWork(families_, targets, providers));
    if (!options_.problems.empty()) {
      KB_RETURN_IF_ERROR(AddListed(store));
      KB_ASSIGN_OR_RETURN(work_, PlanWork(families_, targets, providers));
    }
    if (!options_.only.empty()) return KeepOnly();
    if (options_.lean) {
      KB_ASSIGN_OR_RETURN(const std::vector<FoundRecords> records, FindRecords(families_));
      report_.left_out = KeepChoosable(records, &work_);
    }
    if (!work_.variants.empty()) return Status();
    return NothingFor(targets, providers);
  }

  Status NothingFor(const std::vector<Target>& asked,
                    const std::vector<const Provider*>& providers) {
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
      if (const Result<Target> target = Target::Parse(name); target.ok())
        targets.push_back(*target);
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

  Result<std::vector<const Provider*>> WantedProviders() const {
    std::vector<const Provider*> wanted;
    for (const std::string& name : options_.providers) {
      wanted.push_back(FindProvider(name));
      if (wanted.back() != nullptr) continue;
      std::vector<std::string_view> there;
      for (const Provider* provider : Providers()) there.push_back(provider->name());
      return InvalidArgument(
          fmt::format("--provider: '{}' is none; there are {}", name, fmt::join(there, ", ")));
    }
    return wanted;
  }

  // Leaves the named variant (or unit) and what it needs.
  Status KeepOnly() {
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
      return NotFound(fmt::format("--only: no variant '{}'{}", options_.only,
                                  DidYouMean(options_.only, labels)));
    }
    KeepVariants(std::move(kept), &work_);
    return Status();
  }

  Status FindTools() {
    context_.limit = CompileLimit();
    return FindCompilers(work_, options_.python, &context_);
  }

  // Variants whose execution plan the library does not make; others take their problems.
  void LeaveOutRefused(const std::vector<Object>& objects) {
    std::erase_if(work_.variants, [&](const VariantUse& use) {
      const std::optional<size_t> step = RefusedStep(use, objects);
      if (!step) return false;
      const uint32_t unit = use.units[*step];
      reporter_.Note(fmt::format("leave out {}: {}", work_.units[unit].label, objects[unit].log));
      return true;
    });
    report_.variants = static_cast<int>(work_.variants.size());
  }

  // The units stay as they are.
  Status PutLearned(const std::vector<Object>& objects) {
    KB_ASSIGN_OR_RETURN(learned_, WithLearnedSteps(work_, objects));
    work_ = learned_.work;
    return Status();
  }

  Status Check(const std::vector<Object>& objects, const std::vector<ParameterTypes>& types) {
    for (const Misfit& misfit : CheckVariants(work_, objects, types)) {
      report_.failed += 1 + misfit.others;
      reporter_.Failure(
          fmt::format("{}\nnote: in variant {}{}", misfit.text, misfit.variant,
                      misfit.others > 0 ? fmt::format(" and {} more", misfit.others) : ""));
    }
    if (report_.failed == 0) return Status();
    return InvalidArgument(fmt::format(
        "{} variants do not fit their manifest; no bundle was written", report_.failed));
  }

  Status WriteBundle(const std::vector<Object>& objects, const ObjectStore& store,
                     ToolDigests* digests) {
    PackInput input;
    input.name = options_.name.empty() ? std::filesystem::path(options_.output).stem().string()
                                       : options_.name;
    input.work = &work_;
    input.objects = &objects;
    input.store = &store;
    input.jobs = options_.jobs;
    KB_ASSIGN_OR_RETURN(input.provenance, Provenance(context_, digests));
    input.provenance.insert(input.provenance.end(), learned_.provenance.begin(),
                            learned_.provenance.end());
    if (options_.lean) input.provenance.emplace_back("kbundle build", "--lean");
    KB_ASSIGN_OR_RETURN(input.ran_on, ReadRanOn(families_));
    KB_ASSIGN_OR_RETURN(std::string bytes, Pack(input));
    KB_ASSIGN_OR_RETURN(const std::vector<FoundRecords> records, FindRecords(families_));
    if (!records.empty()) {
      KB_ASSIGN_OR_RETURN(const EmbeddedRecords tuned, Embed(records, bytes, objects));
      input.tuned = &tuned;
      ReportStale(tuned.left_out, &input.provenance);
      KB_ASSIGN_OR_RETURN(bytes, Pack(input));
    }
    report_.bundle_bytes = bytes.size();
    return Publish(bytes);
  }

  // The loader binds the problems of --problems to the interfaces. Some variants are made for
  // single problems, so this comes before anything is compiled.
  Status AddListed(const ObjectStore& store) {
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

  // What records say is bound to the interfaces by the loader, from the bundle without them.
  Result<EmbeddedRecords> Embed(const std::vector<FoundRecords>& records, const std::string& bytes,
                                const std::vector<Object>& objects) {
    KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
    const std::string path = folder.path() + "/draft.kb";
    KB_RETURN_IF_ERROR(PublishFile(path, bytes, Durability::kCrashOnly));
    KB_ASSIGN_OR_RETURN(const auto bundle, Bundle::Open(path));
    KB_ASSIGN_OR_RETURN(EmbeddedRecords tuned, EmbedRecords(records, *bundle, work_, objects));
    return tuned;
  }

  // Said here, and in the bundle for `kbundle verify --strict`.
  void ReportStale(const std::vector<std::string>& left_out,
                   std::vector<std::pair<std::string, std::string>>* provenance) {
    report_.stale_records = static_cast<int>(left_out.size());
    if (left_out.empty()) return;
    provenance->emplace_back(kStaleRecords, std::to_string(left_out.size()));
    if (options_.explain) {
      for (const std::string& note : left_out) reporter_.Note(note);
    }
    Warn(
        fmt::format("{} tuning records were left out: their code is another by now, so that their "
                    "problems get what the manifest or a neighbour says{}; `kbundle tune "
                    "--revalidate` measures them again, winner and default only",
                    left_out.size(), options_.explain ? "" : " (--explain lists them)"));
  }

  void Warn(const std::string& text) {
    report_.warnings.push_back(text);
    reporter_.Warn(text);
  }

  // Read through the loader as users will before it gets its name. An output that is the same
  // already is left alone, so that whatever depends on its time does not run again.
  Status Publish(const std::string& bytes) {
    if (const Result<std::string> before = ReadFile(options_.output);
        before.ok() && *before == bytes) {
      return Reopen(options_.output);
    }
    const std::filesystem::path folder = std::filesystem::path(options_.output).parent_path();
    if (!folder.empty()) KB_RETURN_IF_ERROR(MakeFolders(folder.string()));
    KB_ASSIGN_OR_RETURN(NewFile draft, NewFile::Write(options_.output, bytes, Durability::kDisk));
    Status status = Reopen(draft.neighbour());
    if (!status.ok()) return std::move(status).Annotate("writing " + options_.output);
    return draft.Publish();
  }

  static Status Reopen(const std::string& path) {
    KB_ASSIGN_OR_RETURN(const auto bundle, Bundle::Open(path));
    return bundle->VerifyAll();
  }

  const BuildOptions& options_;
  Reporter& reporter_;
  const std::atomic<bool>& cancel_;
  std::vector<Family> families_;
  LearnedWork learned_;  // its ops are those of work_
  Work work_;
  CompileContext context_;
  BuildReport report_;
};

}  // namespace

std::string BuildReport::ToJson() const {
  Json json{{"variants", variants}, {"objects", objects},   {"compiled", compiled},
            {"reused", reused},     {"failed", failed},     {"bundle_bytes", bundle_bytes},
            {"seconds", seconds},   {"warnings", warnings}, {"stale_records", stale_records},
            {"left_out", left_out}};
  if (!units.empty()) {
    Json& rows = json["units"] = Json::array();
    for (const BuildUnit& unit : units) {
      rows.push_back({{"unit", unit.label}, {"compile", unit.compile}});
    }
  }
  return JsonText(json);
}

Result<BuildReport> Build(const BuildOptions& options, Reporter& reporter,
                          const std::atomic<bool>& cancel) {
  return BundleBuild(options, &reporter, &cancel).Run();
}

}  // namespace kbundle::builder
