// A flag that makes a compiler read what the key of a compilation does not cover would let a stale
// object pass for a fresh one. The lists are of what is refused, since nobody can list all that is
// harmless; each compiler spells its own.
#include "builder/manifest/flags.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "fmt/format.h"

namespace kbundle::builder {
namespace {

struct Rule {
  std::vector<std::string_view> prefixes;  // behind one or two dashes; "x=" stands for "x" as well
  const char *why, *note;
};

constexpr char kTarget[] = "the target says it";
constexpr char kHidden[] = "it reads files of which the key of a compilation knows nothing";

const std::vector<Rule>& RulesOf(const std::string& compiler) {
  static const std::vector<Rule> kHost = {
      {{"m"},
       kTarget,
       "a host kernel is compiled once for each level, x86-64-v2 to v4; restrict it with "
       "`targets`, "
       "or ask KB_ISA_LEVEL in the source"},
      {{"B", "T", "l", "L", "specs", "fplugin", "wrapper", "Xassembler", "Wa,", "Wl,", "Xlinker",
        "fprofile-use", "fauto-profile"},
       kHidden,
       "leave it out"},
      {{"o", "c", "S", "E", "M", "x"}, "kbundle says it", "leave it out"}};
  static const std::vector<Rule> kNvrtc = {
      {{"include-path", "include", "pre-include", "isystem", "options-file", "optf"},
       kHidden,
       "name a folder of headers as -I, and write #include \"..\" in the source"},
      {{"use-pch", "pch", "create-pch", "pch-dir"}, kHidden, "leave it out"},
      {{"arch", "gpu-architecture", "gencode"}, kTarget, "restrict the variant with `targets`"}};
  static const std::vector<Rule> kNvcc = {
      {{"options-file", "optf", "ccbin", "compiler-bindir", "Xcompiler", "compiler-options"},
       kHidden,
       "leave it out; the host's compiler is found by kbundle (KBUNDLE_CXX)"},
      {{"arch", "gpu-architecture", "gencode", "generate-code"},
       kTarget,
       "restrict the variant with `targets`"},
      {{"o", "output-file"}, "kbundle says it", "leave it out"}};
  return compiler == "c++" ? kHost : compiler == "nvcc" ? kNvcc : kNvrtc;
}

// "-I" has its own way, "-MD" is "M..", "-o" is "o" alone: a letter is a whole flag, but m.
bool Matches(std::string_view flag, std::string_view prefix) {
  for (const char* whole : {"m", "M", "B", "T", "l", "L", "Wa,", "Wl,"}) {
    if (prefix == whole) return flag.starts_with(prefix);
  }
  return flag == prefix || flag.starts_with(std::string(prefix) + "=") ||
         (prefix.starts_with("fplugin") && flag.starts_with(prefix));
}

// Flags whose value may be the next word.
bool TakesTheNext(std::string_view flag) {
  static constexpr std::string_view kFlags[] = {"-I",
                                                "-D",
                                                "-U",
                                                "-include",
                                                "-isystem",
                                                "-iquote",
                                                "-idirafter",
                                                "-Xptxas",
                                                "-imacros",
                                                "-maxrregcount",
                                                "-diag-suppress",
                                                "-Xcudafe",
                                                "-std",
                                                "--std",
                                                "--define-macro",
                                                "--undefine-macro",
                                                "--include-path",
                                                "--ptxas-options",
                                                "--maxrregcount"};
  return std::find(std::begin(kFlags), std::end(kFlags), flag) != std::end(kFlags);
}

}  // namespace

void CheckFlag(const Node& flag, std::string_view before, const std::string& compiler,
               Diagnostics& diagnostics) {
  std::string_view name = flag.text;
  if (!name.starts_with('-') && !name.starts_with('@') && !TakesTheNext(before)) {
    diagnostics.Error(
        flag.where,
        fmt::format("flag \"{}\" begins with no dash, so it would name a file", flag.text),
        "name sources as `source`, and what they need by #include");
    return;
  }
  if (name.starts_with('@')) {
    diagnostics.Error(flag.where, fmt::format("flag \"{}\": {}", flag.text, kHidden),
                      "write the flags themselves");
    return;
  }
  for (int dash = 0; dash < 2 && name.starts_with('-'); ++dash) name.remove_prefix(1);
  for (const Rule& rule : RulesOf(compiler)) {
    const bool refused =
        std::any_of(rule.prefixes.begin(), rule.prefixes.end(),
                    [&](std::string_view prefix) { return Matches(name, prefix); });
    if (!refused) continue;
    diagnostics.Error(flag.where, fmt::format("flag \"{}\": {}", flag.text, rule.why), rule.note);
    return;
  }
}

}  // namespace kbundle::builder
