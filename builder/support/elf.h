// A bounded reader of 64-bit little-endian ELF: cubins and host shared objects. Compilers made the
// bytes, but they passed through a cache on disk: every offset is checked before it is followed.
#ifndef KBUNDLE_BUILDER_SUPPORT_ELF_H_
#define KBUNDLE_BUILDER_SUPPORT_ELF_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/status.h"

namespace kbundle::builder {

// Views into the bytes given to Parse, which must outlive it.
class Elf {
 public:
  static constexpr uint16_t kMachineX86_64 = 62, kMachineAArch64 = 183;
  static constexpr uint16_t kMachineCuda = 190;

  struct Section {
    std::string_view name;
    uint32_t type = 0;
    uint64_t flags = 0, address = 0;
    uint32_t link = 0;
    std::string_view bytes;  // empty for NOBITS
  };
  struct Symbol {
    std::string_view name;
    uint64_t value = 0, size = 0;
    uint16_t section = 0;  // 0: undefined
    bool global = false;   // or weak
  };

  // kDataLoss: not such a file, or cut.
  static Result<Elf> Parse(std::string_view bytes);

  uint16_t machine() const { return machine_; }
  const std::vector<Section>& sections() const { return sections_; }
  const Section* Find(std::string_view name) const;
  // Of .symtab or .dynsym; empty when there is none.
  Result<std::vector<Symbol>> Symbols(std::string_view table) const;
  // `size` bytes at a virtual address of an allocated section.
  Result<std::string_view> BytesAt(uint64_t address, uint64_t size) const;

 private:
  uint16_t machine_ = 0;
  std::vector<Section> sections_;
};

// Little-endian number at `offset`; the caller has checked that it is inside.
template <typename T>
T LoadLittle(std::string_view bytes, size_t offset) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<T>(static_cast<uint8_t>(bytes[offset + i])) << (8 * i));
  }
  return value;
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_ELF_H_
