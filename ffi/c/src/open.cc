// Opening of the C ABI: every way in is one kb_open_options, which is checked whole before anything
// is opened.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "handles.h"
#include "kbundle/open_bundles.h"

namespace kbundle {
namespace {

using Opened = Result<std::shared_ptr<const Bundle>>;

constexpr size_t kMostOptionBytes = 4096;  // of a header that is newer than this library
constexpr size_t kMostParts = 256;

// What a newer header knows and this library does not must not be wanted.
Status CheckSize(const kb_open_options& options) {
  const bool fits = options.size >= sizeof options || options.size == KB_OPEN_OPTIONS_0_SIZE;
  if (!fits || options.size > kMostOptionBytes) {
    return InvalidArgument("opening a bundle: the options' size is " +
                           std::to_string(options.size) +
                           "; it must be sizeof(kb_open_options), which is " +
                           std::to_string(sizeof(kb_open_options)) + " here");
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(&options);
  const auto wanted = [](uint8_t byte) { return byte != 0; };
  const size_t known = std::min(options.size, sizeof options);
  if (options.reserved == 0 && std::none_of(bytes + known, bytes + options.size, wanted))
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

Result<std::vector<AbsentPart>> ToAbsent(const kb_open_options& options) {
  std::vector<AbsentPart> absent;
  if (options.absent_count > 0) KB_RETURN_IF_ERROR(RequirePointer(options.absent, "absent"));
  for (size_t i = 0; i < options.absent_count; ++i) {
    KB_RETURN_IF_ERROR(RequirePointer(options.absent[i].target, "target"));
    KB_RETURN_IF_ERROR(RequirePointer(options.absent[i].how, "how"));
    Result<Target> target = Target::Parse(options.absent[i].target);
    if (!target.ok()) return std::move(target).status().Annotate("opening a bundle: absent part");
    absent.push_back({*target, options.absent[i].how});
  }
  return absent;
}

// A library by its base, which says itself what belongs to it.
Result<std::shared_ptr<const Parts>> OpenBase(const kb_open_options& options,
                                              const Allocator& allocator) {
  KB_RETURN_IF_ERROR(RequirePointer(options.path, "path"));
  if (options.folder_count > 0) KB_RETURN_IF_ERROR(RequirePointer(options.folders, "folders"));
  std::vector<std::string> folders;
  for (size_t i = 0; i < options.folder_count; ++i) {
    KB_RETURN_IF_ERROR(RequirePointer(options.folders[i], "folder"));
    folders.emplace_back(options.folders[i]);
  }
  return Parts::Open(options.path, Checks::kByOp, allocator, folders);
}

// The file of the options, and those that are said to be parts of the same library.
Result<std::shared_ptr<const Parts>> OpenParts(const kb_open_options& given) {
  kb_open_options options{};
  std::memcpy(&options, &given, std::min(given.size, sizeof options));
  KB_ASSIGN_OR_RETURN(const Allocator allocator, ToAllocator(options.allocator));
  const bool given_parts = options.part_count > 0 || options.absent_count > 0;
  if (!given_parts && options.source == KB_SOURCE_PATH) return OpenBase(options, allocator);
  KB_ASSIGN_OR_RETURN(auto first, OpenSource(options, allocator));
  if (!given_parts) return Parts::Of(std::move(first));
  if (options.source != KB_SOURCE_PATH || options.part_count > kMostParts ||
      options.absent_count > kMostParts) {
    return InvalidArgument("opening a bundle: parts and absent are for KB_SOURCE_PATH, at most " +
                           std::to_string(kMostParts) + " of each");
  }
  if (options.part_count > 0) KB_RETURN_IF_ERROR(RequirePointer(options.parts, "parts"));
  KB_ASSIGN_OR_RETURN(std::vector<AbsentPart> absent, ToAbsent(options));
  std::vector<std::shared_ptr<const Bundle>> bundles = {std::move(first)};
  for (size_t i = 0; i < options.part_count; ++i) {
    KB_RETURN_IF_ERROR(RequirePointer(options.parts[i], "path"));
    KB_ASSIGN_OR_RETURN(auto part, Bundle::Open(options.parts[i], Checks::kByOp, allocator));
    bundles.push_back(std::move(part));
  }
  return Parts::Join(std::move(bundles), std::move(absent));
}

Status OpenWith(const kb_open_options* options, kb_bundle** out) {
  KB_RETURN_IF_ERROR(RequirePointer(options, "options"));
  KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
  KB_RETURN_IF_ERROR(CheckSize(*options));
  const std::string name = options->name == nullptr ? "" : options->name;
  auto handle = std::make_unique<kb_bundle>();  // what may fail comes before the name is taken
  KB_ASSIGN_OR_RETURN(auto opened, OpenParts(*options));
  handle->name = name.empty() ? std::string(opened->name()) : name;
  KB_ASSIGN_OR_RETURN(handle->parts, options->reload != 0 ? Replace(std::move(opened), name)
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
