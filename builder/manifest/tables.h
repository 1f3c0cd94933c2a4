// What providers read of a manifest: a variant's table and a step's, and the keys that several of
// them have in common.
#ifndef KBUNDLE_BUILDER_MANIFEST_TABLES_H_
#define KBUNDLE_BUILDER_MANIFEST_TABLES_H_

#include <string>
#include <vector>

#include "builder/manifest/reader.h"

namespace kbundle::builder {

// A [[op.X.variant]] while it is read. Borrows all.
struct VariantTable {
  Fields& fields;
  const Op& op;
  Names& names;
  const std::string& directory;   // of the manifest
  const int64_t probe_workspace;  // as of ReadManifest
  Template& variant;
  Diagnostics& diagnostics;
};

// One of its steps while it is read. Borrows all.
struct StepTable {
  Fields& fields;
  const Context& context;
  Template& variant;
  Step& step;
};

// manifest/variant_keys.cc
void ReadSource(VariantTable& table, bool required);
void ReadStepSource(StepTable& table);  // `source` of a step that has another than its variant
void ReadFlags(VariantTable& table);
void ReadTargets(VariantTable& table);  // errors say what the provider makes code for
// Reports each of these keys that is there: "a variant of cudnn has no `flags`".
void RefuseKeys(VariantTable& table, const std::vector<std::string>& keys, const std::string& note);

// manifest/grid.cc: `types`, `tunables`, `keep`; fills variant.tunables and variant.points.
void ReadGrid(VariantTable& table);
// `types` alone: a point for each combination, without tunables.
void ReadTypePoints(VariantTable& table);
// Makes a tunable that no key names known to expressions; `whose`: "algorithms", for messages.
void DeclareTunable(VariantTable& table, const std::string& name, const std::string& whose);

// Reports a point of the grid at which the program, over tunables and types
// alone, is not from 1 to `most`.
void CheckAtPoints(const Context& context, const std::string& key, const Program& program,
                   int64_t most, bool power_of_two);

// manifest/launch.cc. Every {NAME} of a kernel must be a type parameter or a tunable.
void CheckPlaceholders(const Context& context, const Node& kernel);
// grid, block, cluster, shared, programmatic.
void ReadGpuLaunch(StepTable& table);
// One to three sizes of `key`.
std::vector<Program> ReadDims(StepTable& table, const std::string& key, const Place& place);

// The variant is legal only where this holds as well, under the step's `when` if it has one. The
// code has no lets; the text tells the conditions of a variant apart.
void AddCondition(StepTable& table, std::vector<Instruction> code, std::string text,
                  const SourceSpan& where);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_MANIFEST_TABLES_H_
