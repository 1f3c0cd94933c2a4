// Asking for a key is what makes it known, so a table's grammar is written once, as the code that
// reads it: unknown keys, the advice beside them and the editors' schema all come from what was
// asked. A reader that forgets to Take a key forbids it.
#include "builder/manifest/fields.h"

#include <algorithm>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {

namespace {

// How a key of that kind is written.
std::string Example(const std::string& key, Node::Kind kind) {
  switch (kind) {
    case Node::Kind::kString:
      return fmt::format("{} = \"..\"", key);
    case Node::Kind::kArray:
      return fmt::format("{} = [..]", key);
    case Node::Kind::kTable:
      if (key == "family") return "[family] with its name";
      return key == "op" ? "[op.NAME]" : fmt::format("{} = {{ .. }}", key);
    default:
      return fmt::format("{}: {}", key, Describe(kind));
  }
}

thread_local AskedKeys* asked_keys = nullptr;

// "op" of "op 'attend'".
std::string WithoutNames(const std::string& what) {
  const size_t quote = what.find('\'');
  if (quote == std::string::npos) return what;
  return what.substr(0, quote == 0 ? 0 : quote - 1) + what.substr(what.rfind('\'') + 1);
}

}  // namespace

AskedKeys::AskedKeys() { asked_keys = this; }
AskedKeys::~AskedKeys() { asked_keys = nullptr; }

bool WantKind(const Node& node, Node::Kind kind, const std::string& what,
              Diagnostics& diagnostics) {
  if (node.Is(kind)) return true;
  diagnostics.Error(node.where, fmt::format("{} must be {}, found {}", what, Describe(kind),
                                            Describe(node.kind)));
  return false;
}

Fields::Fields(const Node& table, std::string what, Diagnostics& diagnostics)
    : Fields(table, table.where, std::move(what), diagnostics) {}

Fields::Fields(const Node& table, SourceSpan where, std::string what, Diagnostics& diagnostics)
    : table_(table), where_(where), what_(std::move(what)), diagnostics_(diagnostics) {}

AskedKeys::Key* Fields::Asked(const std::string& key) const {
  return asked_keys == nullptr ? nullptr : &asked_keys->tables_[WithoutNames(what_)][key];
}

const Node* Fields::Take(const std::string& key) {
  (void)Asked(key);
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  const Field* field = table_.Find(key);
  return field == nullptr ? nullptr : &field->value;
}

const Node* Fields::Take(const std::string& key, Node::Kind kind) {
  if (AskedKeys::Key* asked = Asked(key)) asked->kinds.insert(kind);
  const Node* node = Take(key);
  if (node == nullptr || !WantKind(*node, kind, fmt::format("'{}'", key), diagnostics_)) {
    return nullptr;
  }
  return node;
}

const Node* Fields::Require(const std::string& key, Node::Kind kind) {
  if (AskedKeys::Key* asked = Asked(key)) asked->required = true;
  if (!Has(key)) {
    diagnostics_.Error(where_, fmt::format("{} needs the key '{}'", what_, key),
                       fmt::format("add {}", Example(key, kind)));
  }
  return Take(key, kind);
}

std::string Fields::TakeText(const std::string& key, std::string otherwise) {
  const Node* node = Take(key, Node::Kind::kString);
  if (node != nullptr) return node->text;
  return otherwise;
}

bool Fields::TakeBool(const std::string& key) {
  const Node* node = Take(key, Node::Kind::kBool);
  return node != nullptr && node->integer != 0;
}

int64_t Fields::TakeInteger(const std::string& key, int64_t otherwise, int64_t least,
                            int64_t most) {
  const Node* node = Take(key, Node::Kind::kInteger);
  if (node == nullptr) return otherwise;
  if (node->integer < least || node->integer > most) {
    diagnostics_.Error(node->where, fmt::format("'{}' is {}, allowed are {} to {}", key,
                                                node->integer, least, most));
    return otherwise;
  }
  return node->integer;
}

size_t Fields::TakeWord(const std::string& key, const std::vector<std::string>& words) {
  if (AskedKeys::Key* asked = Asked(key)) asked->words.insert(words.begin(), words.end());
  const Node* node = Take(key, Node::Kind::kString);
  if (node == nullptr) return 0;
  auto found = std::find(words.begin(), words.end(), node->text);
  if (found != words.end()) return found - words.begin();
  std::string nearest = NearestName(node->text, words);
  diagnostics_.Error(node->where, fmt::format("'{}' is no value of '{}'", node->text, key),
                     fmt::format("{}it may be: {}",
                                 nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                                 fmt::join(words, ", ")));
  return 0;
}

std::vector<const Node*> Fields::TakeTexts(const std::string& key) {
  std::vector<const Node*> out;
  const Node* node = Take(key, Node::Kind::kArray);
  if (node == nullptr) return out;
  for (const Node& item : node->items) {
    if (WantKind(item, Node::Kind::kString, fmt::format("an element of '{}'", key), diagnostics_)) {
      out.push_back(&item);
    }
  }
  return out;
}

void Fields::Refuse(const std::string& key, const std::string& message, const std::string& note) {
  known_.push_back(key);
  if (const Field* field = table_.Find(key)) diagnostics_.Error(field->where, message, note);
}

void Fields::Finish() {
  for (const Field& field : table_.fields) {
    if (std::find(known_.begin(), known_.end(), field.key) != known_.end()) continue;
    std::string nearest = NearestName(field.key, known_);
    diagnostics_.Error(
        field.where, fmt::format("unknown key '{}' in {}", field.key, what_),
        fmt::format("{}it may have: {}",
                    nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                    fmt::join(known_, ", ")));
  }
}

}  // namespace kbundle::builder
