// Templates: lets, rules, workspace, steps. Who makes a template's code is known by name; what that
// provider allows, only the provider says.
#include <utility>
#include <vector>

#include "loader/provider/provider.h"
#include "loader/verify/steps.h"
#include "loader/verify/verify.h"

namespace kbundle {
namespace {

std::vector<uint64_t> ProgramsOf(const flatbuffers::Vector<flatbuffers::Offset<fb::Rule>>* lets) {
  std::vector<uint64_t> programs;
  programs.reserve(Count(lets));
  for (uint32_t i = 0; i < Count(lets); ++i) {
    const fb::Span* program = lets->Get(i)->program();
    programs.push_back(program ? uint64_t{program->first()} << 32 | program->count() : 0);
  }
  return programs;
}

// The points of a variant, when launched differently, are templates with the same lets.
Status CheckLets(ProgramScope* scope, SoundParts* sound) {
  const auto* lets = scope->row->lets();
  KB_RETURN_IF_ERROR(CheckCount(Count(lets), kMaxLets, "lets"));
  const uint32_t tunables = Count(scope->row->tunables());
  if (sound->HasLets(tunables, lets)) {
    scope->lets = Count(lets);
    scope->lets_with_sm_count = sound->lets_with_sm_count;
    return Status();
  }
  std::vector<uint64_t> programs = ProgramsOf(lets);
  const bool known = sound->HasLets(tunables, programs);
  scope->sm_count = true;
  for (uint32_t i = 0; i < Count(lets); ++i) {
    KB_RETURN_IF_ERROR(CheckName(lets->Get(i)->text(), "let"));
    if (known) continue;
    bool uses_sm_count = false;
    KB_VERIFY(VerifyProgram(*scope, lets->Get(i)->program(), true, &uses_sm_count), "let '{}'",
              lets->Get(i)->text()->string_view());
    if (uses_sm_count) scope->lets_with_sm_count |= 1u << i;
    scope->lets = i + 1;
  }
  scope->sm_count = false;
  sound->rules_of_lets = lets;
  if (known) {
    scope->lets = Count(lets);
    scope->lets_with_sm_count = sound->lets_with_sm_count;
    return Status();
  }
  sound->lets = std::move(programs);
  sound->tunables_of_lets = tunables;
  sound->lets_with_sm_count = scope->lets_with_sm_count;
  return Status();
}

Status CheckTunables(const fb::Template& row) {
  KB_RETURN_IF_ERROR(CheckCount(Count(row.tunables()), kMaxTunables, "tunables"));
  for (uint32_t i = 0; i < Count(row.tunables()); ++i) {
    KB_RETURN_IF_ERROR(CheckName(row.tunables()->Get(i), "tunable"));
    const std::string_view name = row.tunables()->Get(i)->string_view();
    for (uint32_t k = 0; k < i; ++k) {  // few: cheaper than a set of them
      if (row.tunables()->Get(k)->string_view() != name) continue;
      return DataLoss(fmt::format("tunable '{}' appears twice", name));
    }
  }
  return Status();
}

Status CheckRegions(const ProgramScope& scope) {
  const auto* regions = scope.row->regions();
  KB_RETURN_IF_ERROR(CheckCount(Count(regions), kMaxRegions, "workspace regions"));
  for (uint32_t i = 0; i < Count(regions); ++i) {
    KB_RETURN_IF_ERROR(CheckName(regions->Get(i)->name(), "region"));
    KB_RETURN_IF_ERROR(CheckText(regions->Get(i)->text(), "region text"));
    KB_RETURN_IF_ERROR(CheckTypeRef(scope.op, *regions->Get(i)->type()));
    KB_VERIFY(VerifyProgram(scope, regions->Get(i)->bytes(), true), "region '{}'",
              regions->Get(i)->name()->string_view());
  }
  return Status();
}

bool HasBatch(const fb::Op& op) {
  for (uint32_t i = 0; i < Count(op.independent()); ++i) {
    if (op.independent()->Get(i)->batch()) return true;
  }
  return false;
}

Status CheckPromises(const ProgramScope& scope) {
  const auto check = [&scope](const fb::Rule* rule) {
    if (rule == nullptr) return Status();
    KB_RETURN_IF_ERROR(CheckText(rule->text(), "rule text"));
    return VerifyProgram(scope, rule->program(), true);
  };
  KB_VERIFY(check(scope.row->deterministic()), "promise '{}'", "deterministic");
  KB_VERIFY(check(scope.row->batch_invariant()), "promise '{}'", "batch_invariant");
  if (scope.row->batch_invariant() == nullptr || HasBatch(scope.op)) return Status();
  return DataLoss("it promises to be batch_invariant, but no cut of its op is for batches");
}

}  // namespace

Status VerifyTemplate(const IndexPages& pages, const fb::Op& op, const fb::Template& row,
                      Depth depth, SoundParts* sound) {
  ProgramScope scope{.pages = pages, .op = op, .row = &row};
  KB_RETURN_IF_ERROR(CheckIndex(row.provider(), Count(scope.index.providers()), "provider"));
  KB_RETURN_IF_ERROR(CheckText(row.source(), "source"));
  KB_RETURN_IF_ERROR(CheckText(row.compiler(), "compiler"));
  KB_RETURN_IF_ERROR(CheckTunables(row));
  KB_RETURN_IF_ERROR(CheckLets(&scope, sound));
  sound->Enter(Count(row.tunables()), scope.lets, scope.lets_with_sm_count, Count(row.regions()));
  scope.sound = sound;
  if (row.when() == nullptr || row.when() != sound->when) {
    KB_RETURN_IF_ERROR(CheckRules(scope, row.when(), "when"));
  }
  sound->when = row.when();
  KB_RETURN_IF_ERROR(CheckPromises(scope));
  KB_RETURN_IF_ERROR(CheckRegions(scope));
  KB_RETURN_IF_ERROR(CheckCount(Count(row.steps()), kMaxSteps, "steps"));
  if (Count(row.steps()) == 0) return DataLoss("a variant without steps");
  for (uint32_t i = 0; depth == Depth::kAll && i < Count(row.steps()); ++i) {
    KB_VERIFY(VerifyStep(scope, *row.steps()->Get(i)), "step {}", i);
  }
  return Status();
}

}  // namespace kbundle
