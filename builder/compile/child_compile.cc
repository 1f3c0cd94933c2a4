// What a compiler read is taken from its depfile, not guessed from the source: a header outside the
// tree, with the digest it had, is what makes a stored object stale. Depfiles are make's syntax,
// with make's escapes, and hold a toolkit's headers too, which its own digest stands for.
#include "builder/compile/child_compile.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "builder/support/files.h"
#include "builder/support/process.h"

namespace kbundle::builder {
namespace {

// Make's syntax: "target: a b\ c \<newline> d".
std::vector<std::string> Prerequisites(std::string_view text) {
  std::vector<std::string> paths;
  std::string word;
  const size_t colon = text.find(": ");
  text.remove_prefix(colon == std::string_view::npos ? text.size() : colon + 2);
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : '\n';
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '\\' && (next == ' ' || next == '#' || next == '\\')) {
      word += text[++i];
    } else if (c == '$' && next == '$') {
      word += text[++i];
    } else if (c != ' ' && c != '\n' && c != '\\') {
      word += c;
    } else if (!word.empty()) {
      paths.push_back(std::move(word));
      word.clear();
    }
  }
  return paths;
}

bool IsUnder(const std::string& path, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    if (!folder.empty() && path.starts_with(folder + "/")) return true;
  }
  return false;
}

}  // namespace

Status WriteTree(const SourceTree& tree, const std::string& folder) {
  for (const SourceFile& file : tree.files) {
    const std::string path = folder + "/" + file.name;
    KB_RETURN_IF_ERROR(MakeFolders(std::filesystem::path(path).parent_path().string()));
    KB_RETURN_IF_ERROR(PublishFile(path, file.text, Durability::kCrashOnly));
  }
  return Status();
}

Result<std::string> RunCompiler(const std::vector<std::string>& arguments,
                                const std::string& folder, const CompileContext& context) {
  ProcessOptions options;
  options.arguments = arguments;
  options.folder = folder;
  options.environment = CompilerEnvironment(folder);
  options.limit = context.limit;
  KB_ASSIGN_OR_RETURN(ProcessResult result, RunProcess(options));
  if (result.ok()) return std::move(result.output);
  if (result.timed_out) {
    return DeadlineExceeded(fmt::format(
        "{} was stopped after {} s; a larger limit: KBUNDLE_COMPILE_TIMEOUT (seconds)\n{}",
        arguments[0], context.limit.count(), result.output));
  }
  if (result.signal != 0) {
    return Internal(
        fmt::format("{} crashed: {}\n{}", arguments[0], result.Describe(), result.output));
  }
  if (result.output.empty()) {
    return Internal(fmt::format("{} ended with {} and no word", arguments[0], result.Describe()));
  }
  return InvalidArgument(std::move(result.output));
}

Result<std::vector<Object::Read>> ReadDependencies(const std::string& depfile,
                                                   const std::vector<std::string>& covered) {
  KB_ASSIGN_OR_RETURN(const std::string text, ReadFile(depfile));
  std::set<std::string> paths;
  for (const std::string& path : Prerequisites(text)) {
    const std::string normal = std::filesystem::path(path).lexically_normal().string();
    if (normal.starts_with("/") && !IsUnder(normal, covered)) paths.insert(normal);
  }
  std::vector<Object::Read> reads;
  for (const std::string& path : paths) {
    KB_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
    reads.push_back({path, ToHex(Sha256Of(bytes.data(), bytes.size()))});
  }
  return reads;
}

std::vector<std::string> CommandOf(const std::string& program,
                                   const std::vector<std::string>& options, const Unit& unit,
                                   const Toolchain& tools) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), options.begin(), options.end());
  for (const std::string& folder : unit.include_folders) words.push_back("-I" + folder);
  words.insert(words.end(), {"-I" + tools.kernel_includes, "-o", "/dev/null",
                             unit.family->directory + "/" + unit.source});
  return words;
}

}  // namespace kbundle::builder
