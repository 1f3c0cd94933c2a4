// Score modifiers: `score_mods` of [family], and of an op what follows from it, added to the op's
// table as if the manifest had said it:
//
//   attributes  score_mod      { type = "enum", one_of = ["none", ..], default = "none" }
//               score_scalars  { type = "float[]", max_len = 8, default = [] }
//   operands    score_tensor0  { shape = "f32[N0]", optional = true }, score_tensor1 with N1
//   require     what each modifier wants of them
#include "builder/manifest/reader.h"
#include "builder/score/header.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

constexpr size_t kMaxScoreMods = 16;

// Nodes that stand at one place of the file.
class Writer {
 public:
  explicit Writer(const SourceSpan& where) : where_(where) {}

  Node Of(Kind kind) const {
    Node node;
    node.kind = kind;
    node.where = where_;
    return node;
  }
  Node Text(std::string text) const {
    Node node = Of(Kind::kString);
    node.text = std::move(text);
    return node;
  }
  Node Integer(int64_t value) const {
    Node node = Of(Kind::kInteger);
    node.integer = value;
    node.number = static_cast<double>(value);
    return node;
  }
  Node True() const {
    Node node = Of(Kind::kBool);
    node.integer = 1;
    return node;
  }
  Node Table(std::vector<std::pair<std::string, Node>> fields) const {
    Node node = Of(Kind::kTable);
    for (auto& [key, value] : fields) node.fields.push_back({key, where_, std::move(value)});
    return node;
  }

  // The op's own table or array of this name, made when it is not there; null when it is something
  // else, which its reader reports.
  Node* Child(Node& table, const std::string& key, Kind kind) const {
    for (Field& field : table.fields) {
      if (field.key == key) return field.value.Is(kind) ? &field.value : nullptr;
    }
    table.fields.push_back({key, where_, Of(kind)});
    return &table.fields.back().value;
  }
  void Append(Node& table, const std::string& key, Kind kind, const std::string& name,
              Node value) const {
    if (Node* child = Child(table, key, kind)) {
      child->fields.push_back({name, where_, std::move(value)});
    }
  }

 private:
  SourceSpan where_;
};

// After an error the expression is s.
void ReadExpression(const Field& field, ScoreMod& mod, Diagnostics& diagnostics) {
  ExpressionError none;
  mod.expression = *ParseScoreExpression("s", &none);
  if (!WantKind(field.value, Kind::kString, "a score modifier", diagnostics)) return;
  ExpressionError error;
  std::optional<ScoreExpression> expression = ParseScoreExpression(field.value.text, &error);
  if (!expression) {
    return diagnostics.Error(field.value.At(error.offset, error.length), error.message, error.note);
  }
  const SlopeCheck check = CheckSlope(*expression);
  if (!check.mismatch.empty()) {
    diagnostics.Error(field.value.where,
                      fmt::format("the derivative of '{}' is wrong: {}", field.key, check.mismatch),
                      "this is a fault of kbundle's; please report it with the expression");
  }
  mod.expression = std::move(*expression);
}

// How long the dims b, h, q and k are in an op: expressions of its interface.
struct Lengths {
  std::string text[4];
  SourceSpan where;
};

Lengths ReadLengths(const Node& node, Diagnostics& diagnostics) {
  Lengths lengths;
  lengths.where = node.where;
  if (node.Is(Kind::kBool)) return lengths;
  if (!node.Is(Kind::kTable)) {
    diagnostics.Error(
        node.where,
        fmt::format("'score_mods' of an op must be true or a table, found {}", Describe(node.kind)),
        "as in score_mods = { b = \"B\", h = \"H\", q = \"SQ\", k = \"SKV\" }");
    return lengths;
  }
  Fields fields(node, "'score_mods' of an op", diagnostics);
  for (int i = 0; i < 4; ++i) lengths.text[i] = fields.TakeText(std::string(1, kScoreIndices[i]));
  fields.Finish();
  return lengths;
}

// "N0 == (H) * (SQ)"; reports a dim whose length the op does not say.
std::string SizeRule(const ScoreMod& mod, size_t tensor, const Lengths& lengths,
                     Diagnostics& diagnostics) {
  std::vector<std::string> factors;
  for (char dim : mod.expression.tensors[tensor].dims) {
    const std::string& length = lengths.text[kScoreIndices.find(dim)];
    if (length.empty()) {
      diagnostics.Error(
          lengths.where,
          fmt::format("the modifier '{}' has the tensor {}[{}], but the length of {} is not said",
                      mod.name, mod.expression.tensors[tensor].name,
                      fmt::join(mod.expression.tensors[tensor].dims, ", "), dim),
          "as in score_mods = { b = \"B\", h = \"H\", q = \"SQ\", k = \"SKV\" }");
      return "false";
    }
    factors.push_back("(" + length + ")");
  }
  return fmt::format("N{} == {}", tensor, fmt::join(factors, " * "));
}

void AppendRules(const std::vector<ScoreMod>& mods, const Lengths& lengths, const Writer& writer,
                 Node& require, Diagnostics& diagnostics) {
  auto add = [&](std::string text) { require.items.push_back(writer.Text(std::move(text))); };
  add("score_mod != 'none' || len(score_scalars) == 0");
  for (const ScoreMod& mod : mods) {
    add(fmt::format("score_mod != '{}' || len(score_scalars) == {}", mod.name,
                    mod.expression.scalars.size()));
  }
  for (size_t tensor = 0; tensor < kMaxScoreTensors; ++tensor) {
    std::vector<std::string> users;
    for (const ScoreMod& mod : mods) {
      if (mod.expression.tensors.size() > tensor) {
        users.push_back(fmt::format("score_mod == '{}'", mod.name));
      }
    }
    add(users.empty()
            ? fmt::format("!present(score_tensor{})", tensor)
            : fmt::format("present(score_tensor{}) == ({})", tensor, fmt::join(users, " || ")));
  }
  for (const ScoreMod& mod : mods) {
    std::vector<std::string> sizes;
    for (size_t tensor = 0; tensor < mod.expression.tensors.size(); ++tensor) {
      sizes.push_back(SizeRule(mod, tensor, lengths, diagnostics));
    }
    if (sizes.empty()) continue;
    add(fmt::format("score_mod != '{}' || {}", mod.name, fmt::join(sizes, " && ")));
  }
  if (require.items.size() > kMaxRules) {
    diagnostics.Error(lengths.where,
                      fmt::format("with those of the score modifiers `require` has {} conditions, "
                                  "allowed are {}",
                                  require.items.size(), kMaxRules));
  }
}

}  // namespace

void ReadScoreMods(Fields& fields, Family& family, Diagnostics& diagnostics) {
  const Node* table = fields.Take("score_mods", Kind::kTable);
  if (table == nullptr) return;
  if (table->fields.size() > kMaxScoreMods) {
    return diagnostics.Error(
        table->fields[kMaxScoreMods].where,
        fmt::format("{} score modifiers, allowed are {}", table->fields.size(), kMaxScoreMods));
  }
  for (const Field& field : table->fields) {
    if (!IsIdentifier(field.key) || field.key == "none") {
      diagnostics.Error(field.where,
                        fmt::format("'{}' cannot be the name of a score modifier", field.key),
                        "letters, digits and _, not beginning with a digit; 'none' is the choice "
                        "of no modifier");
      continue;
    }
    ScoreMod& mod = family.score_mods.emplace_back();
    mod.name = field.key;
    ReadExpression(field, mod, diagnostics);
  }
  family.score_header = ScoreHeader(family.score_mods);
}

bool ExpandScoreMods(const Family& family, Node& op, Diagnostics& diagnostics) {
  const Field* field = op.Find("score_mods");
  if (field == nullptr || (field->value.Is(Kind::kBool) && field->value.integer == 0)) return false;
  const Lengths lengths = ReadLengths(field->value, diagnostics);
  if (family.score_mods.empty()) {
    diagnostics.Error(field->where, "the family has no score modifiers",
                      "as in score_mods = { softcap = \"cap * tanh(s / cap)\" } of [family]");
    return false;
  }
  const Writer writer(field->where);
  Node choices = writer.Of(Kind::kArray);
  choices.items.push_back(writer.Text("none"));
  for (const ScoreMod& mod : family.score_mods) choices.items.push_back(writer.Text(mod.name));
  writer.Append(op, "attributes", Kind::kTable, "score_mod",
                writer.Table({{"type", writer.Text("enum")},
                              {"one_of", std::move(choices)},
                              {"default", writer.Text("none")}}));
  writer.Append(op, "attributes", Kind::kTable, "score_scalars",
                writer.Table({{"type", writer.Text("float[]")},
                              {"max_len", writer.Integer(kMaxScoreScalars)},
                              {"default", writer.Of(Kind::kArray)}}));
  for (int i = 0; i < kMaxScoreTensors; ++i) {
    writer.Append(op, "operands", Kind::kTable, fmt::format("score_tensor{}", i),
                  writer.Table({{"shape", writer.Text(fmt::format("f32[N{}]", i))},
                                {"optional", writer.True()}}));
  }
  // After an error in an expression what it wants is not known.
  Node* require = diagnostics.ok() ? writer.Child(op, "require", Kind::kArray) : nullptr;
  if (require != nullptr) {
    AppendRules(family.score_mods, lengths, writer, *require, diagnostics);
  }
  return true;
}

}  // namespace kbundle::builder
