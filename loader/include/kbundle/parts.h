// Parts: one library in several files, each with the same ops for other targets, asked as one.
//
// A bundle by itself is a library of one part, and what is asked of it goes straight to it. Of
// several, a problem on a device goes to the part that has the most specific code for the device,
// and where that has nothing for the problem, to the next: the order of targets within one bundle.
// Immutable; every method is const and safe from any thread. Keeps its bundles.
#ifndef KBUNDLE_PARTS_H_
#define KBUNDLE_PARTS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/problem.h"
#include "kbundle/select.h"
#include "kbundle/sha256.h"
#include "kbundle/target.h"

namespace kbundle {

// A part that is not here, as somebody knows who does: for which target, and how to get it, in
// words that follow a colon ("pip install \"leafy[sm80]\"").
struct AbsentPart {
  Target target;
  std::string how;
};

class Parts {
 public:
  using BundlePtr = std::shared_ptr<const Bundle>;

  // The bundle at the path, and where PATH.parts beside it says that it is the base of a library,
  // the parts that are there: of the base's version, in packages beside the base's own, and then in
  // `folders` (what the file says: loader/parts/beside.h). What is not there is absent(). Errors
  // are Bundle::Open's and Join's; kFailedPrecondition: PATH.parts makes no sense, or a part is of
  // another version; kNotFound: a part has lost its bundle.
  static Result<std::shared_ptr<const Parts>> Open(const std::string& path,
                                                   Checks checks = Checks::kAll,
                                                   const Allocator& allocator = {},
                                                   const std::vector<std::string>& folders = {});
  static std::shared_ptr<const Parts> Of(BundlePtr bundle);
  // Requires one bundle or more. kInvalidArgument: two have code for one target, or have different
  // names or ops, and which. That they declare an op alike is checked when it is first asked for.
  static Result<std::shared_ptr<const Parts>> Join(std::vector<BundlePtr> bundles,
                                                   std::vector<AbsentPart> absent = {});

  const std::vector<BundlePtr>& all() const { return bundles_; }
  // Whose declarations are everyone's.
  const Bundle& first() const { return *bundles_.front(); }
  const std::vector<AbsentPart>& absent() const { return absent_; }
  std::string_view name() const { return first().name(); }
  const std::string& path() const { return path_; }  // of several "a.kb, b.kb"
  // Of one part the bundle's; of several it is theirs together, in any order.
  const Sha256Digest& digest() const { return digest_; }
  std::string content_id() const;

  bool HasOp(std::string_view op) const { return first().HasOp(op); }
  // As Bundle's; kFailedPrecondition where the parts declare the op differently, naming both.
  Result<uint32_t> FindInterface(std::string_view op) const;
  // As Bundle's; a problem of the first part.
  Result<Problem> MakeProblem(std::string_view op, const ProblemSpec& spec) const;
  Status VerifyAll() const;
  // The same request as a problem of another part, by its place in all().
  Result<Problem> ProblemIn(size_t part, const Problem& problem) const;

  // Asks the parts with code for the device until one answers OK, the best first; where a variant
  // is forced, the parts that have it and no other. An answer that is kNotFound, or of what this
  // machine lacks, leads to the next part, damage to none; nor, with batch_invariant, does anything
  // but kNotFound, since a smaller batch might be served here. The error is of all that were asked;
  // where no part has code for the device, it is kNotFound and says which targets are here, and how
  // to get what is not.
  using Ask = std::function<Status(const BundlePtr& part, const Problem& problem)>;
  Status Serve(const Problem& problem, const Device& device, const SelectOptions& options,
               const Ask& ask) const;

  // Those of absent() whose code would go before all that is here on the device.
  std::vector<AbsentPart> Missed(const Device& device) const;

  // "; there is: sm_90a (a.kb); pip install ..": which targets, and what of those that are not here
  // would do for a device of the kind; device null: any.
  std::string WhatThereIs(Device::Kind kind, const Device* device) const;

 private:
  Parts(std::vector<BundlePtr> bundles, std::vector<AbsentPart> absent);
  std::vector<size_t> Order(const Problem& problem, const Device& device,
                            const SelectOptions& options) const;
  Status CheckAlike(uint32_t op) const;

  std::vector<BundlePtr> bundles_;
  std::vector<AbsentPart> absent_;
  std::string path_;
  Sha256Digest digest_;
  std::unique_ptr<std::atomic<bool>[]> alike_;  // by op of the first; null where there is one part
};

// What SelectFirstLaunchable says of the part that serves.
struct Served {
  Parts::BundlePtr bundle;
  Problem problem;  // of that bundle
  Selected selected;
};
Result<Served> SelectFirstLaunchable(const Parts& parts, const Problem& problem,
                                     const Device& device, const SelectOptions& options = {});

// The most of any part. kNotFound: no part has a legal variant for this kind of device.
Result<int64_t> MaxWorkspaceBytes(const Parts& parts, const Problem& problem, Device::Kind kind);

}  // namespace kbundle

#endif  // KBUNDLE_PARTS_H_
