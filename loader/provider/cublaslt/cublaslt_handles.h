// cuBLASLt as plans find it: the library, and one handle a CUDA context, made at the first product
// that is prepared there.
#ifndef KBUNDLE_LOADER_CUBLASLT_HANDLES_H_
#define KBUNDLE_LOADER_CUBLASLT_HANDLES_H_

#include <cstdint>
#include <map>
#include <mutex>

#include "kbundle/cublaslt_api.h"

namespace kbundle {

// Thread-safe. Handles are never destroyed: plans that use them may outlive this, and destroying
// one may wait for running work.
class CublasLtHandles {
 public:
  // api: in place of the process's library, borrowed for ever; null: that one.
  explicit CublasLtHandles(const CublasLtApi* api = nullptr) : given_(api) {}

  Result<const CublasLtApi*> Api() const {
    if (given_ != nullptr) return given_;
    return CublasLtApi::Get();
  }
  // For the calling thread's current context, whose id is `context`. Made outside the lock; of two
  // threads that race, the loser's stays behind, unused.
  Result<LtHandle> Get(const CublasLtApi& lt, uint64_t context) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = handles_.find(context);
      if (found != handles_.end()) return found->second;
    }
    LtHandle handle = nullptr;
    KB_RETURN_IF_ERROR(lt.Check(lt.Create(&handle), "making a cuBLASLt handle"));
    const std::lock_guard lock(mutex_);
    return handles_.try_emplace(context, handle).first->second;
  }

 private:
  const CublasLtApi* const given_;
  std::mutex mutex_;
  std::map<uint64_t, LtHandle> handles_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_CUBLASLT_HANDLES_H_
