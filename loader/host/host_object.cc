// A host object has to be mapped by the dynamic linker, which wants a file. So: a file in memory,
// opened by a path that no other library has and that never comes again, compared with the
// verified bytes once it is mapped, its descriptor closed; /tmp where memory files are closed.
#include "loader/host/host_object.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "kbundle/file_descriptor.h"
#include "loader/host/mapped_image.h"

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

// A path to the descriptor that no other load of this process has used: 64 random bits, each
// written as one of two spellings of the same folder.
Result<std::string> UniquePath(int fd, const std::string& what) {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) return SystemError(what, "getrandom");
  std::string path = "/proc/self/fd";
  for (int i = 0; i < 64; ++i) path += (bits >> i & 1) != 0 ? "/." : "/";
  return fmt::format("{}/{}", path, fd);
}

}  // namespace

Result<HostObject::Library> HostObject::Open(const std::string& path,
                                             std::span<const uint8_t> image,
                                             const std::string& what) {
  Library library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), &dlclose);
  if (library == nullptr) {
    const char* why = dlerror();
    return Unavailable(fmt::format("loading {}: {}", what, why != nullptr ? why : "dlopen failed"));
  }
  if (MapsImage(library.get(), image)) return library;
  return Unavailable(
      fmt::format("loading {}: dlopen mapped other bytes than were given to it: something in this "
                  "process closes "
                  "descriptors that it did not open; let it leave others' alone",
                  what));
}

Result<HostObject::Library> HostObject::LoadFromMemory(std::span<const uint8_t> image,
                                                       const std::string& what) {
  int fd = memfd_create("kbundle", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
  if (fd < 0 && errno == EINVAL) fd = memfd_create("kbundle", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return SystemError(what, "memfd_create");
  const FileDescriptor descriptor(fd);
  KB_RETURN_IF_ERROR(WriteAll(fd, image, what));
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (fcntl(fd, F_ADD_SEALS, seals) != 0) return SystemError(what, "sealing");
  KB_ASSIGN_OR_RETURN(const std::string path, UniquePath(fd, what));
  return Open(path, image, what);
}

Result<HostObject::Library> HostObject::LoadFromFile(std::span<const uint8_t> image,
                                                     const std::string& what) {
  char path[] = "/tmp/kbundle-XXXXXX";
  const FileDescriptor descriptor(mkostemp(path, O_CLOEXEC));
  if (!descriptor.ok()) return SystemError(what, "creating a temporary file in /tmp");
  const std::unique_ptr<char, int (*)(const char*)> at_end(path, &unlink);
  KB_RETURN_IF_ERROR(WriteAll(descriptor.get(), image, what));
  return Open(path, image, what);
}

Result<std::shared_ptr<HostObject>> HostObject::Load(std::span<const uint8_t> image,
                                                     const std::string& what,
                                                     HostObjectPlace place) {
  KB_ASSIGN_OR_RETURN(Library library, place == HostObjectPlace::kMemory
                                           ? LoadFromMemory(image, what)
                                           : LoadFromFile(image, what));
  return std::shared_ptr<HostObject>(new HostObject(std::move(library)));
}

Result<std::shared_ptr<HostObject>> HostObject::Load(std::span<const uint8_t> image,
                                                     const std::string& what) {
  auto object = Load(image, what, HostObjectPlace::kMemory);
  if (object.ok()) return object;
  auto second = Load(image, what, HostObjectPlace::kTemporaryFile);
  return second.ok() ? std::move(second)
                     : std::move(object);  // the first reason is the one to repair
}

Result<HostFunction> HostObject::Find(const ResolvedStep& step) const {
  const std::string& symbol = step.symbol;
  auto function = reinterpret_cast<HostFunction>(dlsym(library_.get(), symbol.c_str()));
  auto* parameters = static_cast<const KernelParameters*>(
      dlsym(library_.get(), (symbol + kParametersSuffix).c_str()));
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

Result<std::shared_ptr<HostObject>> HostObjects::Load(const Bundle& bundle, uint32_t blob,
                                                      Bundle::BaseCache* bases) {
  return objects_.GetOrMake(bundle.BlobDigest(blob), [&]() -> Result<std::shared_ptr<HostObject>> {
    KB_ASSIGN_OR_RETURN(const Buffer image, bundle.ReadBlob(blob, bases));
    return HostObject::Load(image, fmt::format("code object {} of {}", blob, bundle.path()));
  });
}

}  // namespace kbundle
