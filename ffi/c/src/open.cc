// Opening of the C ABI: every way in is one kb_open_options, which is checked whole before anything
// is opened.
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "handles.h"
#include "kbundle/open_bundles.h"

namespace kbundle {
namespace {

using Opened = Result<std::shared_ptr<const Bundle>>;

constexpr size_t kMostOptionBytes = 4096;  // of a header that is newer than this library

// What a newer header knows and this library does not must not be wanted.
Status CheckSize(const kb_open_options& options) {
  if (options.size < sizeof(kb_open_options) || options.size > kMostOptionBytes) {
    return InvalidArgument("opening a bundle: the options' size is " +
                           std::to_string(options.size) +
                           "; it must be sizeof(kb_open_options), which is " +
                           std::to_string(sizeof(kb_open_options)) + " here");
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(&options);
  const auto wanted = [](uint8_t byte) { return byte != 0; };
  if (options.reserved == 0 && std::none_of(bytes + sizeof options, bytes + options.size, wanted))
    return Status();
  return Unimplemented(
      "opening a bundle: the options ask for something that this library does not know, in "
      "'reserved' or behind it: set it to 0, or bring a newer library");
}

Result<Allocator> ToAllocator(const kb_allocator* given) {
  if (given == nullptr) return Allocator{};
  KB_RETURN_IF_ERROR(RequirePointer(reinterpret_cast<void*>(given->allocate), "allocate"));
  KB_RETURN_IF_ERROR(RequirePointer(reinterpret_cast<void*>(given->release), "release"));
  return Allocator{given->allocate, given->release, given->state};
}

Opened OpenSource(const kb_open_options& options, const Allocator& allocator) {
  switch (options.source) {
    case KB_SOURCE_PATH:
      KB_RETURN_IF_ERROR(RequirePointer(options.path, "path"));
      return Bundle::Open(options.path, Checks::kByOp, allocator);
    case KB_SOURCE_DESCRIPTOR:
      return Bundle::OpenDescriptor(options.descriptor, Checks::kByOp, allocator);
    case KB_SOURCE_MEMORY:
      KB_RETURN_IF_ERROR(RequirePointer(options.bytes, "bytes"));
      return Bundle::OpenMemory({static_cast<const uint8_t*>(options.bytes), options.byte_count},
                                Checks::kByOp, allocator);
    default:
      return InvalidArgument("opening a bundle: source " + std::to_string(options.source) +
                             " is not one of kb_source (0 to 2)");
  }
}

Status OpenWith(const kb_open_options* options, kb_bundle** out) {
  KB_RETURN_IF_ERROR(RequirePointer(options, "options"));
  KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
  KB_RETURN_IF_ERROR(CheckSize(*options));
  KB_ASSIGN_OR_RETURN(const Allocator allocator, ToAllocator(options->allocator));
  const std::string name = options->name == nullptr ? "" : options->name;
  auto handle = std::make_unique<kb_bundle>();  // what may fail comes before the name is taken
  KB_ASSIGN_OR_RETURN(auto opened, OpenSource(*options, allocator));
  handle->name = name.empty() ? std::string(opened->name()) : name;
  KB_ASSIGN_OR_RETURN(handle->bundle, options->reload != 0 ? Replace(std::move(opened), name)
                                                           : Share(std::move(opened), name));
  *out = handle.release();
  return Status();
}

kb_open_options Named(const char* name) {
  kb_open_options options{};
  options.size = sizeof options;
  options.name = name;
  return options;
}

}  // namespace
}  // namespace kbundle

extern "C" {

kb_error* kb_bundle_open_with(const kb_open_options* options, kb_bundle** out) {
  return kbundle::Guarded([&] { return kbundle::OpenWith(options, out); });
}

kb_error* kb_bundle_open(const char* path, const char* name, kb_bundle** out) {
  kb_open_options options = kbundle::Named(name);
  options.path = path;
  return kb_bundle_open_with(&options, out);
}

kb_error* kb_bundle_open_descriptor(int descriptor, const char* name, kb_bundle** out) {
  kb_open_options options = kbundle::Named(name);
  options.source = KB_SOURCE_DESCRIPTOR;
  options.descriptor = descriptor;
  return kb_bundle_open_with(&options, out);
}

kb_error* kb_bundle_open_memory(const void* bytes, uint64_t size, const char* name,
                                kb_bundle** out) {
  kb_open_options options = kbundle::Named(name);
  options.source = KB_SOURCE_MEMORY;
  options.bytes = bytes;
  options.byte_count = size;
  return kb_bundle_open_with(&options, out);
}

kb_error* kb_bundle_reload(const char* path, const char* name, kb_bundle** out) {
  kb_open_options options = kbundle::Named(name);
  options.path = path;
  options.reload = 1;
  return kb_bundle_open_with(&options, out);
}

}  // extern "C"
