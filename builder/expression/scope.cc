// Names in an expression: which of them each place may use, and what they compile to.
#include "builder/expression/compiler.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"

namespace kbundle::builder {

Place OperandShapePlace() { return {.what = "the shape of an operand"}; }
Place ResultShapePlace() { return {.what = "the interface of an op"}; }
Place RequirePlace() { return {.what = "`require`", .stride = true}; }
Place KeepPlace() { return {.what = "`keep`", .problem = false, .tunables = true}; }
Place WhenPlace() {
  return {.what = "`when`",
          .tunables = true,
          .lets = true,
          .inline_lets = true,
          .results = true,
          .stride = true,
          .align = true};
}
Place LetPlace() {
  return {.what = "a let",
          .tunables = true,
          .lets = true,
          .results = true,
          .stride = true,
          .align = true};
}
Place StepPlace(std::string what) {
  Place place = LetPlace();
  place.what = std::move(what);
  return place;
}
Place GridPlace() {
  Place place = StepPlace("a grid");
  place.sm_count = true;
  return place;
}

bool ExpressionCompiler::Allowed(const Expression& e, const Entity& entity) {
  bool allowed = true;
  switch (entity.kind) {
    case Entity::Kind::kSymbol:
    case Entity::Kind::kAttribute:
    case Entity::Kind::kOperand:
      allowed = place_.problem;
      break;
    case Entity::Kind::kResult:
      allowed = place_.results;
      break;
    case Entity::Kind::kTunable:
      allowed = place_.tunables;
      break;
    case Entity::Kind::kLet:
      allowed = place_.lets;
      break;
    case Entity::Kind::kTypeParam:
      break;
    case Entity::Kind::kRegion:
      allowed = false;
      break;
  }
  if (!allowed) {
    Fail(e,
         fmt::format("'{}' is {}, which {} cannot use", e.name, Describe(entity.kind), place_.what),
         fmt::format("{} may use {}", place_.what, AllowedKinds()));
  }
  return allowed;
}

std::string ExpressionCompiler::AllowedKinds() const {
  std::vector<std::string> kinds;
  if (place_.problem) kinds = {"dim symbols", "attributes"};
  kinds.push_back("type parameters");
  if (place_.tunables) kinds.push_back("tunables");
  if (place_.lets) kinds.push_back("lets");
  if (place_.sm_count) kinds.push_back("sm_count");
  return fmt::format("{}", fmt::join(kinds, ", "));
}

std::vector<std::string> ExpressionCompiler::Known() const {
  std::vector<std::string> out;
  auto add = [&](bool wanted, Entity::Kind kind) {
    if (!wanted) return;
    for (std::string& name : in_.names->OfKinds({kind})) out.push_back(std::move(name));
  };
  add(place_.problem, Entity::Kind::kSymbol);
  add(place_.problem, Entity::Kind::kAttribute);
  add(true, Entity::Kind::kTypeParam);
  add(place_.tunables, Entity::Kind::kTunable);
  add(place_.lets, Entity::Kind::kLet);
  if (place_.sm_count) out.push_back("sm_count");
  return out;
}

void ExpressionCompiler::FailUnknown(const Expression& e, std::string_view what,
                                     const std::vector<std::string>& known) {
  std::string nearest = NearestName(e.name, known);
  std::string note = nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest);
  note +=
      known.empty() ? "none is known here" : fmt::format("known here: {}", fmt::join(known, ", "));
  bool first = ok_;
  Fail(e, fmt::format("unknown {} '{}' in \"{}\"", what, e.name, in_.text), std::move(note));
  if (first) error_->unknown_name = true;
}

ValueType ExpressionCompiler::VisitName(const Expression& e) {
  if (e.name == "sm_count") {
    if (!place_.sm_count) {
      Fail(e, fmt::format("{} cannot use sm_count; only a grid may", place_.what),
           "results and workspace must not depend on the device that runs the plan");
    }
    Emit(Opcode::kSmCount);
    return kInt;
  }
  const Entity* entity = in_.names->Find(e.name);
  if (entity == nullptr) {
    if (std::optional<DType> dtype = ParseDType(e.name)) {
      Emit(Opcode::kConst, static_cast<int64_t>(*dtype));
      return kDType;
    }
    FailUnknown(e, "symbol", Known());
    return kInt;
  }
  if (!Allowed(e, *entity)) return kInt;
  switch (entity->kind) {
    case Entity::Kind::kSymbol:
      Emit(Opcode::kDim, entity->index);
      return kInt;
    case Entity::Kind::kTypeParam:
      Emit(Opcode::kType, entity->index);
      return kDType;
    case Entity::Kind::kTunable:
      Emit(Opcode::kTunable, entity->index);
      return kInt;
    case Entity::Kind::kAttribute:
      return VisitAttribute(e, entity->index);
    case Entity::Kind::kLet:
      if (place_.inline_lets) {
        code_.insert(code_.end(), entity->inlined.begin(), entity->inlined.end());
      } else {
        Emit(Opcode::kLet, entity->index);
      }
      return entity->type;
    default:
      Fail(
          e, fmt::format("'{}' is {}, not a number", e.name, Describe(entity->kind)),
          fmt::format("use a symbol of its shape, dim({0}, 0), rank({0}) or present({0})", e.name));
      return kInt;
  }
}

ValueType ExpressionCompiler::VisitAttribute(const Expression& e, int index) {
  const Attribute& attribute = in_.op->attributes[index];
  Emit(Opcode::kAttribute, index);
  switch (attribute.type) {
    case AttributeType::kBool:
      return kBool;
    case AttributeType::kInt:
      return kInt;
    case AttributeType::kDType:
      return kDType;
    case AttributeType::kEnum:
      return {ValueType::Kind::kEnum, index};
    case AttributeType::kFloat:
      Fail(e, fmt::format("'{}' is a float attribute; expressions are integer", e.name),
           fmt::format("a kernel gets it as an argument: f32({})", e.name));
      return kInt;
    default:
      Fail(e, fmt::format("'{}' is an array attribute, not a number", e.name),
           fmt::format("use len({0}) or {0}[0]", e.name));
      return kInt;
  }
}

ValueType ExpressionCompiler::VisitIndex(const Expression& e) {
  int attribute = ArrayAttribute(e);
  if (!ok_) return kInt;
  if (in_.op->attributes[attribute].type != AttributeType::kIntArray) {
    Fail(e, fmt::format("'{}' is a float[] attribute; expressions are integer", e.name));
  }
  int64_t element = Literal(e.operands[0], in_.op->attributes[attribute].max_len, "the index");
  Emit(Opcode::kElement, attribute | element << 8);
  return kInt;
}

int ExpressionCompiler::ArrayAttribute(const Expression& e) {
  const Entity* entity = in_.names->Find(e.name);
  if (entity == nullptr) {
    FailUnknown(e, "array attribute", in_.names->OfKinds({Entity::Kind::kAttribute}));
    return 0;
  }
  if (entity->kind != Entity::Kind::kAttribute || in_.op->attributes[entity->index].max_len == 0) {
    Fail(e, fmt::format("'{}' is not an array attribute", e.name));
    return 0;
  }
  Allowed(e, *entity);
  return entity->index;
}

int64_t ExpressionCompiler::Literal(const Expression& e, int64_t limit, const std::string& what) {
  if (e.kind != Expression::Kind::kInteger) {
    Fail(e, fmt::format("{} must be a literal number", what));
  } else if (e.value >= limit) {
    Fail(e, fmt::format("{} is {}, allowed are 0 to {}", what, e.value, limit - 1));
  }
  return ok_ ? e.value : 0;
}

}  // namespace kbundle::builder
