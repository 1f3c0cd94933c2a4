// Offset and size are compared with what is left, never added up, so that no sum overflows;
// whatever passes is a view within the file. Only what cubins and host objects have is known.
#include "builder/support/elf.h"

#include <fmt/format.h>

#include <optional>

namespace kbundle::builder {
namespace {

constexpr uint64_t kHeaderSize = 64, kSectionSize = 64, kSegmentSize = 56, kSymbolSize = 24;
constexpr uint32_t kNoBits = 8;
constexpr uint64_t kAllocated = 2;

std::optional<std::string_view> SliceOf(std::string_view bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
  return bytes.substr(offset, size);
}

// The NUL-terminated text at `offset`; nothing when it runs out of the table.
std::optional<std::string_view> TextAt(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return std::nullopt;
  const size_t end = table.find('\0', offset);
  if (end == std::string_view::npos) return std::nullopt;
  return table.substr(offset, end - offset);
}

Result<Elf::Section> ReadSection(std::string_view file, std::string_view header) {
  Elf::Section section;
  section.type = LoadLittle<uint32_t>(header, 4);
  section.flags = LoadLittle<uint64_t>(header, 8);
  section.address = LoadLittle<uint64_t>(header, 16);
  section.link = LoadLittle<uint32_t>(header, 40);
  const uint64_t offset = LoadLittle<uint64_t>(header, 24), size = LoadLittle<uint64_t>(header, 32);
  if (section.type == kNoBits || section.type == 0) return section;
  const auto bytes = SliceOf(file, offset, size);
  if (!bytes) {
    return DataLoss(fmt::format("section at {} of {} bytes reaches past the end ({} bytes)", offset,
                                size, file.size()));
  }
  section.bytes = *bytes;
  return section;
}

}  // namespace

Result<Elf> Elf::Parse(std::string_view bytes) {
  if (bytes.size() < kHeaderSize || bytes.substr(0, 6) != std::string_view("\x7f"
                                                                           "ELF\2\1",
                                                                           6)) {
    return DataLoss("not a 64-bit little-endian ELF file");
  }
  Elf elf;
  elf.machine_ = LoadLittle<uint16_t>(bytes, 18);
  const uint64_t table = LoadLittle<uint64_t>(bytes, 40);
  const uint16_t entry = LoadLittle<uint16_t>(bytes, 58), count = LoadLittle<uint16_t>(bytes, 60);
  const uint16_t names = LoadLittle<uint16_t>(bytes, 62);
  const auto headers = SliceOf(bytes, table, uint64_t{count} * kSectionSize);
  if (entry != kSectionSize || !headers || names >= count) {
    return DataLoss(
        fmt::format("section table at {}, {} entries of {} bytes, in a file of {} bytes", table,
                    count, entry, bytes.size()));
  }
  const uint64_t segments = LoadLittle<uint64_t>(bytes, 32);
  if (!SliceOf(bytes, segments, LoadLittle<uint16_t>(bytes, 56) * kSegmentSize)) {
    return DataLoss(
        fmt::format("segment table at {} in a file of {} bytes", segments, bytes.size()));
  }
  for (uint16_t i = 0; i < count; ++i) {
    KB_ASSIGN_OR_RETURN(Section section,
                        ReadSection(bytes, headers->substr(i * kSectionSize, kSectionSize)));
    elf.sections_.push_back(section);
  }
  const std::string_view text = elf.sections_[names].bytes;
  for (uint16_t i = 1; i < count; ++i) {
    const auto name = TextAt(text, LoadLittle<uint32_t>(*headers, i * kSectionSize));
    if (!name) return DataLoss(fmt::format("section {} has no name", i));
    elf.sections_[i].name = *name;
  }
  return elf;
}

const Elf::Section* Elf::Find(std::string_view name) const {
  for (const Section& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

Result<std::vector<Elf::Symbol>> Elf::Symbols(std::string_view table) const {
  std::vector<Symbol> symbols;
  const Section* section = Find(table);
  if (section == nullptr) return symbols;
  if (section->link >= sections_.size() || section->bytes.size() % kSymbolSize != 0) {
    return DataLoss(fmt::format("{} is damaged", table));
  }
  const std::string_view names = sections_[section->link].bytes;
  for (size_t at = 0; at < section->bytes.size(); at += kSymbolSize) {
    const std::string_view row = section->bytes.substr(at, kSymbolSize);
    const auto name = TextAt(names, LoadLittle<uint32_t>(row, 0));
    if (!name) return DataLoss(fmt::format("{} holds a symbol without a name", table));
    symbols.push_back({*name, LoadLittle<uint64_t>(row, 8), LoadLittle<uint64_t>(row, 16),
                       LoadLittle<uint16_t>(row, 6), static_cast<uint8_t>(row[4]) >> 4 != 0});
  }
  return symbols;
}

Result<std::string_view> Elf::BytesAt(uint64_t address, uint64_t size) const {
  for (const Section& section : sections_) {
    if ((section.flags & kAllocated) == 0 || address < section.address) continue;
    if (const auto bytes = SliceOf(section.bytes, address - section.address, size)) return *bytes;
  }
  return DataLoss(fmt::format("no section holds {} bytes at address {}", size, address));
}

}  // namespace kbundle::builder
