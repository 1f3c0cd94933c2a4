// ObjectStore: what is read is what was written, here or by others in a shared folder, or nothing;
// damage is a miss, never wrong bytes; what nobody uses can be told and pruned.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <functional>
#include <map>
#include <thread>

#include "builder/library.h"
#include "builder/store/entry.h"
#include "builder/store/inventory.h"
#include "builder/store/object.h"
#include "builder/store/object_store.h"
#include "builder/support/digest_note.h"

namespace kbundle::builder {
namespace {

const std::string kKey(64, 'a');

ObjectStore OpenIn(const Folder& folder) {
  auto store = ObjectStore::Open(folder.path());
  EXPECT_TRUE(store.ok());
  return *store;
}

std::vector<StoredFile> FilesIn(const std::string& folder) {
  Result<std::vector<StoredFile>> files = ListStore(folder);
  EXPECT_TRUE(files.ok()) << files.status().message();
  return files.ok() ? std::move(*files) : std::vector<StoredFile>();
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

// A store of one's own in front of a shared one.
class SharedStore : public ::testing::Test {
 protected:
  SharedStore() {
    std::filesystem::create_directory(folder_ / "shared");
    std::filesystem::permissions(folder_ / "shared", std::filesystem::perms(02775));
  }
  ObjectStore Of(const std::string& who, const std::string& suffix = "") const {
    return *ObjectStore::Open(folder_ / who, folder_ / "shared" + suffix);
  }
  Folder folder_;
};

TEST_F(SharedStore, GivesOneWhatAnotherMadeAndKeepsItHere) {
  Of("ann").Put("objects", kKey, "some code");
  const ObjectStore ben = Of("ben");
  EXPECT_EQ(ben.Get("objects", kKey), "some code");
  std::filesystem::remove_all(folder_ / "shared");
  EXPECT_EQ(ben.Get("objects", kKey), "some code") << "kept here when it was read";
  EXPECT_TRUE(ben.refusal().ok() && ben.shared_refusal().ok());
}

TEST_F(SharedStore, IsGivenWhatOneHadBeforeAndWhatIsDamagedThere) {
  ObjectStore::Open(folder_ / "ann")->Put("objects", kKey, "some code");
  Of("ann", ":ro").Share("objects", kKey);
  EXPECT_FALSE(Of("ben").Get("objects", kKey));
  const ObjectStore ann = Of("ann");
  ann.Share("objects", kKey);
  EXPECT_EQ(Of("ben").Get("objects", kKey), "some code");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "shared")) {
    if (entry.is_regular_file()) WriteText(entry.path(), "damaged");
  }
  ann.Share("objects", kKey);
  EXPECT_EQ(Of("eve").Get("objects", kKey), "some code");
  EXPECT_TRUE(ann.refusal().ok() && ann.shared_refusal().ok());
}

TEST_F(SharedStore, IsLeftAloneWhereItIsOnlyRead) {
  Of("ann").Put("objects", kKey, "some code");
  const ObjectStore ben = Of("ben", ":ro");
  EXPECT_EQ(ben.Get("objects", kKey), "some code");
  const std::string other(64, 'b');
  ben.Put("objects", other, "more code");
  EXPECT_EQ(ben.Get("objects", other), "more code");
  EXPECT_FALSE(Of("cid").Get("objects", other));
}

TEST_F(SharedStore, KeepsAPersonsNotesOutOfIt) {
  Of("ann").Put("last", kKey, "what ann built last");
  EXPECT_FALSE(Of("ben").Get("last", kKey));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "shared"));
}

TEST_F(SharedStore, TakesDamageForAMissAndMendsIt) {
  Of("ann").Put("objects", kKey, "some code");
  const ObjectStore shared = *ObjectStore::Open(folder_ / "shared");
  WriteText(shared.Path("objects", kKey), "KBSTORE1 and nonsense");
  const ObjectStore ben = Of("ben");
  EXPECT_FALSE(ben.Get("objects", kKey));
  ben.Put("objects", kKey, "some code");
  EXPECT_EQ(Of("cid").Get("objects", kKey), "some code");
}

TEST_F(SharedStore, IsAsOpenAsItsFolderWhateverTheUmask) {
  const mode_t before = umask(077);
  Of("ann").Put("objects", kKey, "some code");
  umask(before);
  namespace fs = std::filesystem;
  const fs::path file = ObjectStore::Open(folder_ / "shared")->Path("objects", kKey);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0664));
  for (fs::path way = file.parent_path(); way != folder_ / "shared"; way = way.parent_path()) {
    EXPECT_EQ(fs::status(way).permissions() & fs::perms::all, fs::perms(0775)) << way;
  }
}

TEST_F(SharedStore, IsNeverMadeAndItsAbsenceIsSaidOnce) {
  const auto store = ObjectStore::Open(folder_ / "ann", folder_ / "not mounted");
  ASSERT_TRUE(store.ok());
  EXPECT_NE(store->shared_refusal().message().find("not mounted"), std::string::npos);
  store->Put("objects", kKey, "some code");
  EXPECT_EQ(store->Get("objects", kKey), "some code");
  EXPECT_TRUE(store->refusal().ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "not mounted"));
}

// Whether it is so for somebody who is not root, in a process of his own.
bool HoldsForNobody(const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);
    _exit(holds() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST_F(SharedStore, ServesAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may become somebody else";
  namespace fs = std::filesystem;
  for (const char* open : {"", "/shared"}) fs::permissions(folder_.path() + open, fs::perms(0777));
  Of("ann").Put("objects", kKey, "some code");
  fs::create_directory(folder_ / "nobody");
  fs::permissions(folder_ / "nobody", fs::perms(0777));
  EXPECT_TRUE(HoldsForNobody([this] {
    const ObjectStore store = Of("nobody");
    const bool read = store.Get("objects", kKey) == "some code";
    store.Put("frames", kKey, "a frame");
    return read && store.refusal().ok() && store.shared_refusal().ok();
  }));
  EXPECT_EQ(Of("ann").Get("frames", kKey), "a frame");
}

TEST_F(SharedStore, ServesManyAtOnce) {
  const std::string bytes(100000, 'x');
  std::vector<std::thread> people;
  for (int who = 0; who < 4; ++who) {
    people.emplace_back([&, who] {
      const ObjectStore store = Of("person" + std::to_string(who));
      for (int i = 0; i < 40; ++i) {
        const std::string key(64, static_cast<char>('a' + i % 4));
        EXPECT_EQ(store.Get("objects", key).value_or(bytes), bytes);
        store.Put("objects", key, bytes);
      }
      EXPECT_TRUE(store.refusal().ok() && store.shared_refusal().ok());
    });
  }
  for (std::thread& person : people) person.join();
  for (const StoredFile& file : FilesIn(folder_ / "shared/v1")) {
    EXPECT_TRUE(file.kind == "objects" && ReadEntry(file.path)) << file.path;
  }
}

// Marks of use, and what goes by them.
class Inventory : public ::testing::Test {
 protected:
  Inventory() : store_(OpenIn(folder_)) {
    for (int i = 0; i < 3; ++i) {
      keys_.push_back(std::string(64, static_cast<char>('a' + i)));
      store_.Put("frames", keys_[i], std::string(84, 'x'));  // 100 bytes with what stands before
      Age(store_.Path("frames", keys_[i]), 10 - i);
    }
  }
  static void Age(const std::string& path, int days) {
    const timespec then{time(nullptr) - days * kMarkSeconds - 60, 0}, both[] = {then, then};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), both, 0), 0);
  }
  std::vector<std::string> Pruned(const PruneLimits& limits) const {
    std::vector<std::string> paths;
    for (const StoredFile& file : ToPrune(FilesIn(store_.folder()), limits, time(nullptr)))
      paths.push_back(file.path);
    return paths;
  }
  std::string PathOf(int i) const { return store_.Path("frames", keys_[static_cast<size_t>(i)]); }

  Folder folder_;
  ObjectStore store_;
  std::vector<std::string> keys_;
};

TEST_F(Inventory, WhatIsReadIsInUseAgain) {
  EXPECT_EQ(FilesIn(store_.folder()).front().path, PathOf(0));
  EXPECT_TRUE(store_.Get("frames", keys_[0]));
  EXPECT_EQ(FilesIn(store_.folder()).back().path, PathOf(0));
  const int64_t marked = LastUse(PathOf(0));
  EXPECT_TRUE(store_.Get("frames", keys_[0]));
  EXPECT_EQ(LastUse(PathOf(0)), marked) << "a mark a day is enough";
}

TEST_F(Inventory, PrunesByUseAndBySize) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(Pruned({.unused_seconds = 9 * kMarkSeconds, .bytes = {}}),
            (Paths{PathOf(0), PathOf(1)}));
  EXPECT_EQ(Pruned({.unused_seconds = {}, .bytes = 200}), (Paths{PathOf(0)}));
  EXPECT_EQ(Pruned({.unused_seconds = {}, .bytes = 300}), Paths());
  EXPECT_EQ(Pruned({.unused_seconds = {}, .bytes = 0}).size(), 3u);
}

TEST_F(Inventory, TakesAwayWhatKilledWritersLeftAndNotWhatOthersWrite) {
  const std::string dead = PathOf(0) + ".tmp-0123456789abcdef",
                    alive = PathOf(1) + ".tmp-0123456789abcdef";
  WriteText(dead, "half");
  WriteText(alive, "half");
  Age(dead, 2);
  EXPECT_EQ(Pruned({.unused_seconds = 100 * kMarkSeconds, .bytes = {}}),
            (std::vector<std::string>{dead}));
}

TEST_F(Inventory, TellsWholeFromDamaged) {
  store_.Put("objects", keys_[0], "no object");
  std::map<std::string, int> damaged;
  WriteText(PathOf(2), "KBSTORE1");
  const std::string note = NoteOfDigest(Sha256Of("a", 1));
  WriteText(store_.folder() + "/tools/whole", note);
  WriteText(store_.folder() + "/tools/flipped", "?" + note.substr(1));
  WriteText(store_.folder() + "/tools/cut", note.substr(0, 39));
  for (const StoredFile& file : FilesIn(store_.folder())) {
    const Status status = CheckWhole(file);
    damaged[file.kind] += status.code() == StatusCode::kDataLoss;
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kDataLoss) << status.message();
  }
  EXPECT_EQ(damaged, (std::map<std::string, int>{{"frames", 1}, {"objects", 1}, {"tools", 2}}));
  EXPECT_LT(LastUse(PathOf(0)), time(nullptr) - kMarkSeconds) << "a check is no use";
}

TEST_F(Inventory, IsNoListWhereAFolderCannotBeRead) {
  EXPECT_TRUE(FilesIn(folder_ / "none").empty());
  WriteText(folder_ / "file", "text");
  EXPECT_EQ(ListStore(folder_ / "file/v1").status().code(), StatusCode::kFailedPrecondition);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);  // root reads everything, nobody need not
  ASSERT_EQ(chmod((store_.folder() + "/frames").c_str(), 0), 0);
  EXPECT_TRUE(HoldsForNobody([this] {
    const Status status = ListStore(store_.folder()).status();
    return status.code() == StatusCode::kPermissionDenied &&
           status.message().find("/frames") != std::string::npos;
  }));
  ASSERT_EQ(chmod((store_.folder() + "/frames").c_str(), 0755), 0);
}

TEST_F(Inventory, TellsWhatCannotBeReadFromWhatIsDamaged) {
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(PathOf(0).c_str(), 0), 0);
  const std::vector<StoredFile> files = FilesIn(store_.folder());
  EXPECT_TRUE(HoldsForNobody(
      [&] { return CheckWhole(files.front()).code() == StatusCode::kPermissionDenied; }));
  ASSERT_EQ(unlink(PathOf(0).c_str()), 0);
  EXPECT_TRUE(CheckWhole(files.front()).ok()) << "pruned meanwhile";
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
