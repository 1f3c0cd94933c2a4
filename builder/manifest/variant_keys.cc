// Keys of a variant that several providers have: where its code comes from, and for which targets.
#include <fmt/format.h>

#include <filesystem>

#include "builder/manifest/flags.h"
#include "builder/manifest/tables.h"
#include "builder/provider/provider.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

std::string Checked(const Node& source, const std::string& directory, Diagnostics& diagnostics) {
  const std::filesystem::path path(source.text);
  if (path.is_absolute()) {
    diagnostics.Error(source.where, "a source is named relative to its manifest",
                      "so that the same tree builds the same bundle anywhere");
    return source.text;
  }
  const std::filesystem::path full = std::filesystem::path(directory) / path;
  std::error_code error;
  if (!std::filesystem::is_regular_file(full, error)) {
    diagnostics.Error(source.At(0, static_cast<int>(source.text.size())),
                      fmt::format("source '{}' is not there", source.text),
                      fmt::format("looked for {}; paths are relative to the manifest",
                                  full.lexically_normal().string()));
  }
  return source.text;
}

}  // namespace

void ReadSource(VariantTable& table, bool required) {
  const Node* source = required ? table.fields.Require("source", Kind::kString)
                                : table.fields.Take("source", Kind::kString);
  if (source == nullptr) return;
  table.variant.source = Checked(*source, table.directory, table.diagnostics);
}

void ReadStepSource(StepTable& table) {
  const Node* source = table.fields.Take("source", Kind::kString);
  if (source == nullptr) return;
  table.step.kernel_source = Checked(*source, *table.context.directory, table.context.diagnostics);
}

void ReadFlags(VariantTable& table) {
  std::vector<std::string>& flags = table.variant.flags;
  for (const Node* flag : table.fields.TakeTexts("flags")) {
    CheckFlag(*flag, flags.empty() ? "" : flags.back(), table.variant.compiler, table.diagnostics);
    flags.push_back(flag->text);
  }
}

void ReadTargets(VariantTable& table) {
  const Provider& provider = *table.variant.provider;
  for (const Node* node : table.fields.TakeTexts("targets")) {
    table.variant.targets.push_back(node->text);
    const Result<Target> target = Target::Parse(node->text);
    if (target.ok() && provider.MakesCodeFor(*target)) continue;
    table.diagnostics.Error(
        node->where,
        fmt::format("'{}' is no target of the provider {}", node->text, provider.name()),
        provider.TargetsInWords());
  }
}

void RefuseKeys(VariantTable& table, const std::vector<std::string>& keys,
                const std::string& note) {
  for (const std::string& key : keys) {
    table.fields.Refuse(
        key, fmt::format("a variant of {} has no `{}`", table.variant.provider->name(), key), note);
  }
}

}  // namespace kbundle::builder
