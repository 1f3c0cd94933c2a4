#include "builder/compile/unit_key.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "builder/compile/compile.h"
#include "builder/provider/cuda/assemble.h"
#include "builder/score/header.h"
#include "builder/support/files.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

// Grows when what is stored for a key changes its meaning.
constexpr uint32_t kObjectSchema = 1;

std::string DigestOf(std::string_view bytes) { return ToHex(Sha256Of(bytes.data(), bytes.size())); }

std::string DigestOf(const std::vector<std::string>& texts) {
  KeyWriter all;
  for (const std::string& text : texts) all.Text(text);
  return DigestOf(all.bytes());
}

}  // namespace

std::string UnitInputs::Note() const {
  std::string text;
  for (const auto& [name, digest] : named) text += digest + " " + name + "\n";
  return text;
}

Result<Sha256Digest> KeyMaker::Compiler(const Unit& unit) {
  std::vector<std::string> parts;
  switch (unit.compiler) {
    case Unit::Compiler::kNvrtc:
      parts = {tools_.nvrtc, tools_.nvrtc_builtins};
      if (Assembles(unit, tools_)) parts.push_back(tools_.ptxas);
      break;
    case Unit::Compiler::kNvcc:
      parts = tools_.nvcc_parts;
      break;
    case Unit::Compiler::kHost:
      break;
    case Unit::Compiler::kAlgorithm:
      return Sha256Digest{};  // the bytes are the result
    case Unit::Compiler::kTriton:
      return Triton();
    case Unit::Compiler::kCudnn:
      return digests_.Of(cudnn_->PartsOf(Json::parse(unit.extra_options).at("cudnn")));
  }
  std::erase(parts, "");
  if (unit.compiler != Unit::Compiler::kNvrtc) {
    parts.insert(parts.end(), tools_.host_parts.begin(), tools_.host_parts.end());
  }
  if (unit.portable()) parts.push_back(tools_.nvfatbin);
  return digests_.Of(parts);
}

// All that the package installed, ptxas as it is on the disk, and how kbundle calls it.
Result<Sha256Digest> KeyMaker::Triton() {
  KB_ASSIGN_OR_RETURN(const Sha256Digest ptxas, digests_.Of(triton_->ptxas));
  const std::string all = KeyWriter()
                              .Text(triton_->triton_version)
                              .Text(triton_->digest)
                              .Text(ToHex(ptxas))
                              .Text(kTritonScript)
                              .bytes();
  return Sha256Of(all.data(), all.size());
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
    std::vector<std::string> folders = tools_.cuda_includes;
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

// Every Python file of a module that is installed beside Triton; Triton has a digest of its own.
std::string KeyMaker::ModuleDigest(const std::string& module) {
  namespace fs = std::filesystem;
  if (module == "triton" || triton_ == nullptr) return "";
  const auto [known, fresh] = modules_.try_emplace(module);
  if (!fresh) return known->second;
  const std::string& version = triton_->python_version;
  const fs::path place = fs::path(triton_->python).parent_path().parent_path() / "lib" /
                         ("python" + version.substr(0, version.rfind('.'))) / "site-packages";
  std::vector<std::string> files = {(place / (module + ".py")).string()};
  std::error_code error;
  for (fs::recursive_directory_iterator at(place / module, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".py") files.push_back(at->path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> digests;
  for (const std::string& file : files) digests.push_back(FileDigest(file));
  std::erase(digests, "");
  return known->second = digests.empty() ? "" : DigestOf(digests);
}

Result<UnitInputs> KeyMaker::Make(const Unit& unit) {
  UnitInputs inputs;
  std::vector<std::string> folders = unit.include_folders;
  if (!tools_.kernel_includes.empty()) folders.push_back(tools_.kernel_includes);
  const bool triton = unit.compiler == Unit::Compiler::kTriton;
  const std::string& folder = unit.family->directory;
  if (unit.source.empty()) {
    inputs.tree = std::make_shared<const SourceTree>();
    return Finish(unit, std::move(inputs));
  }
  SourceReader::Generated generated;
  if (!unit.family->score_header.empty()) {
    generated[kScoreHeaderName] = unit.family->score_header;
  }
  KB_ASSIGN_OR_RETURN(inputs.tree, triton ? reader_.ReadPython(folder, unit.source)
                                          : reader_.Read(folder, unit.source, folders, generated));
  for (const SourceFile& file : inputs.tree->files) {
    inputs.named.emplace_back(file.name, ToHex(file.digest));
  }
  if (triton) {
    for (const std::string& name : inputs.tree->external) {
      const std::string digest = ModuleDigest(name);
      if (!digest.empty()) inputs.named.emplace_back("module " + name, digest);
    }
  }
  // The toolkit's own headers: those named directly, and all that these include.
  if (unit.compiler != Unit::Compiler::kHost && !triton) {
    for (const std::string& name : inputs.tree->external) {
      for (const std::string& folder : tools_.cuda_includes) {
        const std::string& digest = FileDigest(folder + "/" + name);
        if (!digest.empty()) inputs.named.emplace_back(name, digest);
      }
    }
    if (!inputs.tree->unseen.empty()) return InvalidArgument(inputs.tree->unseen[0]);
    inputs.toolkit = ToolkitDigest(inputs.tree->external);
  }
  return Finish(unit, std::move(inputs));
}

Result<UnitInputs> KeyMaker::Finish(const Unit& unit, UnitInputs inputs) {
  inputs.named.emplace_back("the list of kernels", DigestOf(unit.kernels));
  inputs.named.emplace_back("flags", DigestOf(CanonicalOptions(unit)));
  KB_ASSIGN_OR_RETURN(const Sha256Digest compiler, Compiler(unit));
  inputs.named.emplace_back("compiler", ToHex(compiler));

  KeyWriter key;
  key.U32(kObjectSchema).U8(static_cast<uint8_t>(unit.compiler)).Text(unit.target.ToString());
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

std::string WhyChanged(const UnitInputs& now, const std::string& note) {
  if (note.empty()) return "first build";
  std::map<std::string, std::string> before;
  std::istringstream lines(note);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 65) before[line.substr(65)] = line.substr(0, 64);
  }
  std::string why;
  const auto add = [&why](const std::string& text) { why += (why.empty() ? "" : ", ") + text; };
  for (const auto& [name, digest] : now.named) {
    const auto found = before.find(name);
    if (found == before.end()) {
      add(name + " is new");
    } else if (found->second != digest) {
      add(name + " changed");
    }
    if (found != before.end()) before.erase(found);
  }
  for (const auto& [name, digest] : before) add(name + " is gone");
  return why.empty() ? "its object is not in the store" : why;
}

std::string NoteKey(const Unit& unit) {
  return DigestOf(KeyWriter().Text(unit.family->name).Text(unit.label).Text(unit.source).bytes());
}

}  // namespace kbundle::builder
