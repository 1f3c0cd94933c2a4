// Where struct checks failed, what they say takes the place of the compiler's log: they name the
// manifest's line, and the errors after them only follow. Compilers that the work does not use are
// not looked for, so a build without kernels in Python needs no Python.
#include "builder/compile/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "builder/compile/compile_errors.h"
#include "builder/provider/provider.h"
#include "builder/support/process.h"

namespace kbundle::builder {

Status FindCompilers(const Work& work, const std::string& python, CompileContext* context) {
  context->tools = Toolchain::Find();
  std::map<std::string, std::vector<const Unit*>, std::less<>> wanted;
  for (const Unit& unit : work.units) wanted[unit.compiler].push_back(&unit);
  std::vector<std::unique_ptr<Compiler>> all;
  for (const Provider* provider : Providers()) provider->AddCompilers(&all);
  for (std::unique_ptr<Compiler>& compiler : all) {
    const auto units = wanted.find(compiler->name());
    if (units == wanted.end()) continue;
    KB_RETURN_IF_ERROR(compiler->Find(units->second, python, &context->tools));
    context->compilers.push_back(std::move(compiler));
  }
  return Status();
}

const Compiler& CompileContext::CompilerOf(const Unit& unit) const {
  const auto found = std::find_if(compilers.begin(), compilers.end(),
                                  [&](const auto& one) { return one->name() == unit.compiler; });
  KB_CHECK(found != compilers.end());
  return **found;
}

Result<Object> CompileUnit(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                           const std::string& key, const CompileContext& context) {
  const Compiler& compiler = context.CompilerOf(unit);
  const bool checked = !unit.struct_checks.empty();
  const auto compiled =
      checked ? std::make_shared<const SourceTree>(WithStructChecks(*tree, unit.struct_checks))
              : tree;
  Result<Object> object = compiler.Compile(unit, compiled, key, context);
  if (checked && object.status().code() == StatusCode::kInvalidArgument) {
    const std::string failed =
        FailedStructChecks(object.status().message(), unit.struct_checks, unit.family->sources);
    if (!failed.empty()) return InvalidArgument(failed);
  }
  // A child in Python knows the author's files by their own names.
  if (object.ok() || compiler.sources() == Compiler::Sources::kPython) return object;
  const Status& status = object.status();
  return Status(status.code(), InAuthorsFiles(*tree, status.message()));
}

std::string ReproduceCommand(const Unit& unit, const CompileContext& context) {
  // A generated header is in no folder.
  if (!unit.family->score_header.empty()) return "";
  const std::vector<std::string> words = context.CompilerOf(unit).Command(unit, context.tools);
  return words.empty() ? "" : ShellCommand(words);
}

Result<std::string> VersionAndDigest(const std::string& version,
                                     const std::vector<std::string>& files, ToolDigests* digests) {
  constexpr size_t kShortDigest = 16;
  KB_ASSIGN_OR_RETURN(const Sha256Digest digest, digests->Of(files));
  return fmt::format("{} sha256:{}", version, ToHex(digest).substr(0, kShortDigest));
}

}  // namespace kbundle::builder
