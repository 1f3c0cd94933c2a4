// Idle workers of one source at a time are worth their memory: who asks for another source ends one
// of the old to make room, outside the lock, since a child's end takes its time.
#include "builder/compile/python_worker.h"

#include <fmt/format.h>

#include <utility>

#include "builder/compile/child_compile.h"
#include "builder/support/process.h"

namespace kbundle::builder {
namespace {

constexpr int64_t kMaxPrinted = 64 << 20;

}  // namespace

Result<std::unique_ptr<PythonWorker>> PythonWorker::Start(const PythonProgram& program,
                                                          std::shared_ptr<const SourceTree> tree) {
  KB_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Make());
  std::unique_ptr<PythonWorker> worker(
      new PythonWorker(program, std::move(folder), std::move(tree)));
  KB_RETURN_IF_ERROR(WriteTree(*worker->tree_, worker->folder_.path() + "/source"));
  KB_RETURN_IF_ERROR(worker->Spawn(program));
  return worker;
}

Status PythonWorker::Spawn(const PythonProgram& program) {
  constexpr std::string_view kHome = "{home}";
  const std::string& home = folder_.path();
  ChildOptions start;
  start.arguments = {
      program.python,       "-B",         "-s", "-c", program.script, "serve", home + "/source",
      tree_->files[0].name, output_path()};
  start.folder = home;
  start.environment = CompilerEnvironment(home);
  for (std::string variable : program.environment) {
    const size_t at = variable.find(kHome);
    if (at != std::string::npos) variable.replace(at, kHome.size(), home);
    start.environment.push_back(std::move(variable));
  }
  start.outlives_thread = true;
  KB_ASSIGN_OR_RETURN(child_, WorkerProcess::Start(std::move(start)));
  child_->set_limits({0, kMaxPrinted});
  return Status();
}

Result<std::string> PythonWorker::Ask(const std::string& request, std::chrono::seconds limit) {
  child_->SetBaseline(0);
  child_->Send(request);  // one that no longer listens has ended, and Read says how
  WorkerProcess::Answer answer = child_->Read(WorkerProcess::Clock::now() + limit);
  if (answer.event == WorkerProcess::Event::kLine) return std::move(answer.line);
  const std::string end = child_->Kill().ToString();
  if (answer.event != WorkerProcess::Event::kTimeout) {
    return Internal(fmt::format("the Python child that compiles with {} ended with {}\n{}",
                                compiler_, end, child_->Printed()));
  }
  return DeadlineExceeded(
      fmt::format("{} was stopped after {} s; a larger limit: KBUNDLE_COMPILE_TIMEOUT "
                  "(seconds)\n{}",
                  compiler_, limit.count(), child_->Printed()));
}

Result<std::unique_ptr<PythonWorker>> PythonWorkers::Take(
    const std::shared_ptr<const SourceTree>& tree) {
  std::unique_ptr<PythonWorker> other;  // of another source: ended outside the lock, to make room
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& worker : idle_) {
      if (worker->tree() != tree.get()) continue;
      std::unique_ptr<PythonWorker> found = std::move(worker);
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
  return PythonWorker::Start(program_, tree);
}

void PythonWorkers::GiveBack(std::unique_ptr<PythonWorker> worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(worker));
}

}  // namespace kbundle::builder
