// The space is flat on purpose: one name has one meaning in all expressions of an op, and a
// variant's tunable cannot hide an operand. So declaring a name twice is an error, as is a word of
// the language.
#include "builder/expression/names.h"

#include <algorithm>
#include <array>

#include "fmt/format.h"

namespace kbundle::builder {
namespace {

constexpr std::array<std::string_view, 17> kReserved = {
    "true",   "false",   "sm_count", "min",  "max", "ceil_div", "next_pow2", "ceil_log2", "abs",
    "sizeof", "present", "align",    "rank", "dim", "stride",   "len",       "choice"};

}  // namespace

const char* Describe(Entity::Kind kind) {
  switch (kind) {
    case Entity::Kind::kSymbol:
      return "a dim symbol";
    case Entity::Kind::kTypeParam:
      return "a type parameter";
    case Entity::Kind::kAttribute:
      return "an attribute";
    case Entity::Kind::kOperand:
      return "an operand";
    case Entity::Kind::kResult:
      return "a result";
    case Entity::Kind::kTunable:
      return "a tunable";
    case Entity::Kind::kLet:
      return "a let";
    case Entity::Kind::kRegion:
      return "a workspace region";
  }
  return "nothing";
}

bool IsReservedName(std::string_view name) {
  return std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end() ||
         ParseDType(name).has_value();
}

bool IsIdentifier(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  if (name[0] >= '0' && name[0] <= '9') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
}

std::string Names::Declare(const std::string& name, Entity entity) {
  if (!IsIdentifier(name)) {
    return fmt::format("'{}' is not a name: letters, digits and _, not beginning with a digit",
                       name);
  }
  if (IsReservedName(name)) return fmt::format("'{}' is a word of the expression language", name);
  auto [at, inserted] = entities_.emplace(name, std::move(entity));
  if (inserted) return {};
  return fmt::format("'{}' is already {}", name, Describe(at->second.kind));
}

const Entity* Names::Find(const std::string& name) const {
  auto found = entities_.find(name);
  return found == entities_.end() ? nullptr : &found->second;
}

std::vector<std::string> Names::OfKinds(std::initializer_list<Entity::Kind> kinds) const {
  std::vector<std::string> out;
  for (const auto& [name, entity] : entities_) {
    if (std::find(kinds.begin(), kinds.end(), entity.kind) != kinds.end()) out.push_back(name);
  }
  return out;
}

}  // namespace kbundle::builder
