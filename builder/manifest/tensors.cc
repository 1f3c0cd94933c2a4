// Operands bind symbols and results use them, and operands may stand in any order: so all names are
// declared, then all symbols of operands, and only then is a dim compiled. A name that fails to be
// declared makes the names incomplete, and errors that could follow from that are kept back.
#include <algorithm>
#include <set>

#include "builder/manifest/reader.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

class TensorReader {
 public:
  TensorReader(Op& op, Names& names, Diagnostics& diagnostics)
      : op_(op), names_(names), diagnostics_(diagnostics), context_{diagnostics, op, names} {}

  void Read(const Node* operands, const Node* results) {
    size_t count =
        (operands ? operands->fields.size() : 0) + (results ? results->fields.size() : 0);
    if (count > kMaxOperands) {
      diagnostics_.Error(
          (operands ? operands : results)->where,
          fmt::format("{} operands and results, allowed are {}", count, kMaxOperands));
      return;
    }
    if (operands != nullptr) Declare(*operands, Entity::Kind::kOperand, op_.operands);
    if (results != nullptr) Declare(*results, Entity::Kind::kResult, op_.results);
    if (operands != nullptr) ReadOperands(*operands);
    if (results != nullptr) ReadResults(*results);
  }

 private:
  void Declare(const Node& table, Entity::Kind kind, std::vector<Tensor>& tensors) {
    for (const Field& field : table.fields) {
      std::string clash =
          names_.Declare(field.key, {kind, static_cast<int>(tensors.size()), {}, {}});
      if (!clash.empty()) Fail(field.where, clash);
      tensors.emplace_back().name = field.key;
    }
  }

  void Fail(const SourceSpan& where, std::string message, std::string note = {}) {
    names_.incomplete = true;
    diagnostics_.Error(where, std::move(message), std::move(note));
  }

  // The string of a tensor: the value itself or its `shape`.
  const Node* ShapeNode(const Field& field) {
    if (field.value.Is(Kind::kString)) return &field.value;
    if (!WantKind(field.value, Kind::kTable, fmt::format("'{}'", field.key), diagnostics_)) {
      names_.incomplete = true;
      return nullptr;
    }
    Fields fields(field.value, field.where, fmt::format("'{}'", field.key), diagnostics_);
    const Node* node = fields.Require("shape", Kind::kString);
    if (node == nullptr) names_.incomplete = true;
    return node;
  }

  std::optional<Shape> Parse(const Node& node) {
    ExpressionError error;
    std::optional<Shape> shape = ParseShape(node.text, &error);
    if (!shape) {
      Report(context_, node, error);
      names_.incomplete = true;
    }
    return shape;
  }

  // All symbols are declared before any dim is compiled, so that operands may come in any order.
  void ReadOperands(const Node& table) {
    std::vector<const Node*> nodes;
    std::vector<std::optional<Shape>> shapes;
    for (const Field& field : table.fields) {
      nodes.push_back(ShapeNode(field));
      shapes.push_back(nodes.back() ? Parse(*nodes.back()) : std::nullopt);
      if (shapes.back()) DeclareSymbols(*nodes.back(), *shapes.back());
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      Tensor& tensor = op_.operands[i];
      if (shapes[i]) ReadShape(*nodes[i], *shapes[i], /*operand=*/true, tensor);
    }
    for (size_t i = 0; i < shapes.size(); ++i) ReadOperandFields(table.fields[i], op_.operands[i]);
  }

  void DeclareSymbols(const Node& node, const Shape& shape) {
    for (const ShapeTerm& term : shape.terms) {
      const Expression& e = term.expression;
      if (e.kind != Expression::Kind::kName) continue;
      const Entity* known = names_.Find(e.name);
      bool symbol = known != nullptr && known->kind == Entity::Kind::kSymbol;
      if (known != nullptr && !symbol &&
          (term.ellipsis || known->kind != Entity::Kind::kAttribute)) {
        Fail(node.At(e.begin, e.end - e.begin),
             fmt::format("'{}' is already {} and cannot be a dim", e.name, Describe(known->kind)));
        continue;
      }
      if (term.ellipsis) open_.insert(e.name);
      if (known != nullptr) continue;
      std::string clash = names_.Declare(
          e.name, {Entity::Kind::kSymbol, static_cast<int>(op_.symbols.size()), {}, {}});
      if (!clash.empty()) {
        Fail(node.At(e.begin, e.end - e.begin), clash);
        continue;
      }
      op_.symbols.push_back(e.name);
    }
  }

  void ReadShape(const Node& node, const Shape& shape, bool operand, Tensor& tensor) {
    tensor.text = node.text;
    if (auto type = ResolveType(context_, node, shape.type, shape.type_begin)) tensor.type = *type;
    for (const ShapeTerm& term : shape.terms) {
      std::optional<Dim> dim = ReadDim(node, term, operand);
      if (!dim) return;
      tensor.dims.push_back(std::move(*dim));
    }
  }

  std::optional<Dim> ReadDim(const Node& node, const ShapeTerm& term, bool operand) {
    const Expression& e = term.expression;
    Dim dim;
    const Entity* entity = e.kind == Expression::Kind::kName ? names_.Find(e.name) : nullptr;
    bool symbol = entity != nullptr && entity->kind == Entity::Kind::kSymbol;
    if (term.ellipsis) {
      if (!symbol || !open_.contains(e.name)) {
        if (names_.incomplete) return std::nullopt;
        diagnostics_.Error(node.At(e.begin, e.end - e.begin),
                           fmt::format("no operand binds '{}..'", e.name), Nearby(e.name));
        return std::nullopt;
      }
      dim.symbol = entity->index, dim.ellipsis = true, dim.bind = operand;
      return dim;
    }
    if (operand && symbol && !open_.contains(e.name)) {
      dim.symbol = entity->index, dim.bind = true;
      return dim;
    }
    std::optional<Compiled> compiled =
        CompilePart(context_, node, e, operand ? OperandShapePlace() : ResultShapePlace());
    if (!compiled) return std::nullopt;
    if (compiled->type.kind != ValueType::Kind::kInt) {
      diagnostics_.Error(node.At(e.begin, e.end - e.begin),
                         fmt::format("a dim must be int, '{}' is {}", compiled->program.text,
                                     Describe(compiled->type, op_)));
      return std::nullopt;
    }
    dim.program = std::move(compiled->program);
    return dim;
  }

  std::string Nearby(const std::string& name) const {
    std::vector<std::string> known(open_.begin(), open_.end());
    std::string nearest = NearestName(name, known);
    if (!nearest.empty()) return fmt::format("did you mean '{}..'?", nearest);
    return known.empty() ? "write name.. in an operand first"
                         : fmt::format("operands bind: {}..", fmt::join(known, ".., "));
  }

  void ReadOperandFields(const Field& field, Tensor& tensor) {
    if (!field.value.Is(Kind::kTable)) return;
    Fields fields(field.value, fmt::format("operand '{}'", field.key), diagnostics_);
    fields.Take("shape");
    tensor.optional = fields.TakeBool("optional");
    tensor.strided = fields.TakeBool("strided");
    if (const Node* bound = fields.Take("bound")) {
      Place place = ResultShapePlace();
      place.what = "`bound`";
      tensor.bound = ReadInteger(context_, *bound, place);
    }
    fields.Refuse("when", "only results have `when`", "an operand is made optional = true");
    fields.Finish();
  }

  void ReadResults(const Node& table) {
    for (size_t i = 0; i < table.fields.size(); ++i) {
      const Field& field = table.fields[i];
      Tensor& tensor = op_.results[i];
      if (const Node* node = ShapeNode(field)) {
        std::optional<Shape> shape = Parse(*node);
        if (shape) ReadShape(*node, *shape, /*operand=*/false, tensor);
      }
      if (!field.value.Is(Kind::kTable)) continue;
      Fields fields(field.value, fmt::format("result '{}'", field.key), diagnostics_);
      fields.Take("shape");
      if (const Node* when = fields.Take("when")) {
        Place place = ResultShapePlace();
        place.what = "`when` of a result";
        tensor.when = ReadCondition(context_, *when, place);
      }
      fields.Refuse("optional", "a result is made optional by `when`",
                    "as in when = \"present(mask)\"");
      for (const char* key : {"strided", "bound"}) {
        fields.Refuse(key, fmt::format("only operands have `{}`", key));
      }
      fields.Finish();
    }
  }

  Op& op_;
  Names& names_;
  Diagnostics& diagnostics_;
  Context context_;
  std::set<std::string> open_;  // symbols of an ellipsis
};

bool SameDims(const Tensor& result, const Tensor& operand) {
  auto same = [](const Dim& r, const Dim& o) {
    if (r.ellipsis || o.ellipsis) return r.ellipsis == o.ellipsis && r.symbol == o.symbol;
    std::vector<Instruction> wanted =
        o.bind ? std::vector<Instruction>{{Opcode::kDim, o.symbol}} : o.program.code;
    return std::equal(r.program.code.begin(), r.program.code.end(), wanted.begin(), wanted.end(),
                      [](const Instruction& a, const Instruction& b) {
                        return a.opcode == b.opcode && a.operand == b.operand;
                      });
  };
  return std::equal(result.dims.begin(), result.dims.end(), operand.dims.begin(),
                    operand.dims.end(), same);
}

void CheckAlias(const Node& at, const Tensor& result, const Tensor& operand,
                Diagnostics& diagnostics) {
  bool same_type =
      result.type.param == operand.type.param && result.type.dtype == operand.type.dtype;
  if (!same_type || !SameDims(result, operand)) {
    diagnostics.Error(at.where,
                      fmt::format("result '{}' is {}, but operand '{}' is {}", result.name,
                                  result.text, operand.name, operand.text),
                      "only equal dtypes and shapes can share memory");
  } else if (operand.optional && !result.when) {
    diagnostics.Error(
        at.where,
        fmt::format("operand '{}' may be absent, result '{}' may not", operand.name, result.name),
        fmt::format("give the result when = \"present({})\"", operand.name));
  }
}

void ReadAliases(const Node& table, Op& op, const Names& names, Diagnostics& diagnostics) {
  std::set<std::string> taken;
  for (const Field& field : table.fields) {
    const Entity* result = names.Find(field.key);
    if (result == nullptr || result->kind != Entity::Kind::kResult) {
      diagnostics.Error(field.where, fmt::format("'{}' is no result", field.key),
                        "aliases are written { result = \"operand\" }");
      continue;
    }
    if (!WantKind(field.value, Kind::kString, "an alias", diagnostics)) continue;
    const Entity* operand = names.Find(field.value.text);
    if (operand == nullptr || operand->kind != Entity::Kind::kOperand) {
      diagnostics.Error(
          field.value.where, fmt::format("'{}' is no operand", field.value.text),
          fmt::format("operands: {}", fmt::join(names.OfKinds({Entity::Kind::kOperand}), ", ")));
      continue;
    }
    if (!taken.insert(field.value.text).second) {
      diagnostics.Error(field.value.where,
                        fmt::format("operand '{}' is written by two results", field.value.text));
      continue;
    }
    CheckAlias(field.value, op.results[result->index], op.operands[operand->index], diagnostics);
    op.results[result->index].alias = operand->index;
  }
}

// Otherwise a call could not tell which dtype the parameter has.
void CheckTypesAreBound(const Node& where, const Op& op, Diagnostics& diagnostics) {
  for (size_t i = 0; i < op.types.size(); ++i) {
    auto binds = [i](const Tensor& t) {
      return !t.optional && t.type.param == static_cast<int>(i);
    };
    if (op.types[i].attribute >= 0 || std::any_of(op.operands.begin(), op.operands.end(), binds)) {
      continue;
    }
    diagnostics.Error(
        where.where, fmt::format("nothing tells what type parameter '{}' is", op.types[i].name),
        "give it to an operand that is always there, or let a dtype attribute choose it: "
        "{ attribute = \"out_dtype\", one_of = [..] }");
  }
}

}  // namespace

void ReadTensors(Fields& fields, Op& op, Names& names, Diagnostics& diagnostics) {
  const Node* operands = fields.Take("operands", Kind::kTable);
  const Node* results = fields.Require("results", Kind::kTable);
  TensorReader(op, names, diagnostics).Read(operands, results);
  if (results != nullptr && results->fields.empty()) {
    diagnostics.Error(results->where, "an op needs at least one result",
                      "an op that only changes an operand has it as a result with an alias");
  }
  const Node* aliases = fields.Take("aliases", Kind::kTable);
  if (names.incomplete) return;
  if (results != nullptr) CheckTypesAreBound(*results, op, diagnostics);
  if (aliases != nullptr) ReadAliases(*aliases, op, names, diagnostics);
}

}  // namespace kbundle::builder
