// How one unit of a build is named to another process: the words of `kbundle compile-unit`.
#ifndef KBUNDLE_BUILDER_PIPELINE_UNIT_COMMAND_H_
#define KBUNDLE_BUILDER_PIPELINE_UNIT_COMMAND_H_

#include <string>
#include <vector>

#include "builder/compile/unit_key.h"
#include "builder/model/family.h"
#include "builder/pipeline/build.h"

namespace kbundle::builder {

// As another process may open it: relative to the working folder as it was given, so that a copy of
// the tree will do, or absolute where it leaves that folder ("..").
std::string PathForOthers(const std::string& path);

// The manifests that decide what the unit is: those of its folder, which may share a source.
std::vector<std::string> ManifestsOf(const Unit& unit, const std::vector<Family>& families);

// What decides the unit, as its key has it, and the toolkit's headers.
NamedDigests InputsOf(const UnitInputs& inputs);

// ["kbundle", "compile-unit", MANIFEST.., "--target", T, "--unit", LABEL, "--key", KEY]; names no
// store. with_inputs: and how each input's digest begins, so that what differs can be told.
std::vector<std::string> UnitCommand(const BuildOptions& options, const Unit& unit,
                                     const UnitInputs& inputs, const std::vector<Family>& families,
                                     bool with_inputs);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_UNIT_COMMAND_H_
