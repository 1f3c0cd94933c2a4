// The reader is run over a manifest that has every table, and what it asked for is written down;
// only what stands inside tables of free names, which no reader can tell, is said by hand
// (Insides). Whether that manifest makes sense is of no matter.
#include "builder/manifest/schema.h"

#include <nlohmann/json.hpp>

#include "builder/manifest/fields.h"
#include "builder/manifest/manifest.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Node::Kind;

// Every table that a manifest may have, whether it makes sense or not.
constexpr char kEveryTable[] = R"toml(
[family]
name = "every"
score_mods = { twice = "2 * s" }

[op.every]
types = { T = ["f32"], O = { attribute = "out", one_of = ["f16"] } }
operands = { x = { shape = "T[N, K]", optional = true }, z = "T[N, K]" }
results = { y = { shape = "O[N, K]", when = "present(x)" } }
score_mods = { b = "N" }
independent = [{ dims = ["N"] }]
[op.every.attributes]
out = { type = "dtype" }
list = { type = "int[]", max_len = 2 }
one = { type = "enum", one_of = ["a"] }
[[op.every.variant]]
name = "cuda"
provider = "cuda"
source = "every.cu"
[[op.every.variant.steps]]
kernel = "k"
grid = [1]
block = [1]
args = [{ tensor = "x", at = 1 }, { tensor_map = "x", dims = [1], box = [1] },
        { struct = "Params", fields = ["x", { field = "end", tensor = "x", at = 1 }] }]
[[op.every.variant.steps]]
memset = "y"
[[op.every.variant.steps]]
copy = "y"
from = "y"
[[op.every.variant]]
name = "host"
provider = "host"
source = "every.cc"
steps = [{ kernel = "k", range = 1, args = ["y"] }]
[[op.every.variant]]
name = "triton"
provider = "triton"
source = "every.py"
steps = [{ kernel = "k", grid = [1], args = ["y"] }]
[[op.every.variant]]
name = "warp"
provider = "warp"
source = "every.py"
steps = [
  { memset = "y" },
  { kernel = "k", dim = [1], adjoint = true, args = ["x"], adjoints = ["y"] },
]
[[op.every.variant]]
name = "cudnn"
provider = "cudnn"
targets = ["sm_90a"]
profile = "h200"
cudnn = ["9.19.0"]
[[op.every.variant.steps]]
graph = "sdpa"
axes = "ab"
order = "ab"
tensors = { z = { dims = ["N"] }, b = { tensor = "x", at = 0 } }
options = { a = { value = "one" } }
[[op.every.variant]]
name = "cublaslt"
provider = "cublaslt"
algorithms = "every"
heuristic = true
steps = [{ product = "y", a = "x", b = "z", m = 1, n = 1, k = 1 }]
[[op.every.variant]]
name = "cute"
provider = "cute"
source = "every.py"
steps = [{ cute = "k", args = [{ tensor = "x", shape = [1], strides = [1], at = 1 }] }]

[op.all]
extends = "every"
[[op.all.variant]]
extends = "every.*"
without = ["host"]
)toml";

// What stands in a table of names or in an array: any one of these. A word in brackets is a table
// that the reader asked; "string" and the like are kinds.
struct Inside {
  const char *table, *key;
  bool array;
  std::vector<const char*> any;
};
const std::vector<Inside>& Insides() {
  static const std::vector<Inside> insides = {
      {"the manifest", "op", false, {"(op)"}},
      {"[family]", "score_mods", false, {"string"}},
      {"[family]", "parts", true, {"string"}},
      {"op", "types", false, {"array", "(type parameter)"}},
      {"op", "operands", false, {"string", "(operand)"}},
      {"op", "results", false, {"string", "(result)"}},
      {"op", "attributes", false, {"(attribute)"}},
      {"op", "aliases", false, {"string"}},
      {"op", "independent", true, {"string", "(a cut)"}},
      {"op", "variant", true, {"(a variant)", "(a variant that stands for many)"}},
      {"op", "problems", true, {"object"}},
      {"op", "held_out", true, {"object"}},
      {"a variant", "workspace", false, {"string"}},
      {"a variant", "steps", true, {"(a step)"}},
      {"a step",
       "args",
       true,
       {"string", "(an argument)", "(a tensor map)", "(a struct)", "(a tensor of a step)"}},
      {"a struct", "fields", true, {"string", "(a field)"}},
      {"a step", "tensors", false, {"array", "(a tensor of a graph)"}},
      {"a step", "scalars", false, {"string"}},
      {"a step", "options", false, {"string", "integer", "boolean", "(option)"}},
  };
  return insides;
}

const char* TypeName(Kind kind) {
  switch (kind) {
    case Kind::kString:
      return "string";
    case Kind::kInteger:
      return "integer";
    case Kind::kFloat:
      return "number";
    case Kind::kBool:
      return "boolean";
    case Kind::kArray:
      return "array";
    case Kind::kTable:
      return "object";
  }
  return "";
}

Json Reference(const std::string& table) { return {{"$ref", "#/definitions/" + table}}; }

// "{NAME}" may stand for any value (manifest/define.h).
Json OrDefinition(Json what) {
  if (what.empty()) return what;
  return {{"anyOf", {std::move(what), Reference("a definition")}}};
}

Json OfKey(const std::string& table, const std::string& name, const AskedKeys::Key& key) {
  Json types = Json::array();
  for (Kind kind : key.kinds) types.push_back(TypeName(kind));
  Json what = Json::object();
  if (types.size() == 1) what["type"] = types[0];
  if (types.size() > 1) what["type"] = types;
  if (!key.words.empty()) what["enum"] = key.words;
  for (const Inside& inside : Insides()) {
    if (table != inside.table || name != inside.key) continue;
    Json any = Json::array({Reference("a definition")});
    for (const std::string one : inside.any) {
      any.push_back(one[0] == '(' ? Reference(one.substr(1, one.size() - 2)) : Json{{"type", one}});
    }
    what[inside.array ? "items" : "additionalProperties"] = {{"anyOf", std::move(any)}};
  }
  return OrDefinition(std::move(what));
}

Json OfTable(const std::string& name, const std::map<std::string, AskedKeys::Key>& keys) {
  Json properties = Json::object();
  for (const auto& [key, asked] : keys) properties[key] = OfKey(name, key, asked);
  return {
      {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
}

}  // namespace

std::string ManifestSchema() {
  const AskedKeys asked;
  (void)ReadManifestText("every.toml", kEveryTable);  // its errors are of no matter
  Json definitions = Json::object();
  definitions["a definition"] = {{"type", "string"}, {"pattern", "^\\{[A-Za-z_][A-Za-z0-9_]*\\}$"}};
  for (const auto& [name, keys] : asked.tables()) {
    const bool own_names = name.empty() || name == "`texts`";  // whose keys are an op's
    if (!own_names) definitions[name] = OfTable(name, keys);
  }
  Json& root = definitions["the manifest"]["properties"];
  root["family"] = Reference("[family]");
  root["part_of"] = {{"type", "string"}};
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "A manifest of kbundle"},
                 {"$ref", "#/definitions/the manifest"},
                 {"definitions", std::move(definitions)}};
  return schema.dump(2) + "\n";
}

}  // namespace kbundle::builder
