// Host code objects: verified bytes become functions, without a file that anybody could change.
//
//   memfd_create -> write -> seal -> dlopen("/proc/self/fd/N") -> dlsym
//
// The descriptor stays open for ever: glibc knows libraries by name, and a number that is used
// again would give the old library. Where memfd or /proc is closed, a private file in a temporary
// folder takes its place, and is unlinked as soon as it is mapped. Nothing is ever closed: running
// code cannot be counted, and the number of objects is bounded by the bundle.
#ifndef KBUNDLE_LOADER_HOST_OBJECT_H_
#define KBUNDLE_LOADER_HOST_OBJECT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>

#include "kbundle/bundle.h"
#include "kbundle/status.h"
#include "resolve.h"

namespace kbundle {

// Does [begin, end) of the range. args[i] is the address of argument i's value.
using HostFunction = void (*)(int64_t begin, int64_t end, const void* const* args);

enum class HostObjectPlace : uint8_t { kMemory, kTemporaryFile };

// A dlopen handle, for the life of the process. The image must be verified bytes.
Result<void*> LoadHostObject(std::span<const uint8_t> image, const std::string& what,
                             HostObjectPlace place);
// Memory, or else a temporary file.
Result<void*> LoadHostObject(std::span<const uint8_t> image, const std::string& what);

// The kernel of the step, its parameter sizes checked against the step's arguments.
Result<HostFunction> FindHostKernel(void* object, const ResolvedStep& step);

// Loaded objects by (bundle content, blob). Thread-safe; loads outside the lock.
class HostObjects {
 public:
  Result<void*> Load(const Bundle& bundle, uint32_t blob, Bundle::BaseCache* bases);
  uint64_t objects_loaded() const;

 private:
  using Key = std::tuple<std::string, uint32_t>;
  mutable std::mutex mutex_;
  std::map<Key, void*> objects_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_HOST_OBJECT_H_
