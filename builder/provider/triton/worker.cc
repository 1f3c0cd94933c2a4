#include "builder/provider/triton/worker.h"

#include <fmt/format.h>

#include <utility>

#include "builder/compile/child_compile.h"
#include "builder/support/process.h"

namespace kbundle::builder {
namespace {

constexpr int64_t kMaxPrinted = 64 << 20;

}  // namespace

Result<std::unique_ptr<TritonWorker>> TritonWorker::Start(const TritonPython& python,
                                                          std::shared_ptr<const SourceTree> tree) {
  KB_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Make());
  std::unique_ptr<TritonWorker> worker(new TritonWorker(std::move(folder), std::move(tree)));
  KB_RETURN_IF_ERROR(WriteTree(*worker->tree_, worker->folder_.path() + "/source"));
  KB_RETURN_IF_ERROR(worker->Spawn(python));
  return worker;
}

Status TritonWorker::Spawn(const TritonPython& python) {
  const std::string& home = folder_.path();
  ChildOptions start;
  start.arguments = {
      python.python,        "-B",        "-s", "-c", kTritonScript, "serve", home + "/source",
      tree_->files[0].name, cubin_path()};
  start.folder = home;
  start.environment = CompilerEnvironment(home);
  // Line tables would carry the folder's name into the code.
  start.environment.insert(
      start.environment.end(),
      {"TRITON_DISABLE_LINE_INFO=1", "TRITON_DUMP_PTXAS_LOG=1", "PYTHONHASHSEED=0",
       "TRITON_CACHE_DIR=" + home + "/cache", "TRITON_HOME=" + home});
  start.outlives_thread = true;
  KB_ASSIGN_OR_RETURN(child_, WorkerProcess::Start(std::move(start)));
  child_->set_limits({0, kMaxPrinted});
  return Status();
}

Result<std::string> TritonWorker::Ask(const std::string& request, std::chrono::seconds limit) {
  child_->SetBaseline(0);
  child_->Send(request);  // one that no longer listens has ended, and Read says how
  WorkerProcess::Answer answer = child_->Read(WorkerProcess::Clock::now() + limit);
  if (answer.event == WorkerProcess::Event::kLine) return std::move(answer.line);
  const std::string end = child_->Kill().ToString();
  if (answer.event != WorkerProcess::Event::kTimeout) {
    return Internal(fmt::format("the Python child that compiles with Triton ended with {}\n{}", end,
                                child_->Printed()));
  }
  return DeadlineExceeded(
      fmt::format("Triton was stopped after {} s; a larger limit: KBUNDLE_COMPILE_TIMEOUT "
                  "(seconds)\n{}",
                  limit.count(), child_->Printed()));
}

Result<std::unique_ptr<TritonWorker>> TritonWorkers::Take(
    const std::shared_ptr<const SourceTree>& tree) {
  std::unique_ptr<TritonWorker> other;  // of another source: ended outside the lock, to make room
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& worker : idle_) {
      if (worker->tree() != tree.get()) continue;
      std::unique_ptr<TritonWorker> found = std::move(worker);
      worker = std::move(idle_.back());
      idle_.pop_back();
      return found;
    }
    if (!idle_.empty()) {
      other = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  other.reset();
  return TritonWorker::Start(python_, tree);
}

void TritonWorkers::GiveBack(std::unique_ptr<TritonWorker> worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(worker));
}

}  // namespace kbundle::builder
