// A lean bundle chooses what the whole one does, on every target, for problems made at random from
// the ops' declarations; and what it keeps to fall back to is of no library where the whole one's
// is not.
//
// KBUNDLE_LEAN_PROBLEMS says how many problems [1000], KBUNDLE_LEAN_SEED where they begin, and
// KBUNDLE_LEAN_BUNDLES="WHOLE.kb:LEAN.kb" names two bundles of kernels/ to compare instead of two
// without code: scripts/lean_check.
#include "builder/pipeline/lean.h"

#include <map>

#include "builder/library.h"
#include "builder/manifest/find.h"
#include "builder/manifest/manifest.h"
#include "builder/pack/outline.h"
#include "builder/pack/pack.h"
#include "builder/random_problems.h"
#include "kbundle/select.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

size_t NumberIn(const char* variable, size_t otherwise) {
  const char* value = getenv(variable);
  return value == nullptr ? otherwise : std::strtoul(value, nullptr, 10);
}

// A GPU of every kind that the targets tell apart, and every level of CPU.
std::vector<Device> Devices() {
  std::vector<Device> devices;
  for (const auto& [major, minor] : std::vector<std::pair<int, int>>{
           {7, 5}, {8, 0}, {8, 9}, {9, 0}, {10, 0}, {10, 3}, {12, 0}}) {
    devices.push_back({Device::Kind::kCuda, major, minor, 132, ""});
  }
  devices.push_back({Device::Kind::kCuda, 9, 0, 132, "NVIDIA H200"});
  for (int level : {2, 3, 4}) devices.push_back({Device::Kind::kHost, level, 0, 1, ""});
  return devices;
}

class LeanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = SearchManifests({::kbundle::testing::SourceDir() + "/kernels"});
    ASSERT_TRUE(found.ok());
    for (const std::string& path : found->families) {
      Result<Family> family = ReadManifest(path);
      ASSERT_TRUE(family.ok()) << family.status().message();
      families_.push_back(std::move(*family));
    }
    if (const char* paths = getenv("KBUNDLE_LEAN_BUNDLES")) {
      const std::string text = paths;
      Open(text.substr(0, text.find(':')), &whole_);
      Open(text.substr(text.find(':') + 1), &lean_);
    } else {
      MakeOutlines();
    }
    ASSERT_TRUE(whole_ != nullptr && lean_ != nullptr);
  }

  static void Open(const std::string& path, std::shared_ptr<const Bundle>* bundle) {
    auto opened = Bundle::Open(path);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    *bundle = *opened;
  }

  void MakeOutlines() {
    std::vector<Target> targets;
    for (const char* name :
         {"sm_80", "sm_90a", "sm_100f", "portable", "x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
      targets.push_back(*Target::Parse(name));
    }
    Result<Work> work = PlanWork(families_, targets);
    const auto records = FindRecords(families_);
    ASSERT_TRUE(work.ok() && records.ok());
    PackOutline(*work, *records, &whole_);
    const size_t before = work->variants.size();
    const int gone = KeepChoosable(*records, &*work);
    EXPECT_GT(gone, 0) << "nothing is left out, so this test shows nothing";
    EXPECT_EQ(work->variants.size() + static_cast<size_t>(gone), before);
    PackOutline(*work, *records, &lean_);
  }

  // With the records, as if they spoke of this code.
  void PackOutline(const Work& work, std::vector<FoundRecords> records,
                   std::shared_ptr<const Bundle>* bundle) {
    const Result<ObjectStore> store = ObjectStore::Open(folder_ / "store");
    const std::vector<Object> objects = OutlineObjects(work);
    const auto fingerprints = FingerprintsOf(work, objects);
    for (FoundRecords& file : records) {
      for (TuningRecord& record : file.records) {
        for (RecordCandidate& candidate : record.candidates) {
          const auto found = fingerprints.find(candidate.variant);
          if (found != fingerprints.end()) candidate.fingerprint = found->second;
        }
      }
    }
    const std::string path = folder_ / ("outline" + std::to_string(outlines_++) + ".kb");
    PackInput input;
    input.name = "outline";
    input.work = &work;
    input.objects = &objects;
    input.store = &*store;
    WriteText(path, *Pack(input));
    Open(path, bundle);
    const auto tuned = EmbedRecords(records, **bundle, work, objects);
    ASSERT_TRUE(tuned.ok());
    EXPECT_GT(tuned->rows.size(), 100u);
    EXPECT_EQ(tuned->left_out, std::vector<std::string>());
    input.tuned = &*tuned;
    WriteText(path, *Pack(input));
    Open(path, bundle);
  }

  static bool IsOfLibrary(const Bundle& bundle, uint32_t variant) {
    const fb::Index& index = IndexOf(bundle);
    const uint32_t row = index.variants()->Get(variant)->template_index();
    const auto* name = index.providers()->Get(index.templates()->Get(row)->provider());
    return name->str() == "cudnn" || name->str() == "cublaslt";
  }

  static std::string First(const Bundle& bundle, const Result<Selected>& selected) {
    return selected.ok() ? bundle.VariantId(selected->variant) : "nothing";
  }

  // False: not even the whole bundle has a variant.
  bool Compare(const Problem& problem, const Device& device, int64_t alignment) {
    const SelectOptions options{.alignment = alignment, .policy = {}};
    const auto whole = SelectFirst(*whole_, problem, device, options);
    const auto lean = SelectFirst(*lean_, problem, device, options);
    const std::string where = problem.ToString() + " on " + device.ToString() + ", aligned to " +
                              std::to_string(alignment);
    EXPECT_EQ(First(*lean_, lean), First(*whole_, whole)) << where;
    const auto wholly = SelectFirstLaunchable(*whole_, problem, device, options);
    const auto leanly = SelectFirstLaunchable(*lean_, problem, device, options);
    EXPECT_EQ(First(*lean_, leanly), First(*whole_, wholly)) << where << ", launched";
    if (!whole.ok() || !lean.ok()) return false;
    ++chosen_;
    EXPECT_EQ(lean->choice, whole->choice) << where;
    EXPECT_EQ(HasOwn(*lean_, problem, device, options), HasOwn(*whole_, problem, device, options))
        << where;
    return true;
  }

  static bool HasOwn(const Bundle& bundle, const Problem& problem, const Device& device,
                     const SelectOptions& options) {
    const auto all = Select(bundle, problem, device, options);
    return all.ok() && std::any_of(all->begin(), all->end(), [&](const Selected& one) {
             return !IsOfLibrary(bundle, one.variant);
           });
  }

  const Folder folder_;
  std::vector<Family> families_;
  std::shared_ptr<const Bundle> whole_, lean_;
  int outlines_ = 0;
  size_t chosen_ = 0;
};

TEST_F(LeanTest, ChoosesAsTheWholeBundle) {
  const size_t wanted = NumberIn("KBUNDLE_LEAN_PROBLEMS", 1000);
  const auto seed = static_cast<uint32_t>(NumberIn("KBUNDLE_LEAN_SEED", 1));
  std::vector<std::pair<const Op*, RandomProblems>> ops;
  for (const Family& family : families_) {
    for (const Op& op : family.ops) {
      ops.emplace_back(&op, RandomProblems(op, *whole_, seed + static_cast<uint32_t>(ops.size())));
    }
  }
  ASSERT_FALSE(ops.empty());
  constexpr int64_t kAlignments[] = {16, 16, 8, 4, 2, 1};
  std::map<std::string, size_t> served;
  for (size_t i = 0; i < wanted && !HasFailure(); ++i) {
    auto& [op, problems] = ops[i % ops.size()];
    const std::optional<Problem> problem = problems.Next();
    ASSERT_TRUE(problem) << "no legal problem of " << op->name << " was found";
    bool any = false;
    for (const Device& device : Devices()) {
      any |= Compare(*problem, device, kAlignments[i / ops.size() % std::size(kAlignments)]);
    }
    served[op->name] += any;
  }
  for (const auto& [op, problems] : ops) {
    EXPECT_GT(served[op->name] * 2, wanted / ops.size())
        << op->name << ": hardly any has a variant";
  }
  std::printf(
      "%zu problems of %zu ops, %zu choices on %zu devices: %u variants and %u choose alike\n",
      wanted, ops.size(), chosen_, Devices().size(), IndexOf(*whole_).variants()->size(),
      IndexOf(*lean_).variants()->size());
}

// Execution plans that nothing falls back on, behind kernels that take their problems.
TEST_F(LeanTest, LeavesOutPlansBehindKernels) {
  const auto plans = [](const Bundle& bundle) {
    size_t count = 0;
    for (uint32_t i = 0; i < IndexOf(bundle).variants()->size(); ++i) {
      count += bundle.VariantId(i).starts_with("attention.sdpa_forward/cudnn");
    }
    return count;
  };
  EXPECT_LT(2 * plans(*lean_), plans(*whole_));
  EXPECT_GT(plans(*lean_), 0u);  // of biases, dropout and modifiers
}

}  // namespace
}  // namespace kbundle::builder
