#include "host_object.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U  // Linux 6.3; older kernels refuse the flag
#endif

namespace kbundle {
namespace {

// What KB_HOST_KERNEL exports beside the kernel.
struct KernelParameters {
  uint32_t count;
  uint32_t sizes[];  // NOLINT: a C array of `count`
};
constexpr char kParametersSuffix[] = "_kb_params";

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void Keep() { fd_ = -1; }

 private:
  int fd_;
};

Status SystemError(const std::string& what, const char* call) {
  return Unavailable(fmt::format("loading {}: {}: {}", what, call, std::strerror(errno)));
}

Status WriteAll(int fd, std::span<const uint8_t> bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return SystemError(what, "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Status();
}

Result<void*> OpenLibrary(const std::string& path, const std::string& what) {
  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object != nullptr) return object;
  const char* why = dlerror();
  return Unavailable(fmt::format("loading {}: {}", what, why != nullptr ? why : "dlopen failed"));
}

Result<void*> LoadFromMemory(std::span<const uint8_t> image, const std::string& what) {
  int fd = memfd_create("kbundle", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
  if (fd < 0 && errno == EINVAL) fd = memfd_create("kbundle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return SystemError(what, "memfd_create");
  Descriptor descriptor(fd);
  KB_RETURN_IF_ERROR(WriteAll(fd, image, what));
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (fcntl(fd, F_ADD_SEALS, seals) != 0) return SystemError(what, "sealing");
  KB_ASSIGN_OR_RETURN(void* object, OpenLibrary(fmt::format("/proc/self/fd/{}", fd), what));
  descriptor.Keep();  // see the head of host_object.h
  return object;
}

Result<void*> LoadFromFile(std::span<const uint8_t> image, const std::string& what) {
  char path[] = "/tmp/kbundle-XXXXXX";
  Descriptor descriptor(mkostemp(path, O_CLOEXEC));
  if (descriptor.get() < 0) return SystemError(what, "creating a temporary file in /tmp");
  Status status = WriteAll(descriptor.get(), image, what);
  Result<void*> object = status.ok() ? OpenLibrary(path, what) : Result<void*>(std::move(status));
  unlink(path);
  return object;
}

}  // namespace

Result<void*> LoadHostObject(std::span<const uint8_t> image, const std::string& what,
                             HostObjectPlace place) {
  return place == HostObjectPlace::kMemory ? LoadFromMemory(image, what)
                                           : LoadFromFile(image, what);
}

Result<void*> LoadHostObject(std::span<const uint8_t> image, const std::string& what) {
  Result<void*> object = LoadHostObject(image, what, HostObjectPlace::kMemory);
  if (object.ok()) return object;
  Result<void*> second = LoadHostObject(image, what, HostObjectPlace::kTemporaryFile);
  return second.ok() ? second : object;  // the first reason is the one to repair
}

Result<HostFunction> FindHostKernel(void* object, const ResolvedStep& step) {
  const std::string& symbol = step.symbol;
  auto function = reinterpret_cast<HostFunction>(dlsym(object, symbol.c_str()));
  auto* parameters =
      static_cast<const KernelParameters*>(dlsym(object, (symbol + kParametersSuffix).c_str()));
  if (function == nullptr || parameters == nullptr) {
    return DataLoss(fmt::format("kernel {} is not in its code object: rebuild the bundle", symbol));
  }
  if (parameters->count != step.args.size()) {
    return Internal(
        fmt::format("kernel {} takes {} parameters, the bundle gives it {}: rebuild the "
                    "bundle",
                    symbol, parameters->count, step.args.size()));
  }
  for (uint32_t i = 0; i < parameters->count; ++i) {
    if (parameters->sizes[i] == step.args[i].size) continue;
    return Internal(
        fmt::format("parameter {} of kernel {} has {} bytes, the bundle gives it {}: "
                    "rebuild the bundle",
                    i + 1, symbol, parameters->sizes[i], step.args[i].size));
  }
  return function;
}

Result<void*> HostObjects::Load(const Bundle& bundle, uint32_t blob, Bundle::BaseCache* bases) {
  const Key key(bundle.content_id(), blob);
  {
    std::lock_guard lock(mutex_);
    auto found = objects_.find(key);
    if (found != objects_.end()) return found->second;
  }
  KB_ASSIGN_OR_RETURN(std::vector<uint8_t> image, bundle.ReadBlob(blob, bases));
  const std::string what = fmt::format("code object {} of {}", blob, bundle.path());
  KB_ASSIGN_OR_RETURN(void* object, LoadHostObject(image, what));
  // The copy of a thread that lost the race stays mapped: nothing is ever closed.
  std::lock_guard lock(mutex_);
  return objects_.try_emplace(key, object).first->second;
}

uint64_t HostObjects::objects_loaded() const {
  std::lock_guard lock(mutex_);
  return objects_.size();
}

}  // namespace kbundle
