// Where an expression's own offsets become places in the manifest: a caret stands under the word
// that is wrong, within the text. An unknown name is not reported where a declaration failed before
// it.
#include "builder/manifest/reader.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

std::optional<Program> ReadTyped(const Context& context, const Node& node, const Place& place,
                                 const ValueType& wanted) {
  std::optional<Compiled> compiled = ReadExpression(context, node, place);
  if (!compiled) return std::nullopt;
  if (compiled->type == wanted) return std::move(compiled->program);
  context.diagnostics.Error(
      node.At(0, static_cast<int>(node.text.size())),
      fmt::format("{} wants {}, but \"{}\" is {}", place.what, Describe(wanted, context.op),
                  compiled->program.text, Describe(compiled->type, context.op)));
  return std::nullopt;
}

}  // namespace

void Report(const Context& context, const Node& text, const ExpressionError& error) {
  if (error.unknown_name && context.names.incomplete) return;
  context.diagnostics.Error(text.At(error.offset, error.length), error.message, error.note);
}

std::optional<Compiled> CompilePart(const Context& context, const Node& text,
                                    const Expression& expression, const Place& place) {
  CompileInput input{&context.op, &context.names, context.variant, text.text};
  ExpressionError error;
  std::optional<Compiled> compiled = CompileExpression(expression, input, place, &error);
  if (!compiled) {
    Report(context, text, error);
    return std::nullopt;
  }
  compiled->program.where = text.At(expression.begin, expression.end - expression.begin);
  return compiled;
}

std::optional<Compiled> ReadExpression(const Context& context, const Node& node,
                                       const Place& place) {
  if (node.Is(Node::Kind::kInteger) || node.Is(Node::Kind::kBool)) {
    Compiled out;
    bool boolean = node.Is(Node::Kind::kBool);
    out.type.kind = boolean ? ValueType::Kind::kBool : ValueType::Kind::kInt;
    out.program.code = ConstantCode(node.integer);
    out.program.text = boolean ? (node.integer ? "true" : "false") : std::to_string(node.integer);
    out.program.where = node.where;
    return out;
  }
  if (!WantKind(node, Node::Kind::kString, place.what, context.diagnostics)) return std::nullopt;
  ExpressionParser parser(node.text);
  Expression expression = parser.ParseAll();
  if (!parser.ok()) {
    Report(context, node, *parser.error());
    return std::nullopt;
  }
  return CompilePart(context, node, expression, place);
}

std::optional<Program> ReadInteger(const Context& context, const Node& node, const Place& place) {
  return ReadTyped(context, node, place, {ValueType::Kind::kInt, -1});
}

std::optional<Program> ReadCondition(const Context& context, const Node& node, const Place& place) {
  return ReadTyped(context, node, place, {ValueType::Kind::kBool, -1});
}

std::optional<TypeRef> ResolveType(const Context& context, const Node& text,
                                   const std::string& type, int offset) {
  TypeRef ref;
  std::vector<std::string> known;
  for (size_t i = 0; i < context.op.types.size(); ++i) {
    known.push_back(context.op.types[i].name);
    if (known.back() == type) ref.param = static_cast<int>(i);
  }
  if (ref.param >= 0) return ref;
  if (std::optional<DType> dtype = ParseDType(type)) {
    ref.dtype = *dtype;
    return ref;
  }
  for (int i = 1; i < kDTypeCount; ++i) known.emplace_back(Name(static_cast<DType>(i)));
  std::string nearest = NearestName(type, known);
  context.diagnostics.Error(
      text.At(offset, static_cast<int>(type.size())),
      fmt::format("'{}' is neither a type parameter nor a dtype", type),
      fmt::format("{}known here: {}",
                  nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                  fmt::join(known, ", ")));
  return std::nullopt;
}

Program TensorBytes(const Tensor& tensor) {
  Program out;
  out.text = fmt::format("bytes of {}", tensor.name);
  if (tensor.type.param >= 0) {
    out.code = {{Opcode::kSizeOfType, tensor.type.param}};
  } else {
    out.code = ConstantCode(SizeOf(tensor.type.dtype));
  }
  for (const Dim& dim : tensor.dims) {
    bool symbol = dim.ellipsis || dim.bind;
    out.code = CombineCode(
        Opcode::kMul, std::move(out.code),
        symbol ? std::vector<Instruction>{{Opcode::kDim, dim.symbol}} : dim.program.code);
  }
  return out;
}

}  // namespace kbundle::builder
