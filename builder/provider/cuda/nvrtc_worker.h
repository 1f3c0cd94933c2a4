// NVRTC in children of this program: a compilation that hangs is ended at its time limit, and one
// that crashes costs itself alone.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDA_NVRTC_WORKER_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDA_NVRTC_WORKER_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "builder/provider/cuda/nvrtc.h"
#include "builder/support/worker_process.h"

namespace kbundle::builder {

// Thread-safe; as many children as threads compile at once. Its destructor ends them.
class NvrtcWorkers {
 public:
  // Opens the library here too: what is wrong with it is told before anything is compiled.
  static Result<std::shared_ptr<NvrtcWorkers>> Open(const std::string& library_path);

  // As Nvrtc::Compile. kDeadlineExceeded: the limit is over; kInternal: the child crashed.
  Result<NvrtcOutput> Compile(const NvrtcInput& input, std::chrono::seconds limit);
  const std::string& version() const { return version_; }

 private:
  // A child dies with the thread that started it, so it serves that thread alone.
  struct Idle {
    std::thread::id thread;
    std::unique_ptr<WorkerProcess> child;
  };
  NvrtcWorkers(std::string library_path, std::string version)
      : library_path_(std::move(library_path)), version_(std::move(version)) {}
  std::unique_ptr<WorkerProcess> Take();
  Result<std::unique_ptr<WorkerProcess>> Start() const;

  const std::string library_path_, version_;
  std::mutex mutex_;
  std::vector<Idle> idle_;
};

// What the child does: `kbundle nvrtc-worker LIBRARY`. Returns the exit code.
int RunNvrtcWorker(const std::string& library_path);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDA_NVRTC_WORKER_H_
