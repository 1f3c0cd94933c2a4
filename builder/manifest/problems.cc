// The problems of an op: some shapes are written, the others follow from the symbols they bind.
#include <algorithm>
#include <optional>

#include "builder/expression/evaluate.h"
#include "builder/manifest/reader.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

std::string Render(const Node& node) {
  std::vector<std::string> items;
  switch (node.kind) {
    case Kind::kString:
      return node.text;
    case Kind::kInteger:
      return std::to_string(node.integer);
    case Kind::kFloat:
      return fmt::format("{}", node.number);
    case Kind::kBool:
      return node.integer != 0 ? "true" : "false";
    case Kind::kArray:
      for (const Node& item : node.items) items.push_back(Render(item));
      return fmt::format("[{}]", fmt::join(items, ", "));
    case Kind::kTable:
      for (const Field& field : node.fields) {
        items.push_back(fmt::format("{}={}", field.key, Render(field.value)));
      }
      return fmt::format("{}", fmt::join(items, " "));
  }
  return {};
}

// One problem. Every member function returns false after an error that it has reported.
class ProblemReader {
 public:
  ProblemReader(const Node& node, const Op& op, const Names& names, Diagnostics& diagnostics)
      : node_(node), op_(op), names_(names), diagnostics_(diagnostics) {
    bindings_.types.assign(op.types.size(), DType::kInvalid);
    bindings_.symbols.assign(op.symbols.size(), 0);
    bindings_.attributes.resize(op.attributes.size());
    bindings_.tensors.resize(op.operands.size() + op.results.size());
    bound_.resize(op.symbols.size());
    lists_.resize(op.symbols.size());
    problem_.text = Render(node);
    problem_.operands.resize(op.operands.size());
  }

  std::optional<OpProblem> Read() {
    if (!KeysAreKnown() || !ReadAttributes() || !ReadTypes() || !BindGiven() || !Complete() ||
        !CheckOperands() || !CheckRequire() || !CheckResults()) {
      return std::nullopt;
    }
    return std::move(problem_);
  }

 private:
  bool Fail(const SourceSpan& where, std::string message, std::string note = {}) {
    diagnostics_.Error(where, std::move(message), std::move(note));
    return false;
  }

  bool KeysAreKnown() {
    auto kinds = {Entity::Kind::kTypeParam, Entity::Kind::kOperand, Entity::Kind::kAttribute};
    for (const Field& field : node_.fields) {
      const Entity* entity = names_.Find(field.key);
      if (entity != nullptr && std::find(kinds.begin(), kinds.end(), entity->kind) != kinds.end()) {
        continue;
      }
      std::vector<std::string> known = names_.OfKinds(kinds);
      std::string nearest = NearestName(field.key, known);
      return Fail(field.where,
                  entity ? fmt::format("'{}' is {}; a problem gives types, operands and attributes",
                                       field.key, Describe(entity->kind))
                         : fmt::format("unknown name '{}' in a problem", field.key),
                  fmt::format("{}known here: {}",
                              nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                              fmt::join(known, ", ")));
    }
    return true;
  }

  bool ReadAttributes() {
    for (size_t i = 0; i < op_.attributes.size(); ++i) {
      const Attribute& attribute = op_.attributes[i];
      std::vector<int64_t> integers = attribute.integers;
      std::vector<double> floats = attribute.floats;
      if (const Field* field = node_.Find(attribute.name)) {
        integers.clear();
        floats.clear();
        if (!ReadAttributeValue(attribute, field->value, diagnostics_, &integers, &floats))
          return false;
        problem_.attributes.push_back({static_cast<int>(i), integers, floats});
      } else if (!attribute.has_default) {
        return Fail(node_.where,
                    fmt::format("the problem lacks the attribute '{}'", attribute.name),
                    "it has no default");
      }
      bindings_.attributes[i] = {integers, std::max(integers.size(), floats.size())};
    }
    return true;
  }

  bool ReadTypes() {
    for (size_t i = 0; i < op_.types.size(); ++i) {
      const TypeParam& param = op_.types[i];
      const Field* field = node_.Find(param.name);
      SourceSpan where = field ? field->value.where : node_.where;
      std::optional<DType> dtype;
      if (param.attribute >= 0) {
        const std::string& attribute = op_.attributes[param.attribute].name;
        if (field != nullptr) {
          return Fail(field->where,
                      fmt::format("'{}' is chosen by the attribute '{}'", param.name, attribute),
                      fmt::format("write {} = \"{}\"", attribute, Render(field->value)));
        }
        dtype = static_cast<DType>(bindings_.attributes[param.attribute].integers[0]);
      } else if (field != nullptr) {
        dtype = field->value.Is(Kind::kString) ? ParseDType(field->value.text) : std::nullopt;
      } else if (param.dtypes.size() == 1) {
        dtype = param.dtypes[0];
      } else {
        return Fail(where, fmt::format("the problem does not say what '{}' is", param.name),
                    fmt::format("add {} = \"{}\"", param.name, Name(param.dtypes[0])));
      }
      if (!dtype ||
          std::find(param.dtypes.begin(), param.dtypes.end(), *dtype) == param.dtypes.end()) {
        std::vector<std::string_view> known;
        for (DType d : param.dtypes) known.push_back(Name(d));
        return Fail(where,
                    fmt::format("'{}' cannot be {}", param.name,
                                dtype ? std::string(Name(*dtype)) : Render(field->value)),
                    fmt::format("it may be: {}", fmt::join(known, ", ")));
      }
      bindings_.types[i] = *dtype;
    }
    return true;
  }

  // Shapes that are written bind symbols; `true` makes an optional operand present.
  bool BindGiven() {
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      const Tensor& operand = op_.operands[i];
      const Field* field = node_.Find(operand.name);
      bindings_.tensors[i].present = !operand.optional || field != nullptr;
      if (field == nullptr) continue;
      if (field->value.Is(Kind::kBool)) {
        bindings_.tensors[i].present = field->value.integer != 0;
        if (field->value.integer == 0 && !operand.optional) {
          return Fail(field->value.where,
                      fmt::format("operand '{}' is not optional", operand.name));
        }
      } else if (!BindShape(operand, field->value, bindings_.tensors[i].dims)) {
        return false;
      }
    }
    return true;
  }

  bool BindShape(const Tensor& operand, const Node& value, std::vector<int64_t>& dims) {
    if (!value.Is(Kind::kArray)) {
      return Fail(value.where, fmt::format("'{}' must be a shape", operand.name),
                  fmt::format("as in {} = [16, 1024]", operand.name));
    }
    for (const Node& item : value.items) {
      if (!item.Is(Kind::kInteger) || item.integer < 0) {
        return Fail(item.where, "a dim must be an integer that is not negative");
      }
      dims.push_back(item.integer);
    }
    bool open = std::any_of(operand.dims.begin(), operand.dims.end(),
                            [](const Dim& d) { return d.ellipsis; });
    size_t fixed = operand.dims.size() - open;
    if (dims.size() > kMaxRank || (open ? dims.size() < fixed : dims.size() != fixed)) {
      return Fail(
          value.where,
          fmt::format("'{}' has rank {}, but it is {}", operand.name, dims.size(), operand.text),
          fmt::format("give {} dim{}{}", fixed, fixed == 1 ? "" : "s", open ? " or more" : ""));
    }
    size_t axis = 0;
    for (const Dim& dim : operand.dims) {
      size_t width = dim.ellipsis ? dims.size() - fixed : 1;
      std::vector<int64_t> part(dims.begin() + axis, dims.begin() + axis + width);
      if (dim.symbol >= 0 && !BindSymbol(operand, dim, value, part)) return false;
      axis += width;
    }
    return true;
  }

  bool BindSymbol(const Tensor& operand, const Dim& dim, const Node& value,
                  const std::vector<int64_t>& part) {
    const std::string& name = op_.symbols[dim.symbol];
    Slot product{1};
    for (int64_t d : part) {
      Slot pair[2] = {product, {d}};
      product = Apply(Opcode::kMul, pair);
    }
    if (!product.ok())
      return Fail(value.where, fmt::format("'{}' {}", name, Describe(product.error)));
    std::optional<std::vector<int64_t>>& list = lists_[dim.symbol];
    bool differs = bound_[dim.symbol] && bindings_.symbols[dim.symbol] != product.value;
    if (differs || (dim.ellipsis && list && *list != part)) {
      return Fail(value.where,
                  fmt::format("'{}' is {} in '{}', but {} already", name, fmt::join(part, ", "),
                              operand.name, bindings_.symbols[dim.symbol]),
                  "equal symbols are equal dims");
    }
    if (dim.ellipsis) list = part;
    bound_[dim.symbol] = true;
    bindings_.symbols[dim.symbol] = product.value;
    return true;
  }

  // The dims of operands that are there but not written.
  bool Complete() {
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      const Tensor& operand = op_.operands[i];
      const Field* field = node_.Find(operand.name);
      bool given = field != nullptr && field->value.Is(Kind::kArray);
      if (!bindings_.tensors[i].present || given) continue;
      if (!Infer(operand, field ? field->value.where : node_.where, bindings_.tensors[i].dims))
        return false;
    }
    return true;
  }

  bool Infer(const Tensor& tensor, const SourceSpan& where, std::vector<int64_t>& dims) {
    for (const Dim& dim : tensor.dims) {
      if (dim.symbol >= 0 && (dim.ellipsis ? !lists_[dim.symbol] : !bound_[dim.symbol])) {
        return Fail(
            where,
            fmt::format("the shape of '{}' ({}) does not follow: '{}' is not bound", tensor.name,
                        tensor.text, op_.symbols[dim.symbol]),
            fmt::format("give the shape of an operand that has '{}'", op_.symbols[dim.symbol]));
      }
      if (dim.ellipsis) {
        dims.insert(dims.end(), lists_[dim.symbol]->begin(), lists_[dim.symbol]->end());
        continue;
      }
      Slot value =
          dim.bind ? Slot{bindings_.symbols[dim.symbol]} : Run(dim.program.code, bindings_);
      if (!value.ok()) {
        return Fail(where,
                    fmt::format("'{}' in the shape of '{}' {}", dim.program.text, tensor.name,
                                Describe(value.error)),
                    Values());
      }
      if (value.value < 0) {
        return Fail(where,
                    fmt::format("'{}' in the shape of '{}' is {}", dim.program.text, tensor.name,
                                value.value),
                    Values());
      }
      dims.push_back(value.value);
    }
    return true;
  }

  // Dims that are expressions, now that every symbol has its value.
  bool CheckOperands() {
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      const Tensor& operand = op_.operands[i];
      Bindings::Tensor& tensor = bindings_.tensors[i];
      const Field* field = node_.Find(operand.name);
      SourceSpan where = field ? field->value.where : node_.where;
      ProblemTensor& out = problem_.operands[i];
      out.present = tensor.present;
      if (!tensor.present) continue;
      out.dtype = DTypeOf(operand.type, bindings_.types);
      out.dims = tensor.dims;
      std::vector<int64_t> wanted;
      if (!Infer(operand, where, wanted)) return false;
      if (wanted != tensor.dims) {
        return Fail(
            where,
            fmt::format("'{}' is [{}], but {} is [{}] here", operand.name,
                        fmt::join(tensor.dims, ", "), operand.text, fmt::join(wanted, ", ")),
            Values());
      }
      if (operand.bound && !Run(operand.bound->code, bindings_).ok()) {
        return Fail(
            where,
            fmt::format("the bound '{}' of '{}' has no value", operand.bound->text, operand.name),
            Values());
      }
    }
    return true;
  }

  bool CheckRequire() {
    for (const Program& program : op_.require) {
      Slot slot = Run(program.code, bindings_);
      if (!slot.ok()) {
        return Fail(node_.where,
                    fmt::format("`require` \"{}\" {}", program.text, Describe(slot.error)),
                    Values());
      }
      if (slot.value == 0) {
        return Fail(node_.where, fmt::format("the problem violates `require` \"{}\"", program.text),
                    Values());
      }
    }
    return true;
  }

  bool CheckResults() {
    for (size_t i = 0; i < op_.results.size(); ++i) {
      const Tensor& result = op_.results[i];
      Bindings::Tensor& tensor = bindings_.tensors[op_.operands.size() + i];
      Slot present = result.when ? Run(result.when->code, bindings_) : Slot{1};
      if (!present.ok()) {
        return Fail(node_.where,
                    fmt::format("`when` of result '{}': \"{}\" {}", result.name, result.when->text,
                                Describe(present.error)),
                    Values());
      }
      tensor.present = present.value != 0;
      if (tensor.present && !Infer(result, node_.where, tensor.dims)) return false;
    }
    return true;
  }

  // "with K = 8, rows = 4"
  std::string Values() const {
    std::vector<std::string> out;
    for (size_t i = 0; i < op_.symbols.size(); ++i) {
      out.push_back(fmt::format("{} = {}", op_.symbols[i], bindings_.symbols[i]));
    }
    return out.empty() ? "" : fmt::format("with {}", fmt::join(out, ", "));
  }

  const Node& node_;
  const Op& op_;
  const Names& names_;
  Diagnostics& diagnostics_;
  Bindings bindings_;
  std::vector<bool> bound_;
  std::vector<std::optional<std::vector<int64_t>>> lists_;  // dims of each ellipsis symbol
  OpProblem problem_;
};

}  // namespace

void ReadProblems(const Node& problems, const Op& op, const Names& names, Diagnostics& diagnostics,
                  std::vector<OpProblem>* read) {
  for (const Node& node : problems.items) {
    if (!WantKind(node, Kind::kTable, "a problem", diagnostics)) continue;
    std::optional<OpProblem> problem = ProblemReader(node, op, names, diagnostics).Read();
    if (problem) read->push_back(std::move(*problem));
  }
}

}  // namespace kbundle::builder
