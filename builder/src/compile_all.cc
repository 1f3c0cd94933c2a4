#include "compile_all.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "process.h"
#include "schedule.h"

namespace kbundle::builder {
namespace {

// Execution plans and algorithms have no source: "attention.sdpa_forward/cudnn".
std::string NameOf(const Unit& unit) {
  return unit.source.empty() ? unit.label.substr(0, unit.label.find('[')) : unit.source;
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
      keys_(&context->tools, context->triton ? &context->triton->python() : nullptr,
            context->cudnn.get(), digests) {}

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
    return work_.units[missing.unit].compiler == Unit::Compiler::kHost;
  });
  // A Python child serves one source: those of the same one after the other.
  const auto python_source = [this](const Missing& missing) {
    const Unit& unit = work_.units[missing.unit];
    const bool triton = unit.compiler == Unit::Compiler::kTriton;
    return triton ? unit.family->directory + "/" + unit.source : std::string();
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
    why = object.ok() ? keys_.ChangedRead(*object) : "its object is damaged";
    if (object.ok() && why.empty()) {
      Keep(unit, std::move(*object));
      return true;
    }
    if (object.ok()) why += " changed";
  }
  if (why.empty() && (options_.explain || options_.dry_run)) {
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

Status UnitBuilder::Compile(int unit) {
  const UnitInputs& inputs = inputs_[unit];
  KB_ASSIGN_OR_RETURN(Object object,
                      CompileUnit(work_.units[unit], inputs.tree, inputs.key, context_));
  Keep(unit, std::move(object));
  KB_RETURN_IF_ERROR(store_.Put("objects", inputs.key, Serialize(objects_[unit])));
  return store_.Put("last", NoteKey(work_.units[unit]), inputs.Note());
}

std::string UnitBuilder::FailureText(const Unit& unit, const Status& status) const {
  std::string command = ReproduceCommand(unit, context_.tools);
  if (command.empty()) {
    std::vector<std::string> words = {"kbundle",   "build",    unit.family->manifest_path, "-o",
                                      "/dev/null", "--target", unit.target.ToString(),     "--only",
                                      unit.label};
    if (!options_.python.empty()) words.insert(words.end(), {"--python", options_.python});
    command = ShellCommand(words);
  }
  const std::string& log = status.message();
  return fmt::format("{}: {} failed\n{}{}to see it again: {}", unit.label,
                     unit.source.empty() ? "planning" : unit.source, log,
                     log.ends_with('\n') ? "" : "\n", command);
}

Status UnitBuilder::CompileMissing(const std::atomic<bool>& cancel, BuildReport* report) {
  std::atomic<bool> stop{false};
  std::mutex mutex;  // of the reporter and the counts
  Status first;
  const int total = missing(), all = static_cast<int>(work_.units.size());
  int finished = all - total;
  const auto run = [&](int i) {
    const Unit& unit = work_.units[missing_[i].unit];
    Status status = Compile(missing_[i].unit);
    const std::lock_guard<std::mutex> lock(mutex);
    // Not the source's fault: nothing else will go better.
    const bool hopeless = status.code() == StatusCode::kResourceExhausted;
    if (!status.ok()) {
      ++report->failed;
      reporter_.Failure(FailureText(unit, status));
      if (first.ok()) first = std::move(status);
      if (!options_.keep_going || hopeless) stop = true;
    } else {
      ++report->compiled;
    }
    reporter_.Progress(++finished, all, fmt::format("{} {}", NameOf(unit), unit.target.ToString()));
    if (cancel.load()) stop = true;
  };
  if (cancel.load()) stop = true;
  const int ran = RunJobs(total, options_.jobs, stop, run);
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
