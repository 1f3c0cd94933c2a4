// All is done in the callers' threads, within Take and Drop: idle children are fed, and Take looks
// at who has answered, whoever asked, until its own problem is there. How far ahead children work
// is bounded by a guess at each problem's memory; the one that is asked for starts in any case, so
// that a guess never stops a tune.
#include "builder/tune/references.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "builder/problem/json.h"
#include "builder/support/files.h"
#include "builder/support/json_text.h"
#include "builder/support/process.h"
#include "builder/support/schedule.h"
#include "builder/tools/choose_python.h"
#include "kbundle/bundle_generated.h"
#include "loader/open/index.h"
#include "tune_reference_script.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
constexpr int kMaxChildren = 6;
constexpr size_t kMaxAhead = 24;  // problems whose files lie ready
// Of a float64 reference at work, some eight arrays; and of one in parts, its files and room. What
// is cut is guessed here, to feed several children; tune/reference.py knows, and refuses what is
// too large.
constexpr int64_t kBytesPerElement = 64;
constexpr int64_t kBytesPerCutElement = 24;
constexpr int64_t kManyParts = 64;         // then few of them are in memory at a time
constexpr int64_t kChildBytes = 64 << 20;  // an interpreter with NumPy
constexpr auto kReferenceStartLimit = std::chrono::seconds(60);

int64_t ElementsOf(const Problem& problem) {
  int64_t elements = 0;
  for (const TensorSpec& operand : problem.operands) elements += operand.elements();
  for (const TensorSpec& result : problem.results) elements += result.elements();
  return elements;
}

// Dims of the leading `rows..`, in which parts of the problem may be computed apart.
int64_t LeadingDims(const fb::Op& op, const fb::Tensor& stored, const TensorSpec& spec) {
  if (static_cast<VmapRule>(op.vmap()) != VmapRule::kLeading) return 0;
  if (stored.dims() == nullptr || stored.dims()->size() == 0) return 0;
  if (!stored.dims()->Get(0)->ellipsis()) return 0;
  return static_cast<int64_t>(spec.dims.size()) - (stored.dims()->size() - 1);
}

// How many parts it may be computed in at most.
int64_t PartsOf(const fb::Op& op, const Problem& problem) {
  for (uint32_t i = 0; i < problem.operands.size(); ++i) {
    const TensorSpec& spec = problem.operands[i];
    int64_t parts = 1;
    for (int64_t d = 0; d < (spec.present ? LeadingDims(op, *op.operands()->Get(i), spec) : 0); ++d)
      parts *= spec.dims[static_cast<size_t>(d)];
    if (parts > 1) return parts;
  }
  return 1;
}

int64_t FreeMemory() {
  return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

int64_t RoomOn(const std::string& folder) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return 0;
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

// In memory where there is room for that, else on disk.
Result<TemporaryFolder> MakeRoom() {
  constexpr int64_t kShmBytes = int64_t{4} << 30;
  const std::string shm = "/dev/shm";
  if (access(shm.c_str(), W_OK) == 0 && RoomOn(shm) >= kShmBytes) {
    Result<TemporaryFolder> made = TemporaryFolder::MakeIn(shm);
    if (made.ok()) return made;
  }
  return TemporaryFolder::Make();
}

}  // namespace

Result<std::unique_ptr<References>> References::Open(const ReferenceOptions& options,
                                                     const Bundle& outline) {
  std::unique_ptr<References> references(new References(options, &outline));
  references->python_ = ChoosePython(options.python);
  if (references->python_.empty() || access(references->python_.c_str(), X_OK) != 0) {
    return Unavailable("starting the references: no " +
                       (options.python.empty() ? "python3" : options.python) +
                       " here; name a Python with numpy and ml_dtypes: --python or KBUNDLE_PYTHON");
  }
  if (references->options_.memory_bytes == 0)
    references->options_.memory_bytes = FreeMemory() / 3 * 2;
  KB_RETURN_IF_ERROR(references->MakeFolder());
  const int children =
      options.children > 0 ? options.children : std::clamp(AvailableCpus() / 2, 1, kMaxChildren);
  for (int i = 0; i < children; ++i) {
    KB_ASSIGN_OR_RETURN(auto child, references->StartChild());
    references->workers_.push_back({std::move(child), -1, {}});
  }
  return references;
}

References::~References() {
  workers_.clear();  // first those who write into the folder
}

Status References::MakeFolder() {
  KB_ASSIGN_OR_RETURN(TemporaryFolder made, MakeRoom());
  folder_ = std::make_unique<TemporaryFolder>(std::move(made));
  options_.memory_bytes = std::min(options_.memory_bytes, 3 * RoomOn(folder_->path()));
  script_ = folder_->path() + "/reference.py";
  return PublishFile(script_, kTuneReferenceScript, Durability::kCrashOnly);
}

Result<std::unique_ptr<WorkerProcess>> References::StartChild() {
  KB_ASSIGN_OR_RETURN(auto child, WorkerProcess::Start({python_, "-u", script_}));
  child->set_limits({0, 16 << 20});
  const auto answer = child->Read(WorkerProcess::Clock::now() + kReferenceStartLimit);
  const Json json = Json::parse(answer.line, nullptr, false);
  if (answer.event == WorkerProcess::Event::kLine && json.is_object() && json.contains("ready")) {
    return child;
  }
  if (json.is_object() && json.contains("error")) {
    return Unavailable("starting the references: " + json["error"].get<std::string>());
  }
  child->Kill();
  return Unavailable(fmt::format("starting the references: {}: {} {}", python_,
                                 child->Kill().ToString(), child->Tail()));
}

void References::Plan(std::vector<const SpaceProblem*> problems) {
  jobs_.clear();
  for (const SpaceProblem* problem : problems) {
    const bool cut = PartsOf(OpOf(outline_, problem->problem.op), problem->problem) >= kManyParts;
    jobs_.push_back({problem,
                     State::kWaiting,
                     (cut ? kBytesPerCutElement : kBytesPerElement) * ElementsOf(problem->problem),
                     Status(),
                     {}});
  }
}

std::string References::Request(size_t number) const {
  const SpaceProblem& made = *jobs_[number].problem;
  const Problem& problem = made.problem;
  const fb::Op& op = OpOf(outline_, problem.op);
  const auto tensor = [&op](const fb::Tensor& stored, const TensorSpec& spec) {
    return Json{{"name", stored.name()->str()},
                {"dtype", spec.present ? std::string(Name(spec.dtype)) : ""},
                {"dims", spec.dims},
                {"rows", spec.present ? LeadingDims(op, stored, spec) : 0}};
  };
  Json operands = Json::array(), results = Json::array();
  for (uint32_t i = 0; i < problem.operands.size(); ++i) {
    operands.push_back(tensor(*op.operands()->Get(i), problem.operands[i]));
  }
  for (uint32_t i = 0; i < problem.results.size(); ++i) {
    results.push_back(tensor(*op.results()->Get(i), problem.results[i]));
  }
  const std::string reference =
      std::filesystem::absolute(std::filesystem::path(made.family->directory) /
                                made.family->reference)
          .string();
  return JsonText({{"number", number},
                   {"reference", reference},
                   {"op", problem.op_name.substr(problem.op_name.find('.') + 1)},
                   {"operands", std::move(operands)},
                   {"results", std::move(results)},
                   {"attributes", AttributesToJson(outline_, problem)},
                   {"seed", options_.seed},
                   {"memory", options_.memory_bytes},
                   {"threads", std::max(1, AvailableCpus() / 2)},
                   {"folder", folder_->path()}});
}

// Gives idle children the next problems, as far as the memory goes; `wanted` gets one in any case.
void References::Feed(size_t wanted) {
  int64_t used = 0;
  size_t ready = 0;
  for (const Job& job : jobs_) {
    if (job.state == State::kRunning) used += job.bytes + kChildBytes;
    if (job.state == State::kDone && job.status.ok()) used += job.bytes / 4;
    ready += job.state == State::kRunning || job.state == State::kDone;
  }
  for (size_t i = wanted; i < jobs_.size(); ++i) {
    Job& job = jobs_[i];
    if (job.state != State::kWaiting) continue;
    const auto idle = std::find_if(workers_.begin(), workers_.end(),
                                   [](const Worker& worker) { return worker.job < 0; });
    const bool fits = used + job.bytes <= options_.memory_bytes && ready < kMaxAhead;
    if (idle == workers_.end() || (!fits && i != wanted)) return;
    if (idle->child == nullptr) {
      auto child = StartChild();
      if (!child.ok()) {
        job.state = State::kDone;
        job.status = child.status();
        continue;
      }
      idle->child = std::move(*child);
    }
    idle->job = static_cast<int>(i);
    idle->deadline = WorkerProcess::Clock::now() + options_.limit;
    idle->child->SetBaseline(0);
    job.state = State::kRunning;
    used += job.bytes;
    ++ready;
    if (!idle->child->Send(Request(i))) {
      Finish(&*idle, Unavailable("the reference's process is gone: " + idle->child->Tail()));
      idle->child.reset();
    }
  }
}

void References::Finish(Worker* worker, Status status) {
  Job& job = jobs_[static_cast<size_t>(worker->job)];
  job.state = State::kDone;
  job.status = std::move(status).Annotate("the reference of " + job.problem->problem.ToString());
  worker->job = -1;
}

void References::ReadAnswer(Worker* worker) {
  const auto answer = worker->child->Read(WorkerProcess::Clock::now());
  if (answer.event == WorkerProcess::Event::kTimeout) {
    if (WorkerProcess::Clock::now() < worker->deadline) return;
    worker->child.reset();
    return Finish(worker,
                  DeadlineExceeded(fmt::format("took longer than {} s", options_.limit.count())));
  }
  if (answer.event != WorkerProcess::Event::kLine) {
    const std::string how = worker->child->Kill().ToString() + " " + worker->child->Tail();
    worker->child.reset();
    return Finish(worker, Unavailable("its process ended: " + how));
  }
  const Json json = Json::parse(answer.line, nullptr, false);
  if (!json.is_object()) return Finish(worker, Internal("no JSON: " + answer.line));
  if (json.contains("error")) return Finish(worker, InvalidArgument(json["error"]));
  jobs_[static_cast<size_t>(worker->job)].files = {json.at("inputs"), json.at("expected")};
  Finish(worker, Status());
}

// Another thread may read the answer, or end the child, in the meantime: then the wait was short or
// for nothing.
void References::Wait(std::unique_lock<std::mutex>* lock) {
  std::vector<pollfd> waits;
  for (const Worker& worker : workers_) {
    if (worker.job >= 0) waits.push_back({worker.child->answers(), POLLIN, 0});
  }
  lock->unlock();
  if (!waits.empty()) poll(waits.data(), waits.size(), 50);
  lock->lock();
  for (Worker& worker : workers_) {
    if (worker.job >= 0) ReadAnswer(&worker);
  }
}

Result<ReferenceFiles> References::Take(size_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  Job& job = jobs_[number];
  while (true) {
    Feed(number);
    if (job.state == State::kDone) break;
    Wait(&lock);
  }
  if (!job.status.ok()) return job.status;
  return job.files;
}

void References::Drop(size_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Job& job = jobs_[number];
  for (const auto* paths : {&job.files.inputs, &job.files.expected}) {
    for (const std::string& path : *paths) {
      if (!path.empty()) unlink(path.c_str());
    }
  }
  job.files = {};
  if (job.state != State::kRunning) job.state = State::kDropped;
  Feed(number + 1);
}

}  // namespace kbundle::builder
