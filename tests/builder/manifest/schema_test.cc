// The schema for editors accepts every manifest of the tree and refuses what the reader refuses: it
// is made of what the reader asks for, and a validator that knows only JSON Schema judges here.
#include "builder/manifest/schema.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "builder/manifest/tree.h"
#include "builder/support/diagnostic.h"
#include "support/files.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Kind = Node::Kind;

// What of draft 7 the schema uses.
class Validator {
 public:
  Validator() : schema_(Json::parse(ManifestSchema())) {}

  // "" or the first thing that is wrong.
  std::string Check(const Node& node) const { return Check(node, schema_, ""); }

 private:
  std::string Check(const Node& node, const Json& rule, const std::string& at) const {
    if (rule.contains("$ref")) return Check(node, Referred(rule["$ref"]), at);
    if (rule.contains("anyOf")) return CheckAny(node, rule["anyOf"], at);
    if (rule.contains("type") && !HasType(node, rule["type"])) return at + " has another type";
    if (rule.contains("pattern") &&
        !std::regex_match(node.text, std::regex(rule["pattern"].get<std::string>()))) {
      return at + " has another form";
    }
    if (rule.contains("enum")) {
      const bool known = std::any_of(rule["enum"].begin(), rule["enum"].end(),
                                     [&](const Json& word) { return word == node.text; });
      if (!known) return at + " is another word";
    }
    for (const Field& field : node.fields) {
      const std::string wrong = CheckField(field, rule, at + "." + field.key);
      if (!wrong.empty()) return wrong;
    }
    for (size_t i = 0; i < node.items.size() && rule.contains("items"); ++i) {
      const std::string wrong =
          Check(node.items[i], rule["items"], at + "[" + std::to_string(i) + "]");
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

  std::string CheckField(const Field& field, const Json& rule, const std::string& at) const {
    if (rule.contains("properties") && rule["properties"].contains(field.key)) {
      return Check(field.value, rule["properties"][field.key], at);
    }
    if (!rule.contains("additionalProperties")) return "";
    const Json& others = rule["additionalProperties"];
    if (others.is_boolean()) return others.get<bool>() ? "" : at + " is no key";
    return Check(field.value, others, at);
  }

  std::string CheckAny(const Node& node, const Json& rules, const std::string& at) const {
    std::string wrong;
    for (const Json& rule : rules) {
      const std::string found = Check(node, rule, at);
      if (found.empty()) return "";
      if (found.size() > wrong.size()) wrong = found;  // the one that got furthest
    }
    return wrong;
  }

  static bool HasType(const Node& node, const Json& types) {
    static const std::map<Kind, std::string> kNames = {
        {Kind::kString, "string"}, {Kind::kInteger, "integer"}, {Kind::kFloat, "number"},
        {Kind::kBool, "boolean"},  {Kind::kArray, "array"},     {Kind::kTable, "object"}};
    const std::string& name = kNames.at(node.kind);
    if (types.is_string()) return types == name || (types == "number" && name == "integer");
    return std::find(types.begin(), types.end(), name) != types.end();
  }

  const Json& Referred(const std::string& path) const {
    return schema_["definitions"][path.substr(path.rfind('/') + 1)];
  }

  const Json schema_;
};

std::string WrongKeys(const std::string& text) {
  Diagnostics diagnostics("x.toml", text);
  const std::optional<Node> root = ParseToml(text, 0, diagnostics);
  EXPECT_TRUE(root.has_value()) << diagnostics.ToStatus().ToString();
  static const Validator validator;
  return root ? validator.Check(*root) : "no TOML";
}

TEST(Schema, AcceptsEveryManifestOfTheTree) {
  int seen = 0;
  for (const char* folder :
       {"kernels", "tests/builder/same", "tests/builder/manifests", "tests/downstream",
        "tests/python", "tests/triton", "tests/warp", "tests/format"}) {
    for (const auto& entry :
         fs::recursive_directory_iterator(fs::path(testing::SourceDir()) / folder)) {
      if (entry.path().extension() != ".toml") continue;
      std::ifstream in(entry.path());
      std::ostringstream text;
      text << in.rdbuf();
      EXPECT_EQ(WrongKeys(text.str()), "") << entry.path();
      ++seen;
    }
  }
  EXPECT_GE(seen, 20);
}

TEST(Schema, RefusesUnknownKeysOtherTypesAndOtherWords) {
  const std::string head = "[family]\nname = \"x\"\n[op.run]\noperands = { x = \"f32[N]\" }\n";
  const std::string variant = "[[op.run.variant]]\nname = \"one\"\n";
  EXPECT_EQ(WrongKeys(head + variant), "");
  EXPECT_NE(WrongKeys(head + variant + "tunabels = { A = [1] }\n"), "");
  EXPECT_NE(WrongKeys(head + variant + "provider = \"cudaa\"\n"), "");
  EXPECT_NE(WrongKeys(head + variant + "when = \"N > 1\"\n"), "");
  EXPECT_EQ(WrongKeys(head + variant + "when = \"{WHEN}\"\n"), "");
  EXPECT_NE(WrongKeys(head + variant + "steps = [{ kernle = \"k\" }]\n"), "");
  EXPECT_NE(WrongKeys(head + "vmapp = \"loop\"\n"), "");
  EXPECT_EQ(WrongKeys("[famly]\nname = \"x\"\n"), ".famly is no key");
}

}  // namespace
}  // namespace kbundle::builder
