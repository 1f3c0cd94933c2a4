// One way to compute an op: where it is legal, its steps, and the points of its grid.
#ifndef KBUNDLE_BUILDER_MODEL_VARIANT_H_
#define KBUNDLE_BUILDER_MODEL_VARIANT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "builder/model/step.h"
#include "kbundle/format.h"

namespace kbundle::builder {

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

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MODEL_VARIANT_H_
