// A family as plain values: parsed, type-checked and compiled to programs. Nothing here refers to
// TOML any more.
#ifndef KBUNDLE_BUILDER_MODEL_FAMILY_H_
#define KBUNDLE_BUILDER_MODEL_FAMILY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "builder/model/variant.h"
#include "builder/score/expression.h"
#include "kbundle/format.h"

namespace kbundle::builder {

// A way to cut a problem into parts that are problems of their own.
struct Cut {
  std::vector<int> symbols;  // divided together; an ellipsis stands alone
  std::optional<Program> when;
  std::vector<int> sums;  // results that are the sum of the parts' where none of their dims is cut
  std::vector<int> once;  // operands that are zero in all parts but one, where none of theirs is
  bool batch = false;     // along it lie the items of a batch
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
  std::vector<Cut> independent;
  VmapRule vmap = VmapRule::kLoop;
  std::vector<Tolerance> tolerances;
  std::vector<OpProblem> problems;
  std::vector<OpProblem> held_out;  // never tuned by default, in no bundle
  std::vector<Template> templates;
  std::vector<ScoreMod> score_mods;  // the family's, where the op takes them (manifest/score.cc)
  uint64_t interface_hash = 0;
  SourceSpan where;
};

// Of the elements behind a pointer; types: of a point.
DType DTypeOf(const Arg& pointer, const Op& op, const Template& variant,
              const std::vector<DType>& types);
// Whether a result is written over it.
bool IsInOut(const Op& op, int operand);

struct Family {
  std::string name;
  std::string manifest_path;  // as given on the command line, for messages
  SourceFiles sources;        // the manifest, and what it names, for messages of later steps
  std::string directory;      // where sources are found
  std::string reference;
  std::vector<ScoreMod> score_mods;
  std::string score_header;  // "score_mods.h" of its sources; empty: there is none
  std::vector<Op> ops;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MODEL_FAMILY_H_
