// Words are looked for, not meanings: a tunable that is a word of some text, or may be a macro of a
// source or of a header it includes, is taken for used. So what is refused is surely unused.
#include "builder/manifest/unused.h"

#include <cctype>
#include <set>

#include "fmt/format.h"

namespace kbundle::builder {
namespace {

using Words = std::set<std::string, std::less<>>;

bool InWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

void AddWordsOfText(const std::string& text, Words* words) {
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && InWord(text[end])) ++end;
    if (end > at) words->insert(text.substr(at, end - at));
    at = end + 1;
  }
}

void AddTexts(const Node& node, Words* words) {
  AddWordsOfText(node.text, words);
  for (const Node& item : node.items) AddTexts(item, words);
  for (const Field& field : node.fields) AddTexts(field.value, words);
}

}  // namespace

void RefuseUnusedTunables(const Node& node, const std::string& source, Diagnostics& diagnostics) {
  const Field* tunables = node.Find("tunables");
  if (tunables == nullptr) return;
  Words words;
  for (const Field& field : node.fields) {
    if (field.key != "tunables" && field.key != "keep") AddTexts(field.value, &words);
  }
  // A header that the source includes may have the macro as well.
  const bool includes = source.find("#include \"") != std::string::npos;
  for (const Field& field : tunables->value.fields) {
    const size_t values = field.value.items.size();
    const bool macro = includes || source.find("KB_" + field.key) != std::string::npos;
    if (words.contains(field.key) || macro || values < 2) continue;
    diagnostics.Error(field.where,
                      fmt::format("nothing in this variant depends on the tunable '{}'", field.key),
                      fmt::format("each of its {} values would be compiled to the same code; put "
                                  "{{{}}} into a kernel's name or use {} in an expression, or "
                                  "remove it",
                                  values, field.key, field.key));
  }
}

}  // namespace kbundle::builder
