// Ops: the interface by which callers are checked.
#include <cmath>
#include <set>

#include "kbundle/dtype.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

Status CheckUnique(std::set<std::string_view>* seen, const flatbuffers::String* name,
                   std::string_view what) {
  KB_RETURN_IF_ERROR(CheckName(name, what));
  if (seen->insert(name->string_view()).second) return Status();
  return DataLoss(fmt::format("{} '{}' appears twice", what, name->string_view()));
}

Status CheckTypes(const fb::Op& op) {
  KB_RETURN_IF_ERROR(CheckCount(Count(op.types()), kMaxTypeParams, "type parameters"));
  std::set<std::string_view> names;
  for (uint32_t i = 0; i < Count(op.types()); ++i) {
    const fb::TypeParam& type = *op.types()->Get(i);
    KB_RETURN_IF_ERROR(CheckUnique(&names, type.name(), "type parameter"));
    const std::string_view name = type.name()->string_view();
    std::set<int> dtypes;
    for (uint8_t dtype : *type.dtypes()) {
      if (IsDType(dtype) && dtypes.insert(dtype).second) continue;
      return DataLoss(
          fmt::format("type parameter '{}': dtype {} is unknown or twice there", name, dtype));
    }
    if (dtypes.empty()) return DataLoss(fmt::format("type parameter '{}' allows no dtype", name));
    if (type.attribute() == -1) continue;
    KB_RETURN_IF_ERROR(CheckIndex(static_cast<uint16_t>(type.attribute()), Count(op.attributes()),
                                  "type parameter's attribute"));
    if (op.attributes()->Get(type.attribute())->type() != static_cast<int>(AttributeType::kDType)) {
      return DataLoss(
          fmt::format("type parameter '{}' is chosen by an attribute that is no dtype", name));
    }
  }
  return Status();
}

Status CheckDefault(const fb::Attribute& attribute, AttributeType type) {
  const uint32_t integers = Count(attribute.integers()), floats = Count(attribute.floats());
  const bool is_float = type == AttributeType::kFloat || type == AttributeType::kFloatArray;
  const bool array = type == AttributeType::kIntArray || type == AttributeType::kFloatArray;
  const uint32_t found = is_float ? floats : integers, other = is_float ? integers : floats;
  if (other != 0) return DataLoss("its default is of another type");
  if (!attribute.has_default()) {
    return found == 0 ? Status() : DataLoss("it has a value but no default");
  }
  if (array) return CheckCount(found, attribute.max_len(), "default elements");
  if (found != 1) return DataLoss(fmt::format("its default has {} values, not 1", found));
  if (is_float || type == AttributeType::kInt) return Status();
  const int64_t value = attribute.integers()->Get(0);
  if (type == AttributeType::kDType) {
    return value > 0 && value < kDTypeCount ? Status()
                                            : DataLoss(fmt::format("default dtype {}", value));
  }
  return CheckIndex(static_cast<uint64_t>(value),
                    type == AttributeType::kBool ? 2 : Count(attribute.choices()), "default");
}

Status CheckAttribute(const fb::Attribute& attribute) {
  if (attribute.type() < static_cast<int>(AttributeType::kBool) ||
      attribute.type() > static_cast<int>(AttributeType::kFloatArray)) {
    return DataLoss(fmt::format("unknown attribute type {}", attribute.type()));
  }
  const auto type = static_cast<AttributeType>(attribute.type());
  const bool array = type == AttributeType::kIntArray || type == AttributeType::kFloatArray;
  KB_RETURN_IF_ERROR(CheckCount(attribute.max_len(), kMaxAttributeElements, "max_len"));
  KB_RETURN_IF_ERROR(CheckAligned(attribute.integers(), "integers"));
  KB_RETURN_IF_ERROR(CheckAligned(attribute.floats(), "floats"));
  if (array != (attribute.max_len() != 0)) {
    return DataLoss(
        fmt::format("max_len {} does not fit type {}", attribute.max_len(), attribute.type()));
  }
  if ((type == AttributeType::kEnum) != (Count(attribute.choices()) != 0)) {
    return DataLoss("choices and type enum go together");
  }
  KB_RETURN_IF_ERROR(CheckCount(Count(attribute.choices()), kMaxSymbols, "choices"));
  std::set<std::string_view> choices;
  for (uint32_t i = 0; i < Count(attribute.choices()); ++i) {
    KB_RETURN_IF_ERROR(CheckUnique(&choices, attribute.choices()->Get(i), "choice"));
  }
  return CheckDefault(attribute, type);
}

// Which symbols the operands bind, and which of them as a list of dims.
struct Binding {
  std::set<int> bound, ellipsis;
};

Status CheckDim(const ProgramScope& scope, const fb::Dim& dim, bool operand, Binding* binding) {
  if (dim.symbol() < -1 || dim.symbol() >= static_cast<int>(Count(scope.op.symbols()))) {
    return DataLoss(fmt::format("symbol {} of {}", dim.symbol(), Count(scope.op.symbols())));
  }
  if (dim.ellipsis() > 1 || dim.bind() > 1) return DataLoss("ellipsis and bind are 0 or 1");
  if (dim.symbol() < 0 && (dim.ellipsis() || dim.bind())) {
    return DataLoss("an ellipsis or binding dim needs a symbol");
  }
  if (dim.symbol() >= 0 && !Absent(&dim.program())) {
    return DataLoss("a dim is a symbol or a program, not both");
  }
  if (operand && dim.bind() != 0) {
    binding->bound.insert(dim.symbol());
    if (dim.ellipsis()) binding->ellipsis.insert(dim.symbol());
  }
  if (!operand && dim.ellipsis() && !binding->ellipsis.contains(dim.symbol())) {
    return DataLoss("no operand binds the dims of this ellipsis");
  }
  return VerifyProgram(scope, &dim.program(), dim.symbol() < 0);
}

Status CheckTensor(const ProgramScope& scope, const fb::Tensor& tensor, bool operand,
                   Binding* binding) {
  KB_RETURN_IF_ERROR(CheckTypeRef(scope.op, *tensor.type()));
  KB_RETURN_IF_ERROR(CheckText(tensor.text(), "text"));
  KB_RETURN_IF_ERROR(CheckCount(Count(tensor.dims()), kMaxRank, "dims"));
  int ellipses = 0;
  for (uint32_t i = 0; i < Count(tensor.dims()); ++i) {
    KB_VERIFY(CheckDim(scope, *tensor.dims()->Get(i), operand, binding), "dim {}", i);
    ellipses += tensor.dims()->Get(i)->ellipsis();
  }
  if (ellipses > 1) return DataLoss(fmt::format("{} ellipses, at most 1 is allowed", ellipses));
  for (const fb::Rule* rule : {tensor.bound(), tensor.when()}) {
    if (rule == nullptr) continue;
    KB_RETURN_IF_ERROR(CheckText(rule->text(), "rule text"));
    KB_VERIFY(VerifyProgram(scope, rule->program(), true), "rule");
  }
  if (operand && (tensor.when() != nullptr || tensor.alias() != -1)) {
    return DataLoss("when and alias are for results");
  }
  if (!operand && tensor.optional()) return DataLoss("a result is made optional by when");
  if (tensor.alias() == -1) return Status();
  return CheckIndex(static_cast<uint16_t>(tensor.alias()), Count(scope.op.operands()), "alias");
}

Status CheckTensors(const ProgramScope& scope) {
  const fb::Op& op = scope.op;
  KB_RETURN_IF_ERROR(CheckCount(uint64_t{Count(op.operands())} + Count(op.results()), kMaxOperands,
                                "operands and results"));
  std::set<std::string_view> names;
  Binding binding;
  for (bool operand : {true, false}) {
    const auto* tensors = operand ? op.operands() : op.results();
    for (uint32_t i = 0; i < Count(tensors); ++i) {
      const fb::Tensor& tensor = *tensors->Get(i);
      KB_RETURN_IF_ERROR(CheckUnique(&names, tensor.name(), "operand or result"));
      KB_VERIFY(CheckTensor(scope, tensor, operand, &binding), "{} '{}'",
                operand ? "operand" : "result", tensor.name()->string_view());
    }
  }
  for (uint32_t i = 0; i < Count(op.symbols()); ++i) {
    if (binding.bound.contains(static_cast<int>(i))) continue;
    return DataLoss(
        fmt::format("no operand binds symbol '{}'", op.symbols()->Get(i)->string_view()));
  }
  return Status();
}

Status CheckTolerance(const fb::Op& op, const fb::Tolerance& tolerance) {
  KB_RETURN_IF_ERROR(CheckIndex(tolerance.result(), Count(op.results()), "result"));
  KB_RETURN_IF_ERROR(CheckIndex(tolerance.dtype(), kDTypeCount, "dtype"));
  const bool sane = std::isfinite(tolerance.ulps()) && std::isfinite(tolerance.relative()) &&
                    tolerance.ulps() >= 0 && tolerance.relative() >= 0;
  return sane ? Status() : DataLoss("a tolerance is a finite number, not below 0");
}

Status CheckProblem(const fb::Op& op, const fb::Problem& problem) {
  KB_RETURN_IF_ERROR(CheckText(problem.text(), "text"));
  if (Count(problem.operands()) != Count(op.operands())) {
    return DataLoss(
        fmt::format("{} operands, the op has {}", Count(problem.operands()), Count(op.operands())));
  }
  for (uint32_t i = 0; i < Count(problem.operands()); ++i) {
    const fb::ProblemTensor& tensor = *problem.operands()->Get(i);
    KB_RETURN_IF_ERROR(CheckIndex(tensor.dtype(), kDTypeCount, "dtype"));
    KB_RETURN_IF_ERROR(CheckCount(Count(tensor.dims()), kMaxRank, "dims"));
    KB_RETURN_IF_ERROR(CheckAligned(tensor.dims(), "dims"));
    for (uint32_t d = 0; d < Count(tensor.dims()); ++d) {
      if (tensor.dims()->Get(d) < 0) return DataLoss(fmt::format("dim {}", tensor.dims()->Get(d)));
    }
  }
  KB_RETURN_IF_ERROR(CheckCount(Count(problem.attributes()), kMaxAttributes, "attribute values"));
  for (uint32_t i = 0; i < Count(problem.attributes()); ++i) {
    const fb::AttributeValue& value = *problem.attributes()->Get(i);
    KB_RETURN_IF_ERROR(CheckIndex(value.attribute(), Count(op.attributes()), "attribute"));
    KB_RETURN_IF_ERROR(CheckAligned(value.integers(), "integers"));
    KB_RETURN_IF_ERROR(CheckAligned(value.floats(), "floats"));
    KB_RETURN_IF_ERROR(CheckCount(uint64_t{Count(value.integers())} + Count(value.floats()),
                                  kMaxAttributeElements, "attribute elements"));
  }
  return Status();
}

Status CheckCoordinate(const fb::Op& op, uint32_t number) {
  const uint32_t symbols = Count(op.symbols());
  if (number < symbols) return Status();
  KB_RETURN_IF_ERROR(CheckIndex(number - symbols, Count(op.attributes()), "attribute"));
  const auto type = static_cast<AttributeType>(op.attributes()->Get(number - symbols)->type());
  return type == AttributeType::kInt ? Status() : DataLoss("its attribute is no int");
}

Status CheckExpression(const fb::Op& op, const fb::Expression& one) {
  KB_RETURN_IF_ERROR(CheckIndex(one.attribute(), Count(op.attributes()), "attribute"));
  const auto* choices = op.attributes()->Get(one.attribute())->choices();
  bool chosen = false;
  KB_RETURN_IF_ERROR(Spend(Count(choices)));
  for (uint32_t i = 0; i < Count(choices); ++i) {
    chosen |= View(choices->Get(i)) == View(one.name());
  }
  if (!chosen) return DataLoss("its attribute has no such choice");
  KB_RETURN_IF_ERROR(CheckText(one.text(), "text"));
  KB_RETURN_IF_ERROR(CheckCount(Count(one.scalars()), kMaxAttributeElements, "scalars"));
  KB_RETURN_IF_ERROR(CheckCount(Count(one.tensors()), kMaxOperands, "tensors"));
  std::set<std::string_view> names;
  for (uint32_t i = 0; i < Count(one.scalars()); ++i) {
    KB_RETURN_IF_ERROR(CheckUnique(&names, one.scalars()->Get(i), "scalar"));
  }
  for (uint32_t i = 0; i < Count(one.tensors()); ++i) {
    const fb::ExpressionTensor& tensor = *one.tensors()->Get(i);
    KB_RETURN_IF_ERROR(CheckUnique(&names, tensor.name(), "tensor"));
    KB_RETURN_IF_ERROR(CheckText(tensor.dims(), "dims"));
  }
  return Status();
}

Status CheckExpressions(const fb::Op& op) {
  KB_RETURN_IF_ERROR(CheckCount(Count(op.expressions()), kMaxSymbols, "expressions"));
  std::set<std::string_view> names;
  for (uint32_t i = 0; i < Count(op.expressions()); ++i) {
    const fb::Expression& one = *op.expressions()->Get(i);
    KB_RETURN_IF_ERROR(CheckUnique(&names, one.name(), "expression"));
    KB_VERIFY(CheckExpression(op, one), "expression '{}'", one.name()->string_view());
  }
  return Status();
}

bool IsEllipsis(const fb::Op& op, int symbol) {
  for (uint32_t i = 0; i < Count(op.operands()); ++i) {
    const auto* dims = op.operands()->Get(i)->dims();
    for (uint32_t d = 0; d < Count(dims); ++d) {
      if (dims->Get(d)->ellipsis() && dims->Get(d)->symbol() == symbol) return true;
    }
  }
  return false;
}

Status CheckCut(const ProgramScope& scope, const fb::Cut& cut) {
  const fb::Op& op = scope.op;
  const auto check = [](const flatbuffers::Vector<uint16_t>* list, uint64_t limit,
                        std::string_view what) {
    KB_RETURN_IF_ERROR(CheckCount(Count(list), limit, what));
    std::set<int> seen;
    for (uint32_t i = 0; i < Count(list); ++i) {
      KB_RETURN_IF_ERROR(CheckIndex(list->Get(i), limit, what));
      if (!seen.insert(list->Get(i)).second) return DataLoss(fmt::format("{} twice", what));
    }
    return Status();
  };
  KB_RETURN_IF_ERROR(check(cut.symbols(), Count(op.symbols()), "symbol"));
  KB_RETURN_IF_ERROR(check(cut.sums(), Count(op.results()), "result"));
  KB_RETURN_IF_ERROR(check(cut.once(), Count(op.operands()), "operand"));
  if (Count(cut.symbols()) == 0) return DataLoss("it has no symbol");
  for (uint32_t i = 0; i < Count(cut.symbols()) && Count(cut.symbols()) > 1; ++i) {
    if (IsEllipsis(op, cut.symbols()->Get(i))) return DataLoss("an ellipsis beside a symbol");
  }
  if (cut.when() == nullptr) return Status();
  KB_RETURN_IF_ERROR(CheckText(cut.when()->text(), "rule text"));
  return VerifyProgram(scope, cut.when()->program(), true);
}

Status CheckRest(const ProgramScope& scope) {
  const fb::Op& op = scope.op;
  KB_RETURN_IF_ERROR(CheckRules(scope, op.require(), "require"));
  KB_RETURN_IF_ERROR(CheckExpressions(op));
  KB_RETURN_IF_ERROR(CheckCount(Count(op.coordinates()), kMaxSymbols, "coordinates"));
  for (uint32_t i = 0; i < Count(op.coordinates()); ++i) {
    KB_VERIFY(CheckCoordinate(op, op.coordinates()->Get(i)), "coordinate {}", i);
  }
  KB_RETURN_IF_ERROR(CheckIndex(op.vmap(), static_cast<int>(VmapRule::kNone) + 1, "vmap rule"));
  KB_RETURN_IF_ERROR(CheckCount(Count(op.independent()), kMaxRules, "cuts"));
  for (uint32_t i = 0; i < Count(op.independent()); ++i) {
    KB_VERIFY(CheckCut(scope, *op.independent()->Get(i)), "cut {}", i);
  }
  for (uint32_t i = 0; i < Count(op.tolerances()); ++i) {
    KB_VERIFY(CheckTolerance(op, *op.tolerances()->Get(i)), "tolerance {}", i);
  }
  for (uint32_t i = 0; i < Count(op.problems()); ++i) {
    KB_VERIFY(CheckProblem(op, *op.problems()->Get(i)), "problem {}", i);
  }
  return Status();
}

}  // namespace

Status VerifyOp(const ProgramScope& scope) {
  const fb::Op& op = scope.op;
  KB_RETURN_IF_ERROR(CheckText(op.summary(), "summary"));
  // Attributes before types and programs, which refer to them.
  KB_RETURN_IF_ERROR(CheckCount(Count(op.attributes()), kMaxAttributes, "attributes"));
  std::set<std::string_view> names;
  for (uint32_t i = 0; i < Count(op.attributes()); ++i) {
    const fb::Attribute& attribute = *op.attributes()->Get(i);
    KB_RETURN_IF_ERROR(CheckUnique(&names, attribute.name(), "attribute"));
    KB_VERIFY(CheckAttribute(attribute), "attribute '{}'", attribute.name()->string_view());
  }
  KB_RETURN_IF_ERROR(CheckTypes(op));
  KB_RETURN_IF_ERROR(CheckCount(Count(op.symbols()), kMaxSymbols, "symbols"));
  names.clear();
  for (uint32_t i = 0; i < Count(op.symbols()); ++i) {
    KB_RETURN_IF_ERROR(CheckUnique(&names, op.symbols()->Get(i), "symbol"));
  }
  KB_RETURN_IF_ERROR(CheckTensors(scope));
  return CheckRest(scope);
}

}  // namespace kbundle
