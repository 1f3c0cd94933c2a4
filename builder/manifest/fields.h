// Reading one TOML table: which keys it may have is what the reader asks for.
#ifndef KBUNDLE_BUILDER_MANIFEST_FIELDS_H_
#define KBUNDLE_BUILDER_MANIFEST_FIELDS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "builder/manifest/tree.h"

namespace kbundle::builder {

// What the reader asked of tables, while one of these was there on its thread: which keys a table
// may have, of which kinds. The schema for editors is made of it (schema.h).
class AskedKeys {
 public:
  struct Key {
    std::set<Node::Kind> kinds;   // empty: whatever the reader makes of it
    std::set<std::string> words;  // the texts it may be, where they are a choice
    bool required = false;
  };
  using Tables = std::map<std::string, std::map<std::string, Key>>;  // by `what` without names

  AskedKeys();
  ~AskedKeys();
  AskedKeys(const AskedKeys&) = delete;
  AskedKeys& operator=(const AskedKeys&) = delete;
  const Tables& tables() const { return tables_; }

 private:
  friend class Fields;
  Tables tables_;
};

// Borrows both arguments. Every Take makes its key known; Finish reports the others.
class Fields {
 public:
  // what: "a variant", for messages. where: what to point at when a key is missing.
  Fields(const Node& table, std::string what, Diagnostics& diagnostics);
  Fields(const Node& table, SourceSpan where, std::string what, Diagnostics& diagnostics);

  // Null when the key is absent, or present with another kind (which is reported).
  const Node* Take(const std::string& key);
  const Node* Take(const std::string& key, Node::Kind kind);
  // Absence is reported as well.
  const Node* Require(const std::string& key, Node::Kind kind);

  std::string TakeText(const std::string& key, std::string otherwise = {});
  bool TakeBool(const std::string& key);
  // In [least, most].
  int64_t TakeInteger(const std::string& key, int64_t otherwise, int64_t least, int64_t most);
  // One of the words; the first when absent.
  size_t TakeWord(const std::string& key, const std::vector<std::string>& words);
  // An array of strings.
  std::vector<const Node*> TakeTexts(const std::string& key);

  bool Has(const std::string& key) const { return table_.Find(key) != nullptr; }
  // Keys with this one are mutually exclusive shapes of the table: makes it known, reports it.
  void Refuse(const std::string& key, const std::string& message, const std::string& note = {});

  void Finish();

 private:
  AskedKeys::Key* Asked(const std::string& key) const;  // null: nobody wants to know

  const Node& table_;
  SourceSpan where_;
  std::string what_;
  Diagnostics& diagnostics_;
  std::vector<std::string> known_;
};

// Reports unless the node has the kind.
bool WantKind(const Node& node, Node::Kind kind, const std::string& what, Diagnostics& diagnostics);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_FIELDS_H_
