// What a build has to make: the manifests' variants on the wanted targets, and the compilations
// ("units") that give them code. Several variants may share a unit; a unit may hold several
// kernels.
//
// Which units a variant needs is its provider's business: one for all its kernels out of a source
// (cuda, host), one for each step (triton, a library's plans), or one for a whole op (portable
// code).
#ifndef KBUNDLE_BUILDER_COMPILE_WORK_H_
#define KBUNDLE_BUILDER_COMPILE_WORK_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "builder/compile/struct_checks.h"
#include "builder/model/family.h"
#include "builder/store/object.h"
#include "kbundle/target.h"

namespace kbundle::builder {

struct Unit {
  std::string compiler;                        // Compiler::name
  ObjectFormat format = ObjectFormat::kCubin;  // of what it makes
  Target target;
  std::string
      label;  // a variant's id, or "softmax/softmax_host.cc@x86-64-v3"; stable over rebuilds
  const Family* family = nullptr;
  std::string source;
  std::vector<std::string> flags;            // without include folders
  std::vector<std::string> include_folders;  // of -I flags, absolute
  std::vector<std::string> kernels;          // name expressions, or symbols
  std::vector<std::pair<std::string, std::string>> macros;
  // What else the compiler is told, such as a whole request: units differ by it that agree in
  // everything above.
  std::string extra_options;
  bool block_by_compiler = false;  // its kernels' threads are the compiler's choice, not a step's
  std::vector<StructCheck> struct_checks;
  const Step* step = nullptr;  // of units for one: the first that wants it, for messages

  bool portable() const { return target.kind == TargetKind::kCudaPortable; }
};

inline constexpr uint32_t kNoUnit = 0xffffffff;

struct VariantUse {
  uint32_t op = 0, template_index = 0, point = 0;  // in Work::ops, Op::templates, Template::points
  uint32_t target = 0;                             // in Work::targets
  uint32_t rank = 0;                               // manifest order within the op
  std::vector<uint32_t> units;                     // one per step; kNoUnit for a memset or copy
  std::vector<std::string> kernels;                // one per step; "" for a memset or copy
};

struct Work {
  std::vector<Target> targets;  // those with variants, sorted by name
  struct OpRef {
    const Family* family;
    const Op* op;
  };
  std::vector<OpRef> ops;  // sorted by name
  std::vector<Unit> units;
  std::vector<VariantUse> variants;
  std::vector<std::string> notes;  // what was asked for and is left out, and why
};

// The units of a Work while it is planned: equal ones are one. Borrows the Work.
class UnitSet {
 public:
  explicit UnitSet(Work* work) : work_(*work) {}

  const Family& family(const VariantUse& use) const { return *work_.ops[use.op].family; }
  const Op& op(const VariantUse& use) const { return *work_.ops[use.op].op; }
  const Template& variant(const VariantUse& use) const {
    return op(use).templates[use.template_index];
  }
  const Template::Point& point(const VariantUse& use) const {
    return variant(use).points[use.point];
  }
  // Of this variant, on its target, under its label; without sources, flags and kernels.
  Unit New(const VariantUse& use) const;

  // The number of the unit with these kernels. collects: further variants add kernels to it.
  uint32_t Add(Unit unit, const std::vector<std::string>& kernels, bool collects = false);
  // A unit for each step that has a kernel, named after it; `fill` says how it is compiled.
  Status AddForEachStep(VariantUse* use, const std::function<Status(const Step&, Unit*)>& fill);
  // One unit with all kernels of the variant that have the same source, for every step of theirs.
  void AddForAllSteps(const Unit& unit, bool collects, VariantUse* use);

 private:
  Work& work_;
  std::map<std::string, uint32_t> interned_;
};

// The variant's source and flags; -I folders, relative to the manifest, apart.
void AddSourceAndFlags(const Template& variant, const Family& family, Unit* unit);

// Points into `families`, which must outlive it. kInvalidArgument: two families define one op, or a
// template names a target that cannot be.
// providers: only their variants; empty: all.
Result<Work> PlanWork(const std::vector<Family>& families, const std::vector<Target>& targets,
                      const std::vector<const Provider*>& providers = {});

// "softmax.scaled_forward/warp_row[T=bf16,VEC=8]@sm_90a", as Bundle::VariantId has it.
std::string VariantLabel(const Op& op, const Template& variant, const Template::Point& point,
                         const Target& target);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_WORK_H_
