// Where candidates are measured: memory, and the timing of launches, of one GPU or of the CPU.
//
// Lives in the measuring child only. One thread. Addresses are the device's own.
#ifndef KBUNDLE_BUILDER_DEVICE_DEVICE_H_
#define KBUNDLE_BUILDER_DEVICE_DEVICE_H_

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "kbundle/status.h"
#include "kbundle/target.h"

namespace kbundle::builder {

// A fixed sequence of launches that can be timed again and again.
class TimedLaunches {
 public:
  virtual ~TimedLaunches() = default;
  // Nanoseconds from before the first to after the last of them.
  virtual Result<double> Run() = 0;
};

class TuneDevice {
 public:
  virtual ~TuneDevice() = default;

  virtual Device::Kind kind() const = 0;
  // 256-byte aligned; kResourceExhausted when there is not that much.
  virtual Result<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* address) = 0;
  virtual Status Upload(void* to, const void* from, int64_t bytes) = 0;
  // Hands the bytes to `look` in parts, each but the last a multiple of `unit`.
  using Look = std::function<void(const char* part, int64_t at, int64_t bytes)>;
  virtual Status Read(const void* from, int64_t bytes, int64_t unit, const Look& look) = 0;
  virtual Status Fill(void* to, uint8_t byte, int64_t bytes) = 0;
  virtual Status Copy(void* to, const void* from, int64_t bytes) = 0;
  // Waits for everything; an error of what ran before comes out here.
  virtual Status Finish() = 0;
  virtual void* stream() = 0;  // for Plan::Launch

  // `count` calls of launch(i). One: timed by itself; more: as one graph where the device has them.
  virtual Result<std::unique_ptr<TimedLaunches>> Prepare(int count,
                                                         std::function<Status(int)> launch) = 0;

  virtual int64_t cache_bytes() const = 0;  // of the last-level cache
  virtual int64_t free_bytes() const = 0;   // that may still be allocated
  virtual int threads() const = 0;          // of the CPU that the child may use
  // After an error of this kind nothing on the device can be trusted: the process must end.
  virtual bool Lost(const Status& status) const = 0;

  // What does not change: name, driver, ...; and what does: clocks, power state, temperature.
  virtual nlohmann::json Facts() = 0;
  virtual nlohmann::json State() = 0;
};

Result<std::unique_ptr<TuneDevice>> OpenHostDevice();
Result<std::unique_ptr<TuneDevice>> OpenCudaDevice(int ordinal = 0);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_DEVICE_DEVICE_H_
