#include "perf/cases.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "builder/cli/terminal.h"
#include "builder/problem/listed.h"
#include "kbundle/bundle_generated.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

constexpr uint32_t kNoBlob = 0xffffffff;
constexpr size_t kTensorAlignment = 256;
constexpr int64_t kSmallDims[] = {4, 64, 1024, std::numeric_limits<int64_t>::max()};

bool RunsOn(const fb::Index& index, const fb::Variant& variant, const Device& device) {
  const auto target = Target::Parse(index.targets()->Get(variant.target())->name()->string_view());
  return target.ok() && target->Fit(device) > 0;
}

ProblemSpec Cut(ProblemSpec spec, int64_t most) {
  for (TensorSpec& operand : spec.operands) {
    for (int64_t& dim : operand.dims) dim = std::min(dim, most);
  }
  return spec;
}

int64_t BytesOf(const Problem& problem) {
  int64_t bytes = 0;
  for (const TensorSpec& operand : problem.operands) bytes += operand.size_bytes();
  for (const TensorSpec& result : problem.results) bytes += result.size_bytes();
  return bytes;
}

// One kernel, so that a launch can be compared with one bare call.
bool HasOneStep(const Bundle& bundle, const Problem& problem, const Device& device) {
  const auto chosen = SelectFirst(bundle, problem, device);
  if (!chosen.ok()) return false;
  const fb::Index& index = IndexOf(bundle);
  const fb::Variant& variant = *index.variants()->Get(chosen->variant);
  return index.templates()->Get(variant.template_index())->steps()->size() == 1;
}

}  // namespace

std::string BenchObject::ToString() const {
  std::string text = Grouped(bytes) + " bytes, " + Grouped(stored_bytes) + " stored";
  if (base_stored_bytes > 0) text += " and " + Grouped(base_stored_bytes) + " of its base";
  return text;
}

std::optional<BenchObject> FindObject(const Bundle& bundle, bool delta, const Device* device) {
  const fb::Index& index = IndexOf(bundle);
  std::optional<BenchObject> best;
  const auto distance = [](uint64_t bytes) {
    return bytes > kBenchObjectBytes ? bytes - kBenchObjectBytes : kBenchObjectBytes - bytes;
  };
  for (uint32_t v = 0; index.variants() && v < index.variants()->size(); ++v) {
    const fb::Variant& variant = *index.variants()->Get(v);
    if (device != nullptr && !RunsOn(index, variant, *device)) continue;
    const uint32_t steps = index.templates()->Get(variant.template_index())->steps()->size();
    for (uint32_t step = 0; step < steps; ++step) {
      const fb::Kernel& kernel = *index.kernels()->Get(variant.kernels() + step);
      if (kernel.blob() == kNoBlob) continue;
      const fb::Blob& blob = *index.blobs()->Get(kernel.blob());
      if ((blob.base() != kNoBlob) != delta) continue;
      if (best && distance(blob.size()) >= distance(best->bytes)) continue;
      best = BenchObject{kernel.blob(), index.symbols()->Get(kernel.symbol())->str(), blob.size(),
                         blob.stored_size(),
                         delta ? index.blobs()->Get(blob.base())->stored_size() : 0};
    }
  }
  return best;
}

Result<Problem> FindSmallProblem(const Bundle& bundle, const Device& device,
                                 const std::function<bool(const Problem&)>& accept) {
  std::optional<Problem> best;
  const auto* ops = IndexOf(bundle).ops();
  for (uint32_t op = 0; ops && op < ops->size(); ++op) {
    const std::string_view name = OpOf(bundle, op).name()->string_view();
    for (const ProblemSpec& listed : ListedSpecs(bundle, op)) {
      for (int64_t most : kSmallDims) {
        auto problem = bundle.MakeProblem(name, Cut(listed, most));
        if (!problem.ok() || !HasOneStep(bundle, *problem, device)) continue;
        if (best && BytesOf(*problem) >= BytesOf(*best)) break;  // longer dims are no smaller
        if (!accept(*problem)) continue;
        best = std::move(problem).value();
        break;
      }
    }
  }
  if (best) return std::move(*best);
  return NotFound("no listed problem has a fitting variant of one step for " + device.ToString());
}

void* HostTensors::Take(int64_t bytes) {
  memory_.emplace_back(static_cast<size_t>(bytes) + kTensorAlignment, 0);
  void* address = memory_.back().data();
  size_t room = memory_.back().size();
  return std::align(kTensorAlignment, static_cast<size_t>(bytes), address, room);
}

HostTensors::HostTensors(const Bundle& bundle, const Problem& problem, int64_t workspace_bytes) {
  for (const TensorSpec& operand : problem.operands) {
    operands_.push_back(operand.present ? Take(operand.size_bytes()) : nullptr);
  }
  const auto* results = OpOf(bundle, problem.op).results();
  for (size_t i = 0; i < problem.results.size(); ++i) {
    const int alias = results->Get(static_cast<uint32_t>(i))->alias();
    const TensorSpec& result = problem.results[i];
    results_.push_back(!result.present ? nullptr
                       : alias >= 0    ? operands_[static_cast<size_t>(alias)]
                                       : Take(result.size_bytes()));
  }
  if (workspace_bytes > 0) workspace_ = Take(workspace_bytes);
}

LaunchArgs HostTensors::args() const { return {operands_.data(), results_.data(), workspace_}; }

}  // namespace kbundle::builder
