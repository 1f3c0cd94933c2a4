// One walk with a stack of scopes. A value is put in as a copy whose places link to where it was
// used, so an error in it shows both; what is being expanded is remembered by its place, which ends
// a definition that comes back to itself; and what was never looked up is reported at the end.
#include "builder/manifest/define.h"

#include <set>
#include <tuple>
#include <utility>

#include "builder/expression/names.h"
#include "builder/manifest/fields.h"
#include "fmt/format.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

using TextPlace = std::tuple<int, int, int>;
TextPlace PlaceOf(const SourceSpan& where) { return {where.file, where.line, where.column}; }

// The name in "{NAME}", from the brace at `open`; "" where there is none.
std::string_view NameAt(std::string_view text, size_t open) {
  const size_t close = text.find('}', open);
  if (close == std::string_view::npos) return {};
  const std::string_view name = text.substr(open + 1, close - open - 1);
  return IsIdentifier(name) ? name : std::string_view();
}

class Definer {
 public:
  Definer(const Node* family, Diagnostics& diagnostics) : diagnostics_(diagnostics) {
    if (family != nullptr) Open(*family);
  }

  // False where what is left could not be understood.
  bool PutInto(Node* ops) {
    for (Field& op : ops->fields) {
      if (!op.value.Is(Kind::kTable)) continue;
      Open(op.value);
      Field* variants = op.value.FindField("variant");
      for (Field& field : op.value.fields) {
        if (&field != variants) PutIntoField(&field);
      }
      for (size_t i = 0; variants != nullptr && i < variants->value.items.size(); ++i) {
        PutIntoVariant(&variants->value.items[i]);
      }
      scopes_.pop_back();
    }
    ReportUnused();
    return whole_;
  }

 private:
  // The table's own definitions become the innermost; always adds a scope.
  void Open(const Node& table) {
    scopes_.push_back(nullptr);
    const Field* define = table.Find("define");
    if (define == nullptr || !WantKind(define->value, Kind::kTable, "'define'", diagnostics_)) {
      return;
    }
    scopes_.back() = &define->value;
    for (const Field& field : define->value.fields) {
      if (!IsIdentifier(field.key)) {
        diagnostics_.Error(field.where, fmt::format("'{}' is not a name", field.key),
                           "letters, digits and _, not beginning with a digit");
      }
      if (seen_.insert(PlaceOf(field.where)).second) all_.push_back({field.where, field.key});
    }
  }

  void PutIntoVariant(Node* variant) {
    if (!variant->Is(Kind::kTable)) return;
    Open(*variant);
    for (Field& field : variant->fields) PutIntoField(&field);
    scopes_.pop_back();
  }

  void PutIntoField(Field* field) {
    if (field->key == "define") return;
    const std::string outer = std::exchange(key_, field->key);
    Put(&field->value);
    key_ = outer;
  }

  void Fail(const SourceSpan& where, std::string message, std::string note) {
    whole_ = false;
    diagnostics_.Error(where, std::move(message), std::move(note));
  }

  const Field* Find(std::string_view name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const Field* found = *scope == nullptr ? nullptr : (*scope)->Find(name);
      if (found == nullptr) continue;
      used_.insert(PlaceOf(found->where));
      return found;
    }
    return nullptr;
  }

  // What "{NAME}" alone stands for, or null.
  const Field* WholeOf(const Node& node) {
    if (!node.Is(Kind::kString) || node.text.size() < 3 || node.text[0] != '{') return nullptr;
    const std::string_view name = NameAt(node.text, 0);
    return name.size() + 2 == node.text.size() && !name.empty() ? Find(name) : nullptr;
  }

  // Puts into the value of a definition, unless that is where this use stands.
  bool Expand(const Field& definition, Node* value) {
    if (!open_.insert(PlaceOf(definition.where)).second) {
      Fail(definition.where,
           fmt::format("the definition '{}' comes back to itself", definition.key),
           "what it stands for must not use it");
      return false;
    }
    Put(value);
    open_.erase(PlaceOf(definition.where));
    return true;
  }

  void Put(Node* node) {
    if (const Field* whole = WholeOf(*node)) {
      Node value = whole->value;
      const int link =
          diagnostics_.AddLink(node->where, fmt::format("for {{{}}} here", whole->key));
      AddLink(&value, link, diagnostics_);
      if (Expand(*whole, &value)) *node = std::move(value);
      return;
    }
    if (node->Is(Kind::kString)) PutWithin(node);
    PutIntoItems(node);
    for (Field& field : node->fields) PutIntoField(&field);
  }

  // An array that stands for an element is its elements.
  void PutIntoItems(Node* node) {
    std::vector<Node> items;
    for (Node& item : node->items) {
      const bool whole = WholeOf(item) != nullptr;
      Put(&item);
      if (!whole || !item.Is(Kind::kArray)) {
        items.push_back(std::move(item));
        continue;
      }
      for (Node& one : item.items) items.push_back(std::move(one));
    }
    node->items = std::move(items);
  }

  // Texts within a text; the place of the whole, with a link to what was put in first.
  void PutWithin(Node* node) {
    for (size_t open = node->text.find('{'); open != std::string::npos;) {
      const std::string name(NameAt(node->text, open));
      const Field* found = name.empty() ? nullptr : Find(name);
      if (found == nullptr) {
        if (!name.empty() && !MayStay()) return NothingDefines(*node, open, name);
        open = node->text.find('{', open + 1);
        continue;
      }
      if (!found->value.Is(Kind::kString)) {
        return Fail(node->where,
                    fmt::format("{{{}}} is {}, which cannot stand within a text", name,
                                Describe(found->value.kind)),
                    "only a text can; anything else stands alone, as \"{" + name + "}\"");
      }
      Node value = found->value;
      if (!Expand(*found, &value)) return;
      node->text.replace(open, name.size() + 2, value.text);
      open = node->text.find('{', open + value.text.size());
      Enter(node, *found);
    }
  }

  // {T} of a kernel's name and of a struct's is for the grid, and a summary is nobody's but the
  // reader's.
  bool MayStay() const { return key_ == "kernel" || key_ == "struct" || key_ == "summary"; }

  void NothingDefines(const Node& node, size_t open, const std::string& name) {
    std::vector<std::string> known;
    for (const Node* scope : scopes_) {
      for (size_t i = 0; scope != nullptr && i < scope->fields.size(); ++i) {
        known.push_back(scope->fields[i].key);
      }
    }
    const std::string nearest = NearestName(name, known);
    Fail(node.At(static_cast<int>(open), static_cast<int>(name.size()) + 2),
         fmt::format("nothing defines {{{}}}", name),
         nearest.empty() ? "say it in `define` of the variant, its op or [family]"
                         : fmt::format("did you mean {{{}}}?", nearest));
  }

  void Enter(Node* node, const Field& definition) {
    if (!node->exact) return;
    node->exact = false;
    SourceSpan at = definition.value.where;
    at.via = node->where.via;
    node->where.via =
        diagnostics_.AddLink(at, fmt::format("{{{}}} stands for this", definition.key));
  }

  void ReportUnused() {
    for (const auto& [where, name] : all_) {
      if (used_.contains(PlaceOf(where))) continue;
      diagnostics_.Error(where, fmt::format("nothing uses the definition '{}'", name),
                         fmt::format("write {{{}}} where it belongs, or remove it", name));
    }
  }

  Diagnostics& diagnostics_;
  bool whole_ = true;
  std::string key_;                  // in whose value we are
  std::vector<const Node*> scopes_;  // tables, outermost first; null: none
  std::vector<std::pair<SourceSpan, std::string>> all_;
  std::set<TextPlace> seen_, used_, open_;
};

}  // namespace

bool PutDefinitions(const Node* family, Node* ops, Diagnostics& diagnostics) {
  return Definer(family, diagnostics).PutInto(ops);
}

}  // namespace kbundle::builder
