// One entry of a step's `args`: a pointer, a scalar, an array attribute by value or a tensor map.
#include <algorithm>

#include "builder/manifest/reader.h"
#include "builder/provider/provider.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

// kInvalid when the name is no argument type.
DType ScalarType(const std::string& name, bool in_struct) {
  DType dtype = ParseDType(name).value_or(DType::kInvalid);
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
    case DType::kI16:
    case DType::kU16:
      return in_struct ? dtype : DType::kInvalid;
    case DType::kBool:
    case DType::kI32:
    case DType::kU32:
    case DType::kI64:
    case DType::kU64:
    case DType::kF32:
    case DType::kF64:
      return dtype;
    default:
      return DType::kInvalid;
  }
}

std::string PointerNote(const Context& context, const Entity* entity, const std::string& name) {
  if (entity == nullptr) {
    std::vector<std::string> known = context.names.OfKinds(
        {Entity::Kind::kOperand, Entity::Kind::kResult, Entity::Kind::kRegion});
    std::string nearest = NearestName(name, known);
    return fmt::format("{}pointers known here: {}",
                       nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest),
                       fmt::join(known, ", "));
  }
  if (entity->kind == Entity::Kind::kTypeParam) return "types go into the kernel's name: k<{T}>";
  if (entity->kind != Entity::Kind::kAttribute)
    return fmt::format("pass it as i32({0}) or i64({0})", name);
  const Attribute& attribute = context.op.attributes[entity->index];
  switch (attribute.type) {
    case AttributeType::kFloat:
      return fmt::format("pass it as f32({0}) or f64({0})", name);
    case AttributeType::kBool:
      return fmt::format("pass it as bool({0}) or i32({0})", name);
    case AttributeType::kIntArray:
      return fmt::format("pass it as i32[{}]({})", attribute.max_len, name);
    case AttributeType::kFloatArray:
      return fmt::format("pass it as f32[{}]({})", attribute.max_len, name);
    case AttributeType::kDType:
      return "a dtype goes into the kernel's name through its type parameter";
    default:
      return fmt::format("pass it as i32({})", name);
  }
}

std::optional<Arg> FailAt(const Context& context, const SourceSpan& where, std::string message,
                          std::string note) {
  context.diagnostics.Error(where, std::move(message), std::move(note));
  return std::nullopt;
}

// f32(weights[2]): nothing where the value is no element of a float[].
std::optional<Arg> FloatElement(const Context& context, const Expression& value) {
  if (value.kind != Expression::Kind::kIndex) return std::nullopt;
  const Entity* entity = context.names.Find(value.name);
  if (entity == nullptr || entity->kind != Entity::Kind::kAttribute) return std::nullopt;
  const Attribute& array = context.op.attributes[entity->index];
  const Expression& element = value.operands[0];
  const bool inside = element.kind == Expression::Kind::kInteger && element.value < array.max_len;
  if (array.type != AttributeType::kFloatArray || !inside) return std::nullopt;
  Arg arg;
  arg.kind = ArgKind::kFloat;
  arg.index = entity->index;
  arg.count = 1 + static_cast<int>(element.value);
  return arg;
}

// f32(scale), i32(K * 2), bool(causal).
std::optional<Arg> ScalarArgument(const Context& context, const Node& node, DType ctype,
                                  const Expression& value) {
  Arg arg;
  arg.ctype = ctype;
  arg.text = node.text;
  bool floating = ctype == DType::kF32 || ctype == DType::kF64;
  if (std::optional<Arg> element = FloatElement(context, value); element && floating) {
    element->ctype = ctype;
    element->text = node.text;
    return element;
  }
  if (value.kind == Expression::Kind::kName) {
    const Entity* entity = context.names.Find(value.name);
    bool attribute = entity != nullptr && entity->kind == Entity::Kind::kAttribute;
    if (attribute && context.op.attributes[entity->index].type == AttributeType::kFloat) {
      arg.kind = ArgKind::kFloat;
      arg.index = entity->index;
      if (floating) return arg;
      return FailAt(context, node.At(0, static_cast<int>(node.text.size())),
                    fmt::format("'{}' is a float attribute and cannot be passed as {}", value.name,
                                Name(ctype)),
                    fmt::format("pass it as f32({0}) or f64({0})", value.name));
    }
  }
  std::optional<Compiled> compiled =
      CompilePart(context, node, value, StepPlace(fmt::format("{}(..)", Name(ctype))));
  if (!compiled) return std::nullopt;
  ValueType::Kind type = compiled->type.kind;
  if (type == ValueType::Kind::kDType || (floating && type != ValueType::Kind::kInt)) {
    return FailAt(
        context, compiled->program.where,
        fmt::format("{} cannot be passed as {}", Describe(compiled->type, context.op), Name(ctype)),
        "a dtype goes into the kernel's name; a bool or enum is passed as i32");
  }
  arg.kind = ArgKind::kInteger;
  arg.program = std::move(compiled->program);
  return arg;
}

// i32[8](axes): parser stands after '['.
std::optional<Arg> ArrayArgument(const Context& context, const Node& node, DType ctype,
                                 ExpressionParser& parser) {
  Arg arg;
  arg.kind = ArgKind::kArray;
  arg.ctype = ctype;
  arg.text = node.text;
  Expression count = parser.ParseExpression();
  parser.Expect("]", "after the number of elements");
  parser.Expect("(", "before the attribute");
  Token name = parser.Take();
  parser.Expect(")", "after the attribute");
  parser.ExpectEnd();
  if (!parser.ok()) {
    Report(context, node, *parser.error());
    return std::nullopt;
  }
  SourceSpan where = node.At(name.begin, name.end - name.begin);
  const Entity* entity = context.names.Find(name.text);
  bool attribute = entity != nullptr && entity->kind == Entity::Kind::kAttribute;
  const Attribute* array = attribute ? &context.op.attributes[entity->index] : nullptr;
  if (array == nullptr || array->max_len == 0) {
    return FailAt(context, where, fmt::format("'{}' is no array attribute", name.text),
                  "declare it with type = \"int[]\" or \"float[]\" and max_len");
  }
  bool floating = array->type == AttributeType::kFloatArray;
  bool fits = floating ? ctype == DType::kF32 || ctype == DType::kF64
                       : ctype == DType::kI32 || ctype == DType::kI64;
  if (!fits) {
    return FailAt(context, node.At(0, static_cast<int>(Name(ctype).size())),
                  fmt::format("'{}' cannot be passed as {}[]", name.text, Name(ctype)),
                  floating ? "a float[] is passed as f32[n](..) or f64[n](..)"
                           : "an int[] is passed as i32[n](..) or i64[n](..)");
  }
  if (count.kind != Expression::Kind::kInteger || count.value < array->max_len ||
      count.value > kMaxAttributeElements) {
    return FailAt(
        context, node.At(count.begin, count.end - count.begin),
        fmt::format("the number of elements must be a literal from {} (its max_len) to {}",
                    array->max_len, kMaxAttributeElements),
        "the rest is zero");
  }
  arg.index = entity->index;
  arg.count = static_cast<int>(count.value);
  return arg;
}

std::vector<Program> ReadPrograms(const Context& context, Fields& fields, const std::string& key) {
  std::vector<Program> out;
  const Node* node = fields.Take(key, Kind::kArray);
  if (node == nullptr) return out;
  for (const Node& item : node->items) {
    if (auto program = ReadInteger(context, item, StepPlace(fmt::format("`{}`", key)))) {
      out.push_back(std::move(*program));
    }
  }
  return out;
}

void WantCount(const Context& context, const Node& node, const char* key, size_t found,
               size_t wanted) {
  if (found == wanted) return;
  context.diagnostics.Error(
      node.where, fmt::format("the tensor map has {} `{}`, wanted are {}", found, key, wanted),
      "dims, box and element_strides: one per dim, innermost first; strides: "
      "bytes, of all dims but the innermost");
}

std::optional<Arg> TensorMapArgument(const Context& context, const Node& node, Step& step) {
  if (!context.variant->provider->TakesTensorMaps()) {
    return FailAt(context, node.where, "only cuda kernels take tensor maps", "");
  }
  Fields fields(node, "a tensor map", context.diagnostics);
  int before = context.diagnostics.count();
  const Node* name = fields.Require("tensor_map", Kind::kString);
  if (name == nullptr) return std::nullopt;
  std::optional<Arg> pointer = ReadPointer(context, *name);
  if (!pointer) return std::nullopt;
  if (pointer->kind == ArgKind::kRegion) {
    return FailAt(context, name->where, "a tensor map describes an operand or result",
                  "not a workspace region");
  }
  TensorMap map;
  map.tensor =
      pointer->index +
      (pointer->kind == ArgKind::kResult ? static_cast<int>(context.op.operands.size()) : 0);
  map.type = TensorOf(context.op, map.tensor).type;
  if (const Node* dtype = fields.Take("dtype", Kind::kString)) {
    if (auto type = ResolveType(context, *dtype, dtype->text, 0)) map.type = *type;
  }
  fields.Require("dims", Kind::kArray);
  fields.Require("box", Kind::kArray);
  map.dims = ReadPrograms(context, fields, "dims");
  map.strides = ReadPrograms(context, fields, "strides");
  map.box = ReadPrograms(context, fields, "box");
  map.element_strides = ReadPrograms(context, fields, "element_strides");
  map.swizzle =
      static_cast<int>(fields.TakeWord("swizzle", {"none", "32b", "64b", "128b", "128b_atom_32b",
                                                   "128b_atom_32b_flip_8b", "128b_atom_64b"}));
  map.interleave = static_cast<int>(fields.TakeWord("interleave", {"none", "16b", "32b"}));
  map.l2 = static_cast<int>(fields.TakeWord("l2", {"none", "64b", "128b", "256b"}));
  map.fill = static_cast<int>(fields.TakeWord("fill", {"zero", "nan"}));
  fields.Finish();
  if (context.diagnostics.count() != before) return std::nullopt;
  if (map.dims.empty() || map.dims.size() > 5) {
    return FailAt(context, node.where, fmt::format("{} dims, allowed are 1 to 5", map.dims.size()),
                  "");
  }
  if (map.element_strides.empty()) {
    Program one;
    one.text = "1";
    one.code = ConstantCode(1);
    map.element_strides.assign(map.dims.size(), one);
  }
  WantCount(context, node, "strides", map.strides.size(), map.dims.size() - 1);
  WantCount(context, node, "box", map.box.size(), map.dims.size());
  WantCount(context, node, "element_strides", map.element_strides.size(), map.dims.size());
  Arg arg;
  arg.kind = ArgKind::kTensorMap;
  arg.index = static_cast<int>(step.tensor_maps.size());
  arg.text = fmt::format("tensor_map({})", name->text);
  step.tensor_maps.push_back(std::move(map));
  return arg;
}

}  // namespace

std::optional<Arg> ReadPointer(const Context& context, const Node& node) {
  const Entity* entity = context.names.Find(node.text);
  Arg arg;
  arg.text = node.text;
  arg.index = entity ? entity->index : 0;
  if (entity != nullptr) {
    switch (entity->kind) {
      case Entity::Kind::kOperand:
        arg.kind = ArgKind::kOperand;
        return arg;
      case Entity::Kind::kResult:
        arg.kind = ArgKind::kResult;
        return arg;
      case Entity::Kind::kRegion:
        arg.kind = ArgKind::kRegion;
        return arg;
      default:
        break;
    }
  }
  if (entity == nullptr && context.names.incomplete) return std::nullopt;
  return FailAt(context, node.At(0, static_cast<int>(node.text.size())),
                entity ? fmt::format("'{}' is {}, not a pointer", node.text, Describe(entity->kind))
                       : fmt::format("unknown argument '{}'", node.text),
                PointerNote(context, entity, node.text));
}

std::optional<Arg> ReadPlace(const Context& context, Fields& fields) {
  const Node* name = fields.Require("tensor", Kind::kString);
  const Node* at = fields.Take("at");
  if (name == nullptr) return std::nullopt;
  std::optional<Arg> arg = ReadPointer(context, *name);
  if (!arg) return arg;
  arg->where = name->where;
  if (at == nullptr) return arg;
  std::optional<Program> offset = ReadInteger(context, *at, StepPlace("`at`"));
  if (!offset) return std::nullopt;
  arg->program = std::move(*offset);
  arg->text = fmt::format("{} at {}", name->text, arg->program.text);
  return arg;
}

std::optional<Arg> ReadArgument(const Context& context, const Node& node, Step& step) {
  if (node.Is(Kind::kTable) && node.Find("tensor") != nullptr) {
    Fields fields(node, "an argument", context.diagnostics);
    std::optional<Arg> arg = ReadPlace(context, fields);
    fields.Finish();
    return arg;
  }
  if (node.Is(Kind::kTable) && node.Find("struct") != nullptr) {
    return ReadStruct(context, node, step);
  }
  if (node.Is(Kind::kTable)) return TensorMapArgument(context, node, step);
  if (!WantKind(node, Kind::kString, "an argument", context.diagnostics)) return std::nullopt;
  return ReadArgumentText(context, node, /*in_struct=*/false);
}

std::optional<Arg> ReadArgumentText(const Context& context, const Node& node, bool in_struct) {
  ExpressionParser parser(node.text);
  if (!parser.ok()) {
    Report(context, node, *parser.error());
    return std::nullopt;
  }
  bool name = parser.peek().kind == Token::Kind::kName;
  if (name && parser.PeekAfter().kind == Token::Kind::kEnd) return ReadPointer(context, node);
  DType ctype = name ? ScalarType(parser.peek().text, in_struct) : DType::kInvalid;
  bool call = parser.PeekAfter().Is("("), array = parser.PeekAfter().Is("[");
  if (ctype == DType::kInvalid || !(call || array)) {
    return FailAt(context, node.At(0, static_cast<int>(node.text.size())),
                  fmt::format("\"{}\" is no argument", node.text),
                  "an argument is the name of a pointer, or bool i32 u32 i64 u64 f32 f64 of an "
                  "expression, as in i32(K / 2)");
  }
  parser.Take();
  parser.Take();
  if (array) return ArrayArgument(context, node, ctype, parser);
  Expression value = parser.ParseExpression();
  parser.Expect(")", "after the expression");
  parser.ExpectEnd();
  if (parser.ok()) return ScalarArgument(context, node, ctype, value);
  Report(context, node, *parser.error());
  return std::nullopt;
}

int64_t PassedBytes(const Arg& arg) {
  switch (arg.kind) {
    case ArgKind::kInteger:
    case ArgKind::kFloat:
      return SizeOf(arg.ctype);
    case ArgKind::kArray:
      return SizeOf(arg.ctype) * arg.count;
    case ArgKind::kTensorMap:
      return 128;  // sizeof(CUtensorMap)
    default:
      return 8;
  }
}

}  // namespace kbundle::builder
