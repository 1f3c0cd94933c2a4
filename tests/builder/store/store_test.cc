// ObjectStore: what is read is what was written, or nothing; damage is a miss, never wrong bytes.
#include <thread>

#include "builder/library.h"
#include "builder/store/object.h"
#include "builder/store/object_store.h"

namespace kbundle::builder {
namespace {

const std::string kKey(64, 'a');

ObjectStore OpenIn(const Folder& folder) {
  auto store = ObjectStore::Open(folder.path());
  EXPECT_TRUE(store.ok());
  return *store;
}

TEST(ObjectStore, GivesBackWhatWasPut) {
  const Folder folder;
  const ObjectStore store = OpenIn(folder);
  EXPECT_FALSE(store.Get("objects", kKey));
  const std::string bytes("with\0nul", 8);
  store.Put("objects", kKey, bytes);
  ASSERT_TRUE(store.refusal().ok());
  EXPECT_EQ(store.Get("objects", kKey), bytes);
  EXPECT_FALSE(store.Get("frames", kKey)) << "kinds are apart";
}

TEST(ObjectStore, TakesAnyDamagedEntryForAMissAndReplacesIt) {
  const Folder folder;
  const ObjectStore store = OpenIn(folder);
  store.Put("objects", kKey, "some code");
  ASSERT_TRUE(store.refusal().ok());
  const testing::ByteSurgeon surgeon(ReadText(store.Path("objects", kKey)));
  for (size_t bit = 0; bit < surgeon.bits(); ++bit) {
    WriteText(store.Path("objects", kKey), surgeon.Flip(bit));
    EXPECT_FALSE(store.Get("objects", kKey)) << bit;
  }
  for (size_t size = 0; size < surgeon.whole().size(); ++size) {
    WriteText(store.Path("objects", kKey), surgeon.Cut(size));
    EXPECT_FALSE(store.Get("objects", kKey)) << size;
  }
  store.Put("objects", kKey, "some code");
  ASSERT_TRUE(store.refusal().ok());
  EXPECT_EQ(store.Get("objects", kKey), "some code");
}

TEST(ObjectStore, ShowsReadersWholeEntriesWhileOthersWriteThem) {
  const Folder folder;
  const ObjectStore store = OpenIn(folder);
  const std::string bytes(100000, 'x');
  store.Put("objects", kKey, bytes);
  ASSERT_TRUE(store.refusal().ok());
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w) {
    writers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) store.Put("objects", kKey, bytes);
    });
  }
  for (int i = 0; i < 200; ++i) EXPECT_EQ(store.Get("objects", kKey), bytes);
  for (std::thread& writer : writers) writer.join();
  EXPECT_TRUE(store.refusal().ok());
}

TEST(ObjectStore, FollowsTheEnvironmentWhereNoFolderIsGiven) {
  const Folder folder;
  const Variable home("HOME", folder / "home"), xdg("XDG_CACHE_HOME", folder / "xdg");
  {
    const Variable cache("KBUNDLE_CACHE", folder / "own");
    EXPECT_EQ(ObjectStore::Open("")->folder(), folder / "own/v1");
  }
  EXPECT_EQ(ObjectStore::Open("")->folder(), folder / "xdg/kbundle/v1");
  const Variable no_xdg("XDG_CACHE_HOME", "");
  EXPECT_EQ(ObjectStore::Open("")->folder(), folder / "home/.cache/kbundle/v1");
}

TEST(ObjectStore, GoesOnWithoutAFolderThatCannotBeAndSaysWhy) {
  const Folder folder;
  WriteText(folder / "file", "");
  const auto store = ObjectStore::Open(folder / "file");
  ASSERT_TRUE(store.ok());
  EXPECT_NE(store->refusal().message().find("file/v1"), std::string::npos);
  store->Put("objects", kKey, "some code");
  EXPECT_FALSE(store->Get("objects", kKey));
}

TEST(Object, SurvivesItsText) {
  Object object;
  object.format = ObjectFormat::kHostObject;
  object.code = std::string(
      "\x7f"
      "ELF\0code",
      9);
  object.kernels = {{"k<float>", "_Z1k", {8, 4}, 32, 16, 1024}};
  object.log = "a warning\n";
  object.reads = {{"/usr/include/stdint.h", "abc"}};
  const auto parsed = ParseObject(Serialize(object));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->format, object.format);
  EXPECT_EQ(parsed->code, object.code);
  EXPECT_EQ(parsed->log, object.log);
  ASSERT_EQ(parsed->kernels.size(), 1u);
  EXPECT_EQ(parsed->kernels[0].kernel, "k<float>");
  EXPECT_EQ(parsed->kernels[0].symbol, "_Z1k");
  EXPECT_EQ(parsed->kernels[0].param_bytes, object.kernels[0].param_bytes);
  EXPECT_EQ(parsed->kernels[0].spill_bytes, 16u);
  ASSERT_EQ(parsed->reads.size(), 1u);
  EXPECT_EQ(parsed->reads[0].path, "/usr/include/stdint.h");
}

TEST(Object, RefusesOtherTexts) {
  EXPECT_FALSE(ParseObject("").ok());
  EXPECT_FALSE(ParseObject(std::string(8, '\xff')).ok());
  EXPECT_FALSE(ParseObject(std::string("\2\0\0\0\0\0\0\0{}", 10)).ok());
  EXPECT_FALSE(ParseObject(std::string("\2\0\0\0\0\0\0\0[1", 10)).ok());
}

}  // namespace
}  // namespace kbundle::builder
