// Unused data is found as a collector finds garbage: every line that stays may name data, what it
// names stays, and so on. Only lines of the plainest form are candidates, so that PTX which is not
// understood is passed on as it is; and unknown flags leave the cubin to NVRTC.
#include "builder/provider/cuda/assemble.h"

#include <unordered_map>

#include "builder/compile/child_compile.h"
#include "builder/support/files.h"
#include "builder/support/temporary_folder.h"

namespace kbundle::builder {
namespace {

bool InName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%';
}

// Calls found(name) for every word of the text that may be an identifier.
template <typename Found>
void EachName(std::string_view text, Found found) {
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && InName(text[end])) ++end;
    if (end > at) found(text.substr(at, end - at));
    at = end + 1;
  }
}

// ".global .align 4 .u32 NAME = 3;": the name. "" for every other line, also for data that others
// can see (".visible .global"), that is no plain number, or that takes several lines.
std::string_view DataName(std::string_view line) {
  if (!line.starts_with(".global .align ") || !line.ends_with(";")) return "";
  size_t at = line.find_first_not_of("0123456789", 15);
  if (at == std::string_view::npos || !line.substr(at).starts_with(" .")) return "";
  at += 2;
  if (std::string_view("usbf").find(line[at]) == std::string_view::npos) return "";
  at = line.find_first_not_of("0123456789", at + 1);
  if (at == std::string_view::npos || line[at] != ' ') return "";
  const size_t name = ++at;
  while (InName(line[at])) ++at;
  return line.substr(name, at - name);
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

}  // namespace

std::string WithoutUnusedData(std::string_view ptx) {
  while (ptx.ends_with('\0')) ptx.remove_suffix(1);
  const std::vector<std::string_view> lines = Lines(ptx);
  std::unordered_map<std::string_view, size_t> data;  // name to line
  for (size_t i = 0; i < lines.size(); ++i) {
    if (const std::string_view name = DataName(lines[i]); !name.empty()) data.emplace(name, i);
  }
  std::vector<bool> unused(lines.size(), false);
  for (const auto& [name, line] : data) unused[line] = true;
  std::vector<size_t> pending;  // lines that stay and may refer to data
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!unused[i]) pending.push_back(i);
  }
  while (!pending.empty()) {
    const size_t line = pending.back();
    pending.pop_back();
    EachName(lines[line], [&](std::string_view name) {
      const auto found = data.find(name);
      if (found == data.end() || !unused[found->second]) return;
      unused[found->second] = false;
      pending.push_back(found->second);
    });
  }
  std::string kept;
  kept.reserve(ptx.size() + 1);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!unused[i]) kept.append(lines[i]).append("\n");
  }
  return kept;
}

std::optional<std::vector<std::string>> PtxasFlags(const std::vector<std::string>& flags) {
  std::vector<std::string> result;
  for (const std::string& flag : flags) {
    std::string_view name = flag;
    while (name.starts_with('-')) name.remove_prefix(1);
    if (name.starts_with("fmad=") || name.starts_with("maxrregcount=")) {
      result.push_back("--" + std::string(name));
    } else if (!name.starts_with("D") && !name.starts_with("ftz=") &&
               !name.starts_with("prec-div=") && !name.starts_with("prec-sqrt=")) {
      return std::nullopt;
    }
  }
  return result;
}

bool Assembles(const Unit& unit, const Toolchain& tools) {
  return unit.compiler == "nvrtc" && !unit.portable() && !tools.ptxas.empty() &&
         PtxasFlags(unit.flags).has_value();
}

Result<std::string> Assemble(const Unit& unit, std::string_view ptx, const CompileContext& context,
                             std::string* log) {
  KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
  KB_RETURN_IF_ERROR(
      PublishFile(folder.path() + "/kb.ptx", WithoutUnusedData(ptx), Durability::kCrashOnly));
  std::vector<std::string> arguments = {context.tools.ptxas, "-v",
                                        "-arch=" + unit.target.ToString()};
  const auto flags = PtxasFlags(unit.flags);
  if (!flags) return Internal("a flag that ptxas may need is not known");
  arguments.insert(arguments.end(), flags->begin(), flags->end());
  arguments.insert(arguments.end(), {"kb.ptx", "-o", "kb.cubin"});
  KB_ASSIGN_OR_RETURN(*log, RunCompiler(arguments, folder.path(), context));
  return ReadFile(folder.path() + "/kb.cubin");
}

}  // namespace kbundle::builder
