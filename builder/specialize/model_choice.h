// What a bundle chooses for each problem of a model, as values that outlive the bundle: for the
// comparison that `kbundle specialize` prints, and that a killed run finds again.
#ifndef KBUNDLE_BUILDER_SPECIALIZE_MODEL_CHOICE_H_
#define KBUNDLE_BUILDER_SPECIALIZE_MODEL_CHOICE_H_

#include <map>
#include <string>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/select.h"

namespace kbundle::builder {

struct ModelChoice {
  std::string problem = {};  // as people read it
  std::string variant = {};  // its id; "": nothing is legal
  std::string how = {};      // "exact", "nearest", ..; where nothing is legal, why
  bool tuned_here = false;   // by a record of this problem on this model of device
  bool runs_strict = false;
  bool empty = false;                     // it has no element, so nothing is launched
  std::map<std::string, double> us = {};  // of its record, by variant
};

// In the file's order. Problems of families that the bundle does not have are left out. Errors name
// file and line. `recorded_as`: the device's name in tuning records.
Result<std::vector<ModelChoice>> ChoicesFor(const Bundle& bundle, const std::string& model,
                                            const Device& device, const std::string& recorded_as);

// What was chosen before, kept in a file until the work is done; empty where there is no file, or
// one of another `key`, which says what the choices are of. kFailedPrecondition: it is no such
// file.
Result<std::vector<ModelChoice>> ReadChoices(const std::string& path, const std::string& key);
Status WriteChoices(const std::string& path, const std::string& key,
                    const std::vector<ModelChoice>& choices);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SPECIALIZE_MODEL_CHOICE_H_
