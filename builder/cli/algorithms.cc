// Files of algorithms grow on one machine after another, so a run never writes one afresh: its
// answers take the place of earlier ones for the same problem, device and version, and all others
// stay. A file there that cannot be read as algorithms is left as it is, and the run fails.
#include "builder/cli/algorithms.h"

#include <fmt/format.h>

#include <set>

#include "builder/problem/file.h"
#include "builder/record/record.h"
#include "builder/support/files.h"
#include "kbundle/json.h"

namespace kbundle::builder {
namespace {

// Answers of other machines and versions stay; those of this one are replaced.
Status MergeInto(const std::string& path, const std::vector<ListedAlgorithm>& fresh) {
  KB_RETURN_IF_ERROR(CheckReplaceable(path));
  std::vector<ListedAlgorithm> old;
  const Result<std::string> text = ReadFile(path);
  if (text.ok()) {
    KB_ASSIGN_OR_RETURN(old, ParseAlgorithms(*text, path));
  } else if (text.status().code() != StatusCode::kNotFound) {
    return text.status();
  }
  return PublishFile(path, AlgorithmsText(MergeAlgorithms(old, fresh)), Durability::kDisk);
}

// lines: what would stand in a file; "": it does.
std::string ListedJson(const ListedFamilies& listed, const std::set<std::string>& files,
                       const std::string& lines) {
  JsonWriter json;
  json.BeginObject().Key("ok").Bool(true).Key("device").Text(listed.device);
  json.Key("problems").Int(listed.problems).Key("algorithms").Int(listed.algorithms);
  json.Key("near").Int(listed.near).Key("passed_over").Int(listed.passed_over);
  const auto list = [&json](const char* key, const auto& texts) {
    json.Key(key).BeginArray();
    for (const std::string& text : texts) json.Text(text);
    json.EndArray();
  };
  list("without", listed.without);
  list("unsearched", listed.unsearched);
  list("written", files);
  if (!lines.empty()) json.Key("text").Text(lines);
  return json.EndObject().text();
}

}  // namespace

int AlgorithmsCommand::Run(const Terminal& terminal) const {
  ListOptions wanted = options;
  std::set<std::string> files;
  if (output.empty()) {
    wanted.keep = [&files](const std::string& folder, const std::vector<ListedAlgorithm>& found) {
      const std::string path = folder + "/" + DeviceSlug(found.front().device) + ".jsonl";
      KB_RETURN_IF_ERROR(MakeFolders(folder));
      files.insert(path);
      return MergeInto(path, found);
    };
  }
  const Result<ListedFamilies> listed = ListAlgorithms(wanted);
  if (!listed.ok()) {
    return terminal.Fail(
        Status(listed.status())
            .Annotate("listing algorithms: cuBLASLt answers on a GPU machine only, where its files "
                      "are made once and committed"));
  }
  if (listed->passed_over > 0) terminal.Note(PassedOver(listed->passed_over, options.problems));
  for (const std::string& problem : listed->without) terminal.Warn("no algorithm: " + problem);
  for (const std::string& problem : listed->unsearched) {
    terminal.Warn("the heuristic's algorithms only: " + problem);
  }
  std::vector<ListedAlgorithm> all;
  for (const auto& [folder, algorithms] : listed->by_folder) {
    all.insert(all.end(), algorithms.begin(), algorithms.end());
  }
  if (!output.empty() && output != "-") {
    const Status status = MergeInto(output, all);
    if (!status.ok()) return terminal.Fail(status);
    files.insert(output);
  }
  if (terminal.json()) {
    terminal.Line(ListedJson(*listed, files, output == "-" ? AlgorithmsText(all) : ""));
    return kExitOk;
  }
  for (const std::string& path : files) terminal.Line("wrote " + path);
  if (output == "-") terminal.Out(AlgorithmsText(all));
  terminal.Note(fmt::format("{} algorithms for {} problems on {}, {} of them found near others",
                            listed->algorithms, listed->problems, listed->device, listed->near));
  return kExitOk;
}

}  // namespace kbundle::builder
