// What stands between the manifest reader and the rest of the builder: a family as plain values,
// parsed, type-checked and compiled to programs. Nothing here refers to TOML any more.
#ifndef KBUNDLE_BUILDER_MANIFEST_H_
#define KBUNDLE_BUILDER_MANIFEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kbundle/dtype.h"
#include "kbundle/format.h"
#include "kbundle/status.h"
#include "score_expression.h"

namespace kbundle::builder {

// 1-based; for messages only.
struct SourceSpan {
  int line = 0, column = 0, length = 0;
};

// Postfix code. kConst carries the value itself here; the packer interns it into Index.constants.
struct Instruction {
  Opcode opcode;
  int64_t operand = 0;
};
struct Program {
  std::string text;  // as written
  SourceSpan where;
  std::vector<Instruction> code;
  bool empty() const { return code.empty(); }
};

struct TypeRef {
  int param = -1;  // index in Op.types, or -1
  DType dtype = DType::kInvalid;
};
struct TypeParam {
  std::string name;
  std::vector<DType> dtypes;
  int attribute = -1;
};
struct Dim {
  int symbol = -1;
  bool ellipsis = false;
  bool bind = false;
  Program program;
};
struct Tensor {
  std::string name;
  TypeRef type;
  std::vector<Dim> dims;
  std::string text;
  bool optional = false, strided = false;
  std::optional<Program> bound, when;
  int alias = -1;
};
struct Attribute {
  std::string name;
  AttributeType type = AttributeType::kInt;
  bool has_default = false;
  std::vector<int64_t> integers;
  std::vector<double> floats;
  std::vector<std::string> choices;
  uint32_t max_len = 0;
};
struct Tolerance {
  int result = 0;
  DType dtype = DType::kInvalid;  // kInvalid: any
  double ulps = 0, relative = 0;
};
struct ProblemTensor {
  bool present = false;
  DType dtype = DType::kInvalid;
  std::vector<int64_t> dims;
};
struct ProblemAttribute {
  int attribute = 0;
  std::vector<int64_t> integers;
  std::vector<double> floats;
};
struct OpProblem {
  std::string text;
  std::vector<ProblemTensor> operands;
  std::vector<ProblemAttribute> attributes;
};

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
// the names that builder/planner gives them. All programs are over a problem.
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
struct Region {
  std::string name;
  TypeRef type;
  Program bytes;
  std::string text;
};
struct NamedProgram {
  std::string name;
  Program program;
};

// Plans of cuDNN for one problem that a variant may have points for.
inline constexpr int64_t kMaxPlans = 16;

// A [[op.X.variant]] of the manifest.
struct Template {
  std::string name;
  Provider provider = Provider::kCuda;
  std::string source;      // as written, relative to the manifest
  std::string compiler;    // "nvrtc", "nvcc", "c++", "triton", "cudnn"
  std::string algorithms;  // cublaslt: the folder of its algorithms, as written
  std::vector<std::string> flags;
  std::vector<std::string> targets;  // empty: all
  std::vector<std::string> tunables;
  std::vector<NamedProgram> lets;
  std::vector<Program> when;
  std::vector<Region> regions;
  std::vector<Step> steps;
  bool portable = false;
  int64_t max_spill = 0;
  std::string profile;            // cudnn: JSON of the device to plan for
  std::vector<int64_t> cudnn;     // cudnn: versions to plan with, 91900 for 9.19.0
  int64_t plans = 1;              // cudnn: of one problem and version, at most
  int64_t max_workspace = 0;      // cudnn: bytes that a plan may ask for
  std::vector<Instruction> tied;  // cudnn: what each tunable but the last two fixes of a problem
  SourceSpan where;

  // Its kept points, in manifest order: types (one per Op.types, free ones too) x tunable values.
  struct Point {
    std::vector<DType> types;
    std::vector<int64_t> tunables;
    int problem = -1;  // cudnn: of Op.problems
    // cublaslt: the target whose GPU listed it (empty: any), and a StoredAlgorithm.
    std::string target, algorithm;
    // cublaslt: the problems that it was listed for, as ListedAlgorithm::problem in text.
    std::vector<std::string> listed_for;
  };
  std::vector<Point> points;
};

struct Op {
  std::string name;  // "family.op"
  std::string summary;
  std::vector<TypeParam> types;
  std::vector<std::string> symbols;
  std::vector<Attribute> attributes;
  std::vector<Tensor> operands, results;
  std::vector<Program> require;
  std::vector<int> coordinates;
  VmapRule vmap = VmapRule::kLoop;
  std::vector<Tolerance> tolerances;
  std::vector<OpProblem> problems;
  std::vector<OpProblem> held_out;  // never tuned by default, in no bundle
  std::vector<Template> templates;
  std::vector<ScoreMod> score_mods;  // the family's, where the op takes them (manifest_score.cc)
  uint64_t interface_hash = 0;
  SourceSpan where;
};

struct Family {
  std::string name;
  std::string manifest_path;  // as given on the command line, for messages
  std::string directory;      // where sources are found
  std::string reference;
  std::vector<ScoreMod> score_mods;
  std::string score_header;  // "score_mods.h" of its sources; empty: there is none
  std::vector<Op> ops;
};

// Every error of the manifest at once (up to 20), each "file:line:col: error: ..." with the source
// line and a caret; the Status is kInvalidArgument.
// probe_workspace: 0, or how much workspace to ask cuBLASLt's heuristic with: variants of provider
// cublaslt then have a probe in place of their algorithms.
Result<Family> ReadManifest(const std::string& path, int64_t probe_workspace = 0);

// A *.toml file, or every *.toml file directly in a folder or in a folder of it, sorted by name.
// kNotFound when there is none.
Result<std::vector<std::string>> FindManifests(const std::vector<std::string>& paths);

// "softmax_rows<{T}, {VEC}>" for one point: C++ type names for cuda, dtype names for host.
std::string SubstituteKernel(const Op& op, const Template& variant, const Template::Point& point,
                             const std::string& kernel);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_H_
