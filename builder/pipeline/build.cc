// The order of the steps is that of their price: what costs nothing and may be wrong comes
// first, compiling last but for packing. The bundle gets its name only when the loader has
// opened it, so a build that fails or is killed leaves what was there.
#include "builder/pipeline/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "builder/compile/check_variants.h"
#include "builder/compile/learned.h"
#include "builder/model/family.h"
#include "builder/pack/embed_records.h"
#include "builder/pack/outline.h"
#include "builder/pack/pack.h"
#include "builder/pack/provenance.h"
#include "builder/pack/ran_on_file.h"
#include "builder/pipeline/build_plan.h"
#include "builder/pipeline/build_work.h"
#include "builder/pipeline/compile_all.h"
#include "builder/pipeline/depfile.h"
#include "builder/pipeline/output.h"
#include "builder/support/files.h"
#include "builder/support/json_text.h"
#include "builder/support/temporary_folder.h"
#include "kbundle/bundle.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

class BundleBuild {
 public:
  BundleBuild(const BuildOptions& options, Reporter* reporter, const std::atomic<bool>* cancel)
      : options_(options),
        reporter_(*reporter),
        cancel_(*cancel),
        asked_(&options_, reporter),
        work_(asked_.work()) {}

  Result<BuildReport> Run() {
    const auto start = std::chrono::steady_clock::now();
    KB_ASSIGN_OR_RETURN(const ObjectStore store,
                        ObjectStore::Open(options_.cache_dir, options_.shared_cache));
    KB_RETURN_IF_ERROR(Plan(store));
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
    if (options_.plan) {
      KB_ASSIGN_OR_RETURN(report_.plan, BuildPlan(options_, asked_, units, context_, &digests));
    } else if (!options_.dry_run) {
      KB_RETURN_IF_ERROR(Make(&units, store, &digests));
    }
    WarnOfRefusals(store);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    report_.seconds = elapsed.count();
    return report_;
  }

 private:
  Status Make(UnitBuilder* units, const ObjectStore& store, ToolDigests* digests) {
    if (options_.no_compile) KB_RETURN_IF_ERROR(units->NeedNothing(asked_.families()));
    KB_RETURN_IF_ERROR(units->CompileMissing(cancel_, &report_));
    LeaveOutRefused(units->objects());
    KB_RETURN_IF_ERROR(PutLearned(units->objects()));
    KB_RETURN_IF_ERROR(Check(units->objects(), units->ReadTypes()));
    if (!options_.only.empty()) return Status();
    KB_RETURN_IF_ERROR(WriteBundle(units->objects(), store, digests));
    if (options_.depfile.empty()) return Status();
    return PublishFile(options_.depfile, DepfileText(options_, asked_.families(), units->inputs()),
                       Durability::kCrashOnly);
  }

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
    if (options_.output.empty() && options_.writes()) {
      return InvalidArgument("no output file: say where to write the bundle, -o OUT.kb");
    }
    KB_RETURN_IF_ERROR(asked_.ReadFamilies());
    if (options_.writes()) {
      KB_RETURN_IF_ERROR(CheckBundleOutput(options_.output, asked_.families(), options_.force));
      KB_RETURN_IF_ERROR(CheckDepfile(options_));
    }
    KB_RETURN_IF_ERROR(asked_.Plan(store));
    report_.left_out = asked_.left_out();
    return FindTools(options_, work_, &context_);
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
    return InvalidArgument(report_.failed == 1
                               ? "1 variant does not fit its manifest; no bundle was written"
                               : fmt::format("{} variants do not fit their manifest; no bundle was "
                                             "written",
                                             report_.failed));
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
    KB_ASSIGN_OR_RETURN(input.ran_on, ReadRanOn(asked_.families()));
    KB_ASSIGN_OR_RETURN(const std::vector<FoundRecords> records, FindRecords(asked_.families()));
    EmbeddedRecords tuned;
    if (!records.empty()) {
      KB_ASSIGN_OR_RETURN(tuned, Embed(records, store, objects));
      input.tuned = &tuned;
      ReportStale(tuned.left_out, &input.provenance);
    }
    KB_ASSIGN_OR_RETURN(const std::string bytes, Pack(input));
    report_.bundle_bytes = bytes.size();
    return Publish(bytes);
  }

  // What records say is bound to the interfaces by the loader, from a bundle that holds no code.
  Result<EmbeddedRecords> Embed(const std::vector<FoundRecords>& records, const ObjectStore& store,
                                const std::vector<Object>& objects) {
    KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
    KB_ASSIGN_OR_RETURN(const auto bundle, OutlineBundle(work_, OutlineObjects(objects), store,
                                                         "outline", folder.path() + "/outline.kb"));
    return EmbedRecords(records, *bundle, work_, objects);
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
        fmt::format("{} left out: their code is another by now, so that their problems get what "
                    "the manifest or a neighbour says{}; `kbundle tune --revalidate` measures "
                    "them again, winner and default only",
                    left_out.size() == 1 ? "1 tuning record was"
                                         : fmt::format("{} tuning records were", left_out.size()),
                    options_.explain ? "" : " (--explain lists them)"));
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
  BuildWork asked_;
  Work& work_;
  LearnedWork learned_;  // its ops are those of work_
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
