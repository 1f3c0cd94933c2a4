// A tensor of the op has numbers, an array of Warp has elements: the innermost dims of the one must
// be those of an element of the other. A dim that is a number is compared here; one that has no
// value before a problem does becomes a condition of the variant, as do strides within an element.
// The strides of the array follow in bytes, dense or the operand's own.
#include "builder/provider/warp/arguments.h"

#include <algorithm>
#include <utility>

#include "builder/expression/compile.h"
#include "builder/provider/warp/element.h"
#include "builder/provider/warp/layout.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;
using Parameter = WarpKernel::Parameter;

// NAME(OF) or NAME[3, 3](OF).
struct Typed {
  std::string name;
  std::vector<int64_t> shape;
  std::string of;
  int of_begin = 0;
};

// Nothing where the text is of another form.
std::optional<Typed> ParseTyped(const std::string& text) {
  ExpressionParser parser(text);
  Typed out;
  if (!parser.ok() || parser.peek().kind != Token::Kind::kName) return std::nullopt;
  out.name = parser.Take().text;
  if (parser.Accept("[")) {
    do {
      const Expression size = parser.ParseExpression();
      if (size.kind != Expression::Kind::kInteger || size.value < 1) return std::nullopt;
      out.shape.push_back(size.value);
    } while (parser.Accept(","));
    parser.Expect("]", "after the sizes");
  }
  if (!parser.Accept("(")) return std::nullopt;
  const Token of = parser.Take();
  out.of = of.text;
  out.of_begin = of.begin;
  if (of.kind != Token::Kind::kName || !parser.Accept(")")) return std::nullopt;
  return parser.peek().kind == Token::Kind::kEnd && parser.ok() ? std::optional(out) : std::nullopt;
}

bool SameCode(const Program& a, const Program& b) {
  return std::equal(a.code.begin(), a.code.end(), b.code.begin(), b.code.end(),
                    [](const Instruction& x, const Instruction& y) {
                      return x.opcode == y.opcode && x.operand == y.operand;
                    });
}

bool IsTensor(const Entity* entity) {
  return entity != nullptr &&
         (entity->kind == Entity::Kind::kOperand || entity->kind == Entity::Kind::kResult ||
          entity->kind == Entity::Kind::kRegion);
}

class ArgumentReader {
 public:
  ArgumentReader(StepTable& table, const Node& node)
      : table_(table), context_(table.context), node_(node) {}

  std::optional<Parameter> Read() {
    if (!WantKind(node_, Kind::kString, "an argument", context_.diagnostics)) return std::nullopt;
    if (IsIdentifier(node_.text)) return ReadArray(node_, {});
    if (const std::optional<Typed> typed = ParseTyped(node_.text)) {
      const Entity* entity = context_.names.Find(typed->of);
      if (IsTensor(entity)) return ReadView(*typed);
      if (const auto element = ParseWarpElement(typed->name); element && typed->shape.empty()) {
        return ReadVector(*typed, *element);
      }
    }
    return ReadValue();
  }

  // The array that a name means, of elements of one number each; nothing after an error.
  std::optional<Parameter> ReadArray(const Node& name, const std::vector<int64_t>& shape) {
    std::optional<Arg> arg = ReadPointer(context_, name);
    if (!arg) return std::nullopt;
    Parameter out;
    out.arg = std::move(*arg);
    out.arg.where = node_.where;
    out.array = true;
    out.shape = shape;
    AddDims(&out);
    if (!TakeElement(&out)) return std::nullopt;
    out.rank = static_cast<int>(out.dims.size());
    if (out.rank < 1 || out.rank > static_cast<int>(kWarpMaxDims)) {
      return Fail(fmt::format("'{}' has {} dims as an array of Warp, allowed are 1 to {}",
                              out.arg.text, out.rank, kWarpMaxDims),
                  "a scalar is declared with one dim, f32[1]");
    }
    return out;
  }

 private:
  std::optional<Parameter> Fail(std::string message, std::string note) {
    const auto length = static_cast<int>(node_.text.size());
    context_.diagnostics.Error(node_.At(0, length), std::move(message), std::move(note));
    return std::nullopt;
  }

  // vec3(x), f32[5](x), T[3, 3](x).
  std::optional<Parameter> ReadView(const Typed& typed) {
    Node name = node_;
    name.text = typed.of;
    name.where = node_.At(typed.of_begin, static_cast<int>(typed.of.size()));
    name.exact = false;
    std::vector<int64_t> shape = typed.shape;
    std::optional<DType> scalar;
    if (const auto element = ParseWarpElement(typed.name); element && shape.empty()) {
      shape = element->shape;
      scalar = element->scalar;
    } else if (shape.empty() || shape.size() > 2) {
      return Fail(fmt::format("\"{}\" is no array of Warp", node_.text),
                  fmt::format("name what its elements are, as in vec3({0}): {1}; or f32[5]({0})",
                              typed.of, kSomeWarpElements));
    }
    std::optional<Parameter> out = ReadArray(name, shape);
    if (!out) return out;
    TypeRef wanted;
    if (scalar) {
      wanted.dtype = *scalar;
    } else {
      const std::optional<TypeRef> type = ResolveType(context_, node_, typed.name, 0);
      if (!type) return std::nullopt;
      wanted = *type;
    }
    if (wanted.param == out->scalar.param && wanted.dtype == out->scalar.dtype) return out;
    const std::string is = out->scalar.param >= 0 ? context_.op.types[out->scalar.param].name
                                                  : std::string(Name(out->scalar.dtype));
    return Fail(fmt::format("'{}' is of {}, the elements of {} are not", typed.of, is, typed.name),
                fmt::format("write {}[{}]({})", is, fmt::join(shape, ", "), typed.of));
  }

  // vec3(gravity) of an attribute, by value.
  std::optional<Parameter> ReadVector(const Typed& typed, const WarpElement& element) {
    const int64_t count = CountOf(element.shape);
    Node array = node_;
    array.exact = false;
    array.text = fmt::format("{}[{}]({})", Name(element.scalar), count, typed.of);
    std::optional<Arg> arg = ReadArgument(context_, array, table_.step);
    if (!arg) return std::nullopt;
    Parameter out;
    out.arg = std::move(*arg);
    out.arg.text = node_.text;
    out.arg.where = node_.where;
    out.scalar.dtype = element.scalar;
    out.shape = element.shape;
    WantLength(out, count);
    return out;
  }

  std::optional<Parameter> ReadValue() {
    std::optional<Arg> arg = ReadSmall();
    if (!arg) arg = failed_ ? std::nullopt : ReadArgument(context_, node_, table_.step);
    if (!arg) return std::nullopt;
    Parameter out;
    out.arg = std::move(*arg);
    out.arg.where = node_.where;
    out.scalar.dtype = out.arg.ctype;
    if (out.arg.kind == ArgKind::kArray) {
      out.shape = {out.arg.count};
      WantLength(out, out.arg.count);
    }
    return out;
  }

  // i8(E), u16(E), which are values of Warp and no arguments elsewhere.
  std::optional<Arg> ReadSmall() {
    ExpressionParser parser(node_.text);
    if (!parser.ok() || !parser.PeekAfter().Is("(")) return std::nullopt;
    const std::optional<DType> ctype = ParseDType(parser.Take().text);
    parser.Take();
    if (ctype == DType::kF16 || ctype == DType::kBF16) {
      failed_ = true;
      Fail(fmt::format("a value of {} cannot be passed", Name(*ctype)),
           "pass f32(..), and convert it in the kernel");
      return std::nullopt;
    }
    if (ctype != DType::kI8 && ctype != DType::kU8 && ctype != DType::kI16 &&
        ctype != DType::kU16) {
      return std::nullopt;
    }
    const Expression value = parser.ParseExpression();
    parser.Expect(")", "after the expression");
    parser.ExpectEnd();
    failed_ = true;  // until it is read
    if (!parser.ok()) {
      Report(context_, node_, *parser.error());
      return std::nullopt;
    }
    std::optional<Compiled> compiled = CompilePart(context_, node_, value, StepPlace("a value"));
    if (!compiled) return std::nullopt;
    if (compiled->type.kind == ValueType::Kind::kDType) {
      Fail("a dtype is no value", "it goes into the kernel's name");
      return std::nullopt;
    }
    Arg arg;
    arg.kind = ArgKind::kInteger;
    arg.ctype = *ctype;
    arg.text = node_.text;
    arg.program = std::move(compiled->program);
    return arg;
  }

  void Require(std::vector<Instruction> code, int64_t value, const std::string& text) {
    AddCondition(
        table_, CombineCode(Opcode::kEq, std::move(code), ConstantCode(value)),
        fmt::format("{} == {}", text.find(' ') == text.npos ? text : "(" + text + ")", value),
        node_.where);
  }

  // A vector has as many numbers as it has, and no zeros behind.
  void WantLength(const Parameter& value, int64_t count) {
    const Attribute& attribute = context_.op.attributes[value.arg.index];
    Require({{Opcode::kLength, value.arg.index}}, count, fmt::format("len({})", attribute.name));
  }

  const Tensor* TensorBehind(const Arg& arg) const {
    if (arg.kind == ArgKind::kOperand) return &context_.op.operands[arg.index];
    return arg.kind == ArgKind::kResult ? &context_.op.results[arg.index] : nullptr;
  }

  void AddDims(Parameter* out) {
    const Tensor* tensor = TensorBehind(out->arg);
    if (tensor == nullptr) {
      const Region& region = table_.variant.regions[out->arg.index];
      out->scalar = region.type;
      out->dims = region.dims;
      return;
    }
    out->scalar = tensor->type;
    for (const Dim& dim : tensor->dims) {
      Program program = dim.program;
      if (dim.ellipsis || dim.bind) {
        program.code = {{Opcode::kDim, dim.symbol}};
        program.text = context_.op.symbols[dim.symbol];
      }
      out->dims.push_back(std::move(program));
    }
  }

  // The innermost dims are those of an element; what is left gets its strides.
  bool TakeElement(Parameter* out) {
    const size_t rank = out->dims.size(), inner = out->shape.size();
    const Tensor* tensor = TensorBehind(out->arg);
    const bool strided = tensor != nullptr && tensor->strided;
    if (rank < inner) {
      Fail(fmt::format("'{}' has {} of the {} dims that its elements alone have", out->arg.text,
                       rank, inner),
           "the innermost dims of a tensor are those of its elements: f32[N, 3] is N of vec3");
      return false;
    }
    if (strided && std::any_of(tensor->dims.begin(), tensor->dims.end(),
                               [](const Dim& dim) { return dim.ellipsis; })) {
      Fail(fmt::format("'{}' is strided and has '..', so its dims are not known", out->arg.text),
           "name its dims, or drop `strided`");
      return false;
    }
    for (size_t i = 0; i < inner; ++i) {
      if (!TakeInnerDim(*out, rank - inner + i, out->shape[i])) return false;
    }
    strided ? AddGivenStrides(out) : AddDenseStrides(out);
    out->dims.resize(rank - inner);
    return true;
  }

  bool TakeInnerDim(const Parameter& array, size_t axis, int64_t wanted) {
    const Program& dim = array.dims[axis];
    if (dim.code.size() == 1 && dim.code[0].opcode == Opcode::kConst) {
      if (dim.code[0].operand == wanted) return true;
      Fail(fmt::format("dim {} of '{}' is {}, of its elements {}", axis + 1, array.arg.text,
                       dim.code[0].operand, wanted),
           "the innermost dims of a tensor are those of its elements: f32[N, 3] is N of vec3");
      return false;
    }
    const bool let = std::any_of(dim.code.begin(), dim.code.end(),
                                 [](const Instruction& one) { return one.opcode == Opcode::kLet; });
    if (let) {
      Fail(fmt::format("dim {} of '{}' is '{}'", axis + 1, array.arg.text, dim.text),
           fmt::format("write {}, as its elements have it", wanted));
      return false;
    }
    Require(dim.code, wanted, dim.text);
    return true;
  }

  std::vector<Instruction> ScalarBytes(const Parameter& array) const {
    if (array.scalar.param >= 0) return {{Opcode::kSizeOfType, array.scalar.param}};
    return ConstantCode(SizeOf(array.scalar.dtype));
  }

  void AddDenseStrides(Parameter* out) {
    Program stride;
    stride.text = fmt::format("a stride of {}", out->arg.text);
    stride.where = node_.where;
    stride.code = CombineCode(Opcode::kMul, ScalarBytes(*out), ConstantCode(CountOf(out->shape)));
    for (size_t i = out->dims.size() - out->shape.size(); i-- > 0;) {
      out->strides.insert(out->strides.begin(), stride);
      stride.code = CombineCode(Opcode::kMul, std::move(stride.code), out->dims[i].code);
    }
  }

  // An operand's own; inside an element the numbers lie one behind the other.
  void AddGivenStrides(Parameter* out) {
    const size_t rank = out->dims.size(), outer = rank - out->shape.size();
    int64_t dense = 1;
    for (size_t axis = rank; axis-- > 0;) {
      Program stride;
      const auto place = static_cast<int64_t>(axis) << 8;
      stride.text = fmt::format("stride({}, {})", out->arg.text, axis);
      stride.where = node_.where;
      stride.code = {{Opcode::kStride, out->arg.index | place}};
      if (axis >= outer) {
        Require(stride.code, dense, stride.text);
        dense *= out->shape[axis - outer];
        continue;
      }
      stride.code = CombineCode(Opcode::kMul, std::move(stride.code), ScalarBytes(*out));
      out->strides.insert(out->strides.begin(), stride);
    }
  }

  StepTable& table_;
  const Context& context_;
  const Node& node_;
  bool failed_ = false;
};

bool SameTensor(const Arg& a, const Arg& b) { return a.kind == b.kind && a.index == b.index; }

bool MayBeWritten(const Context& context, const Arg& arg) {
  return arg.kind != ArgKind::kOperand || IsInOut(context.op, arg.index);
}

}  // namespace

std::optional<WarpKernel::Parameter> ReadWarpArgument(StepTable& table, const Node& node) {
  return ArgumentReader(table, node).Read();
}

void ReadWarpGradient(StepTable& table, const Node& node, WarpKernel::Parameter* parameter) {
  const Context& context = table.context;
  if (!WantKind(node, Kind::kString, "a gradient", context.diagnostics)) return;
  if (node.text == "none") return;
  const auto fail = [&](std::string message, std::string note) {
    context.diagnostics.Error(node.At(0, static_cast<int>(node.text.size())), std::move(message),
                              std::move(note));
  };
  if (!parameter->array) {
    return fail(fmt::format("'{}' is a number, whose adjoint Warp loses: it is passed by value",
                            parameter->arg.text),
                "write \"none\", or make it an array of one element, f32[1]");
  }
  const std::optional<Parameter> gradient =
      ArgumentReader(table, node).ReadArray(node, parameter->shape);
  if (!gradient) return;
  const bool alike = gradient->scalar.param == parameter->scalar.param &&
                     gradient->scalar.dtype == parameter->scalar.dtype &&
                     std::equal(gradient->dims.begin(), gradient->dims.end(),
                                parameter->dims.begin(), parameter->dims.end(), SameCode) &&
                     std::equal(gradient->strides.begin(), gradient->strides.end(),
                                parameter->strides.begin(), parameter->strides.end(), SameCode);
  if (!alike) {
    return fail(fmt::format("'{}' is not of the dtype and the shape of '{}'", node.text,
                            parameter->arg.text),
                "a gradient is declared as its array is");
  }
  parameter->gradient = gradient->arg;
  parameter->own_adjoint = SameTensor(gradient->arg, parameter->arg);
  parameter->adjoint = MayBeWritten(context, gradient->arg) ? WarpKernel::Adjoint::kWritten
                                                            : WarpKernel::Adjoint::kRead;
}

}  // namespace kbundle::builder
