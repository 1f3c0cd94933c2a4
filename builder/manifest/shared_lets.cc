// Two ways, for two readers. A variant has lets of its own in the bundle, so it gets copies of
// those that it names, and of those that these name, until nothing is added. An op's interface has
// none, so there the text is written out, in brackets wherever precedence could make another thing
// of it.
#include "builder/manifest/shared_lets.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>

#include "builder/manifest/fields.h"
#include "fmt/format.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;
using Words = std::set<std::string, std::less<>>;
using TextPlace = std::tuple<int, int, int>;

// Lets within lets; a cycle is deeper than any sense.
constexpr int kMaxDepth = 16;

TextPlace PlaceOfLet(const SourceSpan& where) { return {where.file, where.line, where.column}; }

bool InName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The names of an expression, as [begin, end) of its text; 'texts' of enums are none.
struct NameSpan {
  size_t begin, end;
};
std::vector<NameSpan> NamesIn(std::string_view text) {
  std::vector<NameSpan> names;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\'') {
      at = std::min(text.find('\'', at + 1), text.size() - 1) + 1;
      continue;
    }
    size_t end = at;
    while (end < text.size() && InName(text[end])) ++end;
    const bool number = std::isdigit(static_cast<unsigned char>(text[at])) != 0;
    if (end > at && !number) names.push_back({at, end});
    at = std::max(end, at + 1);
  }
  return names;
}

void AddWords(const Node& node, Words* words) {
  if (node.Is(Kind::kString)) {
    for (const NameSpan& name : NamesIn(node.text)) {
      words->insert(node.text.substr(name.begin, name.end - name.begin));
    }
  }
  for (const Node& item : node.items) AddWords(item, words);
  for (const Field& field : node.fields) AddWords(field.value, words);
}

// The `let` of a table, or null.
const Node* LetsOf(const Node* table) {
  const Field* lets = table == nullptr ? nullptr : table->Find("let");
  return lets != nullptr && lets->value.Is(Kind::kTable) ? &lets->value : nullptr;
}

class Sharer {
 public:
  Sharer(const Node* family, Diagnostics& diagnostics)
      : family_(LetsOf(family)), diagnostics_(diagnostics) {
    Note(family_);
  }

  void ShareIn(Node* ops) {
    for (Field& op : ops->fields) {
      if (!op.value.Is(Kind::kTable)) continue;
      op_ = LetsOf(&op.value);
      Note(op_);
      Field* variants = op.value.FindField("variant");
      for (size_t i = 0; variants != nullptr && i < variants->value.items.size(); ++i) {
        if (variants->value.items[i].Is(Kind::kTable)) ShareWith(&variants->value.items[i]);
      }
      if (op_ != nullptr) PutIntoInterface(&op.value);
    }
    ReportUnused();
  }

 private:
  void Note(const Node* lets) {
    if (lets == nullptr) return;
    for (const Field& let : lets->fields) {
      if (seen_.insert(PlaceOfLet(let.where)).second) all_.push_back({let.where, let.key});
    }
  }

  // ---- Variants --------------------------------------------------------------------------------

  void ShareWith(Node* variant) {
    Words used;
    for (const char* key : {"let", "when", "workspace", "steps"}) {
      if (const Field* field = variant->Find(key)) AddWords(field->value, &used);
    }
    const Node* own = LetsOf(variant);
    std::vector<const Field*> chosen;
    for (bool grown = true; grown;) {
      grown = false;
      for (const Node* lets : {family_, op_}) {
        for (size_t i = 0; lets != nullptr && i < lets->fields.size(); ++i) {
          const Field& let = lets->fields[i];
          const bool hidden = (own != nullptr && own->Find(let.key) != nullptr) ||
                              (lets == family_ && op_ != nullptr && op_->Find(let.key) != nullptr);
          if (hidden || !used.contains(let.key)) continue;
          if (std::find(chosen.begin(), chosen.end(), &let) != chosen.end()) continue;
          chosen.push_back(&let);
          used_.insert(PlaceOfLet(let.where));
          AddWords(let.value, &used);
          grown = true;
        }
      }
    }
    if (!chosen.empty()) Add(variant, chosen);
  }

  // In front, the family's first, in their own order.
  void Add(Node* variant, const std::vector<const Field*>& chosen) {
    Field* lets = variant->FindField("let");
    if (lets == nullptr) {
      Node table;
      table.where = variant->where;
      variant->fields.push_back({"let", variant->where, std::move(table)});
      lets = &variant->fields.back();
    }
    const int link = diagnostics_.AddLink(variant->where, "for this variant");
    std::vector<Field> all;
    for (const Node* shared : {family_, op_}) {
      for (size_t i = 0; shared != nullptr && i < shared->fields.size(); ++i) {
        const Field& let = shared->fields[i];
        if (std::find(chosen.begin(), chosen.end(), &let) == chosen.end()) continue;
        Node holder;
        holder.fields = {let};
        AddLink(&holder, link, diagnostics_);
        all.push_back(std::move(holder.fields[0]));
      }
    }
    all.insert(all.end(), lets->value.fields.begin(), lets->value.fields.end());
    lets->value.fields = std::move(all);
  }

  // ---- The interface ---------------------------------------------------------------------------

  void PutIntoInterface(Node* op) {
    for (const char* key : {"operands", "results", "require", "independent", "score_mods"}) {
      if (Field* field = op->FindField(key)) PutIntoTexts(&field->value);
    }
  }

  void PutIntoTexts(Node* node) {
    if (node->Is(Kind::kString)) PutIntoText(node);
    for (Node& item : node->items) PutIntoTexts(&item);
    for (Field& field : node->fields) PutIntoTexts(&field.value);
  }

  void PutIntoText(Node* node) {
    const Field* first = nullptr;
    const std::string text = Written(node->text, 0, &first);
    if (first == nullptr) return;
    node->text = text;
    node->exact = false;
    SourceSpan at = first->value.where;
    at.via = node->where.via;
    node->where.via = diagnostics_.AddLink(at, fmt::format("'{}' stands for this", first->key));
  }

  // The text with its lets written out, in brackets unless they are a term of their own.
  std::string Written(const std::string& text, int depth, const Field** first) {
    std::string out;
    size_t done = 0;
    for (const NameSpan& name : NamesIn(text)) {
      const Field* let = op_->Find(text.substr(name.begin, name.end - name.begin));
      if (let == nullptr || !let->value.Is(Kind::kString)) continue;
      if (depth == kMaxDepth) {
        diagnostics_.Error(let->where, "lets form a cycle",
                           "a let may use others, but never itself");
        break;
      }
      used_.insert(PlaceOfLet(let->where));
      if (*first == nullptr) *first = let;
      const std::string value = Written(let->value.text, depth + 1, first);
      const bool alone = IsTerm(text, name);
      out += text.substr(done, name.begin - done) + (alone ? value : "(" + value + ")");
      done = name.end;
    }
    return out + text.substr(done);
  }

  // All of the text, or between a shape's brackets and commas.
  static bool IsTerm(const std::string& text, const NameSpan& name) {
    const size_t before = text.find_last_not_of(' ', name.begin == 0 ? 0 : name.begin - 1);
    const size_t behind = text.find_first_not_of(' ', name.end);
    const bool begins = name.begin == 0 || text[before] == '[' || text[before] == ',';
    const bool ends = behind == std::string::npos || text[behind] == ']' || text[behind] == ',';
    return begins && ends;
  }

  void ReportUnused() {
    for (const auto& [where, name] : all_) {
      if (used_.contains(PlaceOfLet(where))) continue;
      diagnostics_.Error(where, fmt::format("nothing uses the let '{}'", name),
                         "use it in a variant or in the op's shapes and conditions, or remove it");
    }
  }

  const Node* const family_;
  const Node* op_ = nullptr;
  Diagnostics& diagnostics_;
  std::vector<std::pair<SourceSpan, std::string>> all_;
  std::set<TextPlace> seen_, used_;
};

}  // namespace

void ShareLets(const Node* family, Node* ops, Diagnostics& diagnostics) {
  Sharer(family, diagnostics).ShareIn(ops);
}

}  // namespace kbundle::builder
