// Provider: who made the code of a variant, and all that the rest of the loader does not know.
//
//   a step of a variant      verified        resolved        made ready, enqueued
//   ------------------       --------        --------        --------------------
//   kernel                   provider        resolve/        cuda/, host/
//   memset, copy             verify/         resolve/        cuda/, host/
//   own                      provider        provider        provider
//
// A new provider is a folder below this one and a line in runtime/providers.cc. What may stand in a
// file of it is in FORMAT.md, its numbers in schemas/include/kbundle/provider/.
//
// One immutable object a provider, as long as the process. All methods are safe from any thread.
#ifndef KBUNDLE_LOADER_PROVIDER_H_
#define KBUNDLE_LOADER_PROVIDER_H_

#include <memory>
#include <span>
#include <string_view>

#include "kbundle/bundle_generated.h"
#include "kbundle/format.h"
#include "kbundle/status.h"

namespace kbundle {

class CudaSteps;
class LaunchJson;
class Resolver;
struct ProgramScope;
struct ResolvedStep;

class Provider {
 public:
  virtual ~Provider() = default;

  virtual std::string_view name() const = 0;  // as Index.providers spells it

  // ---- Verify: once, when a bundle is opened (verify/steps.h helps) ----
  // Of what kind a target may be.
  virtual bool MakesCodeFor(TargetKind kind) const = 0;
  // A kernel step's programs; its arguments and tensor maps are verified already.
  virtual Status VerifyKernel(const ProgramScope& scope, const fb::Step& step) const = 0;
  // What the index says of one kernel beside its code: here, that there is nothing to say.
  virtual Status VerifyKernelRow(const fb::Kernel& row) const;
  // Here: that there are no own steps.
  virtual Status VerifyOwn(const ProgramScope& scope, const fb::Step& step) const;
  virtual Status VerifyOwnRow(const fb::Kernel& row) const;

  // ---- Choose ----
  // What a process must bring, as a sentence's part: "libx.so.1"; empty: nothing. Whoever needs a
  // library may refuse a legal variant when a plan is made, so selection goes on behind it.
  virtual std::string_view needs() const { return {}; }
  // Who completes an own step that has no blob when a plan is made: "cuBLASLt's heuristic"; empty:
  // nobody, so that it must have one.
  virtual std::string_view asks() const { return {}; }
  // Whether its variants are for one problem each, which their `when` compares with their tunables.
  virtual bool ForOneProblem() const { return false; }

  // ---- Resolve: an own step in numbers ----
  // False: for this problem there is nothing to do.
  virtual Result<bool> ResolveOwn(Resolver& resolver, const fb::Step& step, const fb::Kernel& row,
                                  ResolvedStep& out) const;

  // ---- Explain ----
  // What people call an own step, and its blob.
  virtual std::string_view OwnStepName() const { return "own"; }
  virtual std::string_view OwnBlobName() const { return OwnStepName(); }
  // The keys of an own step behind "step" and "kind".
  virtual void ExplainOwn(const ResolvedStep& step, LaunchJson& json) const;

  // ---- Make ----
  // What one Runtime keeps for its plans of own steps on GPUs; null: there are none.
  virtual std::shared_ptr<CudaSteps> NewCudaSteps() const;
};

// All that this program knows: runtime/providers.cc. A test program may have a list of its own.
std::span<const Provider* const> Providers();
// Null: this program does not know it.
const Provider* FindProvider(std::string_view name);
// Of a verified index.
const Provider& ProviderOf(const fb::Index& index, const fb::Template& row);
const Provider& ProviderOf(const fb::Index& index, uint32_t variant);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_PROVIDER_H_
