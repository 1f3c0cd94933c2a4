// Three kinds of code say their parameters in three ways: a cubin in rows of .nv.info, PTX in a
// list of declarations, a host object in a table that KB_HOST_KERNEL puts beside the kernel. All
// end as bytes a parameter, in order. What is not understood comes out as an error or as 0 bytes,
// which no argument has.
#include "builder/store/kernel_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include "builder/support/elf.h"

namespace kbundle::builder {
namespace {

// Attributes of .nv.info.<kernel>: format (1 byte), attribute (1), then a value or a size (2).
constexpr uint8_t kFormatSized = 4;
constexpr uint8_t kAttributeParam = 0x17;  // EIATTR_KPARAM_INFO
constexpr size_t kParamPayload = 12;

std::string Listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::string_view name : names) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text.empty() ? "none" : text;
}

Status NoKernel(const std::string& symbol, const std::vector<std::string_view>& names) {
  return NotFound(
      fmt::format("the compiled code has no kernel '{}'; it has: {}", symbol, Listed(names)));
}

// One .nv.info section: parameter sizes by ordinal.
Result<std::map<uint32_t, uint32_t>> ParamRows(std::string_view info) {
  std::map<uint32_t, uint32_t> sizes;
  for (size_t at = 0; at + 4 <= info.size();) {
    const uint8_t format = static_cast<uint8_t>(info[at]);
    const uint8_t attribute = static_cast<uint8_t>(info[at + 1]);
    const size_t payload = format == kFormatSized ? LoadLittle<uint16_t>(info, at + 2) : 0;
    at += 4;
    if (payload > info.size() - at) return DataLoss("a cubin's .nv.info section is cut");
    if (format == kFormatSized && attribute == kAttributeParam && payload >= kParamPayload) {
      // index (4), ordinal (2), offset (2), then alignment, space and, in the top 14 bits, the
      // size.
      sizes[LoadLittle<uint16_t>(info, at + 4)] = LoadLittle<uint32_t>(info, at + 8) >> 18;
    }
    at += payload;
  }
  return sizes;
}

// The next whitespace-separated word of *text, taken off it.
std::string_view Word(std::string_view* text) {
  const size_t start = text->find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return *text = {};
  const size_t end = std::min(text->find_first_of(" \t\r\n", start), text->size());
  const std::string_view word = text->substr(start, end - start);
  text->remove_prefix(end);
  return word;
}

uint32_t NumberIn(std::string_view text) {
  uint32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// ".param .align 64 .b8 name[128]" -> 128; ".param .u64 name" -> 8; 0: not understood.
uint32_t PtxParamBytes(std::string_view declaration) {
  uint32_t element = 0;
  for (std::string_view word = Word(&declaration); !word.empty(); word = Word(&declaration)) {
    if (word == ".align") {
      Word(&declaration);
    } else if (word.size() >= 3 && word[0] == '.' && std::isdigit(word.back())) {
      element = NumberIn(word.substr(2)) / 8;  // .u64, .f32, .b8
    } else if (word[0] != '.') {
      const size_t bracket = word.find('[');
      return bracket == std::string_view::npos ? element
                                               : element * NumberIn(word.substr(bracket + 1));
    }
  }
  return 0;
}

// The number before `unit` in "432 bytes stack frame, 0 bytes spill stores, ...".
uint32_t Before(std::string_view line, std::string_view unit) {
  const size_t at = line.find(unit);
  if (at == std::string_view::npos) return 0;
  size_t start = at;
  while (start > 0 && (std::isdigit(line[start - 1]) || line[start - 1] == ' ')) --start;
  return NumberIn(line.substr(line.find_first_not_of(' ', start)));
}

}  // namespace

Result<std::vector<uint32_t>> CubinParams(std::string_view cubin, const std::string& symbol) {
  KB_ASSIGN_OR_RETURN(const Elf elf, Elf::Parse(cubin));
  if (elf.machine() != Elf::kMachineCuda) return DataLoss("the compiled code is not a cubin");
  if (elf.Find(".text." + symbol) == nullptr) {
    std::vector<std::string_view> names;
    for (const Elf::Section& section : elf.sections()) {
      if (section.name.starts_with(".text.")) names.push_back(section.name.substr(6));
    }
    return NoKernel(symbol, names);
  }
  std::vector<uint32_t> sizes;
  const Elf::Section* info = elf.Find(".nv.info." + symbol);
  if (info == nullptr) return sizes;
  KB_ASSIGN_OR_RETURN(const auto rows, ParamRows(info->bytes));
  for (const auto& [ordinal, size] : rows) {
    if (ordinal != sizes.size()) return DataLoss("a cubin's parameter list has a hole");
    sizes.push_back(size);
  }
  return sizes;
}

Result<std::vector<uint32_t>> PtxParams(std::string_view ptx, const std::string& symbol) {
  const size_t at = ptx.find(".entry " + symbol + "(");
  if (at == std::string_view::npos) return NoKernel(symbol, {});
  const size_t open = ptx.find('(', at), close = ptx.find(')', at);
  if (close == std::string_view::npos) return DataLoss("a kernel's parameter list in PTX is cut");
  std::vector<uint32_t> sizes;
  std::string_view list = ptx.substr(open + 1, close - open - 1);
  while (list.find(".param") != std::string_view::npos) {
    const size_t comma = std::min(list.find(','), list.size());
    sizes.push_back(PtxParamBytes(list.substr(0, comma)));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return sizes;
}

Result<std::vector<uint32_t>> HostParams(std::string_view object, const std::string& symbol,
                                         const Target& target) {
  KB_ASSIGN_OR_RETURN(const Elf elf, Elf::Parse(object));
  const uint16_t wanted = target.IsArm() ? Elf::kMachineAArch64 : Elf::kMachineX86_64;
  if (elf.machine() != wanted) {
    return DataLoss(
        fmt::format("the compiled code is for machine {} of ELF's, {} is {}; name a "
                    "compiler for it in {}",
                    elf.machine(), target.ToString(), wanted,
                    target.IsArm() ? "KBUNDLE_CXX_ARM" : "KBUNDLE_CXX"));
  }
  KB_ASSIGN_OR_RETURN(const auto symbols, elf.Symbols(".dynsym"));
  std::vector<std::string_view> names;
  const Elf::Symbol *kernel = nullptr, *params = nullptr;
  for (const Elf::Symbol& row : symbols) {
    if (row.section == 0 || !row.global) continue;
    if (row.name == symbol) kernel = &row;
    if (row.name == symbol + "_kb_params") params = &row;
    if (!row.name.ends_with("_kb_params")) names.push_back(row.name);
  }
  if (kernel == nullptr || params == nullptr) return NoKernel(symbol, names);
  KB_ASSIGN_OR_RETURN(const std::string_view head, elf.BytesAt(params->value, 4));
  const uint32_t count = LoadLittle<uint32_t>(head, 0);
  if (count > kMaxArgs) return DataLoss(fmt::format("{}_kb_params: {} parameters", symbol, count));
  KB_ASSIGN_OR_RETURN(const std::string_view rows, elf.BytesAt(params->value + 4, count * 4));
  std::vector<uint32_t> sizes;
  for (uint32_t i = 0; i < count; ++i) sizes.push_back(LoadLittle<uint32_t>(rows, i * 4));
  return sizes;
}

Status ReadPtxasLog(std::string_view log, KernelInfo* kernel) {
  const size_t at = log.find("Function properties for " + kernel->symbol + "\n");
  const size_t used = at == std::string_view::npos ? at : log.find("Used ", at);
  if (used == std::string_view::npos) {
    return Internal(fmt::format("ptxas reported no registers for kernel '{}'", kernel->symbol));
  }
  const std::string_view properties = log.substr(at, used - at);
  std::string_view line = log.substr(used);
  line = line.substr(0, line.find('\n'));
  kernel->spill_bytes =
      std::max(Before(properties, " bytes spill stores"), Before(properties, " bytes spill loads"));
  kernel->registers = NumberIn(line.substr(5));
  kernel->static_shared = Before(line, " bytes smem");
  return Status();
}

std::string WithoutPtxasInfo(std::string_view log) {
  std::string kept;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    const bool figures = line.starts_with("ptxas info") || line.starts_with("ptxas         .") ||
                         line.find(" bytes stack frame, ") != std::string_view::npos;
    if (!figures && !line.empty()) kept.append(line).append("\n");
  }
  return kept;
}

std::vector<uint32_t> ArgumentSizes(const Step& step) {
  std::vector<uint32_t> sizes;
  for (const Arg& arg : step.args) {
    const auto element = static_cast<uint32_t>(SizeOf(arg.ctype));
    switch (arg.kind) {
      case ArgKind::kOperand:
      case ArgKind::kResult:
      case ArgKind::kRegion:
        sizes.push_back(8);
        break;
      case ArgKind::kInteger:
      case ArgKind::kFloat:
        sizes.push_back(element);
        break;
      case ArgKind::kArray:
        sizes.push_back(element * static_cast<uint32_t>(arg.count));
        break;
      case ArgKind::kTensorMap:
        sizes.push_back(128);
        break;
      case ArgKind::kStruct:
        sizes.push_back(static_cast<uint32_t>(step.structs[arg.index].bytes.size()));
        break;
    }
  }
  return sizes;
}

Status CheckParams(const KernelInfo& kernel, const Step& step) {
  const std::vector<uint32_t> passed = ArgumentSizes(step);
  const size_t common = std::min(passed.size(), kernel.param_bytes.size());
  for (size_t i = 0; i < common; ++i) {
    if (passed[i] == kernel.param_bytes[i]) continue;
    return InvalidArgument(fmt::format(
        "kernel '{}': parameter {} has {} bytes in the compiled code, but the manifest's argument "
        "\"{}\" has {}; make the kernel's parameter and the manifest's type agree",
        kernel.kernel, i + 1, kernel.param_bytes[i], step.args[i].text, passed[i]));
  }
  if (passed.size() == kernel.param_bytes.size()) return Status();
  return InvalidArgument(fmt::format(
      "kernel '{}' takes {} parameters, but the manifest passes {}; the first that only one side "
      "has is number {}",
      kernel.kernel, kernel.param_bytes.size(), passed.size(), common + 1));
}

}  // namespace kbundle::builder
