// One way to compute an op: where it is legal, its steps, and the points of its grid.
#ifndef KBUNDLE_BUILDER_MODEL_VARIANT_H_
#define KBUNDLE_BUILDER_MODEL_VARIANT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "builder/model/step.h"
#include "kbundle/format.h"

namespace kbundle::builder {

class Provider;  // builder/provider/provider.h

struct Region {
  std::string name;
  TypeRef type;
  Program bytes;
  std::string text;
  std::vector<Program> dims = {};
};
struct NamedProgram {
  std::string name;
  Program program;
};

// A [[op.X.variant]] of the manifest.
struct Template {
  std::string name;
  const Provider* provider = nullptr;  // lives as long as the process
  std::string source;                  // as written, relative to the manifest
  std::string compiler;  // of its kernels: "nvrtc", "nvcc", "c++"; in the bundle for people to read
  std::vector<std::string> flags;
  std::vector<std::string> targets;  // empty: all
  std::vector<std::string> tunables;
  std::vector<NamedProgram> lets;
  std::vector<Program> when;
  std::optional<Program> deterministic, batch_invariant;  // where it promises so; none: nowhere
  std::vector<Region> regions;
  std::vector<Step> steps;
  bool portable = false;
  bool spare = false;  // nothing falls back on it, so that lean builds need not have it
  int64_t max_spill = 0;
  std::shared_ptr<const ProviderPart> own;  // the provider's own; null: it keeps nothing
  SourceSpan where;

  // Its kept points, in manifest order: types (one per Op.types, free ones too) x tunable values.
  struct Point {
    std::vector<DType> types;
    std::vector<int64_t> tunables;
    int problem = -1;    // the only one of Op.problems that it is for; -1: any
    std::string target;  // the only one that it is for; empty: any
    std::string code;    // bytes that are its object, where it was found and not compiled
    bool asks = false;   // its own steps have no object: a heuristic completes them in the loader
    std::vector<std::string>
        listed_for;  // problems, in JSON, that are worth tuning it for; empty: any
  };
  std::vector<Point> points;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MODEL_VARIANT_H_
