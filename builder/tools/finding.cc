// A tool that is absent is advised about, one that is there and fails is called broken with what it
// said: the two want different cures.
#include "builder/tools/finding.h"

#include <fmt/format.h>

#include <utility>

#include "builder/support/files.h"
#include "builder/support/process.h"
#include "builder/support/temporary_folder.h"

namespace kbundle::builder {
namespace {

// Each takes two seconds at most on a machine with time to spare.
constexpr std::chrono::seconds kTryLimit{180};

}  // namespace

Finding TryTool(const Tool& tool, const Status& need,
                const std::function<Result<std::string>()>& use) {
  Finding of;
  of.part = tool.part;
  of.needed_by = tool.needed_by;
  of.where = tool.where;
  of.advice = need.message();
  if (!need.ok()) return of;
  Result<std::string> version = use();
  of.state = version.ok() ? Finding::State::kWorks : Finding::State::kBroken;
  if (version.ok()) {
    of.version = std::move(*version);
  } else {
    of.advice =
        fmt::format("it is there ({}) and does not work: {}; install it again, or name another",
                    of.where, version.status().message());
  }
  return of;
}

Finding TryPackage(const std::string& title, const PythonPackage& package,
                   const std::string& program) {
  const FoundPackage found = FindPackage(package, "");
  return TryTool(
      {.part = title, .needed_by = "provider " + package.provider, .where = found.python},
      found.Need(package), [&]() -> Result<std::string> {
        KB_RETURN_IF_ERROR(TryCommand({found.python, "-s", "-c", "import kb"}, "kb.py", program));
        return found.version;
      });
}

Status TryCommand(const std::vector<std::string>& command, const char* name,
                  const std::string& text) {
  KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
  KB_RETURN_IF_ERROR(PublishFile(folder.path() + "/" + name, text, Durability::kCrashOnly));
  ProcessOptions options;
  options.arguments = command;
  options.folder = folder.path();
  options.environment = CompilerEnvironment(folder.path());
  options.limit = kTryLimit;
  KB_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess(options));
  if (result.ok()) return Status();
  const std::string said = result.output.empty() ? "" : ": " + result.output.substr(0, 2000);
  return Unavailable(fmt::format("{}: {}{}", ShellCommand(command), result.Describe(), said));
}

}  // namespace kbundle::builder
