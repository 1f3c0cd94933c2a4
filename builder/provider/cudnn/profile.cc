// cuDNN is called through its C backend API by the few numbers below, which its ABI fixes: so the
// command builds without cuDNN's headers.
#include "builder/provider/cudnn/profile.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "builder/device/gpus.h"
#include "builder/support/files.h"
#include "h200_profile.h"
#include "kbundle/driver_api.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
using Descriptor = void*;

// cudnnBackendDescriptorType_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t
constexpr int kDeviceProperties = 38, kDeviceId = 2700, kJson = 2702, kInt32 = 23, kChar = 24;
constexpr int64_t kMaxProfile = 1 << 20;

struct CudnnLibrary {
  int (*create)(int, Descriptor*) = nullptr;
  int (*destroy)(Descriptor) = nullptr;
  int (*set)(Descriptor, int, int, int64_t, const void*) = nullptr;
  int (*get)(Descriptor, int, int, int64_t, int64_t*, void*) = nullptr;
  int (*finalize)(Descriptor) = nullptr;
  const char* (*error)(int) = nullptr;
};

template <typename Function>
bool Resolve(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

Result<CudnnLibrary> OpenCudnn(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable(fmt::format("opening cuDNN: {}; name another in KBUNDLE_CUDNN", dlerror()));
  }
  CudnnLibrary cudnn;
  const bool whole = Resolve(library, "cudnnBackendCreateDescriptor", &cudnn.create) &&
                     Resolve(library, "cudnnBackendDestroyDescriptor", &cudnn.destroy) &&
                     Resolve(library, "cudnnBackendSetAttribute", &cudnn.set) &&
                     Resolve(library, "cudnnBackendGetAttribute", &cudnn.get) &&
                     Resolve(library, "cudnnBackendFinalize", &cudnn.finalize) &&
                     Resolve(library, "cudnnGetErrorString", &cudnn.error);
  if (whole) return cudnn;
  return Unavailable(fmt::format(
      "opening cuDNN: {} lacks the backend API; name a libcudnn.so.9 in KBUNDLE_CUDNN", path));
}

// The text that cuDNN describes a device with.
Result<std::string> Describe(const CudnnLibrary& cudnn, int32_t device) {
  Descriptor properties = nullptr;
  std::string text;
  int64_t size = 0;
  int error = cudnn.create(kDeviceProperties, &properties);
  if (error == 0) error = cudnn.set(properties, kDeviceId, kInt32, 1, &device);
  if (error == 0) error = cudnn.finalize(properties);
  if (error == 0) error = cudnn.get(properties, kJson, kChar, 0, &size, nullptr);
  if (error == 0 && size >= 0 && size <= kMaxProfile) {
    text.resize(static_cast<size_t>(size));
    error = cudnn.get(properties, kJson, kChar, size, &size, text.data());
  }
  if (properties != nullptr) cudnn.destroy(properties);
  if (error == 0) return text;
  return Unavailable(fmt::format(
      "asking cuDNN to describe GPU {}: {}; cuDNN 9.8 and later can, and the driver must be new "
      "enough for it",
      device, cudnn.error(error)));
}

// How wide the memory's bus is, in bits; needs the GPU to be there.
Result<int> BusWidth(int device) {
  KB_ASSIGN_OR_RETURN(const DriverApi* cuda, DriverApi::Get());
  KB_ASSIGN_OR_RETURN(const CUdevice handle, FindGpu(device, "describing"));
  int width = 0;
  KB_RETURN_IF_ERROR(cuda->Check(
      cuda->DeviceGetAttribute(&width, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, handle),
      "asking for the memory's bus"));
  return width;
}

}  // namespace

Result<std::string> ReadDeviceProfile(const std::string& cudnn, int device) {
  KB_ASSIGN_OR_RETURN(const int bus_width, BusWidth(device));
  KB_ASSIGN_OR_RETURN(const CudnnLibrary library, OpenCudnn(cudnn));
  KB_ASSIGN_OR_RETURN(const std::string text, Describe(library, device));
  // cuDNN may count a terminating zero.
  nlohmann::ordered_json profile =
      nlohmann::ordered_json::parse(text.c_str(), nullptr, /*allow_exceptions=*/false);
  if (!profile.is_object() || !profile.contains("deviceVer")) {
    return Internal("asking cuDNN to describe a GPU: its answer is no profile; please report this");
  }
  profile["cudaDeviceId"] = 0;
  profile["pciDeviceId"] = 0;
  if (!profile.contains("memoryBusWidth")) profile["memoryBusWidth"] = bus_width;
  return profile.dump(2) + "\n";
}

Result<std::string> DeviceProfile(const std::string& name, const std::string& directory) {
  std::string text = kH200Profile;
  if (name != "h200") {
    const std::string path = directory + "/" + name;
    Result<std::string> read = ReadFile(path, kMaxProfile);
    if (!read.ok()) {
      return NotFound(fmt::format(
          "'{}' is no device profile: kbundle carries \"h200\", and there is no file {}; "
          "kbundle profile writes one on a machine with the GPU",
          name, path));
    }
    text = std::move(read).value();
  }
  const Json profile = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (profile.is_object() && profile.contains("deviceVer")) return text;
  return InvalidArgument(
      fmt::format("'{}' is no device profile as kbundle profile writes it", name));
}

}  // namespace kbundle::builder
