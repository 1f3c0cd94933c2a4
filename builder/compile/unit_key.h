// The identity of a compilation: everything that decides its result, named so that a change can be
// told ("forward.cuh changed"). Not in it: paths, the number of jobs, names of outputs, the time.
#ifndef KBUNDLE_BUILDER_COMPILE_UNIT_KEY_H_
#define KBUNDLE_BUILDER_COMPILE_UNIT_KEY_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "builder/compile/compile.h"

namespace kbundle::builder {

struct UnitInputs {
  std::shared_ptr<const SourceTree> tree;
  std::vector<std::pair<std::string, std::string>> named;  // name -> SHA-256 as text
  std::string key;                                         // SHA-256 over them
  // Over the toolkit's headers that the source reaches: compared with what the object remembers,
  // since only the compilation knows which toolkit it used.
  std::string toolkit;

  std::string Note() const;  // what WhyChanged compares with the next time
};

// The name under which an object's `reads` remember UnitInputs::toolkit.
inline constexpr char kToolkitHeaders[] = "the toolkit's headers";

// Remembers digests for one build. Not thread-safe.
class KeyMaker {
 public:
  // Borrows both.
  KeyMaker(const CompileContext* context, ToolDigests* digests)
      : context_(*context), digests_(*digests) {}

  Result<UnitInputs> Make(const Unit& unit);
  // "" while every file outside the tree is as the object's compiler read it; else which is not.
  std::string ChangedRead(const UnitInputs& inputs, const Object& object);

 private:
  Result<UnitInputs> Finish(const Unit& unit, UnitInputs inputs);
  Status AddSources(const Unit& unit, UnitInputs* inputs);
  std::string ToolkitDigest(const std::vector<std::string>& included);
  std::string ModuleDigest(const Compiler& compiler, const std::string& module);
  const std::string& FileDigest(const std::string& path);  // "" when it cannot be read

  const CompileContext& context_;
  ToolDigests& digests_;
  SourceReader reader_;
  std::map<std::string, std::string> files_;
  std::map<std::pair<std::string, std::string>, std::string> modules_;  // by compiler and name
  std::map<std::string, std::vector<std::string>> included_;  // by path of a header, what it names
};

// "first build", "forward.cuh changed", "compiler changed, flags changed"; `note`: UnitInputs::Note
// of the last build of the unit, or "".
std::string WhyChanged(const UnitInputs& now, const std::string& note);

// What differs from inputs elsewhere, name and SHA-256 as text (or how it begins): "rows.h changed,
// part.h is new"; "" when nothing does. The toolkit's headers count where `then` names them.
using NamedDigests = std::vector<std::pair<std::string, std::string>>;
std::string WhatDiffers(const UnitInputs& now, const NamedDigests& then);

// Where the note of a unit is kept.
std::string NoteKey(const Unit& unit);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_UNIT_KEY_H_
