// A CUDA driver that runs nothing and remembers everything, for tests without a GPU.
//
// Its images describe themselves (FakeImage), because the driver is given no length. It can fail
// any call, plays several contexts, and refuses unsafe calls beside a capture as the real one does.
#ifndef KBUNDLE_TESTS_SUPPORT_FAKE_DRIVER_H_
#define KBUNDLE_TESTS_SUPPORT_FAKE_DRIVER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kbundle/driver_api.h"
#include "support/fake_image.h"

namespace kbundle::testing {

inline constexpr Device::Kind kHost = Device::Kind::kHost, kCuda = Device::Kind::kCuda;

// One at a time; thread-safe. Everything it handed out stays valid until it is destroyed.
class FakeDriver {
 public:
  struct Launch {
    std::string symbol;
    std::array<unsigned, 3> grid{}, block{}, cluster{1, 1, 1};
    unsigned shared = 0;
    bool programmatic = false;
    CUstream stream = nullptr;
    std::vector<std::vector<uint8_t>> parameters;

    template <typename T>
    T Parameter(size_t i) const {
      T value{};
      if (i < parameters.size() && parameters[i].size() == sizeof(T)) {
        __builtin_memcpy(&value, parameters[i].data(), sizeof(T));
      }
      return value;
    }
  };

  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const DriverApi* api() const { return &api_; }

  // What was called, by member name of DriverApi, in order; error texts are not counted.
  std::vector<std::string> calls() const;
  int CountOf(const std::string& name) const;
  std::vector<Launch> launches() const;
  std::vector<uint64_t> image_hashes() const;  // XXH3 of every image given to LibraryLoadData
  int libraries_alive() const;
  void ClearLog();
  // Off: calls are only counted, without allocating.
  void Record(bool on);
  uint64_t call_count() const;

  // The n-th call from now (1 is the next) fails once.
  void FailCall(uint64_t n, CUresult error = CUDA_ERROR_UNKNOWN);
  // Every call of this function fails until it is called again with CUDA_SUCCESS.
  void FailAll(const std::string& name, CUresult error);
  // For this thread: the id of the current context, 0 for none. Every thread starts in context 1.
  // Odd ones are of device 0, even ones of device 1.
  static void SetContext(uint64_t id);
  // The stream is of this context: launches on it in another one fail, as the real driver's do.
  void SetStreamContext(CUstream stream, uint64_t id);
  void SetAttribute(CUdevice_attribute attribute, int value);
  // As if another thread captured in GLOBAL mode.
  void SetCapturing(bool capturing);
  // Called at the start of every call, on its thread, outside the fake's lock; null: nothing.
  void OnCall(std::function<void(const std::string& name)> hook);
  int function_attribute(const std::string& symbol, CUfunction_attribute attribute) const;

 private:
  friend struct FakeCalls;
  struct Library;
  struct Kernel {
    FakeKernel description;
    std::map<int, int> attributes;
  };

  CUresult Enter(const char* name);
  CUresult EnterUnsafe(const char* name);  // of the calls that a capture forbids
  CUresult EnterOn(CUstream stream, const char* name);
  uint64_t ContextOf(CUstream stream) const;
  uint64_t NextHandle();  // of a stream or graph

  DriverApi api_;
  mutable std::mutex mutex_;
  std::function<void(const std::string&)> hook_;
  bool recording_ = true;
  bool capturing_ = false;
  uint64_t call_count_ = 0;
  uint64_t fail_at_ = 0;
  uint64_t next_handle_ = 0x5000;
  CUresult fail_with_ = CUDA_SUCCESS;
  std::map<std::string, CUresult> failing_;
  std::map<int, int> attributes_;
  std::map<CUstream, uint64_t> stream_contexts_;
  std::vector<std::string> calls_;
  std::vector<Launch> launches_;
  std::vector<uint64_t> image_hashes_;
  std::vector<std::unique_ptr<Library>> libraries_;
};

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_FAKE_DRIVER_H_
