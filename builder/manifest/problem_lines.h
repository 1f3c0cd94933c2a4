// `problems = "problems.jsonl"` of [family]: the problems of its ops, a line each, which several
// ops may share.
//
//   {"op": ["forward", "backward"], "T": "bf16", "x": [4096, 4096], "dy": [4096, 4096]}
//   {"op": "forward", "held_out": true, "T": "bf16", "x": [512, 12288]}
//
// An op takes of a line the names that it has; every name must be one of some op of the line.
#ifndef KBUNDLE_BUILDER_MANIFEST_PROBLEM_LINES_H_
#define KBUNDLE_BUILDER_MANIFEST_PROBLEM_LINES_H_

#include <string>
#include <vector>

#include "builder/expression/names.h"
#include "builder/manifest/tree.h"

namespace kbundle::builder {

class ProblemLines {
 public:
  // file: the number of `text` in diagnostics. Errors are reported.
  ProblemLines(std::string_view text, int file, Diagnostics& diagnostics);

  // What lines say of the op, as its `problems` and `held_out` would say it.
  struct OfOp {
    Node problems, held_out;  // arrays
  };
  // names: types, operands and attributes of the op `name` (without its family).
  OfOp Take(const std::string& name, const Names& names);

  // Reports ops that are not in `ops`, and names that no op of their line has. After all ops took
  // theirs.
  void Finish(const std::vector<std::string>& ops);

 private:
  struct Line {
    std::vector<Node> ops;  // texts
    bool held_out = false;
    Node problem;
    std::vector<bool> known;  // of problem.fields
  };
  void Add(Node object);

  Diagnostics& diagnostics_;
  std::vector<Line> lines_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_PROBLEM_LINES_H_
