// A compiler spells its types nowhere but in __PRETTY_FUNCTION__, so the asking macro keeps that
// text of a template over the kernel's signature as a constant in an object file; no kernel's code
// is made. The object is then read as ELF, with every offset checked: it comes from an author's
// compiler.
#include "builder/provider/host/types.h"

#include "builder/compile/c_type.h"
#include "builder/compile/child_compile.h"
#include "builder/provider/host/compile.h"
#include "builder/support/elf.h"
#include "builder/support/files.h"
#include "builder/support/temporary_folder.h"

namespace kbundle::builder {
namespace {

constexpr char kHeader[] = "kbundle/host_kernel.h";
constexpr std::string_view kSuffix = "_kb_types";

// Behind the header's own text. A null pointer of the kernel's type: its body is not even made.
constexpr char kMacro[] = R"(
namespace kbundle {
namespace host {
template <unsigned long N>
struct TypeText {
  char text[N];
};
template <typename... A>
constexpr auto TypesOf(void (*)(int64_t, int64_t, A...)) {
  TypeText<sizeof(__PRETTY_FUNCTION__)> result{};
  for (unsigned long i = 0; i < sizeof(__PRETTY_FUNCTION__); ++i) {
    result.text[i] = __PRETTY_FUNCTION__[i];
  }
  return result;
}
}  // namespace host
}  // namespace kbundle
#undef KB_HOST_KERNEL
#define KB_HOST_KERNEL(exported, ...)                                                      \
  extern "C" {                                                                             \
  extern const decltype(::kbundle::host::TypesOf(                                          \
      static_cast<decltype(&__VA_ARGS__)>(nullptr))) exported##_kb_types;                  \
  __attribute__((used)) constexpr decltype(::kbundle::host::TypesOf(                       \
      static_cast<decltype(&__VA_ARGS__)>(nullptr))) exported##_kb_types =                 \
      ::kbundle::host::TypesOf(static_cast<decltype(&__VA_ARGS__)>(nullptr));              \
  }
)";

// Of the brace that closes the one at `open`: a type of an unnamed namespace has braces too.
size_t EndOfBraces(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (depth == 0) return i;
  }
  return std::string_view::npos;
}

// g++: "... [with A = {float*, const float*}; int64_t = long int]"; clang++: "... [A = <float *>]".
std::vector<std::string> TypesIn(std::string_view text) {
  const size_t at = text.rfind("A = ");
  if (at == std::string_view::npos || at + 4 >= text.size()) return {};
  const char open = text[at + 4];
  const size_t end = open == '{' ? EndOfBraces(text, at + 4) : text.rfind('>');
  if ((open != '{' && open != '<') || end == std::string_view::npos || end < at + 5) return {};
  return SplitTypes(text.substr(at + 5, end - at - 5));
}

Result<ParameterTypes> TypesOfObject(std::string_view object) {
  KB_ASSIGN_OR_RETURN(const Elf elf, Elf::Parse(object));
  KB_ASSIGN_OR_RETURN(const auto symbols, elf.Symbols(".symtab"));
  ParameterTypes types;
  for (const Elf::Symbol& symbol : symbols) {
    if (!symbol.name.ends_with(kSuffix) || symbol.section >= elf.sections().size()) continue;
    const std::string_view bytes = elf.sections()[symbol.section].bytes;
    if (symbol.value > bytes.size() || symbol.size > bytes.size() - symbol.value) continue;
    const std::string kernel(symbol.name.substr(0, symbol.name.size() - kSuffix.size()));
    types[kernel] = TypesIn(bytes.substr(symbol.value, symbol.size));
  }
  return types;
}

}  // namespace

Result<ParameterTypes> ReadHostTypes(const Unit& unit, const SourceTree& tree,
                                     const CompileContext& context) {
  SourceTree asking = tree;
  for (SourceFile& file : asking.files) {
    if (file.name == kHeader) file.text += kMacro;
  }
  KB_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Make());
  KB_RETURN_IF_ERROR(WriteTree(asking, folder.path()));
  std::vector<std::string> arguments = {context.tools.HostCompiler(unit.target), "-I."};
  for (const std::string& option : HostOptions(unit)) {
    if (option != "-shared" && !option.starts_with("-Wl,")) arguments.push_back(option);
  }
  for (const std::string& include : unit.include_folders) arguments.push_back("-I" + include);
  for (const char* word : {"-O0", "-w", "-c", "-o", "kb.o"}) arguments.emplace_back(word);
  arguments.push_back(tree.files[0].name);
  KB_RETURN_IF_ERROR(RunCompiler(arguments, folder.path(), context).status());
  KB_ASSIGN_OR_RETURN(const std::string object, ReadFile(folder.path() + "/kb.o"));
  return TypesOfObject(object);
}

}  // namespace kbundle::builder
