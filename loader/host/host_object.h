// Host code objects: verified bytes become functions, without a file that anybody could change.
//
//   memfd_create -> write -> seal -> dlopen -> close -> compare what is mapped with the image
//
// glibc knows libraries by the path that they were opened by, so a path may never come again: not
// /proc/self/fd/N alone, where N is soon another file, ours or a neighbour's. A random number goes
// into the path as well, and the mapped code must have the bytes that were verified. So no
// descriptor has to stay open, and closing one that does harms nobody. Where memfd or /proc is
// closed, a private file in a temporary folder takes the place, unlinked as soon as it is mapped.
#ifndef KBUNDLE_LOADER_HOST_OBJECT_H_
#define KBUNDLE_LOADER_HOST_OBJECT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kbundle/bundle.h"
#include "kbundle/status.h"
#include "loader/resolve/resolve.h"
#include "loader/support/once_map.h"

namespace kbundle {

// Does [begin, end) of the range. args[i] is the address of argument i's value.
using HostFunction = void (*)(int64_t begin, int64_t end, const void* const* args);

enum class HostObjectPlace : uint8_t { kMemory, kTemporaryFile };

// A mapped library; unmapped with the last user. Thread-safe.
class HostObject {
 public:
  // The image must be verified bytes.
  static Result<std::shared_ptr<HostObject>> Load(std::span<const uint8_t> image,
                                                  const std::string& what, HostObjectPlace place);
  // Memory, or else a temporary file.
  static Result<std::shared_ptr<HostObject>> Load(std::span<const uint8_t> image,
                                                  const std::string& what);
  // The kernel of the step, its parameter sizes checked against the step's arguments.
  Result<HostFunction> Find(const ResolvedStep& step) const;

 private:
  using Library = std::unique_ptr<void, int (*)(void*)>;  // of dlopen, for dlclose

  explicit HostObject(Library library) : library_(std::move(library)) {}
  static Result<Library> Open(const std::string& path, std::span<const uint8_t> image,
                              const std::string& what);
  static Result<Library> LoadFromMemory(std::span<const uint8_t> image, const std::string& what);
  static Result<Library> LoadFromFile(std::span<const uint8_t> image, const std::string& what);

  const Library library_;
};

// Loaded objects by the SHA-256 of their bytes.
class HostObjects {
 public:
  Result<std::shared_ptr<HostObject>> Load(const Bundle& bundle, uint32_t blob,
                                           Bundle::BaseCache* bases);
  uint64_t objects_loaded() const { return objects_.made(); }
  // Unmaps the objects of which no plan is left.
  void DropUnused() { objects_.DropUnused(); }

 private:
  OnceMap<Sha256Digest, HostObject> objects_;
};

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_HOST_OBJECT_H_
