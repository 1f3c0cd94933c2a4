// All units of a build: what the store has is taken from it, the rest is compiled, side by side.
#ifndef KBUNDLE_BUILDER_PIPELINE_COMPILE_ALL_H_
#define KBUNDLE_BUILDER_PIPELINE_COMPILE_ALL_H_

#include <atomic>
#include <string>
#include <vector>

#include "builder/compile/compile.h"
#include "builder/compile/unit_key.h"
#include "builder/pipeline/build.h"
#include "builder/store/object_store.h"

namespace kbundle::builder {

// Borrows everything given to it. Not thread-safe; uses threads inside.
class UnitBuilder {
 public:
  UnitBuilder(const BuildOptions& options, const Work* work, const CompileContext* context,
              const ObjectStore* store, ToolDigests* digests, Reporter* reporter);

  // Keys of all units, and objects of those that the store has.
  Status LookUp();
  // --dry-run, --explain: a line per unit that has to be compiled.
  void Explain() const;
  // Compiles what LookUp did not find. Failures are reported one by one as they come and counted;
  // without keep_going the first lets running compilations end and starts no more. kCancelled when
  // `cancel` was set.
  Status CompileMissing(const std::atomic<bool>& cancel, BuildReport* report);

  // What LookUp did not find, in an order that serves the compilers; and one of them, into the
  // store: safe from any thread while units differ.
  std::vector<int> MissingUnits() const;
  Status Compile(int unit);
  // What is kept of it into the shared store, where that lacks it.
  void Share(int unit) const;
  // For people: why a unit has no code, and how to see it again.
  std::string FailureText(int unit, const Status& status) const;

  // All units, and why those that are missing are.
  std::vector<BuildUnit> Units() const;
  // --no-compile: OK when nothing would have to be compiled, parameter types neither; else
  // kFailedPrecondition, which lists what, why, and the commands that make it.
  Status NeedNothing(const std::vector<Family>& families) const;

  // Once its object is there: the types of a unit's kernels' parameters, where the symbols do not
  // tell them; from the store, or read and put there. None where the compiler does not say.
  ParameterTypes TypesOf(int unit) const;
  std::vector<ParameterTypes> ReadTypes() const;  // of all, by unit

  const std::vector<Object>& objects() const { return objects_; }    // by unit
  const std::vector<UnitInputs>& inputs() const { return inputs_; }  // by unit
  bool IsMissing(int unit) const;                                    // since LookUp
  int missing() const { return static_cast<int>(missing_.size()); }

 private:
  struct Missing {
    int unit;
    std::string why;
  };
  bool Take(int unit);  // from the store; false: it must be compiled
  void Keep(int unit, Object object);
  bool KnowsTypes(int unit) const;
  // The status's message, and where the manifest names a kernel that the source does not have.
  std::string Explained(int unit, const Status& status) const;

  const BuildOptions& options_;
  const Work& work_;
  const CompileContext& context_;
  const ObjectStore& store_;
  Reporter& reporter_;
  KeyMaker keys_;
  std::vector<UnitInputs> inputs_;
  std::vector<Object> objects_;
  std::vector<Missing> missing_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PIPELINE_COMPILE_ALL_H_
