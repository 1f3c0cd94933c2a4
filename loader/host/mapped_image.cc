// The linker's list of what is loaded, looked up by address since names are what is in doubt:
// every segment that nothing may write must hold the bytes of the image.
#include "loader/host/mapped_image.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string_view>

namespace kbundle {
namespace {

// A part of the image, or nothing where it claims to lie outside. Alignment is the caller's.
std::span<const uint8_t> Part(std::span<const uint8_t> image, uint64_t offset, uint64_t size) {
  if (offset > image.size() || size > image.size() - offset) return {};
  return image.subspan(offset, size);
}

struct Search {
  const link_map* library;
  std::span<const uint8_t> image;
  bool same = false;
};

// The loader's own list of segments says what is mapped; it must be the image's list as well.
bool SameSegments(const dl_phdr_info& info, std::span<const uint8_t> image) {
  Elf64_Ehdr header;
  if (image.size() < sizeof header) return false;
  std::memcpy(&header, image.data(), sizeof header);
  const auto list = Part(image, header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr));
  if (list.empty() || header.e_phnum != info.dlpi_phnum ||
      std::memcmp(list.data(), info.dlpi_phdr, list.size()) != 0) {
    return false;
  }
  bool code = false;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const Elf64_Phdr& segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const auto bytes = Part(image, segment.p_offset, segment.p_filesz);
    const auto* mapped = reinterpret_cast<const uint8_t*>(info.dlpi_addr + segment.p_vaddr);
    if (bytes.size() != segment.p_filesz) return false;
    if (!bytes.empty() && std::memcmp(bytes.data(), mapped, bytes.size()) != 0) return false;
    code |= (segment.p_flags & PF_X) != 0;
  }
  return code;
}

int Compare(dl_phdr_info* info, size_t, void* state) {
  auto& search = *static_cast<Search*>(state);
  // Every library has an address of its own; names are what is in doubt here.
  if (info->dlpi_addr != search.library->l_addr) return 0;
  search.same = SameSegments(*info, search.image);
  return 1;
}

}  // namespace

bool MapsImage(void* library, std::span<const uint8_t> image) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return false;
  Search search{map, image};
  dl_iterate_phdr(&Compare, &search);
  return search.same;
}

}  // namespace kbundle
