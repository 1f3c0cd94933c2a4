// Two small scanners in place of a C++ parser: one puts the author's paths where a log says ours,
// the longest name first so that no name is found within another; the other finds names behind
// `__global__`. What macros hide from the second is not found, and it only ever makes advice.
#include "builder/compile/compile_errors.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "builder/compile/program_name.h"

namespace kbundle::builder {
namespace {

bool InName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// A path as a person would write it here.
std::string Shown(const std::string& path) {
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string() + "/";
  return !error && path.starts_with(here) ? path.substr(here.size()) : path;
}

struct Renaming {
  std::string from, to;
};

std::vector<Renaming> Renamings(const SourceTree& tree) {
  std::vector<Renaming> list;
  for (const SourceFile& file : tree.files) {
    if (!file.path.empty()) list.push_back({file.name, Shown(file.path)});
  }
  if (!list.empty()) list.push_back({kProgramName, list[0].to});
  std::stable_sort(list.begin(), list.end(), [](const Renaming& a, const Renaming& b) {
    return a.from.size() > b.from.size();
  });
  return list;
}

// The renaming of the file whose name stands at `at` and ends there, or null.
const Renaming* NameAt(const std::vector<Renaming>& list, std::string_view line, size_t at) {
  const auto part_of_name = [](char c) { return InName(c) || c == '/' || c == '.' || c == '-'; };
  if (at > 0 && part_of_name(line[at - 1])) return nullptr;
  for (const Renaming& one : list) {
    if (line.substr(at, one.from.size()) != one.from) continue;
    const size_t end = at + one.from.size();
    if (end == line.size() || !part_of_name(line[end])) return &one;
  }
  return nullptr;
}

// Every word of the text that is an identifier.
std::set<std::string, std::less<>> Identifiers(std::string_view text) {
  std::set<std::string, std::less<>> names;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && InName(text[end])) ++end;
    if (end > at) names.emplace(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

// The identifier before the parenthesis that opens a list of parameters: the first one behind
// `__global__`, not counting those of __launch_bounds__(..).
std::string NameBehind(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == ';' || text[at] == '{') return "";
    if (text[at] != '(') continue;
    size_t end = at;
    while (end > 0 && std::isspace(static_cast<unsigned char>(text[end - 1])) != 0) --end;
    size_t begin = end;
    while (begin > 0 && InName(text[begin - 1])) --begin;
    const std::string_view name = text.substr(begin, end - begin);
    if (name != "__launch_bounds__" && name != "__cluster_dims__") return std::string(name);
    for (int depth = 0; at < text.size(); ++at) {
      if (text[at] == '(') ++depth;
      if (text[at] == ')' && --depth == 0) break;
    }
  }
  return "";
}

}  // namespace

std::string InAuthorsFiles(const SourceTree& tree, std::string_view log) {
  const std::vector<Renaming> list = Renamings(tree);
  std::string out;
  for (size_t at = 0; at < log.size();) {
    const size_t dots = log.substr(at).starts_with("./") ? 2 : 0;
    const bool starts =
        at == 0 || !(InName(log[at - 1]) || log[at - 1] == '/' || log[at - 1] == '.');
    const Renaming* found = starts ? NameAt(list, log.substr(at + dots), 0) : nullptr;
    if (found == nullptr) {
      out += log[at++];
      continue;
    }
    out += found->to;
    at += dots + found->from.size();
  }
  return out;
}

std::string_view WithoutTemplateArguments(std::string_view kernel) {
  return kernel.substr(0, kernel.find('<'));
}

std::vector<std::string> DeclaredKernels(const SourceTree& tree) {
  constexpr std::string_view kMark = "__global__";
  std::set<std::string> names;
  for (const SourceFile& file : tree.files) {
    const std::string_view text = file.text;
    for (size_t at = text.find(kMark); at != text.npos; at = text.find(kMark, at + 1)) {
      const std::string name = NameBehind(text.substr(at + kMark.size()));
      if (!name.empty()) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

std::string KernelNotWritten(const SourceTree& tree, const std::vector<std::string>& kernels) {
  std::set<std::string, std::less<>> written;
  for (const SourceFile& file : tree.files) written.merge(Identifiers(file.text));
  for (const std::string& kernel : kernels) {
    std::string_view name = WithoutTemplateArguments(kernel);
    if (const size_t scope = name.rfind("::"); scope != name.npos) name.remove_prefix(scope + 2);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!written.contains(name)) return kernel;
  }
  return "";
}

}  // namespace kbundle::builder
