// What an author is told after `kbundle new` is what to type next: each line works as it stands.
#include "builder/cli/new.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "builder/starter/starter.h"

namespace kbundle::builder {
namespace {

// As a shell takes it for one word.
std::string ShellWord(const std::string& text) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-,:@%=";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

int NewCommand::Run(const Terminal& terminal) const {
  const Result<std::vector<StarterFile>> files = StarterFiles(name);
  if (!files.ok()) return terminal.Fail(files.status());
  const std::string folder = (std::filesystem::path(into) / name).lexically_normal().string();
  const Status written = WriteStarter(folder, *files);
  if (!written.ok()) return terminal.Fail(Status(written).Annotate("making a library"));
  if (terminal.json()) {
    nlohmann::json report = {{"ok", true}, {"folder", folder}, {"files", nlohmann::json::array()}};
    for (const StarterFile& file : *files) report["files"].push_back(file.path);
    terminal.Line(report.dump(2));
    return kExitOk;
  }
  terminal.Line("wrote " + Counted(files->size(), "file") +
                " of a library with one op and its "
                "gradient, for GPUs and CPUs, to " +
                folder);
  terminal.Line("Next:\n  cd " + ShellWord(folder) +
                "\n  kbundle test kernels --target host\n  kbundle build "
                "kernels -o src/" +
                name + "/" + name +
                ".kb\n  PYTHONPATH=src python -m pytest "
                "tests\nREADME.md there goes on from here.");
  return kExitOk;
}

}  // namespace kbundle::builder
