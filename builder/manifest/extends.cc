// Bases may themselves extend, in any order of the file: each is resolved when it is asked for, and
// what is open meanwhile is how a circle is seen. All variants are resolved before any is put back,
// so nobody inherits from one that is half written.
#include "builder/manifest/extends.h"

#include <algorithm>
#include <map>
#include <set>

#include "builder/manifest/fields.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

bool IsOneOf(std::string_view key, std::initializer_list<std::string_view> keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// What is missing here comes from there; tables of names are joined, there first.
void Inherit(Node& here, const Node& there, std::initializer_list<std::string_view> own) {
  std::vector<Field> added;
  for (const Field& field : there.fields) {
    if (IsOneOf(field.key, own)) continue;
    Field* mine = here.FindField(field.key);
    if (mine == nullptr) {
      added.push_back(field);
      continue;
    }
    if (!IsOneOf(field.key, {"let", "define", "workspace"})) continue;
    if (!mine->value.Is(Kind::kTable) || !field.value.Is(Kind::kTable)) continue;
    std::vector<Field> joined;
    for (const Field& inner : field.value.fields) {
      if (mine->value.Find(inner.key) == nullptr) joined.push_back(inner);
    }
    joined.insert(joined.end(), mine->value.fields.begin(), mine->value.fields.end());
    mine->value.fields = std::move(joined);
  }
  here.fields.insert(here.fields.end(), added.begin(), added.end());
}

// Its own, or that of what it extends; "" of what stands for many.
std::string NameOf(const Node& variant) {
  const Field* name = variant.Find("name");
  if (name != nullptr && name->value.Is(Kind::kString)) return name->value.text;
  const Field* extends = variant.Find("extends");
  if (extends == nullptr || !extends->value.Is(Kind::kString)) return {};
  const std::string& text = extends->value.text;
  return text.ends_with('*') ? std::string() : text.substr(text.find('.') + 1);
}

class Extender {
 public:
  Extender(Node* ops, Diagnostics& diagnostics) : ops_(*ops), diagnostics_(diagnostics) {}

  void Run() {
    for (Field& op : ops_.fields) ResolveOp(op);
    for (Field& op : ops_.fields) (void)VariantsOf(op);
    for (Field& op : ops_.fields) {
      Field* variants = op.value.FindField("variant");
      if (variants != nullptr) variants->value.items = std::move(resolved_.at(op.key));
    }
  }

 private:
  // Null after an error that is reported, or where there is no such key.
  const Node* Extends(const Node& table) {
    const Field* field = table.Find("extends");
    if (field == nullptr || !WantKind(field->value, Kind::kString, "'extends'", diagnostics_)) {
      return nullptr;
    }
    return &field->value;
  }

  void NotThere(const Node& node, std::string_view what, const std::string& name,
                const std::vector<std::string>& known) {
    const std::string nearest = NearestName(name, known);
    diagnostics_.Error(
        node.At(0, static_cast<int>(node.text.size())),
        fmt::format("there is no {} '{}'", what, name),
        fmt::format("{}there are: {}",
                    nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                    fmt::join(known, ", ")));
  }

  Field* FindOp(const Node& node, const std::string& name) {
    if (Field* op = ops_.FindField(name)) return op;
    std::vector<std::string> known;
    for (const Field& op : ops_.fields) known.push_back(op.key);
    NotThere(node, "op", name, known);
    return nullptr;
  }

  // False, and reported, when what is being resolved is met again.
  template <typename Key>
  bool Enter(std::set<Key>& open, const Key& key, const Node& extends) {
    if (open.insert(key).second) return true;
    diagnostics_.Error(extends.where, "what extends itself has no end",
                       "follow `extends` from here: it comes back");
    return false;
  }

  void ResolveOp(Field& op) {
    if (!op.value.Is(Kind::kTable) || done_.contains(op.key)) return;
    const Node* extends = Extends(op.value);
    if (extends == nullptr) return (void)done_.insert(op.key);
    Field* base = FindOp(*extends, extends->text);
    if (base == nullptr || !Enter(open_ops_, op.key, *extends)) return (void)done_.insert(op.key);
    ResolveOp(*base);
    Node there = base->value;
    const int link = diagnostics_.AddLink(
        extends->where, fmt::format("for the op '{}', which extends '{}'", op.key, base->key));
    AddLink(&there, link, diagnostics_);
    Inherit(op.value, there, {"variant", "problems", "held_out", "summary", "extends", "abstract"});
    open_ops_.erase(op.key);
    done_.insert(op.key);
  }

  const std::vector<Node>& VariantsOf(Field& op) {
    const auto [found, fresh] = resolved_.try_emplace(op.key);
    if (!fresh || !op.value.Is(Kind::kTable)) return found->second;
    const Field* variants = op.value.Find("variant");
    if (variants == nullptr || !variants->value.Is(Kind::kArray)) return found->second;
    std::vector<Node> all;
    for (const Node& variant : variants->value.items) {
      for (Node& one : Resolved(op, variant)) all.push_back(std::move(one));
    }
    return found->second = std::move(all);
  }

  // The variant, or those that "op.*" stands for.
  std::vector<Node> Resolved(Field& op, const Node& variant) {
    const Node* extends = variant.Is(Kind::kTable) ? Extends(variant) : nullptr;
    if (extends == nullptr) return {variant};
    const size_t dot = extends->text.find('.');
    Field* from = dot == std::string::npos ? &op : FindOp(*extends, extends->text.substr(0, dot));
    const std::string name = extends->text.substr(dot == std::string::npos ? 0 : dot + 1);
    if (from == nullptr) return {variant};
    if (name == "*") return All(op, *from, variant, *extends);
    const Node* base = FindVariant(*from, name, *extends);
    if (base == nullptr || !Enter(open_variants_, &variant, *extends)) return {variant};
    Node there = Resolved(*from, *base).front();
    open_variants_.erase(&variant);
    const int link = diagnostics_.AddLink(
        extends->where, fmt::format("for the variant '{}' of op '{}', which extends '{}'",
                                    NameOf(variant), op.key, extends->text));
    AddLink(&there, link, diagnostics_);
    Node whole = variant;
    Inherit(whole, there, {"extends", "abstract"});
    return {std::move(whole)};
  }

  const Node* FindVariant(const Field& op, const std::string& name, const Node& extends) {
    std::vector<std::string> known;
    const Field* variants = op.value.Find("variant");
    for (size_t i = 0; variants != nullptr && i < variants->value.items.size(); ++i) {
      const std::string found = NameOf(variants->value.items[i]);
      if (!found.empty() && found == name) return &variants->value.items[i];
      if (!found.empty()) known.push_back(found);
    }
    NotThere(extends, fmt::format("variant of op '{}' called", op.key), name, known);
    return nullptr;
  }

  std::vector<Node> All(const Field& op, Field& from, const Node& variant, const Node& extends) {
    if (&op == &from) {
      diagnostics_.Error(extends.where, "an op cannot take its own variants once more",
                         "name the op whose variants these are");
      return {};
    }
    Fields fields(variant, "a variant that stands for many", diagnostics_);
    fields.Take("extends");
    std::vector<std::string> without, known;
    const std::vector<const Node*> texts = fields.TakeTexts("without");
    for (const Node* text : texts) without.push_back(text->text);
    fields.Finish();
    std::vector<Node> all = VariantsOf(from);
    std::erase_if(all, IsAbstract);
    const int link = diagnostics_.AddLink(
        extends.where,
        fmt::format("for op '{}', which has all variants of '{}'", op.key, from.key));
    for (Node& one : all) known.push_back(NameOf(one)), AddLink(&one, link, diagnostics_);
    for (size_t i = 0; i < texts.size(); ++i) {
      if (std::find(known.begin(), known.end(), without[i]) == known.end()) {
        NotThere(*texts[i], fmt::format("variant of op '{}' called", from.key), without[i], known);
      }
    }
    std::erase_if(all, [&](const Node& one) {
      return std::find(without.begin(), without.end(), NameOf(one)) != without.end();
    });
    return all;
  }

  Node& ops_;
  Diagnostics& diagnostics_;
  std::set<std::string> done_, open_ops_;
  std::set<const Node*> open_variants_;
  std::map<std::string, std::vector<Node>> resolved_;  // by op
};

}  // namespace

bool IsAbstract(const Node& table) {
  const Field* field = table.Find("abstract");
  return field != nullptr && field->value.Is(Kind::kBool) && field->value.integer != 0;
}

void ResolveExtends(Node* ops, Diagnostics& diagnostics) { Extender(ops, diagnostics).Run(); }

}  // namespace kbundle::builder
