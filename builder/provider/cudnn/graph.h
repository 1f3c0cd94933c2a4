// What a manifest says to cuDNN: the node of a step, and what a variant is planned with.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDNN_GRAPH_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDNN_GRAPH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "builder/model/step.h"
#include "builder/model/variant.h"

namespace kbundle::builder {

// What cuDNN must know to plan a step: a node of its graph API with tensors, numbers and options by
// the names that builder/provider/cudnn/planner gives them. All programs are over a problem.
struct GraphNode : ProviderPart {
  struct TensorUse {
    std::string name;
    int arg = 0;                    // of Step.args; its uid is one more
    DType dtype = DType::kInvalid;  // what its elements are taken for; else they are as they are
    std::optional<Program> when;    // left out where it does not hold
    std::vector<Program> dims, strides;
    std::string ragged;  // the tensor of its sequences' offsets; empty: it has none
  };
  struct ScalarUse {
    std::string name;
    int arg = 0;
  };
  struct Option {
    std::string name;
    bool boolean = false;
    Program program;
    int attribute = -1;              // an enum's choice, by its text
    int number = -1;                 // or this float attribute, as f32; then no program
    std::vector<std::string> texts;  // or one of these for each choice
    std::optional<Program> when;     // left out where it does not hold
  };
  // The op's score modifiers: their values, and in a backward node their derivatives.
  enum class ScoreUse { kNone, kValue, kSlope };
  ScoreUse score = ScoreUse::kNone;
  int score_scalars = 0, score_tensors = 0;  // the first of them in Step.args
  std::vector<TensorUse> tensors;
  std::vector<ScalarUse> scalars;
  std::vector<Option> options;
  std::vector<std::pair<std::string, SourceSpan>> places;  // of all these names in the manifest
};

// Plans for one problem that a variant may have points for.
inline constexpr int64_t kMaxPlans = 16;

// What a variant of provider cudnn keeps.
struct PlanKeys : ProviderPart {
  std::string profile;            // JSON of the device to plan for
  std::vector<int64_t> versions;  // of cuDNN to plan with, 91900 for 9.19.0
  int64_t plans = 1;              // of one problem and version, at most
  int64_t max_workspace = 0;      // bytes that a plan may ask for
  std::vector<Instruction> tied;  // what each tunable but the last two fixes of a problem
};

// Null for a kernel's step.
inline const GraphNode* GraphNodeOf(const Step& step) {
  return static_cast<const GraphNode*>(step.own.get());
}
inline const PlanKeys& PlanKeysOf(const Template& variant) {
  return static_cast<const PlanKeys&>(*variant.own);
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDNN_GRAPH_H_
