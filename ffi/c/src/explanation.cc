// What a problem gets and why, and what was chosen so far, copied into plain structs.
#include "kbundle/explanation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "handles.h"
#include "kbundle/kbundle_describe.h"
#include "owned.h"
#include "spec.h"

namespace kbundle {
namespace {

static_assert(KB_CHOICE_EXACT == static_cast<int>(Choice::kTuned) &&
              KB_CHOICE_NEAREST == static_cast<int>(Choice::kNearest) &&
              KB_CHOICE_MANIFEST_ORDER == static_cast<int>(Choice::kManifestOrder) &&
              KB_CHOICE_PORTABLE == static_cast<int>(Choice::kPortable) &&
              KB_CHOICE_FORCED == static_cast<int>(Choice::kForced) &&
              KB_CHOICE_HEURISTIC == static_cast<int>(Choice::kHeuristic));

void FillCut(Arena& arena, const Cut& cut, kb_cut& row) {
  row.operand_dims = arena.Numbers<int32_t>(cut.operands, &row.operand_count);
  row.result_dims = arena.Numbers<int32_t>(cut.results, &row.result_count);
  row.sums = arena.Numbers<int32_t>(cut.sums, &row.sum_count);
  row.once = arena.Numbers<int32_t>(cut.once, &row.once_count);
  row.batch = cut.batch;
}

void FillInference(Arena& arena, const Problem& problem, const Inference& inference,
                   kb_inference& row) {
  row.interface_hash = inference.interface_hash;
  auto* results = arena.New<kb_result>(row.result_count = problem.results.size());
  std::transform(problem.results.begin(), problem.results.end(), results, ToResult);
  row.results = results;
  row.workspace_bytes = inference.workspace_bytes;
  row.empty = inference.empty;
  row.cuts =
      arena.Rows<kb_cut>(inference.cuts, &row.cut_count,
                         [&arena](const Cut& cut, kb_cut& one) { FillCut(arena, cut, one); });
}

const kb_tuned* TunedInfo(Arena& arena, const TunedDescription& tuned) {
  auto* row = arena.New<kb_tuned>(1);
  row->size = sizeof(kb_tuned);
  row->problem = arena.Text(tuned.problem);
  row->device = arena.Text(tuned.device);
  row->winner = arena.Text(tuned.winner);
  row->base = arena.Text(tuned.base);
  row->verdict = arena.Text(tuned.verdict);
  row->reason = arena.Text(tuned.reason);
  row->times = arena.Rows<kb_tuned_time>(
      tuned.times, &row->time_count, [&arena](const TunedTimes& times, kb_tuned_time& one) {
        one = {sizeof(one), arena.Text(times.id), times.low_us,  times.median_us, times.high_us,
               times.ratio, times.band,           times.dropped, times.failed};
      });
  return row;
}

void FillExplanation(Arena& arena, const Explanation& explanation, kb_explanation& row) {
  row.problem = arena.Text(explanation.problem);
  row.target = arena.Text(explanation.target);
  row.chosen = arena.TextOrNull(explanation.id);
  if (explanation.chosen) row.part = arena.Text(explanation.part);
  row.error = arena.TextOrNull(explanation.error);
  if (explanation.chosen) row.choice = static_cast<int32_t>(explanation.chosen->choice);
  row.workspace_bytes = explanation.workspace_bytes.value_or(-1);
  row.needs = arena.TextOrNull(explanation.needs);
  if (explanation.tuned) row.tuned = TunedInfo(arena, *explanation.tuned);
  row.candidates =
      arena.Rows<kb_candidate>(explanation.candidates, &row.candidate_count,
                               [&arena](const CandidateDescription& candidate, kb_candidate& one) {
                                 one.id = arena.Text(candidate.id);
                                 one.legal = candidate.legal;
                                 one.reason = arena.Text(candidate.reason);
                               });
  row.absent = AbsentRows(arena, explanation.missed, &row.absent_count);
}

void FillStatistics(Arena& arena, const RuntimeStats& stats, kb_statistics& row) {
  row.plans_made = stats.plans_made;
  row.plans_shared = stats.plans_shared;
  row.objects_loaded = stats.objects_loaded;
  row.chosen = arena.Rows<kb_chosen>(stats.chosen, &row.chosen_count,
                                     [&arena](const RuntimeStats::Chosen& chosen, kb_chosen& one) {
                                       one.bundle = arena.Text(chosen.bundle);
                                       one.content_id = arena.Text(chosen.content_id);
                                       one.op = arena.Text(chosen.op);
                                       one.problem = arena.Text(chosen.problem);
                                       one.variant = arena.Text(chosen.variant);
                                       one.choice = arena.Text(chosen.choice);
                                       one.device = arena.Text(chosen.device);
                                       one.reason = arena.Text(chosen.reason);
                                       one.count = chosen.count;
                                     });
}

}  // namespace
}  // namespace kbundle

using kbundle::Guarded;
using kbundle::Owned;
using kbundle::RequirePointer;
using kbundle::Status;

extern "C" {

kb_error* kb_inference_make(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                            int32_t kind, const kb_inference** out) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
    KB_ASSIGN_OR_RETURN(auto device_kind, kbundle::ToDeviceKind(kind));
    KB_ASSIGN_OR_RETURN(kbundle::Problem problem, kbundle::ToProblem(bundle, op, spec));
    KB_ASSIGN_OR_RETURN(const auto inference, kbundle::Infer(*bundle->parts, problem, device_kind));
    auto row = std::make_unique<Owned<kb_inference>>();
    kbundle::FillInference(row->arena, problem, inference, *row);
    *out = row.release();
    return Status();
  });
}

void kb_inference_free(const kb_inference* inference) { Owned<kb_inference>::Free(inference); }

kb_error* kb_explanation_make(const kb_bundle* bundle, const char* op, const kb_problem_spec* spec,
                              int32_t kind, const char* target, uint64_t modes,
                              const kb_explanation** out) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
    KB_ASSIGN_OR_RETURN(const auto asked, kbundle::ToQuestion(bundle, op, spec, kind, target, modes,
                                                              "explaining a choice"));
    auto row = std::make_unique<Owned<kb_explanation>>();
    kbundle::FillExplanation(
        row->arena,
        kbundle::ExplainProblem(*bundle->parts, asked.problem, asked.device, asked.options), *row);
    *out = row.release();
    return Status();
  });
}

void kb_explanation_free(const kb_explanation* explanation) {
  Owned<kb_explanation>::Free(explanation);
}

kb_error* kb_statistics_make(const kb_statistics** out) {
  return Guarded([&]() -> Status {
    KB_RETURN_IF_ERROR(RequirePointer(out, "out"));
    auto row = std::make_unique<Owned<kb_statistics>>();
    kbundle::FillStatistics(row->arena, kbundle::Runtime::Global().stats(), *row);
    *out = row.release();
    return Status();
  });
}

void kb_statistics_free(const kb_statistics* statistics) { Owned<kb_statistics>::Free(statistics); }

}  // extern "C"
