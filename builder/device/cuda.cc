// Measuring on a GPU: its primary context, one stream, graphs with event nodes in them.
//
// The events are nodes of the graph, so that a sample holds what the GPU did between them and no
// launch latency of the host. Before the first one stands one launch that is not counted: the
// timed ones then start on a GPU that is at work already.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "builder/device/device.h"
#include "builder/device/gpus.h"
#include "builder/device/nvml.h"
#include "builder/support/schedule.h"
#include "kbundle/driver_api.h"
#include "kbundle/runtime.h"

namespace kbundle::builder {
namespace {

// What measuring needs and the loader does not: X(member, function, exported name).
#define KB_TUNE_SYMBOLS(X)                                                        \
  X(MemAlloc, cuMemAlloc, "cuMemAlloc_v2")                                        \
  X(MemFree, cuMemFree, "cuMemFree_v2")                                           \
  X(MemGetInfo, cuMemGetInfo, "cuMemGetInfo_v2")                                  \
  X(MemHostAlloc, cuMemHostAlloc, "cuMemHostAlloc")                               \
  X(MemFreeHost, cuMemFreeHost, "cuMemFreeHost")                                  \
  X(MemcpyHtoDAsync, cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2")                   \
  X(MemcpyDtoHAsync, cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2")                   \
  X(StreamCreate, cuStreamCreate, "cuStreamCreate")                               \
  X(StreamSynchronize, cuStreamSynchronize, "cuStreamSynchronize")                \
  X(StreamBeginCapture, cuStreamBeginCapture, "cuStreamBeginCapture_v2")          \
  X(StreamEndCapture, cuStreamEndCapture, "cuStreamEndCapture")                   \
  X(GraphInstantiate, cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags") \
  X(GraphUpload, cuGraphUpload, "cuGraphUpload")                                  \
  X(GraphLaunch, cuGraphLaunch, "cuGraphLaunch")                                  \
  X(GraphDestroy, cuGraphDestroy, "cuGraphDestroy")                               \
  X(GraphExecDestroy, cuGraphExecDestroy, "cuGraphExecDestroy")                   \
  X(EventCreate, cuEventCreate, "cuEventCreate")                                  \
  X(EventDestroy, cuEventDestroy, "cuEventDestroy_v2")                            \
  X(EventRecordWithFlags, cuEventRecordWithFlags, "cuEventRecordWithFlags")       \
  X(EventElapsedTime, cuEventElapsedTime, "cuEventElapsedTime")                   \
  X(DeviceGetPCIBusId, cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId")

struct TuneApi {
#define KB_TUNE_MEMBER(member, function, name) decltype(&::function) member = nullptr;
  KB_TUNE_SYMBOLS(KB_TUNE_MEMBER)
#undef KB_TUNE_MEMBER

  static Result<TuneApi> Get() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    TuneApi api;
#define KB_TUNE_FIND(member, function, name)                                                     \
  api.member = library ? reinterpret_cast<decltype(api.member)>(dlsym(library, name)) : nullptr; \
  if (api.member == nullptr) {                                                                   \
    return FailedPrecondition("the NVIDIA driver has no " name                                   \
                              "; tuning needs one of CUDA 12.4 or later");                       \
  }
    KB_TUNE_SYMBOLS(KB_TUNE_FIND)
#undef KB_TUNE_FIND
    return api;
  }
};

struct Gpu {
  const DriverApi* driver = nullptr;
  TuneApi api;
  CUdevice device = 0;
  CUstream stream = nullptr;

  Status Check(CUresult result, const char* doing) const { return driver->Check(result, doing); }
};

class GraphLaunches : public TimedLaunches {
 public:
  explicit GraphLaunches(const Gpu* gpu) : gpu_(*gpu) {}
  ~GraphLaunches() override {
    if (exec_ != nullptr) gpu_.api.GraphExecDestroy(exec_);
    if (graph_ != nullptr) gpu_.api.GraphDestroy(graph_);
    if (begin_ != nullptr) gpu_.api.EventDestroy(begin_);
    if (end_ != nullptr) gpu_.api.EventDestroy(end_);
  }

  Status Capture(int count, const std::function<Status(int)>& launch) {
    const TuneApi& api = gpu_.api;
    KB_RETURN_IF_ERROR(gpu_.Check(api.EventCreate(&begin_, CU_EVENT_DEFAULT), "making an event"));
    KB_RETURN_IF_ERROR(gpu_.Check(api.EventCreate(&end_, CU_EVENT_DEFAULT), "making an event"));
    KB_RETURN_IF_ERROR(gpu_.Check(
        api.StreamBeginCapture(gpu_.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capturing"));
    Status status = Record(count, launch);
    const CUresult ended = api.StreamEndCapture(gpu_.stream, &graph_);
    KB_RETURN_IF_ERROR(std::move(status));
    KB_RETURN_IF_ERROR(gpu_.Check(ended, "ending the capture"));
    KB_RETURN_IF_ERROR(
        gpu_.Check(api.GraphInstantiate(&exec_, graph_, 0), "instantiating the captured graph"));
    return gpu_.Check(api.GraphUpload(exec_, gpu_.stream), "uploading the captured graph");
  }

  Result<double> Run() override {
    KB_RETURN_IF_ERROR(
        gpu_.Check(gpu_.api.GraphLaunch(exec_, gpu_.stream), "launching the captured graph"));
    KB_RETURN_IF_ERROR(
        gpu_.Check(gpu_.api.StreamSynchronize(gpu_.stream), "waiting for the captured graph"));
    float ms = 0;
    KB_RETURN_IF_ERROR(
        gpu_.Check(gpu_.api.EventElapsedTime(&ms, begin_, end_), "reading the events"));
    return static_cast<double>(ms) * 1e6;
  }

 private:
  Status Record(int count, const std::function<Status(int)>& launch) {
    const auto mark = [&](CUevent event) {
      return gpu_.Check(gpu_.api.EventRecordWithFlags(event, gpu_.stream, CU_EVENT_RECORD_EXTERNAL),
                        "recording an event in the capture");
    };
    KB_RETURN_IF_ERROR(launch(count));
    KB_RETURN_IF_ERROR(mark(begin_));
    for (int i = 0; i < count; ++i) KB_RETURN_IF_ERROR(launch(i));
    return mark(end_);
  }

  const Gpu& gpu_;
  CUevent begin_ = nullptr, end_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

class CudaTuneDevice : public TuneDevice {
 public:
  Status Open(int ordinal) {
    KB_ASSIGN_OR_RETURN(gpu_.driver, DriverApi::Get());
    const DriverApi& driver = *gpu_.driver;
    KB_ASSIGN_OR_RETURN(gpu_.device, FindGpu(ordinal, "measuring on"));
    KB_ASSIGN_OR_RETURN(gpu_.api, TuneApi::Get());
    CUcontext context = nullptr;
    KB_RETURN_IF_ERROR(driver.Check(driver.DevicePrimaryCtxRetain(&context, gpu_.device),
                                    "opening the GPU's context"));
    KB_RETURN_IF_ERROR(
        driver.Check(driver.CtxSetCurrent(context), "making the GPU's context current"));
    KB_RETURN_IF_ERROR(
        gpu_.Check(gpu_.api.StreamCreate(&gpu_.stream, CU_STREAM_NON_BLOCKING), "making a stream"));
    KB_RETURN_IF_ERROR(AllocateStaging(kStagingBytes));
    KB_ASSIGN_OR_RETURN(device_, Runtime::Global().CurrentDevice(Device::Kind::kCuda));
    char bus_id[32] = "";
    if (gpu_.api.DeviceGetPCIBusId(bus_id, sizeof bus_id, gpu_.device) == CUDA_SUCCESS) {
      nvml_ = Nvml::Open(bus_id);
    }
    return Status();
  }

  Device::Kind kind() const override { return Device::Kind::kCuda; }
  Result<void*> Allocate(int64_t bytes) override {
    CUdeviceptr address = 0;
    const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 256));
    KB_RETURN_IF_ERROR(gpu_.Check(gpu_.api.MemAlloc(&address, size), "allocating device memory"));
    return reinterpret_cast<void*>(address);
  }
  void Free(void* address) override { gpu_.api.MemFree(Pointer(address)); }
  Status Upload(void* to, const void* from, int64_t bytes) override {
    for (int64_t at = 0; at < bytes; at += staging_bytes_) {
      const auto part = static_cast<size_t>(std::min(staging_bytes_, bytes - at));
      std::memcpy(staging_, static_cast<const char*>(from) + at, part);
      KB_RETURN_IF_ERROR(
          gpu_.Check(gpu_.api.MemcpyHtoDAsync(Pointer(to) + static_cast<CUdeviceptr>(at), staging_,
                                              part, gpu_.stream),
                     "copying to the GPU"));
      KB_RETURN_IF_ERROR(Finish());
    }
    return Status();
  }
  Status Read(const void* from, int64_t bytes, int64_t unit, const Look& look) override {
    if (unit > staging_bytes_) KB_RETURN_IF_ERROR(AllocateStaging(unit));
    const int64_t whole = staging_bytes_ / unit * unit;
    for (int64_t at = 0; at < bytes; at += whole) {
      const int64_t part = std::min(whole, bytes - at);
      KB_RETURN_IF_ERROR(gpu_.Check(
          gpu_.api.MemcpyDtoHAsync(staging_, Pointer(from) + static_cast<CUdeviceptr>(at),
                                   static_cast<size_t>(part), gpu_.stream),
          "copying from the GPU"));
      KB_RETURN_IF_ERROR(Finish());
      look(static_cast<const char*>(staging_), at, part);
    }
    return Status();
  }
  Status Fill(void* to, uint8_t byte, int64_t bytes) override {
    return gpu_.Check(
        gpu_.driver->MemsetD8Async(Pointer(to), byte, static_cast<size_t>(bytes), gpu_.stream),
        "filling device memory");
  }
  Status Copy(void* to, const void* from, int64_t bytes) override {
    return gpu_.Check(gpu_.driver->MemcpyDtoDAsync(Pointer(to), Pointer(from),
                                                   static_cast<size_t>(bytes), gpu_.stream),
                      "copying device memory");
  }
  Status Finish() override {
    return gpu_.Check(gpu_.api.StreamSynchronize(gpu_.stream), "waiting for the launches");
  }
  void* stream() override { return gpu_.stream; }
  Result<std::unique_ptr<TimedLaunches>> Prepare(int count,
                                                 std::function<Status(int)> launch) override {
    auto launches = std::make_unique<GraphLaunches>(&gpu_);
    KB_RETURN_IF_ERROR(launches->Capture(count, launch));
    return std::unique_ptr<TimedLaunches>(std::move(launches));
  }

  int64_t cache_bytes() const override {
    int bytes = 0;
    gpu_.driver->DeviceGetAttribute(&bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, gpu_.device);
    return bytes > 0 ? bytes : 50 << 20;
  }
  int64_t free_bytes() const override {
    size_t free = 0, total = 0;
    gpu_.api.MemGetInfo(&free, &total);
    return static_cast<int64_t>(free);
  }
  int threads() const override { return AvailableCpus(); }
  // Of a kernel that faulted, the error stays in the context; so does a launch that timed out.
  bool Lost(const Status&) const override {
    return gpu_.api.StreamSynchronize(gpu_.stream) != CUDA_SUCCESS;
  }

  nlohmann::json Facts() override {
    int version = 0;
    gpu_.driver->DriverGetVersion(&version);
    nlohmann::json facts = {
        {"name", device_.name},
        {"target", device_.ToString()},
        {"sm_count", device_.sm_count},
        {"cuda", std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10)}};
    if (nvml_ != nullptr) facts["driver"] = nvml_->DriverVersion();
    return facts;
  }
  nlohmann::json State() override {
    return nvml_ != nullptr ? nvml_->State() : nlohmann::json::object();
  }

 private:
  static constexpr int64_t kStagingBytes = 64 << 20;

  static CUdeviceptr Pointer(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }
  Status AllocateStaging(int64_t bytes) {
    if (staging_ != nullptr) gpu_.api.MemFreeHost(staging_);
    staging_ = nullptr;
    staging_bytes_ = bytes;
    return gpu_.Check(gpu_.api.MemHostAlloc(&staging_, static_cast<size_t>(bytes), 0),
                      "allocating pinned memory");
  }

  Gpu gpu_;
  Device device_;
  void* staging_ = nullptr;
  int64_t staging_bytes_ = 0;
  std::unique_ptr<Nvml> nvml_;
};

}  // namespace

Result<std::unique_ptr<TuneDevice>> OpenCudaDevice(int ordinal) {
  auto device = std::make_unique<CudaTuneDevice>();
  KB_RETURN_IF_ERROR(device->Open(ordinal));
  return std::unique_ptr<TuneDevice>(std::move(device));
}

}  // namespace kbundle::builder
