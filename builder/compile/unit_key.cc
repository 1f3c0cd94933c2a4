// An object may be used again only where all that its compiler would read is what it was. What
// is known before compiling (the source's tree, flags, the compiler's own bytes) is the key;
// what only the compiler finds, headers outside the tree, is compared with what it said it read.
// Each input has a name, so that what changed can be told.
#include "builder/compile/unit_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "builder/score/header.h"
#include "builder/source/logical_lines.h"
#include "builder/support/files.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

// Grows when what is stored for a key changes its meaning.
constexpr uint32_t kObjectSchema = 1;

std::string DigestOf(std::string_view bytes) { return ToHex(Sha256Of(bytes.data(), bytes.size())); }

std::string DigestOf(const std::vector<std::string>& texts) {
  KeyWriter all;
  for (const std::string& text : texts) all.Text(text);
  return DigestOf(all.bytes());
}

// An assembler's directive that reads a file, in what stands in a string of the line; or null.
const char* AssemblersRead(std::string_view line) {
  if (line.find(".incbin") != std::string_view::npos) return ".incbin";
  const size_t at = line.find(".include");
  if (at == std::string_view::npos) return nullptr;
  line.remove_prefix(at + std::string_view(".include").size());
  const size_t name = line.find_first_not_of(" \t\\");
  const bool reads = name != std::string_view::npos && name > 0 && line[name] == '"';
  return reads ? ".include" : nullptr;
}

// Host compilers list what the preprocessor reads, not what their assembler does.
Status RefuseAssemblersReads(const SourceTree& tree) {
  for (const SourceFile& file : tree.files) {
    if (file.text.find(".inc") == std::string::npos) continue;
    for (const LogicalLine& line : LogicalLines(file.text)) {
      const char* directive = AssemblersRead(line.text);
      if (directive == nullptr) continue;
      return InvalidArgument(fmt::format(
          "{}:{}: the assembler's {}: what it reads is told by no compiler, so that a change there "
          "would not be seen; make the bytes an array in a header",
          file.path, line.number, directive));
    }
  }
  return Status();
}

}  // namespace

std::string UnitInputs::Note() const {
  std::string text;
  for (const auto& [name, digest] : named) text += digest + " " + name + "\n";
  return text;
}

const std::string& KeyMaker::FileDigest(const std::string& path) {
  const auto [found, fresh] = files_.try_emplace(path);
  if (fresh) {
    if (const Result<std::string> bytes = ReadFile(path); bytes.ok())
      found->second = DigestOf(*bytes);
  }
  return found->second;
}

// Which headers there are under #if is not asked: a superset costs a compilation too many.
std::string KeyMaker::ToolkitDigest(const std::vector<std::string>& included) {
  std::map<std::string, std::string> reached;  // path to digest
  std::vector<std::string> pending;
  const auto reach = [&](const std::string& name, const std::string& beside) {
    std::vector<std::string> folders = context_.tools.cuda_includes;
    folders.insert(folders.begin(), beside);
    for (const std::string& folder : folders) {
      const std::string path = folder + "/" + name;
      if (folder.empty() || FileDigest(path).empty()) continue;
      if (reached.try_emplace(path, FileDigest(path)).second) pending.push_back(path);
      return;
    }
  };
  for (const std::string& name : included) reach(name, "");
  while (!pending.empty()) {
    const std::string path = std::move(pending.back());
    pending.pop_back();
    const auto [names, fresh] = included_.try_emplace(path);
    if (fresh) {
      if (const Result<std::string> text = ReadFile(path); text.ok()) {
        names->second = IncludedNames(*text);
      }
    }
    for (const std::string& name : names->second) reach(name, path.substr(0, path.rfind('/')));
  }
  std::vector<std::string> digests;
  for (const auto& [path, digest] : reached) digests.push_back(digest);
  std::sort(digests.begin(), digests.end());
  return digests.empty() ? "" : DigestOf(digests);
}

// Every file of a module that is installed beside the compiler.
std::string KeyMaker::ModuleDigest(const Compiler& compiler, const std::string& module) {
  const auto [known, fresh] = modules_.try_emplace({std::string(compiler.name()), module});
  if (!fresh) return known->second;
  std::vector<std::string> digests;
  for (const std::string& file : compiler.ModuleFiles(module)) {
    digests.push_back(FileDigest(file));
  }
  std::erase(digests, "");
  return known->second = digests.empty() ? "" : DigestOf(digests);
}

Status KeyMaker::AddSources(const Unit& unit, UnitInputs* inputs) {
  const Compiler& compiler = context_.CompilerOf(unit);
  const bool python = compiler.sources() == Compiler::Sources::kPython;
  std::vector<std::string> folders = unit.include_folders;
  const std::string& own = context_.tools.kernel_includes;
  if (!own.empty()) folders.push_back(own);
  SourceReader::Generated generated;
  if (!unit.family->score_header.empty()) {
    generated[kScoreHeaderName] = unit.family->score_header;
  }
  const std::string& folder = unit.family->directory;
  KB_ASSIGN_OR_RETURN(inputs->tree, python ? reader_.ReadPython(folder, unit.source)
                                           : reader_.Read(folder, unit.source, folders, generated));
  for (const SourceFile& file : inputs->tree->files) {
    inputs->named.emplace_back(file.name, ToHex(file.digest));
  }
  if (!python) return Status();
  for (const std::string& name : inputs->tree->external) {
    const std::string digest = ModuleDigest(compiler, name);
    if (!digest.empty()) inputs->named.emplace_back("module " + name, digest);
  }
  return Status();
}

Result<UnitInputs> KeyMaker::Make(const Unit& unit) {
  UnitInputs inputs;
  if (unit.source.empty()) {
    inputs.tree = std::make_shared<const SourceTree>();
    return Finish(unit, std::move(inputs));
  }
  KB_RETURN_IF_ERROR(AddSources(unit, &inputs));
  // The toolkit's own headers: those named directly, and all that these include.
  if (context_.CompilerOf(unit).sources() == Compiler::Sources::kCuda) {
    for (const std::string& name : inputs.tree->external) {
      for (const std::string& folder : context_.tools.cuda_includes) {
        const std::string& digest = FileDigest(folder + "/" + name);
        if (!digest.empty()) inputs.named.emplace_back(name, digest);
      }
    }
    if (!inputs.tree->unseen.empty()) return InvalidArgument(inputs.tree->unseen[0]);
    inputs.toolkit = ToolkitDigest(inputs.tree->external);
  }
  if (context_.CompilerOf(unit).sources() == Compiler::Sources::kHostCpp) {
    KB_RETURN_IF_ERROR(RefuseAssemblersReads(*inputs.tree));
  }
  return Finish(unit, std::move(inputs));
}

Result<UnitInputs> KeyMaker::Finish(const Unit& unit, UnitInputs inputs) {
  inputs.named.emplace_back("the list of kernels", DigestOf(unit.kernels));
  if (!unit.struct_checks.empty()) {
    std::vector<std::string> lines;
    for (const StructCheck& check : unit.struct_checks) lines.push_back(check.line);
    inputs.named.emplace_back("the fields of structs", DigestOf(lines));
  }
  const Compiler& compiler = context_.CompilerOf(unit);
  inputs.named.emplace_back("flags", DigestOf(compiler.Options(unit)));
  KB_ASSIGN_OR_RETURN(const Sha256Digest identity,
                      compiler.Identity(unit, context_.tools, &digests_));
  inputs.named.emplace_back("compiler", ToHex(identity));

  KeyWriter key;
  key.U32(kObjectSchema).U8(compiler.number()).Text(unit.target.ToString());
  for (const auto& [name, digest] : inputs.named) key.Text(name).Text(digest);
  inputs.key = DigestOf(key.bytes());
  return inputs;
}

std::string KeyMaker::ChangedRead(const UnitInputs& inputs, const Object& object) {
  for (const Object::Read& read : object.reads) {
    if (read.path == kToolkitHeaders) {
      if (read.sha256 != inputs.toolkit) return read.path;
      continue;
    }
    if (FileDigest(read.path) != read.sha256) return read.path;
  }
  return "";
}

std::string WhatDiffers(const UnitInputs& now, const NamedDigests& then) {
  std::multimap<std::string, std::string> before(then.begin(), then.end());
  std::string what;
  const auto add = [&what](const std::string& text) { what += (what.empty() ? "" : ", ") + text; };
  NamedDigests all = now.named;
  if (before.contains(kToolkitHeaders)) all.emplace_back(kToolkitHeaders, now.toolkit);
  for (const auto& [name, digest] : all) {
    const auto [first, last] = before.equal_range(name);
    const auto same = std::find_if(first, last, [&text = digest](const auto& one) {
      return !one.second.empty() && text.starts_with(one.second);
    });
    if (same == last) add(name + (first == last ? " is new" : " changed"));
    if (first != last) before.erase(same == last ? first : same);
  }
  for (const auto& [name, digest] : before) add(name + " is gone");
  return what;
}

std::string WhyChanged(const UnitInputs& now, const std::string& note) {
  if (note.empty()) return "first build";
  NamedDigests before;
  std::istringstream lines(note);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 65) before.emplace_back(line.substr(65), line.substr(0, 64));
  }
  const std::string why = WhatDiffers(now, before);
  return why.empty() ? "its object is not in the store" : why;
}

std::string NoteKey(const Unit& unit) {
  return DigestOf(KeyWriter().Text(unit.family->name).Text(unit.label).Text(unit.source).bytes());
}

}  // namespace kbundle::builder
