// A part and its manifest name each other, so neither is read by mistake for the other; only ops
// come from a part. Paths are relative, for the same tree must build the same bundle anywhere, and
// sizes are bounded before a file is read.
#include "builder/manifest/files.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "builder/manifest/fields.h"
#include "fmt/format.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;
using Kind = Node::Kind;

constexpr uint64_t kMaxManifestBytes = 4u << 20;

// The ops of a part, without what it says of itself.
void AddPart(const Node& part, const std::string& manifest, Node* ops, Diagnostics& diagnostics) {
  Fields fields(part, "a part of a family", diagnostics);
  const Node* part_of = fields.Require("part_of", Kind::kString);
  if (part_of != nullptr && part_of->text != manifest) {
    diagnostics.Error(
        part_of->where,
        fmt::format("this part is named by {}, but says it is one of {}", manifest, part_of->text));
  }
  fields.Refuse("family", "the family stands in the manifest that names this part");
  const Node* added = fields.Require("op", Kind::kTable);
  fields.Finish();
  for (size_t i = 0; added != nullptr && i < added->fields.size(); ++i) {
    const Field& op = added->fields[i];
    if (ops->Find(op.key) != nullptr) {
      diagnostics.Error(op.where, fmt::format("a second op '{}'", op.key));
    }
    ops->fields.push_back(op);
  }
}

}  // namespace

Result<std::string> ReadManifestFile(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return NotFound(
        fmt::format("reading the manifest {}: there is no such file; give a *.toml file "
                    "or a folder that holds one",
                    path));
  }
  if (uint64_t size = fs::file_size(path, error); !error && size > kMaxManifestBytes) {
    return ResourceExhausted(fmt::format("reading the manifest {}: {} bytes, allowed are {}", path,
                                         size, kMaxManifestBytes));
  }
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    return PermissionDenied(
        fmt::format("reading the manifest {}: it cannot be read; check its "
                    "permissions",
                    path));
  }
  return std::move(text).str();
}

std::optional<std::string> ReadBeside(const std::string& folder, const Node& name,
                                      Diagnostics& diagnostics, int* file) {
  const SourceSpan where = name.At(0, static_cast<int>(name.text.size()));
  if (fs::path(name.text).is_absolute()) {
    diagnostics.Error(where, "a file is named relative to its manifest",
                      "so that the same tree builds the same bundle anywhere");
    return std::nullopt;
  }
  const std::string path = (fs::path(folder) / name.text).lexically_normal().string();
  Result<std::string> text = ReadManifestFile(path);
  if (!text.ok()) {
    diagnostics.Error(where,
                      text.status().code() == StatusCode::kNotFound
                          ? fmt::format("'{}' is not there", name.text)
                          : std::string(text.status().message()),
                      fmt::format("looked for {}; paths are relative to the manifest", path));
    return std::nullopt;
  }
  *file = diagnostics.AddFile(path, *text);
  return std::move(text).value();
}

void AddParts(const std::string& folder, Node* root, Diagnostics& diagnostics) {
  const Field* family = root->Find("family");
  const Field* parts = family == nullptr ? nullptr : family->value.Find("parts");
  if (parts == nullptr || !parts->value.Is(Kind::kArray)) return;
  const std::string manifest = fs::path(diagnostics.paths()[0]).filename().string();
  const std::vector<Node> names = parts->value.items;
  if (root->Find("op") == nullptr) root->fields.push_back({"op", parts->where, Node()});
  Node* ops = &root->FindField("op")->value;
  for (const Node& name : names) {
    if (!WantKind(name, Kind::kString, "an element of 'parts'", diagnostics)) continue;
    int file = 0;
    const std::optional<std::string> text = ReadBeside(folder, name, diagnostics, &file);
    std::optional<Node> part = text ? ParseToml(*text, file, diagnostics) : std::nullopt;
    if (part) AddPart(*part, manifest, ops, diagnostics);
  }
}

}  // namespace kbundle::builder
