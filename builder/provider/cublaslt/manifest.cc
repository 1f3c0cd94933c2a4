// A step that multiplies matrices by cuBLASLt.
#include "builder/provider/cublaslt/manifest.h"

#include <array>

#include "builder/provider/cublaslt/product.h"
#include "fmt/format.h"
#include "kbundle/provider/cublaslt.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

// Keys by ProductTensor, ProductNumber, ProductCondition.
constexpr const char* kTensorKeys[] = {
    "product", "a",   "b",       "c",       "bias",    "bias_gradient", "aux",    "aux",
    "aux",     "aux", "a_scale", "b_scale", "c_scale", "d_scale",       "d_amax", "workspace"};
constexpr const char* kNumberKeys[] = {
    "m",      "n",        "k",        "batch",    "ld_a",     "ld_b",       "ld_c",       "ld_d",
    "ld_aux", "stride_a", "stride_b", "stride_c", "stride_d", "stride_aux", "stride_bias"};
constexpr const char* kConditionKeys[] = {"transpose_a",
                                          "transpose_b",
                                          "relu",
                                          "gelu",
                                          "relu_gradient",
                                          "gelu_gradient",
                                          "bias_gradient_of_a",
                                          "bias_gradient_of_b",
                                          "tf32",
                                          "fast_accumulation"};
static_assert(std::size(kTensorKeys) == static_cast<size_t>(ProductTensor::kCount));
static_assert(std::size(kNumberKeys) == static_cast<size_t>(ProductNumber::kCount));
static_assert(std::size(kConditionKeys) == static_cast<size_t>(ProductCondition::kCount));

bool Written(size_t tensor) {
  return tensor == static_cast<size_t>(ProductTensor::kD) ||
         tensor == static_cast<size_t>(ProductTensor::kBiasGradient) ||
         tensor == static_cast<size_t>(ProductTensor::kDAmax);
}

// An operand that no result is written over must not be written.
void CheckWritable(const Context& context, const Node& node, const Arg& arg) {
  if (arg.kind != ArgKind::kOperand || IsInOut(context.op, arg.index)) return;
  context.diagnostics.Error(node.where, fmt::format("operand '{}' must not be written", node.text),
                            "only an operand that a result aliases may be");
}

constexpr auto kFirstAux = static_cast<size_t>(ProductTensor::kAux);
constexpr auto kLastAux = static_cast<size_t>(ProductTensor::kAux4);

// One name, or a list of those of which one is present.
void ReadAux(Fields& fields, const Context& context, Product& product) {
  const Node* node = fields.Take("aux");
  if (node != nullptr && !node->Is(Kind::kArray) &&
      !WantKind(*node, Kind::kString, "`aux`", context.diagnostics)) {
    return;
  }
  std::vector<Node> names;
  if (node != nullptr) names = node->Is(Kind::kArray) ? node->items : std::vector<Node>{*node};
  if (names.size() > kLastAux - kFirstAux + 1) {
    context.diagnostics.Error(node->where, fmt::format("{} tensors for aux, allowed are {}",
                                                       names.size(), kLastAux - kFirstAux + 1));
    names.clear();
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!WantKind(names[i], Kind::kString, "`aux`", context.diagnostics)) continue;
    product.tensors[kFirstAux + i] = ReadPointer(context, names[i]);
  }
}

void ReadTensors(Fields& fields, const Context& context, Product& product) {
  product.tensors.resize(std::size(kTensorKeys));
  ReadAux(fields, context, product);
  for (size_t i = 0; i < std::size(kTensorKeys); ++i) {
    if (i >= kFirstAux && i <= kLastAux) continue;
    const bool needed = i == static_cast<size_t>(ProductTensor::kD) ||
                        i == static_cast<size_t>(ProductTensor::kA) ||
                        i == static_cast<size_t>(ProductTensor::kB);
    const Node* node = needed ? fields.Require(kTensorKeys[i], Kind::kString)
                              : fields.Take(kTensorKeys[i], Kind::kString);
    std::optional<Arg>& arg = product.tensors[i];
    if (node == nullptr) continue;
    arg = ReadPointer(context, *node);
    if (!arg) continue;
    if (Written(i)) CheckWritable(context, *node, *arg);
    const bool region = i == static_cast<size_t>(ProductTensor::kWorkspace);
    if (region && arg->kind != ArgKind::kRegion) {
      context.diagnostics.Error(node->where, fmt::format("'{}' is no workspace region", node->text),
                                "declare one in the variant's `workspace`");
    }
  }
}

// The name of a float attribute, or an integer.
std::optional<Arg> ReadScalar(Fields& fields, const Context& context, const std::string& key) {
  const Node* node = fields.Take(key);
  if (node == nullptr) return std::nullopt;
  Arg arg;
  arg.text = node->text;
  arg.ctype = DType::kF64;
  const Entity* entity = node->Is(Kind::kString) ? context.names.Find(node->text) : nullptr;
  if (entity != nullptr && entity->kind == Entity::Kind::kAttribute &&
      context.op.attributes[entity->index].type == AttributeType::kFloat) {
    arg.kind = ArgKind::kFloat;
    arg.index = entity->index;
    return arg;
  }
  auto program = ReadInteger(context, *node, StepPlace(fmt::format("`{}`", key)));
  if (!program) return std::nullopt;
  arg.kind = ArgKind::kInteger;
  arg.program = std::move(*program);
  return arg;
}

}  // namespace

void ReadProduct(StepTable& table) {
  Fields& fields = table.fields;
  const Context& context = table.context;
  Step& step = table.step;
  step.kind = StepKind::kOwn;
  auto read = std::make_shared<Product>();
  Product& product = *read;
  step.own = std::move(read);
  ReadTensors(fields, context, product);
  for (size_t i = 0; i < std::size(kNumberKeys); ++i) {
    Program& number = product.numbers.emplace_back();
    const Node* node = fields.Take(kNumberKeys[i]);
    if (node == nullptr) {
      if (i > static_cast<size_t>(ProductNumber::kK)) continue;
      context.diagnostics.Error(step.where,
                                fmt::format("a product needs the key '{}'", kNumberKeys[i]));
      continue;
    }
    if (auto program = ReadInteger(context, *node, StepPlace(fmt::format("`{}`", kNumberKeys[i]))))
      number = std::move(*program);
  }
  for (const char* key : kConditionKeys) {
    Program& condition = product.conditions.emplace_back();
    const Node* node = fields.Take(key);
    if (node == nullptr) continue;
    if (auto program = ReadCondition(context, *node, StepPlace(fmt::format("`{}`", key))))
      condition = std::move(*program);
  }
  product.alpha = ReadScalar(fields, context, "alpha");
  product.beta = ReadScalar(fields, context, "beta");
}

}  // namespace kbundle::builder
