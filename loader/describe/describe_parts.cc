// A library of several parts as one description: their rows one after the other, the numbers of
// blobs moved along.
#include <algorithm>
#include <utility>

#include "kbundle/description.h"
#include "kbundle/explanation.h"
#include "loader/describe/infer_within.h"

namespace kbundle {
namespace {

// What `into` does not have yet.
template <typename Value, typename Key>
void AddNew(const std::vector<Value>& values, std::vector<Value>* into, Key key) {
  for (const Value& value : values) {
    const auto same = [&](const Value& one) { return key(one) == key(value); };
    if (std::none_of(into->begin(), into->end(), same)) into->push_back(value);
  }
}

void MoveBlobs(int64_t by, BundleDescription* description) {
  for (OpDescription& op : description->ops) {
    for (VariantDescription& variant : op.variants) {
      for (KernelDescription& kernel : variant.kernels) {
        if (kernel.blob >= 0) kernel.blob += by;
      }
    }
  }
  for (BlobDescription& blob : description->blobs) {
    if (blob.base >= 0) blob.base += by;
  }
}

// Both describe the same ops in the same order.
void Append(BundleDescription more, BundleDescription* whole) {
  MoveBlobs(static_cast<int64_t>(whole->blobs.size()), &more);
  for (BlobDescription& blob : more.blobs) {
    blob.part = static_cast<uint32_t>(whole->parts.size());
    whole->blobs.push_back(blob);
  }
  for (size_t i = 0; i < whole->ops.size(); ++i) {
    auto& variants = whole->ops[i].variants;
    for (VariantDescription& variant : more.ops[i].variants) variants.push_back(std::move(variant));
  }
  whole->parts.push_back(std::move(more.parts.front()));
  whole->file_bytes += more.file_bytes;
  const auto itself = [](std::string_view text) { return text; };
  AddNew(more.targets, &whole->targets, itself);
  AddNew(more.devices, &whole->devices, itself);
  AddNew(more.provenance, &whole->provenance, [](const auto& pair) { return pair.first; });
}

}  // namespace

Result<BundleDescription> Describe(const Parts& parts, std::string_view op, Detail detail) {
  KB_ASSIGN_OR_RETURN(BundleDescription whole, Describe(parts.first(), op, detail));
  if (!op.empty()) KB_RETURN_IF_ERROR(parts.FindInterface(op).status());
  for (size_t part = 1; part < parts.all().size(); ++part) {
    KB_ASSIGN_OR_RETURN(BundleDescription more, Describe(*parts.all()[part], op, detail));
    Append(std::move(more), &whole);
  }
  whole.absent = parts.absent();
  whole.path = parts.path();
  whole.content_id = parts.content_id();
  return whole;
}

// The part that serves says why; what others have is listed behind it.
Explanation ExplainProblem(const Parts& parts, const Problem& problem, const Device& device,
                           const SelectOptions& options) {
  const bool one = parts.all().size() == 1 && parts.absent().empty();
  if (one) return ExplainProblem(parts.first(), problem, device, options);
  Explanation explanation;
  const Result<Served> served = SelectFirstLaunchable(parts, problem, device, options);
  if (served.ok()) {
    explanation = ExplainProblem(*served->bundle, served->problem, device, options);
  } else {
    explanation.problem = problem.ToString();
    explanation.target = device.ToString();
    explanation.error = served.status().message();
  }
  for (size_t part = 0; part < parts.all().size(); ++part) {
    const Bundle& bundle = *parts.all()[part];
    const Result<Problem> of_part = parts.ProblemIn(part, problem);
    if ((served.ok() && &bundle == served->bundle.get()) || !of_part.ok()) continue;
    for (Verdict& verdict : Explain(bundle, *of_part, device, options)) {
      if (verdict.legal) verdict.reason = "legal, but " + explanation.part + " goes first";
      explanation.candidates.push_back(
          {bundle.VariantId(verdict.variant), verdict.legal, std::move(verdict.reason)});
    }
  }
  explanation.missed = parts.Missed(device);
  return explanation;
}

Result<Inference> Infer(const Parts& parts, const Problem& problem, Device::Kind kind) {
  const bool one = parts.all().size() == 1 && parts.absent().empty();
  if (one) return Infer(parts.first(), problem, kind);
  KB_ASSIGN_OR_RETURN(const int64_t bytes, MaxWorkspaceBytes(parts, problem, kind));
  return InferWithin(bytes, parts.first(), problem);
}

}  // namespace kbundle
