// Geometry is written as expressions, most of which have no value before a problem does. Two kinds
// have one now: those that only a grid point decides (IsFixed), and those of listed problems that
// the variant takes, but for what the GPU's size decides. -1 stands for "not known", and nothing
// more is said of it. What is refused here is what the loader would refuse.
#include "builder/compile/check_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "builder/problem/bindings.h"

namespace kbundle::builder {
namespace {

// CUDA C++ Programming Guide, technical specifications per compute capability.
constexpr int64_t kMaxThreads = 1024, kMaxBlockZ = 64;
constexpr int64_t kMaxGridX = 2147483647, kMaxGridYZ = 65535;
constexpr int64_t kMaxCluster = 16;  // 8 is what every GPU promises; the loader asks for more

// Bytes of shared memory that a block may have.
int64_t MaxShared(const Target& target) {
  const int version = target.major * 10 + target.minor;
  if (version == 80 || version == 87) return 163 << 10;
  return target.major == 9 || target.major == 10 || target.major == 11 ? 227 << 10 : 99 << 10;
}

bool Asks(const Program& program, Opcode opcode) {
  return std::any_of(program.code.begin(), program.code.end(),
                     [opcode](const Instruction& one) { return one.opcode == opcode; });
}

// Whether a grid point alone decides the program's value.
bool IsFixed(const Program& program) {
  return std::all_of(program.code.begin(), program.code.end(), [](const Instruction& one) {
    return one.opcode >= Opcode::kAdd || one.opcode == Opcode::kConst ||
           one.opcode == Opcode::kTunable || one.opcode == Opcode::kSizeOfType ||
           one.opcode == Opcode::kType;
  });
}

class LaunchCheck {
 public:
  LaunchCheck(const Op& op, const Template& variant, const Template::Point& point,
              const Target& target, const std::vector<StepKernel>& steps)
      : op_(op),
        variant_(variant),
        point_(point),
        target_(target),
        steps_(steps),
        lets_ask_size_(std::any_of(
            variant.lets.begin(), variant.lets.end(),
            [](const NamedProgram& let) { return Asks(let.program, Opcode::kSmCount); })) {}

  std::vector<Finding> Run() {
    Bindings fixed;
    fixed.types = point_.types;
    fixed.tunables = point_.tunables;
    CheckSteps(fixed, "");
    for (const OpProblem& problem : op_.problems) {
      if (IsEmpty(problem)) continue;  // most likely nothing is launched for it
      if (std::optional<Bindings> bindings = Taken(problem)) CheckSteps(*bindings, problem.text);
    }
    return std::move(found_);
  }

 private:
  static bool IsEmpty(const OpProblem& problem) {
    return std::any_of(problem.operands.begin(), problem.operands.end(),
                       [](const ProblemTensor& operand) {
                         return std::count(operand.dims.begin(), operand.dims.end(), 0) > 0;
                       });
  }

  // What the names stand for, where the variant takes the problem at this point.
  std::optional<Bindings> Taken(const OpProblem& problem) const {
    Bindings bindings = BindingsOf(op_, problem);
    if (bindings.types != point_.types) return std::nullopt;
    bindings.tunables = point_.tunables;
    if (!AddLets(variant_, &bindings).ok()) return std::nullopt;
    const bool taken =
        std::all_of(variant_.when.begin(), variant_.when.end(),
                    [&](const Program& program) { return Holds(program, bindings); });
    return taken ? std::optional(std::move(bindings)) : std::nullopt;
  }

  static bool Holds(const Program& program, const Bindings& bindings) {
    const Slot slot = ::kbundle::builder::Run(program.code, bindings);
    return slot.ok() && slot.value != 0;
  }

  // problem "": only what the point fixes.
  void CheckSteps(const Bindings& bindings, const std::string& problem) {
    for (const StepKernel& use : steps_) {
      const Step& step = *use.step;
      if (use.kernel == nullptr || step.kind != StepKind::kKernel) continue;
      if (!problem.empty() && step.when && !Holds(*step.when, bindings)) continue;
      const auto value = [&](const Program& program) {
        return Value(step, program, bindings, problem);
      };
      const auto values = [&](const std::vector<Program>& programs) {
        std::vector<int64_t> list;
        for (const Program& program : programs) list.push_back(value(program));
        return list;
      };
      if (target_.kind == TargetKind::kHost) {
        for (const Program* program : {&step.range, &step.grain}) (void)value(*program);
        continue;
      }
      const std::vector<int64_t> grid = values(step.grid), block = values(step.block),
                                 cluster = values(step.cluster);
      const int64_t shared = value(step.shared);
      // Nothing is launched, whatever the rest says.
      if (std::count(grid.begin(), grid.end(), 0) > 0) continue;
      CheckBlock(step, block, problem);
      CheckGrid(step, grid, problem);
      CheckCluster(step, cluster, grid, problem);
      CheckShared(use, shared, problem);
    }
  }

  // -1: unknown, or wrong and told.
  int64_t Value(const Step& step, const Program& program, const Bindings& bindings,
                const std::string& problem) {
    if (program.empty() || (problem.empty() && !IsFixed(program))) return -1;
    const Slot slot = ::kbundle::builder::Run(program.code, bindings);
    const bool size =
        Asks(program, Opcode::kSmCount) || (lets_ask_size_ && Asks(program, Opcode::kLet));
    if (slot.ok() && slot.value >= 0) return size ? -1 : slot.value;
    if (size) return -1;
    Add(step, program, problem,
        slot.ok() ? fmt::format("{}, which is negative", slot.value)
                  : std::string("no number: it ") + Describe(slot.error));
    return -1;
  }

  void CheckBlock(const Step& step, const std::vector<int64_t>& block, const std::string& problem) {
    int64_t threads = 1;
    for (int64_t dim : block) {
      if (dim < 0) return;
      threads = std::min(threads, kMaxThreads + 1) * std::min(dim, kMaxThreads + 1);
    }
    if (threads < 1) {
      Add(step, step.block[0], problem, "a block of no threads");
    } else if (threads > kMaxThreads) {
      Add(step, step.block[0], problem, "a block of more than 1024 threads");
    } else if (block.size() > 2 && block[2] > kMaxBlockZ) {
      Add(step, step.block[2], problem,
          fmt::format("{} threads in a block's z, allowed are 64", block[2]));
    }
  }

  void CheckGrid(const Step& step, const std::vector<int64_t>& grid, const std::string& problem) {
    for (size_t i = 0; i < grid.size(); ++i) {
      const int64_t allowed = i == 0 ? kMaxGridX : kMaxGridYZ;
      if (grid[i] <= allowed) continue;
      Add(step, step.grid[i], problem,
          fmt::format("{} blocks in a grid's {}, allowed are {}", grid[i], "xyz"[i], allowed));
    }
  }

  void CheckCluster(const Step& step, const std::vector<int64_t>& cluster,
                    const std::vector<int64_t>& grid, const std::string& problem) {
    for (size_t i = 0; i < cluster.size(); ++i) {
      const int64_t all = i < grid.size() ? grid[i] : 1;
      if (cluster[i] == 0) return Add(step, step.cluster[i], problem, "a cluster of no blocks");
      if (cluster[i] < 0 || all < 0 || all % cluster[i] == 0) continue;
      return Add(step, step.cluster[i], problem,
                 fmt::format("{} blocks of a cluster in {}, which do not divide the grid's {}",
                             cluster[i], "xyz"[i], all));
    }
    int64_t blocks = 1;
    for (int64_t dim : cluster) blocks = dim < 0 ? -1 : std::min(blocks * dim, kMaxCluster + 1);
    if (blocks > kMaxCluster) {
      Add(step, step.cluster[0], problem, "a cluster of more than 16 blocks");
    } else if (blocks > 1 && target_.kind == TargetKind::kCuda && target_.major < 9) {
      Add(step, step.cluster[0], problem,
          fmt::format("a cluster, which {} does not have: name the `targets` of this variant",
                      target_.ToString()));
    }
  }

  void CheckShared(const StepKernel& use, int64_t dynamic, const std::string& problem) {
    if (dynamic <= 0 || target_.kind != TargetKind::kCuda) return;
    const int64_t allowed = MaxShared(target_), all = dynamic + use.kernel->static_shared;
    if (all <= allowed) return;
    Add(*use.step, use.step->shared, problem,
        fmt::format("{} bytes of shared memory ({} of them static), allowed are {} on {}", all,
                    use.kernel->static_shared, allowed, target_.ToString()));
  }

  void Add(const Step& step, const Program& program, const std::string& problem,
           const std::string& what) {
    const SourceSpan& where = program.where.line > 0 ? program.where : step.where;
    for (const Finding& before : found_) {
      if (before.where.line == where.line && before.where.column == where.column) return;
    }
    found_.push_back({where, fmt::format("'{}' is {}", program.text, what),
                      problem.empty() ? "choose other tunables, or prune them with `keep`"
                                      : fmt::format("for the listed problem {}; a `when` keeps the "
                                                    "variant off it",
                                                    problem)});
  }

  const Op& op_;
  const Template& variant_;
  const Template::Point& point_;
  const Target& target_;
  const std::vector<StepKernel>& steps_;
  const bool lets_ask_size_;
  std::vector<Finding> found_;
};

}  // namespace

std::vector<Finding> CheckLaunches(const Op& op, const Template& variant,
                                   const Template::Point& point, const Target& target,
                                   const std::vector<StepKernel>& steps) {
  return LaunchCheck(op, variant, point, target, steps).Run();
}

}  // namespace kbundle::builder
