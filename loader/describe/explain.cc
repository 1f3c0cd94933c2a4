// A reason is worth something only if it is the true one: so the choice is made again by the
// very Select of a plan, with reasons kept, and the evidence of a record is read from the row
// that won.
#include "kbundle/bundle_generated.h"
#include "kbundle/explanation.h"
#include "kbundle/format.h"
#include "loader/describe/infer_within.h"
#include "loader/open/index.h"
#include "loader/provider/provider.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

bool Has(uint64_t flags, fb::TunedFlags flag) { return (flags & static_cast<uint64_t>(flag)) != 0; }

TunedDescription DescribeTuned(const Bundle& bundle, uint32_t number) {
  const fb::Index& index = IndexOf(bundle);
  const fb::Tuned& row = *index.tuned()->Get(number);
  const fb::Evidence& evidence = *index.evidence()->Get(row.evidence());
  TunedDescription tuned{
      View(evidence.problem()),
      View(index.tuned_devices()->Get(row.device())),
      bundle.VariantId(row.winner()),
      bundle.VariantId(evidence.base()),
      View(evidence.verdict()),
      View(evidence.reason()),
      {},
  };
  for (uint32_t i = 0; evidence.times() != nullptr && i < evidence.times()->size(); ++i) {
    const fb::TunedTime& time = *evidence.times()->Get(i);
    tuned.times.push_back({bundle.VariantId(time.variant()), time.low(), time.median(), time.high(),
                           time.ratio(), time.band(), Has(time.flags(), fb::TunedFlags::Dropped),
                           Has(time.flags(), fb::TunedFlags::Failed)});
  }
  return tuned;
}

}  // namespace

Explanation ExplainProblem(const Bundle& bundle, const Problem& problem, const Device& device,
                           const SelectOptions& options) {
  Explanation explanation;
  explanation.problem = problem.ToString();
  explanation.target = device.ToString();
  explanation.part = bundle.path();
  const Result<Selected> chosen = SelectFirstLaunchable(bundle, problem, device, options);
  if (chosen.ok()) {
    explanation.chosen = *chosen;
    explanation.id = bundle.VariantId(chosen->variant);
    const auto bytes = WorkspaceBytes(bundle, problem, chosen->variant, options.alignment);
    if (bytes.ok()) explanation.workspace_bytes = *bytes;
    explanation.needs = ProviderOf(IndexOf(bundle), chosen->variant).needs();
    if (chosen->tuned >= 0)
      explanation.tuned = DescribeTuned(bundle, static_cast<uint32_t>(chosen->tuned));
  } else {
    explanation.error = chosen.status().message();
  }
  for (Verdict& verdict : Explain(bundle, problem, device, options)) {
    explanation.candidates.push_back(
        {bundle.VariantId(verdict.variant), verdict.legal, std::move(verdict.reason)});
  }
  return explanation;
}

Result<Inference> Infer(const Bundle& bundle, const Problem& problem, Device::Kind kind) {
  KB_ASSIGN_OR_RETURN(const int64_t bytes, MaxWorkspaceBytes(bundle, problem, kind));
  return InferWithin(bytes, bundle, problem);
}

Inference InferWithin(int64_t workspace_bytes, const Bundle& bundle, const Problem& problem) {
  Inference inference;
  inference.workspace_bytes = workspace_bytes;
  inference.interface_hash = OpOf(bundle, problem.op).interface_hash();
  inference.empty = problem.AllResultsEmpty();
  inference.cuts = CutsOf(bundle, problem);
  return inference;
}

}  // namespace kbundle
