// What the names of an op's expressions stand for. One flat space per op: dim symbols, operands,
// results, attributes and type parameters; each variant adds its tunables, lets and regions.
#ifndef KBUNDLE_BUILDER_EXPRESSION_NAMES_H_
#define KBUNDLE_BUILDER_EXPRESSION_NAMES_H_

#include <map>
#include <string>
#include <vector>

#include "builder/model/family.h"

namespace kbundle::builder {

struct ValueType {
  enum class Kind : uint8_t { kInt, kBool, kDType, kEnum };
  Kind kind = Kind::kInt;
  int attribute = -1;  // kEnum: whose choices
  bool operator==(const ValueType&) const = default;
};

struct Entity {
  enum class Kind : uint8_t {
    kSymbol,
    kTypeParam,
    kAttribute,
    kOperand,
    kResult,
    kTunable,
    kLet,
    kRegion
  };
  Kind kind = Kind::kSymbol;
  int index = 0;                     // within its kind
  ValueType type;                    // kLet
  std::vector<Instruction> inlined;  // kLet: its code without kLet
};

// "a dim symbol", "a tunable".
const char* Describe(Entity::Kind kind);

// The words that no name may take: functions, literals, dtypes and argument types.
bool IsReservedName(std::string_view name);
bool IsIdentifier(std::string_view name);

// A value; copied when a variant extends its op's names.
class Names {
 public:
  // Empty, or why the name cannot be declared ("'x' is already an operand").
  std::string Declare(const std::string& name, Entity entity);
  const Entity* Find(const std::string& name) const;
  // The names of these kinds, sorted.
  std::vector<std::string> OfKinds(std::initializer_list<Entity::Kind> kinds) const;

  // Set after an error in a declaration: unknown names may be consequences and are not reported.
  bool incomplete = false;

 private:
  std::map<std::string, Entity> entities_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_EXPRESSION_NAMES_H_
