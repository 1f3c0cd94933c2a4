// A TOML file as plain values that remember where they stand and in which order they were written
// (a TOML table has no order; a manifest's operands have). The only file that knows the TOML
// library is manifest/tree.cc.
#ifndef KBUNDLE_BUILDER_MANIFEST_TREE_H_
#define KBUNDLE_BUILDER_MANIFEST_TREE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "builder/support/diagnostic.h"

namespace kbundle::builder {

struct Field;

struct Node {
  enum class Kind : uint8_t { kString, kInteger, kFloat, kBool, kArray, kTable };
  Kind kind = Kind::kTable;
  SourceSpan where;
  // The text stands in the file as it is (one line, no escapes), its first character right after
  // the opening quote: an offset in the text is a column in the file.
  bool exact = false;
  std::string text;     // kString
  int64_t integer = 0;  // kInteger; kBool: 0 or 1
  double number = 0;    // kFloat, kInteger
  std::vector<Node> items;
  std::vector<Field> fields;  // in the order of the file

  bool Is(Kind k) const { return kind == k; }
  const Field* Find(std::string_view key) const;
  Field* FindField(std::string_view key);
  // The place of text[offset, offset + length), or of the whole string when that is not exact.
  SourceSpan At(int offset, int length) const;
};

struct Field {
  std::string key;
  SourceSpan where;
  Node value;
};

// "a string", "an integer".
const char* Describe(Node::Kind kind);

// Errors go to diagnostics, of which the text is the file of that number; nothing when the text is
// no TOML at all.
std::optional<Node> ParseToml(const std::string& text, int file, Diagnostics& diagnostics);

// Every place in it gets the link in front of those that it has.
void AddLink(Node* node, int link, Diagnostics& diagnostics);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_TREE_H_
