// The parts of ReadManifest: each reads one section of an op's table into plain values and reports
// what is wrong, going on as far as that makes sense.
#ifndef KBUNDLE_BUILDER_MANIFEST_READER_H_
#define KBUNDLE_BUILDER_MANIFEST_READER_H_

#include <optional>
#include <string>
#include <vector>

#include "builder/expression/compile.h"
#include "builder/expression/shape.h"
#include "builder/manifest/fields.h"

namespace kbundle::builder {

// Everything that reading an expression needs to know about where it stands. Borrows all.
struct Context {
  Diagnostics& diagnostics;
  const Op& op;
  const Names& names;
  const Template* variant = nullptr;       // null in the interface
  const std::string* directory = nullptr;  // of the manifest; null where nothing names a file
};

// manifest/expression.cc
void Report(const Context& context, const Node& text, const ExpressionError& error);
// A string, or a plain number or boolean. Nothing after an error.
std::optional<Compiled> ReadExpression(const Context& context, const Node& node,
                                       const Place& place);
std::optional<Program> ReadInteger(const Context& context, const Node& node, const Place& place);
std::optional<Program> ReadCondition(const Context& context, const Node& node, const Place& place);
// An expression that is part of a longer text (a shape, an argument).
std::optional<Compiled> CompilePart(const Context& context, const Node& text,
                                    const Expression& expression, const Place& place);
std::optional<TypeRef> ResolveType(const Context& context, const Node& text,
                                   const std::string& type, int offset);
// The bytes of a dense tensor as a program without source text.
Program TensorBytes(const Tensor& tensor);

// manifest/attributes.cc: `attributes`, then `types`.
void ReadAttributes(Fields& fields, Op& op, Names& names, Diagnostics& diagnostics);
void ReadTypes(Fields& fields, Op& op, Names& names, Diagnostics& diagnostics);
// A value for an attribute (a default, or in a problem); false after an error.
bool ReadAttributeValue(const Attribute& attribute, const Node& node, Diagnostics& diagnostics,
                        std::vector<int64_t>* integers, std::vector<double>* floats);

// manifest/tensors.cc: `operands`, `results`, `aliases`.
void ReadTensors(Fields& fields, Op& op, Names& names, Diagnostics& diagnostics);

// manifest/promises.cc
void ReadIndependent(Fields& fields, const Context& context, Op& op);
void ReadTolerance(Fields& fields, Op& op, Diagnostics& diagnostics);
// `deterministic` and `batch_invariant`, of a variant; those of an op hold for its variants that
// say nothing of their own.
void ReadPromises(Fields& fields, const Context& context, Template& variant);
void TakeOpsPromises(Fields& fields, std::vector<Field>* promises);

// manifest/problems.cc: after the interface is whole and right.
void ReadProblems(const Node& problems, const Op& op, const Names& names, Diagnostics& diagnostics,
                  std::vector<OpProblem>* read);

// manifest/variant.cc
// probe_workspace: as of ReadManifest.
std::optional<Template> ReadVariant(const Node& node, const Op& op, const Names& names,
                                    const std::string& directory, int64_t probe_workspace,
                                    Diagnostics& diagnostics);

// manifest/lets.cc: in an order where each uses only earlier ones.
void ReadLets(const Node& lets, const Op& op, Names& names, Template& variant,
              Diagnostics& diagnostics);

// manifest/steps.cc, manifest/arguments.cc
void ReadSteps(const Node& steps, const Context& context, Template& variant);
std::optional<Arg> ReadArgument(const Context& context, const Node& node, Step& step);
// One that is a text; in a struct integers may be smaller than i32.
std::optional<Arg> ReadArgumentText(const Context& context, const Node& node, bool in_struct);
// manifest/structs.cc: a table with `struct`.
std::optional<Arg> ReadStruct(const Context& context, const Node& node, Step& step);
// The name of an operand, result or region, as its pointer.
std::optional<Arg> ReadPointer(const Context& context, const Node& node);
// `tensor` of a table, a pointer, with `at`, its offset in elements, where the table has one.
std::optional<Arg> ReadPlace(const Context& context, Fields& fields);
// That a kernel gets for it, which is no struct.
int64_t PassedBytes(const Arg& arg);

// manifest/score.cc: `score_mods` of [family]; then, of an op's table that has the key, what it
// stands for. False when the op has none.
void ReadScoreMods(Fields& fields, Family& family, Diagnostics& diagnostics);
bool ExpandScoreMods(const Family& family, Node& op, Diagnostics& diagnostics);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_READER_H_
