// One Python child that compiles the kernels of one source, one after the other: starting Python
// and Triton costs a second, a kernel a tenth of one. It sees an empty home, a copy of the source
// and of the modules it imports from its folder, and nothing that it leaves behind survives it.
#ifndef KBUNDLE_BUILDER_PROVIDER_TRITON_WORKER_H_
#define KBUNDLE_BUILDER_PROVIDER_TRITON_WORKER_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "builder/provider/triton/python.h"
#include "builder/source/tree.h"
#include "builder/support/temporary_folder.h"
#include "builder/support/worker_process.h"

namespace kbundle::builder {

// Not thread-safe. Its destructor ends the child and whatever that started.
class TritonWorker {
 public:
  static Result<std::unique_ptr<TritonWorker>> Start(const TritonPython& python,
                                                     std::shared_ptr<const SourceTree> tree);

  // One line of JSON for one line of JSON. kDeadlineExceeded, kInternal (it died): the worker is
  // of no use any more.
  Result<std::string> Ask(const std::string& request, std::chrono::seconds limit);

  const SourceTree* tree() const { return tree_.get(); }
  std::string cubin_path() const { return folder_.path() + "/kernel.cubin"; }

 private:
  TritonWorker(TemporaryFolder folder, std::shared_ptr<const SourceTree> tree)
      : folder_(std::move(folder)), tree_(std::move(tree)) {}
  Status Spawn(const TritonPython& python);

  const TemporaryFolder folder_;  // outlives the child
  const std::shared_ptr<const SourceTree> tree_;
  std::unique_ptr<WorkerProcess> child_;
};

// Workers that are idle, by source. Thread-safe.
class TritonWorkers {
 public:
  explicit TritonWorkers(TritonPython python) : python_(std::move(python)) {}
  const TritonPython& python() const { return python_; }

  Result<std::unique_ptr<TritonWorker>> Take(const std::shared_ptr<const SourceTree>& tree);
  // Only one that is still good.
  void GiveBack(std::unique_ptr<TritonWorker> worker);

 private:
  const TritonPython python_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<TritonWorker>> idle_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_TRITON_WORKER_H_
