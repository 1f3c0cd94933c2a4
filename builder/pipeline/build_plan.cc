// The document is for programs that start others: written a unit a line, so that two plans can be
// compared, and each file is digested once, however many units read it.
#include "builder/pipeline/build_plan.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "builder/pack/provenance.h"
#include "builder/pipeline/unit_command.h"
#include "builder/support/files.h"
#include "builder/support/json_text.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

class PlanWriter {
 public:
  PlanWriter(const BuildOptions& options, BuildWork& asked, const UnitBuilder& units,
             const CompileContext& context)
      : options_(options), asked_(asked), units_(units), context_(context) {}

  Result<std::string> Text(ToolDigests* digests) {
    std::string rows;
    int missing = 0;
    const std::vector<BuildUnit> told = units_.Units();
    for (size_t i = 0; i < told.size(); ++i) {
      rows += (i == 0 ? "\n" : ",\n") + JsonText(RowOf(i, told[i].compile));
      missing += told[i].compile.empty() ? 0 : 1;
    }
    Json head = {{"build_plan", kBuildPlanVersion},
                 {"variants", asked_.work().variants.size()},
                 {"missing", missing},
                 {"providers", options_.providers},
                 {"problems", options_.problems.empty() ? "" : PathForOthers(options_.problems)},
                 {"python", options_.python},
                 {"environment", Environment()},
                 {"families", Families()},
                 {"tools", Json::object()}};
    KB_ASSIGN_OR_RETURN(const auto tools, Provenance(context_, digests));
    for (const auto& [name, said] : tools) head["tools"][name] = said;
    std::string text = JsonText(head);
    text.pop_back();
    return text + ",\"units\":[" + rows + "\n]}\n";
  }

 private:
  // Of the file's bytes; null when it cannot be read.
  Json DigestOfFile(const std::string& path) {
    const auto [found, fresh] = digests_.try_emplace(path);
    if (fresh) {
      if (const Result<std::string> bytes = ReadFile(path); bytes.ok()) {
        found->second = ToHex(Sha256Of(bytes->data(), bytes->size()));
      }
    }
    return found->second.empty() ? Json() : Json(found->second);
  }

  Json FileRow(const std::string& path, const Family& family) {
    std::error_code error;
    const auto relative = std::filesystem::proximate(path, family.directory, error);
    return {{"file", error ? path : relative.string()}, {"sha256", DigestOfFile(path)}};
  }

  Json Families() {
    Json rows = Json::array();
    for (const Family& family : asked_.families()) {
      Json files = Json::array();
      for (const std::string& path : family.sources.paths) files.push_back(FileRow(path, family));
      rows.push_back({{"name", family.name},
                      {"manifest", PathForOthers(family.manifest_path)},
                      {"files", std::move(files)}});
    }
    return rows;
  }

  Json Environment() const {
    std::set<std::string> names = {"KBUNDLE_COMPILE_TIMEOUT"};
    for (const auto& compiler : context_.compilers) {
      for (const std::string& name : compiler->Variables()) names.insert(name);
    }
    Json values = Json::object();
    for (const std::string& name : names) {
      const char* value = std::getenv(name.c_str());
      values[name] = value == nullptr ? Json() : Json(value);
    }
    return values;
  }

  // kbundle's own headers come with the command: they have a name and no file.
  Json InputRows(const Unit& unit, const UnitInputs& inputs) {
    std::map<std::string, std::string> places;
    const std::string own = context_.tools.kernel_includes + "/";
    for (const SourceFile& file : inputs.tree->files) {
      if (!file.path.empty() && !file.path.starts_with(own)) places[file.name] = file.path;
    }
    Json rows = Json::array();
    for (const auto& [name, digest] : InputsOf(inputs)) {
      Json row = {{"name", name}, {"digest", digest}};
      if (const auto place = places.find(name); place != places.end()) {
        row.update(FileRow(place->second, *unit.family));
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  Json RowOf(size_t number, const std::string& why) {
    const Unit& unit = asked_.work().units[number];
    const UnitInputs& inputs = units_.inputs()[number];
    return {{"number", number},
            {"unit", unit.label},
            {"target", unit.target.ToString()},
            {"family", unit.family->name},
            {"manifests", ManifestsOf(unit, asked_.families())},
            {"source", unit.source},
            {"compiler", unit.compiler},
            {"key", inputs.key},
            {"stored", why.empty()},
            {"why", why},
            {"inputs", InputRows(unit, inputs)},
            {"environment", context_.CompilerOf(unit).Variables()},
            {"command", UnitCommand(options_, unit, inputs, asked_.families(), true)},
            {"compiler_command", ReproduceCommand(unit, context_)}};
  }

  const BuildOptions& options_;
  BuildWork& asked_;
  const UnitBuilder& units_;
  const CompileContext& context_;
  std::map<std::string, std::string> digests_;  // by path
};

}  // namespace

Result<std::string> BuildPlan(const BuildOptions& options, BuildWork& asked,
                              const UnitBuilder& units, const CompileContext& context,
                              ToolDigests* digests) {
  return PlanWriter(options, asked, units, context).Text(digests);
}

}  // namespace kbundle::builder
