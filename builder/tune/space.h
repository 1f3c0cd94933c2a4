// What there is to measure: the problems of manifests (or of a file), the variants that are legal
// for each, and their code, compiled only where it is going to be measured.
//
// Legality is asked of an outline: a bundle of all variants without code, packed in milliseconds
// and read through the loader like any other. Code is compiled beside the measuring
// (candidate_code.h) and packed into one bundle per op, from which the measuring child loads it.
#ifndef KBUNDLE_BUILDER_TUNE_SPACE_H_
#define KBUNDLE_BUILDER_TUNE_SPACE_H_

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "builder/compile/compile.h"
#include "builder/compile/work.h"
#include "builder/store/object_store.h"
#include "builder/support/temporary_folder.h"
#include "builder/tune/candidate_code.h"
#include "kbundle/bundle.h"

namespace kbundle::builder {

struct SpaceOptions {
  std::vector<std::string> paths;
  std::string target;   // "sm_90a", "x86-64-v3"
  std::string op;       // only this one; "" all
  std::string add;      // a file of problems to list beside the manifests' own; "" none
  bool asking = false;  // variants that ask a heuristic too, which no record may name
  std::string cache_dir;
  int jobs = 0;
  std::string python;  // with Triton, as `kbundle build --python`
  std::chrono::seconds compile_limit{300};
};

// A variant that is legal for a problem.
struct SpaceCandidate {
  std::string id;    // "softmax.scaled_forward/warp_row[T=bf16,VEC=8]@sm_90a"
  uint32_t use = 0;  // in Work::variants
};

struct SpaceProblem {
  Problem problem;  // of the outline
  const Family* family = nullptr;
  std::vector<SpaceCandidate> candidates;  // in manifest order
};

class TuneSpace {
 public:
  static Result<std::unique_ptr<TuneSpace>> Open(const SpaceOptions& options);

  const Bundle& outline() const { return *outline_; }
  const Device& device() const { return device_; }
  const Work& work() const { return work_; }
  const SpaceOptions& options() const { return options_; }
  std::string LabelOf(uint32_t use) const;  // its id
  const std::vector<Family>& families() const { return families_; }
  const CompileContext& context() const { return context_; }
  const ObjectStore& store() const { return *store_; }
  int passed_over() const { return passed_over_; }  // problems in SpaceOptions::add

  // Those that the manifests list. kInvalidArgument: the op named in the options does not exist.
  Result<std::vector<SpaceProblem>> ListedProblems() const;
  // The manifests' `held_out`, which measure how good the choice for an unseen problem is.
  Result<std::vector<SpaceProblem>> HeldOutProblems() const;
  // The variants that are legal for it.
  Result<SpaceProblem> MakeProblem(const Problem& problem) const;

  // Starts to compile, in a thread of its own, what these variants need, in this order.
  Status StartCompiling(const std::vector<uint32_t>& uses);
  // Waits for the code of these variants of one op and packs it. Variants without code are left
  // out: FailureOf says why. Path of the bundle, in a folder that lives as long as this.
  Result<std::string> PackedBundle(const std::vector<uint32_t>& uses);
  // Why a variant has no code; "" when it has.
  std::string FailureOf(uint32_t use);
  // Of its code, once it is packed; "" where there is none.
  std::string FingerprintOf(uint32_t use) const;
  // SHA-256 of its code objects, as far as a variant that has them too is packed.
  std::set<std::string> DigestsOf(uint32_t use) const;
  // How to see it again.
  std::string CompileCommand(uint32_t use);

 private:
  TuneSpace() = default;
  Status ReadFamilies(const SpaceOptions& options);
  Status PlanFamilies();
  Status PackOutline();
  Status AddFile();
  bool Asks(uint32_t use) const;
  void KeepListed(SpaceProblem* problem) const;
  Result<std::vector<SpaceProblem>> ProblemsListedBy(const Bundle& bundle) const;
  std::vector<std::string> CompileWords(uint32_t unit) const;
  Work OnlyOf(const std::vector<uint32_t>& uses) const;
  void LeaveOutRefused(const std::vector<Object>& objects, std::vector<uint32_t>* uses, Work* only);

  SpaceOptions options_;
  std::vector<Family> families_;
  Work work_;
  std::map<std::string, uint32_t> use_of_;  // a variant's id -> its place in work_.variants
  Device device_;
  std::unique_ptr<TemporaryFolder> folder_;
  std::shared_ptr<const Bundle> outline_;
  std::unique_ptr<ObjectStore> store_;
  CompileContext context_;
  std::unique_ptr<CandidateCode> code_;           // uses the two above
  std::map<uint32_t, std::string> fingerprints_;  // by variant
  std::map<uint32_t, std::string> digests_;       // by unit
  int bundles_ = 0, passed_over_ = 0;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_TUNE_SPACE_H_
