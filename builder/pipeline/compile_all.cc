// Two questions for each unit: what would decide its bytes (the key), and is an object of that key
// there whose outside headers still are what they were (Take)? The rest is compiled, the slow
// first. A failure is told once for all units that fail alike, because a mistake in one template
// fails at every point of its grid.
#include "builder/pipeline/compile_all.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <sstream>
#include <tuple>

#include "builder/compile/compile_errors.h"
#include "builder/pipeline/unit_command.h"
#include "builder/support/diagnostic.h"
#include "builder/support/files.h"
#include "builder/support/process.h"
#include "builder/support/schedule.h"
#include "builder/support/temporary_folder.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

using Clock = std::chrono::steady_clock;

// What two grid points say of the same mistake: without the notes on who instantiates what.
std::string ErrorsIn(const std::string& log) {
  std::string errors;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(": error") != std::string::npos) errors += line + "\n";
  }
  return errors.empty() ? log : errors;
}

// Everything that decides what Compiler::ReadTypes finds but the level of x86-64.
std::string TypesKey(const Unit& unit, const UnitInputs& inputs, const Object& object) {
  KeyWriter key;
  key.U32(1);  // grows when what is stored changes its meaning
  for (const auto& [name, digest] : inputs.named) {
    if (name != "flags") key.Text(name).Text(digest);
  }
  for (const std::string& flag : unit.flags) key.Text(flag);
  for (const Object::Read& read : object.reads) key.Text(read.path).Text(read.sha256);
  const std::string bytes = key.bytes();
  return ToHex(Sha256Of(bytes.data(), bytes.size()));
}

}  // namespace

UnitBuilder::UnitBuilder(const BuildOptions& options, const Work* work,
                         const CompileContext* context, const ObjectStore* store,
                         ToolDigests* digests, Reporter* reporter)
    : options_(options),
      work_(*work),
      context_(*context),
      store_(*store),
      reporter_(*reporter),
      keys_(context, digests) {}

Status UnitBuilder::LookUp() {
  objects_.resize(work_.units.size());
  for (const Unit& unit : work_.units) {
    Result<UnitInputs> inputs = keys_.Make(unit);
    if (!inputs.ok()) {
      return std::move(inputs).status().Annotate(unit.family->manifest_path + ": " + unit.label);
    }
    inputs_.push_back(std::move(*inputs));
  }
  for (int i = 0; i < static_cast<int>(work_.units.size()); ++i) Take(i);
  // Host sources hold many kernels and take the longest: they must not be what all wait for.
  std::stable_partition(missing_.begin(), missing_.end(), [this](const Missing& missing) {
    return context_.CompilerOf(work_.units[missing.unit]).sources() == Compiler::Sources::kHostCpp;
  });
  // A Python child serves one source: those of the same one after the other.
  const auto python_source = [this](const Missing& missing) {
    const Unit& unit = work_.units[missing.unit];
    const bool python = context_.CompilerOf(unit).sources() == Compiler::Sources::kPython;
    return python ? unit.family->directory + "/" + unit.source : std::string();
  };
  std::stable_sort(missing_.begin(), missing_.end(), [&](const Missing& a, const Missing& b) {
    return python_source(a) < python_source(b);
  });
  return Status();
}

bool UnitBuilder::Take(int unit) {
  std::string why;
  if (const auto bytes = store_.Get("objects", inputs_[unit].key)) {
    Result<Object> object = ParseObject(*bytes);
    why = object.ok() ? keys_.ChangedRead(inputs_[unit], *object) : "its object is damaged";
    if (object.ok() && why.empty()) {
      Keep(unit, std::move(*object));
      return true;
    }
    if (object.ok()) why += " changed";
  }
  if (why.empty() && (options_.explain || !options_.compiles())) {
    why = WhyChanged(inputs_[unit], store_.Get("last", NoteKey(work_.units[unit])).value_or(""));
  }
  missing_.push_back({unit, std::move(why)});
  return false;
}

void UnitBuilder::Keep(int unit, Object object) {
  object.sha256 = Sha256Of(object.code.data(), object.code.size());
  objects_[unit] = std::move(object);
}

void UnitBuilder::Explain() const {
  for (const Missing& missing : missing_) {
    reporter_.Note(fmt::format("compile {}: {}", work_.units[missing.unit].label, missing.why));
  }
}

std::vector<int> UnitBuilder::MissingUnits() const {
  std::vector<int> units;
  for (const Missing& missing : missing_) units.push_back(missing.unit);
  return units;
}

std::vector<BuildUnit> UnitBuilder::Units() const {
  std::vector<BuildUnit> units;
  for (const Unit& unit : work_.units) units.push_back({unit.label, ""});
  for (const Missing& missing : missing_) {
    units[static_cast<size_t>(missing.unit)].compile = missing.why;
  }
  return units;
}

bool UnitBuilder::IsMissing(int unit) const {
  return std::any_of(missing_.begin(), missing_.end(),
                     [unit](const Missing& missing) { return missing.unit == unit; });
}

bool UnitBuilder::KnowsTypes(int unit) const {
  if (!context_.CompilerOf(work_.units[unit]).TellsTypes()) return true;
  return store_.Get("types", TypesKey(work_.units[unit], inputs_[unit], objects_[unit]))
      .has_value();
}

Status UnitBuilder::NeedNothing(const std::vector<Family>& families) const {
  constexpr size_t kMostListed = 10;
  std::vector<Missing> lacking = missing_;
  for (int i = 0; i < static_cast<int>(work_.units.size()); ++i) {
    if (!IsMissing(i) && !KnowsTypes(i)) lacking.push_back({i, "its parameter types are not kept"});
  }
  if (lacking.empty()) return Status();
  std::string text =
      fmt::format("--no-compile: the cache lacks {} of {} code objects; no bundle was written",
                  lacking.size(), work_.units.size());
  for (size_t i = 0; i < std::min(lacking.size(), kMostListed); ++i) {
    const auto& [unit, why] = lacking[i];
    std::vector<std::string> words =
        UnitCommand(options_, work_.units[unit], inputs_[unit], families, /*with_inputs=*/false);
    if (!options_.cache_dir.empty()) words.insert(words.end(), {"--cache", options_.cache_dir});
    if (!options_.shared_cache.empty()) {
      words.insert(words.end(), {"--shared-cache", options_.shared_cache});
    }
    text += fmt::format("\n{}: {}\n  {}", work_.units[unit].label, why, ShellCommand(words));
  }
  if (lacking.size() > kMostListed) {
    text += fmt::format("\nand {} more; `kbundle build --plan` lists all of them",
                        lacking.size() - kMostListed);
  }
  return FailedPrecondition(std::move(text));
}

// The levels of one source share an answer: types do not depend on them.
ParameterTypes UnitBuilder::TypesOf(int number) const {
  const Unit& unit = work_.units[number];
  const Compiler& compiler = context_.CompilerOf(unit);
  if (!compiler.TellsTypes()) return {};
  const std::string key = TypesKey(unit, inputs_[number], objects_[number]);
  if (const auto known = store_.Get("types", key)) return ParseParameterTypes(*known);
  Result<ParameterTypes> read = compiler.ReadTypes(unit, *inputs_[number].tree, context_);
  // Sizes are compared all the same. A compiler that says no will say it again.
  ParameterTypes types = read.ok() ? std::move(*read) : ParameterTypes();
  if (read.ok() || read.status().code() == StatusCode::kInvalidArgument) {
    store_.Put("types", key, Serialize(types));
  }
  return types;
}

std::vector<ParameterTypes> UnitBuilder::ReadTypes() const {
  std::vector<ParameterTypes> types;
  for (int i = 0; i < static_cast<int>(work_.units.size()); ++i) types.push_back(TypesOf(i));
  return types;
}

Status UnitBuilder::Compile(int unit) {
  const UnitInputs& inputs = inputs_[unit];
  KB_ASSIGN_OR_RETURN(Object object,
                      CompileUnit(work_.units[unit], inputs.tree, inputs.key, context_));
  if (!inputs.toolkit.empty()) object.reads.push_back({kToolkitHeaders, inputs.toolkit});
  Keep(unit, std::move(object));
  // The note first: a kill in between compiles again, and what it left is swept when it is
  // put again.
  store_.Put("last", NoteKey(work_.units[unit]), inputs.Note());
  store_.Put("objects", inputs.key, Serialize(objects_[unit]));
  return Status();
}

void UnitBuilder::Share(int unit) const {
  store_.Share("objects", inputs_[unit].key);
  if (!context_.CompilerOf(work_.units[unit]).TellsTypes()) return;
  store_.Share("types", TypesKey(work_.units[unit], inputs_[unit], objects_[unit]));
}

std::string UnitBuilder::Explained(int unit, const Status& status) const {
  if (status.code() != StatusCode::kNotFound) return status.message();
  const Family& family = *work_.units[unit].family;
  for (const VariantUse& use : work_.variants) {
    const Template& variant = work_.ops[use.op].op->templates[use.template_index];
    for (size_t i = 0; i < use.units.size(); ++i) {
      if (use.units[i] != static_cast<uint32_t>(unit)) continue;
      if (status.message().find("'" + use.kernels[i] + "'") == std::string::npos) continue;
      Diagnostics diagnostics = DiagnosticsOf(family.sources);
      diagnostics.Error(variant.steps[i].kernel_where, status.message());
      return diagnostics.ToStatus().message();
    }
  }
  return status.message();
}

std::string UnitBuilder::FailureText(int number, const Status& status) const {
  const Unit& unit = work_.units[number];
  // The compiler's own command shows what the compiler refuses, not what is compared behind it.
  std::string command =
      status.code() == StatusCode::kInvalidArgument ? ReproduceCommand(unit, context_) : "";
  if (command.empty()) {
    std::vector<std::string> words = {
        "kbundle", "build",   unit.family->manifest_path, "--target", unit.target.ToString(),
        "--only",  unit.label};
    if (!options_.python.empty()) words.insert(words.end(), {"--python", options_.python});
    command = ShellCommand(words);
  }
  const std::string log = Explained(number, status);
  return fmt::format("{}: {} failed\n{}{}to see it again: {}", unit.label,
                     unit.source.empty() ? "planning" : unit.source, log,
                     log.ends_with('\n') ? "" : "\n", command);
}

Status UnitBuilder::CompileMissing(const std::atomic<bool>& cancel, BuildReport* report) {
  // Without one nothing can be compiled, which is no fault of a source.
  if (missing() > 0) KB_RETURN_IF_ERROR(TemporaryFolder::Make().status());
  std::atomic<bool> stop{false};
  std::mutex mutex;  // of the reporter and the counts
  Status first;
  const int total = missing(), all = static_cast<int>(work_.units.size());
  int finished = all - total;
  // Failures by folder, source and message: many grid points fail alike.
  std::map<std::tuple<std::string, std::string, std::string>, int> told;
  const auto run = [&](int i) {
    const Unit& unit = work_.units[missing_[i].unit];
    const auto start = Clock::now();
    Status status = Compile(missing_[i].unit);
    const bool failed = !status.ok();
    const std::lock_guard<std::mutex> lock(mutex);
    // Not the source's fault: nothing else will go better.
    const bool hopeless = status.code() == StatusCode::kResourceExhausted;
    if (!status.ok()) {
      ++report->failed;
      if (int& same = told[{unit.family->directory, unit.source, ErrorsIn(status.message())}];
          same++ == 0) {
        reporter_.Failure(FailureText(missing_[i].unit, status));
      }
      if (first.ok()) first = std::move(status);
      if (!options_.keep_going || hopeless) stop = true;
    } else {
      ++report->compiled;
    }
    const std::chrono::duration<double> took = Clock::now() - start;
    reporter_.Progress(
        ++finished, all,
        fmt::format("{}{} {:.1f} s", failed ? "failed: " : "", unit.label, took.count()));
    if (cancel.load()) stop = true;
  };
  if (cancel.load()) stop = true;
  const int ran = RunJobs(total, options_.jobs, stop, run);
  for (const auto& [what, times] : told) {
    if (times == 1) continue;
    reporter_.Failure(fmt::format("{}: the same in {} more of its compilations",
                                  std::get<1>(what).empty() ? "planning" : std::get<1>(what),
                                  times - 1));
  }
  if (cancel.load() && ran < total) {
    return Cancelled(
        fmt::format("stopped with {} of {} objects to go; what is compiled is kept, and "
                    "the next build goes on from there",
                    total - ran, all));
  }
  if (first.ok()) return Status();
  return Status(first.code(),
                fmt::format("{} of {} objects failed{}; no bundle was written", report->failed, all,
                            ran < total ? fmt::format(", {} were not tried", total - ran) : ""));
}

}  // namespace kbundle::builder
