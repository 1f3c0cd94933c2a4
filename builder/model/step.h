// What a variant enqueues: kernels with their arguments, copies, plans and products of libraries.
#ifndef KBUNDLE_BUILDER_MODEL_STEP_H_
#define KBUNDLE_BUILDER_MODEL_STEP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "builder/model/program.h"
#include "builder/model/tensor.h"
#include "kbundle/dtype.h"
#include "kbundle/format.h"

namespace kbundle::builder {

struct Arg {
  ArgKind kind = ArgKind::kOperand;
  int index = 0;
  DType ctype = DType::kInvalid;  // kBool, kI32, kU32, kI64, kU64, kF32, kF64
  int count = 0;                  // kArray
  Program program;  // kInteger; kFloat of an integer expression is kInteger with an f32/f64 ctype;
                    // of a pointer its offset in elements, or empty
  std::string text;
  SourceSpan where;
};
inline bool IsPointer(const Arg& arg) { return arg.kind <= ArgKind::kRegion; }
struct TensorMap {
  int tensor = 0;
  TypeRef type;
  std::vector<Program> dims, strides, box, element_strides;
  int swizzle = 0, interleave = 0, l2 = 0, fill = 0;  // the CUDA driver's enum values
};
// What Triton must know to compile a step's kernel: all of it fixed for a point of the grid.
struct TritonKernel {
  struct Constexpr {
    enum class Kind { kNone, kInteger, kBool, kDType, kFloat };
    std::string name;
    Kind kind = Kind::kInteger;
    Program program;    // kInteger, kBool, kDType: over tunables and types
    double number = 0;  // kFloat
    SourceSpan where;
  };
  struct Parameter {  // one that is not constexpr; in the order of the function
    Arg arg;
    bool divisible_by_16 = false;
    bool equal_to_1 = false;  // a constant to Triton, so no parameter of the compiled kernel
  };
  Program num_warps, num_stages, maxnreg;  // over tunables and types; maxnreg may be empty
  std::vector<Constexpr> constexprs;
  std::vector<Parameter> parameters;
};
// A product of matrices by cuBLASLt.
struct Product {
  std::vector<std::optional<Arg>> tensors;   // by ProductTensor
  std::vector<Program> numbers, conditions;  // by ProductNumber, ProductCondition; may be empty
  std::optional<Arg> alpha, beta;            // kFloat or kInteger
};
// What cuDNN must know to plan a step: a node of its graph API with tensors, numbers and options by
// the names that builder/provider/cudnn/planner gives them. All programs are over a problem.
struct GraphNode {
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
struct Step {
  StepKind kind = StepKind::kKernel;
  std::string kernel;  // "softmax_rows<{T}, {VEC}>"; of an execution plan the graph's node
  std::optional<Program> when;
  std::vector<Program> grid, block, cluster;
  Program shared, range, grain, bytes;
  bool programmatic = false;
  std::vector<Arg> args;
  std::vector<TensorMap> tensor_maps;
  Arg target, source;
  uint8_t value = 0;
  std::optional<TritonKernel> triton;
  std::optional<Product> product;
  std::optional<GraphNode> graph;
  SourceSpan where;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MODEL_STEP_H_
