// A Python child that compiles the kernels of one source, one after the other: starting Python and
// a compiler costs a second, a kernel a tenth of one. It sees an empty home, a copy of the source
// and of the modules it imports from its folder, and nothing that it leaves behind survives it.
#ifndef KBUNDLE_BUILDER_COMPILE_PYTHON_WORKER_H_
#define KBUNDLE_BUILDER_COMPILE_PYTHON_WORKER_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "builder/source/tree.h"
#include "builder/support/temporary_folder.h"
#include "builder/support/worker_process.h"

namespace kbundle::builder {

// Run as `python -c SCRIPT serve FOLDER SOURCE OUT`: answers one line of JSON with one, and puts
// what it made into OUT.
struct PythonProgram {
  std::string compiler;  // "Triton", for messages
  std::string python, script;
  // Its variables, where {home} stands for the folder that it works in.
  std::vector<std::string> environment;
};

// Not thread-safe. Its destructor ends the child and whatever that started.
class PythonWorker {
 public:
  static Result<std::unique_ptr<PythonWorker>> Start(const PythonProgram& program,
                                                     std::shared_ptr<const SourceTree> tree);

  // One line of JSON for one line of JSON. kDeadlineExceeded, kInternal (it died): the worker is
  // of no use any more.
  Result<std::string> Ask(const std::string& request, std::chrono::seconds limit);

  const SourceTree* tree() const { return tree_.get(); }
  std::string output_path() const { return folder_.path() + "/kernel"; }

 private:
  PythonWorker(const PythonProgram& program, TemporaryFolder folder,
               std::shared_ptr<const SourceTree> tree)
      : compiler_(program.compiler), folder_(std::move(folder)), tree_(std::move(tree)) {}
  Status Spawn(const PythonProgram& program);

  const std::string compiler_;
  const TemporaryFolder folder_;  // outlives the child
  const std::shared_ptr<const SourceTree> tree_;
  std::unique_ptr<WorkerProcess> child_;
};

// Workers that are idle, by source. Thread-safe.
class PythonWorkers {
 public:
  explicit PythonWorkers(PythonProgram program) : program_(std::move(program)) {}

  Result<std::unique_ptr<PythonWorker>> Take(const std::shared_ptr<const SourceTree>& tree);
  // Only one that is still good.
  void GiveBack(std::unique_ptr<PythonWorker> worker);

 private:
  const PythonProgram program_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PythonWorker>> idle_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_PYTHON_WORKER_H_
