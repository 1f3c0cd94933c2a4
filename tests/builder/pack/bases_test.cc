// ChooseBases: siblings that resemble each other share a base; equal siblings, equal answer.
#include "builder/pack/bases.h"

#include <chrono>
#include <random>

#include "builder/library.h"
#include "builder/pack/frames.h"

namespace kbundle::builder {
namespace {

class BasesTest : public ::testing::Test {
 protected:
  // Two kinds of 4000 random bytes; each member differs from its kind in a few places.
  BasesTest() : store_(*ObjectStore::Open(folder_.path())) {
    std::mt19937 random(7);
    std::string kinds[2];
    for (std::string& kind : kinds) {
      for (int i = 0; i < 4000; ++i) kind += static_cast<char>(random());
    }
    for (int i = 0; i < 6; ++i) {
      texts_.push_back(kinds[i % 2]);
      for (int k = 0; k < 4; ++k) texts_.back()[random() % 4000] ^= 1;
    }
    for (const std::string& text : texts_) {
      siblings_.push_back({&text, Sha256Of(text.data(), text.size())});
    }
  }
  Folder folder_;
  ObjectStore store_;
  std::vector<std::string> texts_;
  std::vector<Sibling> siblings_;
};

TEST_F(BasesTest, GivesEachKindABaseOfItsOwn) {
  const auto bases = ChooseBases(siblings_, store_);
  ASSERT_TRUE(bases.ok());
  ASSERT_EQ(bases->size(), 6u);
  for (uint32_t i = 0; i < 6; ++i) {
    const uint32_t base = (*bases)[i];
    EXPECT_EQ(base % 2, i % 2) << "sibling " << i << " against another kind";
    EXPECT_EQ((*bases)[base], base) << "a base must not be a delta";
  }
  EXPECT_EQ((*bases)[0], (*bases)[2]);
  EXPECT_EQ((*bases)[1], (*bases)[5]);
}

TEST_F(BasesTest, AnswersTheSameWithAndWithoutTheStore) {
  const auto first = ChooseBases(siblings_, store_), again = ChooseBases(siblings_, store_);
  const Folder empty;
  const auto fresh = ChooseBases(siblings_, *ObjectStore::Open(empty.path()));
  ASSERT_TRUE(first.ok() && again.ok() && fresh.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_EQ(*first, *fresh);
}

// KBUNDLE_SIBLINGS=10000 says how long a large grid takes; bases are looked for in a sample of it.
TEST_F(BasesTest, FindsTheKindsOfAGroupThatIsTooLargeToTryAll) {
  const char* wanted = getenv("KBUNDLE_SIBLINGS");
  const size_t count = wanted == nullptr ? 1300 : std::strtoul(wanted, nullptr, 10);
  constexpr size_t kKinds = 12, kBytes = 16000;
  std::mt19937 random(11);
  std::vector<std::string> kinds(kKinds), texts(count);
  for (std::string& kind : kinds) {
    // Half of it repeats itself, as instructions do.
    for (size_t i = 0; i < kBytes; ++i)
      kind += static_cast<char>(i % 32 < 16 ? random() : kind.size() / 256);
  }
  std::vector<size_t> kind_of(count);
  std::vector<Sibling> group;
  for (size_t i = 0; i < count; ++i) {
    kind_of[i] = random() % kKinds;
    texts[i] = kinds[kind_of[i]];
    for (int k = 0; k < 40; ++k) texts[i][random() % kBytes] ^= 1;
    group.push_back({&texts[i], Sha256Of(texts[i].data(), texts[i].size())});
  }
  const auto start = std::chrono::steady_clock::now();
  const auto bases = ChooseBases(group, store_);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(bases.ok());
  size_t alone = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t base = (*bases)[i];
    EXPECT_EQ(kind_of[base], kind_of[i]);
    EXPECT_EQ((*bases)[base], base) << "a base must not be a delta";
    alone += base == i;
  }
  EXPECT_LE(alone, 2 * kKinds);
  std::printf("%zu siblings of %zu bytes: %.1f s\n", count, kBytes, took.count());
}

// Who reads a delta reads its base too: what is chosen first should be read by itself.
TEST_F(BasesTest, OfTwinsTheFirstInTheManifestIsTheBase) {
  for (const uint32_t first : {0u, 2u}) {
    std::vector<Sibling> twins = {siblings_[0], siblings_[2]};
    for (uint32_t i = 0; i < 2; ++i) twins[i].rank = i * 2 == first ? 3 : 14;
    const auto bases = ChooseBases(twins, store_);
    ASSERT_TRUE(bases.ok());
    EXPECT_EQ(*bases, std::vector<uint32_t>(2, first / 2)) << "with sibling " << first << " first";
  }
}

// Not at any price: here one base serves all others, and the first is like none of them.
TEST_F(BasesTest, AnEarlierSiblingThatIsAWorseBaseIsNone) {
  std::vector<Sibling> group = siblings_;
  std::string odd = texts_[1].substr(0, 2000) + texts_[0].substr(2000);
  group.push_back({&odd, Sha256Of(odd.data(), odd.size())});
  for (Sibling& sibling : group) sibling.rank = 5;
  group.back().rank = 1;
  const auto bases = ChooseBases(group, store_);
  ASSERT_TRUE(bases.ok());
  for (uint32_t i = 0; i < 6; ++i) EXPECT_NE((*bases)[i], 6u);
}

TEST_F(BasesTest, LeavesStrangersAlone) {
  const auto bases = ChooseBases({siblings_[0], siblings_[1]}, store_);
  ASSERT_TRUE(bases.ok());
  EXPECT_EQ(*bases, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(*ChooseBases({siblings_[0]}, store_), std::vector<uint32_t>{0});
}

TEST_F(BasesTest, DeltaFramesAreMuchSmallerAndTheSameFromTheStore) {
  const FrameInput alone{&texts_[2], siblings_[2].sha256, nullptr, {}};
  const FrameInput delta{&texts_[2], siblings_[2].sha256, &texts_[0], siblings_[0].sha256};
  const auto big = MakeFrame(alone, store_), small = MakeFrame(delta, store_);
  ASSERT_TRUE(big.ok() && small.ok());
  EXPECT_LT(small->size() * 10, big->size());
  EXPECT_EQ(*MakeFrame(delta, store_), *small);
}

}  // namespace
}  // namespace kbundle::builder
