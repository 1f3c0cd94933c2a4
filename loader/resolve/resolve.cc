// Where a step's geometry is computed: workspace first, since arguments point into it, then the
// steps in order, each evaluated in full before it is left out for having nothing to do.
#include "loader/resolve/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "kbundle/key.h"
#include "loader/open/bundle_rep.h"
#include "loader/open/index.h"
#include "loader/open/variant_rows.h"
#include "loader/provider/provider.h"
#include "loader/resolve/resolver.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

// The instruction that waits for the kernels in front is of 9.0. Code for earlier GPUs has none, as
// PTX for all GPUs has none: it must not start before those have ended.
constexpr uint8_t kFirstThatWaits = 9;

}  // namespace

Resolver::Resolver(const Bundle& bundle, const Problem& problem, const Device& device,
                   uint32_t variant, int64_t alignment)
    : bundle_(bundle),
      problem_(problem),
      row_(*IndexOf(bundle).variants()->Get(variant)),
      template_(*IndexOf(bundle).templates()->Get(row_.template_index())),
      target_(*IndexOf(bundle).targets()->Get(row_.target())) {
  resolution_.variant = variant;
  context_.bundle = &bundle;
  context_.problem = &problem;
  context_.tunables = Tunables(bundle, variant);
  context_.alignment = alignment;
  context_.sm_count = device.sm_count;
  lets_ = EvaluateLets(context_, variant);
  context_.lets = lets_.view();
  context_.let_errors = lets_.errors;
}

Result<Resolution> Resolver::Run() {
  KB_RETURN_IF_ERROR(LayOutWorkspace());
  const auto* steps = template_.steps();
  for (uint32_t i = 0; i < Count(steps); ++i) {
    Status status = AddStep(*steps->Get(i), i);
    if (!status.ok()) return std::move(status).Annotate(fmt::format("step {}", i + 1));
  }
  return std::move(resolution_);
}

Result<int64_t> Resolver::Eval(const fb::Span& program, std::string_view text) const {
  return Evaluate(context_, program.first(), program.count(), text);
}

Status Resolver::EvalSize(const fb::Span* program, std::string_view what, int64_t& out) const {
  if (Absent(program)) return Status();
  KB_ASSIGN_OR_RETURN(out, Eval(*program, what));
  if (out >= 0) return Status();
  return OutOfRange(fmt::format("{} is {}, which is negative", what, out));
}

Status Resolver::EvalExtent(const Spans* programs, const char* what, Extent& out) const {
  for (uint32_t i = 0; i < Count(programs) && i < out.size(); ++i) {
    KB_RETURN_IF_ERROR(EvalSize(programs->Get(i), fmt::format("{}.{}", what, "xyz"[i]), out[i]));
  }
  return Status();
}

Status Resolver::LayOutWorkspace() {
  const auto* regions = template_.regions();
  constexpr int64_t kAlign = kWorkspaceAlignment;
  for (uint32_t i = 0; i < Count(regions); ++i) {
    const fb::Region& region = *regions->Get(i);
    int64_t bytes = 0;
    KB_RETURN_IF_ERROR(EvalSize(region.bytes(), View(region.text()), bytes));
    resolution_.regions.push_back({resolution_.workspace_bytes, bytes});
    if (bytes > INT64_MAX - kAlign - resolution_.workspace_bytes) {
      return OutOfRange(fmt::format("workspace region {} of {} bytes makes the workspace overflow",
                                    region.name()->string_view(), bytes));
    }
    resolution_.workspace_bytes += (bytes + kAlign - 1) / kAlign * kAlign;
  }
  return Status();
}

Status Resolver::AddStep(const fb::Step& step, uint32_t number) {
  if (step.when() != nullptr && !Absent(step.when()->program())) {
    KB_ASSIGN_OR_RETURN(int64_t keep, Eval(*step.when()->program(), View(step.when()->text())));
    if (keep == 0) return Status();
  }
  ResolvedStep out;
  out.kind = static_cast<StepKind>(step.kind());
  out.number = number;
  const fb::Kernel& row = *IndexOf(bundle_).kernels()->Get(row_.kernels() + number);
  KB_ASSIGN_OR_RETURN(const bool does_something, Fill(step, row, out));
  if (does_something) resolution_.steps.push_back(std::move(out));
  return Status();
}

Result<bool> Resolver::Fill(const fb::Step& step, const fb::Kernel& row, ResolvedStep& out) {
  if (out.kind == StepKind::kMemset || out.kind == StepKind::kCopy) return FillTransfer(step, out);
  out.blob = row.blob();
  out.symbol = IndexOf(bundle_).symbols()->Get(row.symbol())->str();
  if (out.kind == StepKind::kKernel) return FillKernel(step, row, out);
  out.provider = &ProviderOf(IndexOf(bundle_), template_);
  return out.provider->ResolveOwn(*this, step, row, out);
}

Result<bool> Resolver::FillKernel(const fb::Step& step, const fb::Kernel& row,
                                  ResolvedStep& out) const {
  // Steps for both kinds of targets have programs of both.
  out.has_range =
      target_.kind() == static_cast<uint8_t>(TargetKind::kHost) && !Absent(step.range());
  if (out.has_range) {
    KB_RETURN_IF_ERROR(EvalSize(step.range(), "range", out.range));
    KB_RETURN_IF_ERROR(EvalSize(step.grain(), "grain", out.grain));
    out.grain = std::max<int64_t>(out.grain, 1);
    KB_RETURN_IF_ERROR(AddArgs(step, out));
    return out.range != 0;
  }
  KB_RETURN_IF_ERROR(EvalExtent(step.grid(), "grid", out.grid));
  // What the compiler decided; such a step has no programs for them.
  if (row.threads() != 0) {
    out.block = {row.threads(), 1, 1};
    out.shared = row.dynamic_shared();
  }
  KB_RETURN_IF_ERROR(EvalExtent(step.block(), "block", out.block));
  KB_RETURN_IF_ERROR(EvalExtent(step.cluster(), "cluster", out.cluster));
  KB_RETURN_IF_ERROR(EvalSize(step.shared(), "shared", out.shared));
  out.programmatic = step.programmatic() && target_.major() >= kFirstThatWaits;
  KB_RETURN_IF_ERROR(AddArgs(step, out));
  return out.grid[0] != 0 && out.grid[1] != 0 && out.grid[2] != 0;
}

void Resolver::AddWorkspace(int64_t bytes, ResolvedStep& out) {
  out.workspace = {Pointer::From::kWorkspace, resolution_.workspace_bytes};
  out.bytes = bytes;
  resolution_.workspace_bytes += bytes;
}

Result<bool> Resolver::FillTransfer(const fb::Step& step, ResolvedStep& out) const {
  KB_RETURN_IF_ERROR(EvalSize(step.bytes(), "bytes", out.bytes));
  out.target = PointerOf(*step.target());
  if (out.kind == StepKind::kCopy) out.source = PointerOf(*step.source());
  out.value = step.value();
  const bool absent = out.target.from == Pointer::From::kNull ||
                      (out.kind == StepKind::kCopy && out.source.from == Pointer::From::kNull);
  if (absent) out.bytes = 0;
  for (const fb::Arg* side : {step.target(), step.source()}) {
    if (side == nullptr || out.bytes == 0 || out.bytes <= BytesOf(*side)) continue;
    return OutOfRange(fmt::format("{} of {} bytes, but {} has {}: correct the step's `bytes`",
                                  out.kind == StepKind::kCopy ? "a copy" : "a memset", out.bytes,
                                  View(side->text()), BytesOf(*side)));
  }
  return out.bytes != 0;
}

DType Resolver::DTypeOf(const fb::Arg& arg) const {
  const auto operands = static_cast<uint32_t>(problem_.operands.size());
  switch (static_cast<ArgKind>(arg.kind())) {
    case ArgKind::kOperand:
      return TensorOf(problem_, arg.index()).dtype;
    case ArgKind::kResult:
      return TensorOf(problem_, operands + arg.index()).dtype;
    case ArgKind::kRegion: {
      const fb::TypeRef& type = *template_.regions()->Get(arg.index())->type();
      return type.param() >= 0 ? TypeAt(problem_.types, type.param())
                               : static_cast<DType>(type.dtype());
    }
    default:
      return DType::kInvalid;
  }
}

Pointer Resolver::TensorPointer(uint32_t tensor) const {
  const auto operands = static_cast<uint32_t>(problem_.operands.size());
  if (!TensorOf(problem_, tensor).present) return {};
  if (tensor < operands) return {Pointer::From::kOperand, tensor};
  return {Pointer::From::kResult, tensor - operands};
}

Pointer Resolver::PointerOf(const fb::Arg& arg) const {
  switch (static_cast<ArgKind>(arg.kind())) {
    case ArgKind::kOperand:
      return TensorPointer(arg.index());
    case ArgKind::kResult:
      return TensorPointer(static_cast<uint32_t>(problem_.operands.size()) + arg.index());
    case ArgKind::kRegion:
      return {Pointer::From::kWorkspace, resolution_.regions[arg.index()].offset};
    default:
      return {};
  }
}

bool ResolvedStep::operator==(const ResolvedStep& other) const {
  const auto all = [](const ResolvedStep& step) {
    return std::tie(step.kind, step.number, step.blob, step.symbol, step.grid, step.block,
                    step.cluster, step.shared, step.has_range, step.range, step.grain,
                    step.programmatic, step.args, step.constants, step.tensor_maps, step.structs,
                    step.struct_pointers, step.target, step.source, step.bytes, step.value,
                    step.provider, step.workspace);
  };
  if (all(*this) != all(other)) return false;
  if (own == nullptr || other.own == nullptr) return own == other.own;
  return own->Equals(*other.own);
}

Result<Resolution> Resolve(const Bundle& bundle, const Problem& problem, const Device& device,
                           uint32_t variant, int64_t alignment) {
  KB_RETURN_IF_ERROR(bundle.rep().CheckVariant(variant));
  return Resolver(bundle, problem, device, variant, alignment).Run();
}

}  // namespace kbundle
