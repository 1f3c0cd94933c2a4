// The C library is named without versions of its symbols, by an empty stand-in: what is linked here
// must not depend on the library of the machine that builds, nor ask for one as new as it.
#include "builder/provider/warp/link_host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "builder/compile/child_compile.h"
#include "builder/support/elf.h"
#include "builder/support/files.h"
#include "builder/support/temporary_folder.h"

namespace kbundle::builder {
namespace {

// What Warp's own loader of CPU code binds, but for Warp's (native/clang/clang.cpp), each also for
// float with an f behind it.
constexpr std::string_view kMathematics[] = {
    "fmod",  "log",  "log2", "log10", "exp",   "exp2", "ldexp", "sqrt", "cbrt", "pow",
    "floor", "ceil", "fabs", "round", "trunc", "rint", "acos",  "asin", "atan", "atan2",
    "cos",   "sin",  "tan",  "sinh",  "cosh",  "tanh", "fma",   "erf",  "erfc", "sincos"};
constexpr std::string_view kOthers[] = {"printf", "puts",   "putchar", "abs",
                                        "llabs",  "memcpy", "memset",  "memmove",
                                        "malloc", "calloc", "free",    "_GLOBAL_OFFSET_TABLE_"};

bool IsOfTheCLibrary(std::string_view name) {
  for (const std::string_view known : kMathematics) {
    if (name == known || (name.ends_with('f') && name.substr(0, name.size() - 1) == known)) {
      return true;
    }
  }
  return std::any_of(std::begin(kOthers), std::end(kOthers),
                     [&](std::string_view known) { return name == known; });
}

Result<std::set<std::string>> Undefined(const std::string& file, std::string_view table) {
  KB_ASSIGN_OR_RETURN(const Elf elf, Elf::Parse(file));
  KB_ASSIGN_OR_RETURN(const auto symbols, elf.Symbols(table));
  std::set<std::string> names;
  for (const Elf::Symbol& symbol : symbols) {
    if (symbol.section == 0 && !symbol.name.empty()) names.emplace(symbol.name);
  }
  return names;
}

Status CheckUndefined(const std::string& object) {
  KB_ASSIGN_OR_RETURN(std::set<std::string> names, Undefined(object, ".symtab"));
  std::erase_if(names, IsOfTheCLibrary);
  if (names.empty()) return Status();
  return InvalidArgument(fmt::format(
      "on the CPU this kernel calls {}, of Warp's own library, which nobody needs at run time; "
      "keep the variant off hosts with targets = [\"sm_90a\"], or do without the function",
      fmt::join(names, ", ")));
}

std::vector<std::string> Linking(const CompileContext& context) {
  return {context.tools.host_compiler, "-shared", "-nostdlib", "-Wl,--build-id=none"};
}

}  // namespace

Result<std::string> LinkForHost(const std::string& object, const std::string& symbol,
                                const Target& target, const CompileContext& context) {
  KB_RETURN_IF_ERROR(CheckUndefined(object));
  KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
  const std::string& path = folder.path();
  const std::string exports = fmt::format("{{ global: {0}; {0}_kb_params; local: *; }};\n", symbol);
  KB_RETURN_IF_ERROR(PublishFile(path + "/kb.o", object, Durability::kCrashOnly));
  KB_RETURN_IF_ERROR(PublishFile(path + "/exports", exports, Durability::kCrashOnly));
  std::vector<std::string> link = Linking(context);
  link.insert(link.end(), {"-Wl,--version-script=exports", "-Wl,-z,noseparate-code", "-Wl,-s",
                           "-Wl,-z,now", "-Wl,-z,noexecstack", "-Wl,--gc-sections",
                           "-Wl,-z," + target.ToString(), "-o", "kb.so", "kb.o"});
  KB_RETURN_IF_ERROR(RunCompiler(link, path, context).status());
  KB_ASSIGN_OR_RETURN(std::string linked, ReadFile(path + "/kb.so"));
  KB_ASSIGN_OR_RETURN(const std::set<std::string> wanted, Undefined(linked, ".dynsym"));
  if (wanted.empty()) return linked;
  KB_RETURN_IF_ERROR(PublishFile(path + "/empty.c", "", Durability::kCrashOnly));
  std::vector<std::string> stand_in = Linking(context);
  stand_in.insert(stand_in.end(), {"-Wl,-soname,libm.so.6", "-o", "libm.so.6", "empty.c"});
  KB_RETURN_IF_ERROR(RunCompiler(stand_in, path, context).status());
  link.insert(link.end(), {"-Wl,--no-as-needed", "./libm.so.6"});
  KB_RETURN_IF_ERROR(RunCompiler(link, path, context).status());
  return ReadFile(path + "/kb.so");
}

}  // namespace kbundle::builder
