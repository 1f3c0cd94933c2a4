// The order of a table's keys is got back by sorting them by where they stand. Places within a text
// are exact only where the file holds it letter by letter; else a caret shows the whole string.
// Columns are code points, as editors count, while texts are bytes.
#include "builder/manifest/tree.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_UNRELEASED_FEATURES 1  // TOML 1.1: inline tables over several lines
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#include "kbundle/utf8.h"
#include "toml++/toml.h"

namespace kbundle::builder {
namespace {

// The byte where the 1-based code point `column` of a line begins.
size_t ByteOf(std::string_view line, int column) {
  size_t i = 0;
  for (int seen = 1; i < line.size() && seen < column; ++seen) {
    ++i;
    while (i < line.size() && (static_cast<unsigned char>(line[i]) & 0xC0) == 0x80) ++i;
  }
  return i;
}

class Converter {
 public:
  Converter(int file, Diagnostics& diagnostics) : file_(file), diagnostics_(diagnostics) {}

  Node Convert(const toml::node& from) {
    Node to;
    to.where = Where(from.source());
    switch (from.type()) {
      case toml::node_type::string:
        ConvertString(from.as_string()->get(), to);
        break;
      case toml::node_type::integer:
        to.kind = Node::Kind::kInteger;
        to.integer = from.as_integer()->get();
        to.number = static_cast<double>(to.integer);
        break;
      case toml::node_type::floating_point:
        to.kind = Node::Kind::kFloat;
        to.number = from.as_floating_point()->get();
        break;
      case toml::node_type::boolean:
        to.kind = Node::Kind::kBool;
        to.integer = from.as_boolean()->get();
        break;
      case toml::node_type::array:
        to.kind = Node::Kind::kArray;
        for (const toml::node& item : *from.as_array()) to.items.push_back(Convert(item));
        break;
      case toml::node_type::table:
        ConvertTable(*from.as_table(), to);
        break;
      default:
        diagnostics_.Error(to.where, "dates and times mean nothing in a manifest",
                           "write a string, number, boolean, array or table");
    }
    return to;
  }

 private:
  SourceSpan Where(const toml::source_region& region) const {
    SourceSpan span{static_cast<int>(region.begin.line), static_cast<int>(region.begin.column), 1,
                    file_};
    if (region.end.line == region.begin.line && region.end.column > region.begin.column) {
      span.length = static_cast<int>(region.end.column - region.begin.column);
    }
    return span;
  }

  void ConvertString(const std::string& value, Node& to) {
    to.kind = Node::Kind::kString;
    to.text = value;
    std::string_view line = diagnostics_.Line(to.where.line, file_);
    size_t quote = ByteOf(line, to.where.column);
    if (quote >= line.size()) return;
    std::string_view rest = line.substr(quote);
    to.exact = rest.size() >= value.size() + 2 && rest.substr(1, value.size()) == value &&
               rest[value.size() + 1] == rest[0] && !rest.starts_with("\"\"\"") &&
               !rest.starts_with("'''");
  }

  void ConvertTable(const toml::table& from, Node& to) {
    to.kind = Node::Kind::kTable;
    for (auto&& [key, value] : from) {
      to.fields.push_back({std::string(key.str()), Where(key.source()), Convert(value)});
    }
    std::sort(to.fields.begin(), to.fields.end(), [](const Field& a, const Field& b) {
      return std::tie(a.where.line, a.where.column) < std::tie(b.where.line, b.where.column);
    });
  }

  const int file_;
  Diagnostics& diagnostics_;
};

}  // namespace

const Field* Node::Find(std::string_view key) const {
  for (const Field& field : fields) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

Field* Node::FindField(std::string_view key) {
  return const_cast<Field*>(std::as_const(*this).Find(key));
}

SourceSpan Node::At(int offset, int length) const {
  if (!exact) return where;
  SourceSpan part = where;
  part.column += 1 + offset;
  part.length = std::max(1, length);
  return part;
}

const char* Describe(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::kString:
      return "a string";
    case Node::Kind::kInteger:
      return "an integer";
    case Node::Kind::kFloat:
      return "a float";
    case Node::Kind::kBool:
      return "a boolean";
    case Node::Kind::kArray:
      return "an array";
    case Node::Kind::kTable:
      return "a table";
  }
  return "nothing";
}

std::optional<Node> ParseToml(const std::string& text, int file, Diagnostics& diagnostics) {
  toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::source_position& at = parsed.error().source().begin;
    std::string what(parsed.error().description());
    // The library takes any other word for the beginning of a number or a boolean.
    const bool word =
        what.find("expected 'nan'") != what.npos || what.find("expected 'inf'") != what.npos ||
        what.find("expected 'true'") != what.npos || what.find("expected 'false'") != what.npos;
    if (word) what = "a value that is no number and neither true nor false must stand in quotes";
    const char* note = word ? "as in range = \"N\": names and expressions are texts"
                       : NotUtf8(text) < text.size() ? "TOML is UTF-8: save the file as that"
                                                     : "the file is not valid TOML";
    diagnostics.Error({static_cast<int>(at.line), static_cast<int>(at.column), 1, file},
                      std::move(what), note);
    return std::nullopt;
  }
  return Converter(file, diagnostics).Convert(parsed.table());
}

namespace {

// A chain of links ends with the one who asked last.
class Linker {
 public:
  Linker(int link, Diagnostics& diagnostics) : link_(link), diagnostics_(diagnostics) {}

  void Add(Node* node) {
    Add(&node->where);
    for (Node& item : node->items) Add(&item);
    for (Field& field : node->fields) {
      Add(&field.where);
      Add(&field.value);
    }
  }

 private:
  void Add(SourceSpan* where) { where->via = Behind(where->via); }

  int Behind(int via) {
    if (via == 0) return link_;
    if (const auto known = behind_.find(via); known != behind_.end()) return known->second;
    SourceLink link = diagnostics_.links()[via];
    link.at.via = Behind(link.at.via);
    return behind_[via] = diagnostics_.AddLink(link.at, std::move(link.what));
  }

  const int link_;
  Diagnostics& diagnostics_;
  std::map<int, int> behind_;
};

}  // namespace

void AddLink(Node* node, int link, Diagnostics& diagnostics) {
  Linker(link, diagnostics).Add(node);
}

}  // namespace kbundle::builder
