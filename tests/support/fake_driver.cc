#include "support/fake_driver.h"

#include <algorithm>
#include <cstring>

#include "kbundle/key.h"
#include "support/fake_image.h"

namespace kbundle::testing {
namespace {

FakeDriver* g_fake = nullptr;
thread_local uint64_t t_context = 1;
thread_local CUstreamCaptureMode t_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

}  // namespace

struct FakeDriver::Library {
  std::map<uint64_t, std::vector<std::unique_ptr<Kernel>>> contexts;
  std::vector<FakeKernel> kernels;
  bool alive = true;
};

// The functions of the table. Handles are addresses of the fake's own objects.
struct FakeCalls {
  using Library = FakeDriver::Library;
  using Kernel = FakeDriver::Kernel;

  static CUresult GetErrorName(CUresult error, const char** text) {
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
  }
  static CUresult GetErrorString(CUresult, const char** text) {
    *text = "made to fail";
    return CUDA_SUCCESS;
  }
  static CUresult DriverGetVersion(int* version) {
    *version = 13000;
    return g_fake->Enter("DriverGetVersion");
  }
  static CUresult Init(unsigned) { return g_fake->Enter("Init"); }
  static CUresult CtxGetCurrent(CUcontext* context) {
    *context = reinterpret_cast<CUcontext>(t_context);
    return g_fake->Enter("CtxGetCurrent");
  }
  static CUresult CtxSetCurrent(CUcontext context) {
    t_context = reinterpret_cast<uint64_t>(context);
    return g_fake->Enter("CtxSetCurrent");
  }
  static CUresult CtxGetDevice(CUdevice* device) {
    *device = t_context == 0 ? 0 : static_cast<CUdevice>((t_context - 1) % 2);
    return g_fake->Enter("CtxGetDevice");
  }
  static CUresult CtxGetId(CUcontext context, unsigned long long* id) {  // NOLINT
    *id = context != nullptr ? reinterpret_cast<uint64_t>(context) : t_context;
    const CUresult result = g_fake->Enter("CtxGetId");
    return *id == 0 ? CUDA_ERROR_INVALID_CONTEXT : result;
  }
  static CUresult DeviceGetCount(int* count) {
    *count = 2;
    return g_fake->Enter("DeviceGetCount");
  }
  static CUresult DeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    return g_fake->Enter("DeviceGet");
  }
  static CUresult DeviceGetName(char* name, int size, CUdevice) {
    std::strncpy(name, "Fake H200", static_cast<size_t>(size));
    return g_fake->Enter("DeviceGetName");
  }
  static CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    const CUresult entered = g_fake->Enter("DeviceGetAttribute");
    std::lock_guard lock(g_fake->mutex_);
    *value = g_fake->attributes_[attribute];
    return entered;
  }
  static CUresult DevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    *context = reinterpret_cast<CUcontext>(static_cast<uint64_t>(device) + 1);
    return g_fake->Enter("DevicePrimaryCtxRetain");
  }

  static CUresult LibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**,
                                  unsigned, CUlibraryOption*, void**, unsigned) {
    const CUresult entered = g_fake->EnterUnsafe("LibraryLoadData");
    if (entered != CUDA_SUCCESS) return entered;
    const char* image = static_cast<const char*>(code);
    const uint32_t size = FakeImageSize(image);
    const bool known = size != 0;
    std::lock_guard lock(g_fake->mutex_);
    g_fake->image_hashes_.push_back(known ? Xxh3(image, size) : 0);
    if (!known) return CUDA_ERROR_INVALID_IMAGE;
    auto& made = g_fake->libraries_.emplace_back(std::make_unique<Library>());
    made->kernels = ParseFakeImage(image);
    *library = reinterpret_cast<CUlibrary>(made.get());
    return CUDA_SUCCESS;
  }
  static CUresult LibraryUnload(CUlibrary library) {
    const CUresult entered = g_fake->EnterUnsafe("LibraryUnload");
    if (entered == CUDA_SUCCESS) reinterpret_cast<Library*>(library)->alive = false;
    return entered;
  }
  static CUresult LibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
    const CUresult entered = g_fake->Enter("LibraryGetKernel");
    if (entered != CUDA_SUCCESS) return entered;
    auto* library = reinterpret_cast<Library*>(handle);
    std::lock_guard lock(g_fake->mutex_);
    auto& loaded = library->contexts[t_context];
    if (loaded.empty()) {
      for (const FakeKernel& description : library->kernels) {
        loaded.push_back(std::make_unique<Kernel>(Kernel{description, {}}));
      }
    }
    for (auto& candidate : loaded) {
      if (candidate->description.symbol != name) continue;
      *kernel = reinterpret_cast<CUkernel>(candidate.get());
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
  }
  static CUresult KernelGetFunction(CUfunction* function, CUkernel kernel) {
    *function = reinterpret_cast<CUfunction>(kernel);
    return g_fake->EnterUnsafe("KernelGetFunction");
  }
  static CUresult FuncLoad(CUfunction) { return g_fake->EnterUnsafe("FuncLoad"); }
  static CUresult FuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction f) {
    const FakeKernel& kernel = reinterpret_cast<Kernel*>(f)->description;
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? kernel.max_threads
                                                                  : kernel.static_shared;
    return g_fake->Enter("FuncGetAttribute");
  }
  static CUresult FuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
    const CUresult entered = g_fake->Enter("FuncSetAttribute");
    if (entered != CUDA_SUCCESS) return entered;
    std::lock_guard lock(g_fake->mutex_);
    reinterpret_cast<Kernel*>(f)->attributes[attribute] = value;
    return CUDA_SUCCESS;
  }
  static CUresult FuncGetParamInfo(CUfunction f, size_t index, size_t* offset, size_t* size) {
    const CUresult entered = g_fake->Enter("FuncGetParamInfo");
    if (entered != CUDA_SUCCESS) return entered;
    const auto& sizes = reinterpret_cast<Kernel*>(f)->description.parameter_sizes;
    if (index >= sizes.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    for (size_t i = 0; i < index; ++i) *offset += sizes[i];
    *size = sizes[index];
    return CUDA_SUCCESS;
  }

  static CUresult LaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** parameters,
                                 void**) {
    const CUresult entered = g_fake->EnterOn(config->hStream, "LaunchKernelEx");
    std::lock_guard lock(g_fake->mutex_);
    if (entered != CUDA_SUCCESS || !g_fake->recording_) return entered;
    const FakeKernel& kernel = reinterpret_cast<Kernel*>(f)->description;
    FakeDriver::Launch launch;
    launch.symbol = kernel.symbol;
    launch.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
    launch.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
    launch.shared = config->sharedMemBytes;
    launch.stream = config->hStream;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const CUlaunchAttribute& attribute = config->attrs[i];
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        launch.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                          attribute.value.clusterDim.z};
      }
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
        launch.programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
      }
    }
    for (size_t i = 0; i < kernel.parameter_sizes.size(); ++i) {
      const auto* bytes = static_cast<const uint8_t*>(parameters[i]);
      launch.parameters.emplace_back(bytes, bytes + kernel.parameter_sizes[i]);
    }
    g_fake->launches_.push_back(std::move(launch));
    return CUDA_SUCCESS;
  }
  static CUresult MemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream) {
    return g_fake->Enter("MemsetD8Async");
  }
  static CUresult MemcpyDtoDAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream) {
    return g_fake->Enter("MemcpyDtoDAsync");
  }
  static CUresult TensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                       void* address, const cuuint64_t* dims, const cuuint64_t*,
                                       const cuuint32_t* box, const cuuint32_t*,
                                       CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    const CUresult entered = g_fake->Enter("TensorMapEncodeTiled");
    if (entered != CUDA_SUCCESS) return entered;
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
    map->opaque[0] = reinterpret_cast<cuuint64_t>(address);
    map->opaque[1] = static_cast<cuuint64_t>(type) << 32 | rank;
    map->opaque[2] = dims[0];
    map->opaque[3] = box[0];
    map->opaque[4] = static_cast<cuuint64_t>(swizzle);
    return CUDA_SUCCESS;
  }
  static CUresult TensorMapReplaceAddress(CUtensorMap* map, void* address) {
    map->opaque[0] = reinterpret_cast<cuuint64_t>(address);
    return g_fake->Enter("TensorMapReplaceAddress");
  }
  static CUresult StreamGetCtx(CUstream stream, CUcontext* context) {
    *context = reinterpret_cast<CUcontext>(g_fake->ContextOf(stream));
    return g_fake->Enter("StreamGetCtx");
  }
  static CUresult StreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return g_fake->Enter("StreamIsCapturing");
  }
  // A capture of an own stream gives a graph of one kernel node, whose function is not this fake's.
  static CUresult StreamCreate(CUstream* stream, unsigned) {
    const CUresult entered = g_fake->EnterUnsafe("StreamCreate");
    if (entered == CUDA_SUCCESS) *stream = reinterpret_cast<CUstream>(g_fake->NextHandle());
    return entered;
  }
  static CUresult StreamDestroy(CUstream) { return g_fake->Enter("StreamDestroy"); }
  static CUresult StreamBeginCapture(CUstream, CUstreamCaptureMode) {
    return g_fake->Enter("StreamBeginCapture");
  }
  static CUresult StreamEndCapture(CUstream, CUgraph* graph) {
    const CUresult entered = g_fake->Enter("StreamEndCapture");
    if (entered == CUDA_SUCCESS) *graph = reinterpret_cast<CUgraph>(g_fake->NextHandle());
    return entered;
  }
  static CUresult GraphGetNodes(CUgraph, CUgraphNode* nodes, size_t* count) {
    if (nodes != nullptr && *count >= 1) nodes[0] = reinterpret_cast<CUgraphNode>(0x7000);
    *count = 1;
    return g_fake->Enter("GraphGetNodes");
  }
  static CUresult GraphNodeGetType(CUgraphNode, CUgraphNodeType* type) {
    *type = CU_GRAPH_NODE_TYPE_KERNEL;
    return g_fake->Enter("GraphNodeGetType");
  }
  static CUresult GraphKernelNodeGetParams(CUgraphNode, CUDA_KERNEL_NODE_PARAMS* parameters) {
    parameters->func = reinterpret_cast<CUfunction>(0x8000);
    return g_fake->Enter("GraphKernelNodeGetParams");
  }
  static CUresult GraphDestroy(CUgraph) { return g_fake->Enter("GraphDestroy"); }
  static CUresult ThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    const CUresult entered = g_fake->Enter("ThreadExchangeStreamCaptureMode");
    if (entered == CUDA_SUCCESS) std::swap(*mode, t_capture_mode);
    return entered;
  }
};

FakeDriver::FakeDriver() {
  KB_CHECK(g_fake == nullptr);
  g_fake = this;
  t_context = 1;
  t_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
#define KB_FAKE_MEMBER(member, symbol) api_.member = &FakeCalls::member;
  KB_DRIVER_SYMBOLS(KB_FAKE_MEMBER)
#undef KB_FAKE_MEMBER
  attributes_ = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
                 {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
                 {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
                 {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
                 {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
                 {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
                 {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
                 {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
                 {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
                 {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
                 {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
                 {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
                 {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1}};
}

FakeDriver::~FakeDriver() { g_fake = nullptr; }

CUresult FakeDriver::Enter(const char* name) {
  if (hook_) hook_(name);
  std::lock_guard lock(mutex_);
  ++call_count_;
  if (recording_) calls_.emplace_back(name);
  if (call_count_ == fail_at_) return fail_with_;
  if (failing_.empty()) return CUDA_SUCCESS;
  auto found = failing_.find(name);
  return found != failing_.end() ? found->second : CUDA_SUCCESS;
}

uint64_t FakeDriver::NextHandle() {
  std::lock_guard lock(mutex_);
  return next_handle_++;
}

CUresult FakeDriver::EnterUnsafe(const char* name) {
  const CUresult entered = Enter(name);
  if (entered != CUDA_SUCCESS) return entered;
  std::lock_guard lock(mutex_);
  const bool forbidden = capturing_ && t_capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

std::vector<std::string> FakeDriver::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

int FakeDriver::CountOf(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(std::count(calls_.begin(), calls_.end(), name));
}

std::vector<FakeDriver::Launch> FakeDriver::launches() const {
  std::lock_guard lock(mutex_);
  return launches_;
}

std::vector<uint64_t> FakeDriver::image_hashes() const {
  std::lock_guard lock(mutex_);
  return image_hashes_;
}

int FakeDriver::libraries_alive() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(libraries_.begin(), libraries_.end(),
                                        [](const auto& library) { return library->alive; }));
}

void FakeDriver::ClearLog() {
  std::lock_guard lock(mutex_);
  calls_.clear();
  launches_.clear();
}

void FakeDriver::Record(bool on) {
  std::lock_guard lock(mutex_);
  recording_ = on;
}

uint64_t FakeDriver::call_count() const {
  std::lock_guard lock(mutex_);
  return call_count_;
}

void FakeDriver::FailCall(uint64_t n, CUresult error) {
  std::lock_guard lock(mutex_);
  fail_at_ = n == 0 ? 0 : call_count_ + n;
  fail_with_ = error;
}

void FakeDriver::FailAll(const std::string& name, CUresult error) {
  std::lock_guard lock(mutex_);
  if (error == CUDA_SUCCESS) {
    failing_.erase(name);
  } else {
    failing_[name] = error;
  }
}

CUresult FakeDriver::EnterOn(CUstream stream, const char* name) {
  const CUresult entered = Enter(name);
  if (entered != CUDA_SUCCESS) return entered;
  return ContextOf(stream) == t_context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

uint64_t FakeDriver::ContextOf(CUstream stream) const {
  std::lock_guard lock(mutex_);
  const auto found = stream_contexts_.find(stream);
  return found == stream_contexts_.end() ? t_context : found->second;
}

void FakeDriver::SetContext(uint64_t id) { t_context = id; }

void FakeDriver::SetStreamContext(CUstream stream, uint64_t id) {
  std::lock_guard lock(mutex_);
  stream_contexts_[stream] = id;
}

void FakeDriver::SetAttribute(CUdevice_attribute attribute, int value) {
  std::lock_guard lock(mutex_);
  attributes_[attribute] = value;
}

void FakeDriver::OnCall(std::function<void(const std::string&)> hook) { hook_ = std::move(hook); }

void FakeDriver::SetCapturing(bool capturing) {
  std::lock_guard lock(mutex_);
  capturing_ = capturing;
}

int FakeDriver::function_attribute(const std::string& symbol,
                                   CUfunction_attribute attribute) const {
  std::lock_guard lock(mutex_);
  for (const auto& library : libraries_) {
    for (const auto& [context, kernels] : library->contexts) {
      for (const auto& kernel : kernels) {
        if (kernel->description.symbol != symbol) continue;
        auto found = kernel->attributes.find(attribute);
        if (found != kernel->attributes.end()) return found->second;
      }
    }
  }
  return -1;
}

}  // namespace kbundle::testing
