// A cuDNN for tests without one.
#ifndef KBUNDLE_TESTS_SUPPORT_FAKE_CUDNN_H_
#define KBUNDLE_TESTS_SUPPORT_FAKE_CUDNN_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "loader/provider/cudnn/cudnn_api.h"

namespace kbundle::testing {

// A cuDNN that runs nothing and remembers everything. One at a time; thread-safe.
class FakeCudnn {
 public:
  struct Run {
    CudnnHandle handle = nullptr;
    CudnnDescriptor plan = nullptr;
    CUstream stream = nullptr;  // that the handle has
    std::vector<int64_t> uids;
    std::vector<void*> pointers;
    void* workspace = nullptr;

    void* Of(int64_t uid) const {
      for (size_t i = 0; i < uids.size(); ++i) {
        if (uids[i] == uid) return pointers[i];
      }
      return nullptr;
    }
  };

  FakeCudnn();
  ~FakeCudnn() { fake_ = nullptr; }

  const CudnnApi& api() const { return api_; }
  // Texts of the plans that were finalized, in order.
  std::vector<std::string> texts() const;
  std::vector<Run> runs() const;
  int handles() const;  // made so far
  int alive() const;    // handles and descriptors
  int streams_set() const;
  int packs() const;    // made so far
  bool shared() const;  // a handle or a plan was in two calls at once

  size_t version = 91900;
  int fail_finalize = 0, fail_execute = 0;         // statuses
  std::function<void(const Run& run)> on_execute;  // outside the fake's lock

 private:
  struct Descriptor {
    int kind = 0;
    std::map<int, std::vector<uint8_t>> values;
  };
  static int Execute(CudnnHandle handle, CudnnDescriptor plan, CudnnDescriptor pack);
  template <typename T>
  static std::vector<T> Values(CudnnDescriptor descriptor, int attribute) {
    const auto& bytes = static_cast<Descriptor*>(descriptor)->values[attribute];
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  static FakeCudnn* fake_;
  CudnnApi api_;
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
  std::vector<Run> runs_;
  std::map<CudnnHandle, CUstream> streams_;
  std::set<void*> busy_;
  int handles_ = 0, alive_ = 0, streams_set_ = 0, packs_ = 0;
  bool shared_ = false;
};

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_FAKE_CUDNN_H_
