// Everything that a loader does with a file, from open to plan, on bytes that somebody changed: what
// the fuzz target runs, and a unit test as well. Runs no code out of the bundle.
#ifndef KBUNDLE_TESTS_SUPPORT_OPEN_TO_PLAN_H_
#define KBUNDLE_TESTS_SUPPORT_OPEN_TO_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kbundle/runtime.h"
#include "support/bundle_maker.h"
#include "support/fake_driver.h"

namespace kbundle::testing {

// Makes header fields and hashes fit the bytes, so that a change gets past them.
void RepairHashes(std::string* bytes);

// Bundles of every kind that the tests know, their index by BundleMaker's own hand or another.
std::vector<std::string> FuzzSeeds(decltype(BundleMaker::write_index) write_index = nullptr);

// Changes a few aligned numbers of the index, as its structure has them. Same seed, same change.
void ChangeNumbers(std::string* bytes, uint32_t seed);

class OpenToPlan {
 public:
  OpenToPlan() { driver_.Record(false); }
  // Opens, describes, explains, selects, resolves, reads blobs and makes plans for a GPU that runs
  // nothing and for the CPU, with everything checked at once and op by op. True when the bytes
  // opened with everything checked.
  bool Run(const std::string& bytes);

 private:
  void RunByOp(const std::string& path, bool sound);
  FakeDriver driver_;
  Runtime runtime_{driver_.api()};
};

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_OPEN_TO_PLAN_H_
