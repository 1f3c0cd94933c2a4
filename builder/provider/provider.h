// A provider: everything that kbundle knows of one way to come by a kernel (CUDA by NVRTC, Triton,
// plans of cuDNN), from its keys in a manifest to its rows in a bundle. A folder beside this file
// holds one; the rest of the builder sees this interface alone.
//
//   manifest ── ReadVariantKeys, ReadPoints, ReadKernelStep | ReadOwnStep, FinishVariant
//   work     ── MakesCodeFor, AddUnits          which compilations a variant needs
//   compile  ── AddCompilers                    what makes a unit's object (compile/compiler.h)
//   compile  ── LearnedSteps                    steps that only a compiler knows
//   doctor   ── AddLooks                        whether its tools are there and work
//   tune     ── LoadLibraries                   what its launches call
//   pack     ── WriteStep, AddToFingerprint     its rows, and what tells two of them apart
//
// To add one: a folder here with a function that returns it, a line in registry.cc, and its other
// half in the loader.
#ifndef KBUNDLE_BUILDER_PROVIDER_PROVIDER_H_
#define KBUNDLE_BUILDER_PROVIDER_PROVIDER_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "builder/model/family.h"
#include "kbundle/status.h"
#include "kbundle/target.h"

namespace kbundle::fb {
struct StepT;
}

namespace kbundle::builder {

class Compiler;
class FingerprintText;
class IndexWriter;
class UnitSet;
struct Look;
struct StepTable;
struct Toolchain;
struct VariantTable;
struct VariantUse;

// Immutable and safe from any thread; lives as long as the process.
class Provider {
 public:
  virtual ~Provider() = default;
  // "cuda": what manifests and --provider call it.
  virtual std::string_view name() const = 0;
  // What bundles call it: under which name the loader looks for its other half.
  virtual std::string_view bundle_name() const { return name(); }

  // Whether its variants can have code for it, and in words for which: "host targets: x86-64-v2".
  // Variants of a portable target say so themselves (Template::portable).
  virtual bool MakesCodeFor(const Target& target) const = 0;
  virtual std::string TargetsInWords() const = 0;
  // What the user should know of a target left out: "Triton makes sm_100a; for that GPU ..", or "".
  virtual std::string WhyLeftOut(const Target& /*target*/) const { return ""; }

  // `source`, `compiler`, `flags`, `targets` and keys of its own.
  virtual void ReadVariantKeys(VariantTable& table) const = 0;
  // Tunables and points, or what stands in their place.
  virtual void ReadPoints(VariantTable& table) const = 0;
  // A step with `kernel`: its name's form and its launch; then, when its arguments are read, hints.
  virtual void ReadKernelStep(StepTable& table) const = 0;
  virtual void FinishKernelStep(StepTable& /*table*/) const {}
  // Whether FinishKernelStep reads `args` itself, in a form of its own.
  virtual bool ReadsArguments() const { return false; }
  virtual bool TakesTensorMaps() const { return false; }
  virtual bool TakesStructs() const { return false; }  // `struct` among `args`
  // The key of steps that are not kernels but calls of its library, "graph"; "" where it has none.
  virtual std::string_view OwnStepKey() const { return ""; }
  virtual void ReadOwnStep(StepTable& /*table*/) const {}
  // When all steps are read.
  virtual void FinishVariant(VariantTable& /*table*/) const {}
  // The verb of kbundle that lists its points on a GPU, into files beside the manifest; "" where
  // they are the manifest's own.
  virtual std::string_view ListingVerb() const { return ""; }
  // Makes the points of a variant anew from the op's problems, where they follow from them.
  virtual void SetProblemPoints(const Op& /*op*/, Template* /*variant*/) const {}

  // What the code calls a step's kernel at a point: "softmax_rows<float, 4>".
  virtual std::string KernelName(const Op& op, const Template& variant,
                                 const Template::Point& point, const Step& step) const = 0;
  // Fills use->units, one for each step: from `units`, or kNoUnit.
  virtual Status AddUnits(UnitSet* units, VariantUse* use) const = 0;
  virtual void AddCompilers(std::vector<std::unique_ptr<Compiler>>* compilers) const = 0;
  // What `kbundle doctor` looks for on its behalf (tools/finding.h).
  virtual void AddLooks(std::vector<Look>* /*looks*/) const {}
  // Takes the libraries that its launches call into this process, for one in which no framework has
  // loaded them. What cannot be had is told by the plan that needs it.
  virtual void LoadLibraries(const Toolchain& /*tools*/) const {}

  // Whether its steps are known only when their units are compiled. Until then each stands for one
  // kernel step; LearnedSteps gives those that take its place, from Object::learned of its unit,
  // with kernels that the object names. kDataLoss, kInternal: not what its compiler leaves there.
  virtual bool LearnsLaunches() const { return false; }
  virtual Result<std::vector<Step>> LearnedSteps(const Op& /*op*/, const Template& /*variant*/,
                                                 const Step& step,
                                                 const std::string& /*learned*/) const {
    return std::vector<Step>{step};
  }
  // Whose work besides the compiler's is in an object: rows for the bundle's provenance.
  virtual void AddLearnedProvenance(const std::string& /*learned*/,
                                    std::map<std::string, std::string>* /*rows*/) const {}

  // What `own` of a step says, as rows of the index and as text.
  virtual void WriteStep(const Step& /*step*/, IndexWriter* /*writer*/, fb::StepT* /*row*/) const {}
  virtual void AddToFingerprint(const Step& /*step*/, FingerprintText* /*text*/) const {}
  // What the fingerprints of records call the kind of its own steps; no two providers have one.
  virtual int own_step_number() const { return 0; }
};

// All there are, in the order in which messages name them.
const std::vector<const Provider*>& Providers();
// Null where there is none of this name.
const Provider* FindProvider(std::string_view name);

// LoadLibraries of all.
void LoadGpuLibraries(const Toolchain& tools);

// Adds one that this library does not carry, while it lives. Not while manifests are read or a
// build runs.
class AddedProvider {
 public:
  explicit AddedProvider(const Provider* provider);
  ~AddedProvider();
  AddedProvider(const AddedProvider&) = delete;
  AddedProvider& operator=(const AddedProvider&) = delete;

 private:
  const Provider* provider_;
};

// The points that follow from problems: after reading an op, and when problems were added.
void SetProblemPoints(Op* op);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_PROVIDER_H_
