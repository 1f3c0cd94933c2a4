// Promise: of an index in pages a reader reads what it needs. A damaged page is the error of those
// who need it, by name, and the others work; what pages and parts say falsely under right hashes is
// refused, at once and op by op.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "kbundle/describe.h"
#include "kbundle/select.h"
#include "loader/open/index.h"
#include "loader/support/rows_of_op.h"
#include "support/bundle_maker.h"
#include "support/changed_numbers.h"
#include "support/files.h"
#include "support/in_pages.h"

namespace kbundle::builder {
namespace {

using testing::BundleMaker;
using testing::InPages;
using testing::MakeSpec;
using testing::PatchFile;
using testing::TempDir;
using testing::WriteFile;

// Each op with texts of more than a page.
BundleMaker PagedMaker(size_t summary = 3000) {
  BundleMaker maker = testing::SampleMaker(64);
  maker.write_index = InPages;
  for (auto& op : maker.index.ops) op->summary = std::string(summary, op->name.back());
  return maker;
}

// And demo.sum with so much that others' pages are no neighbours of what is amid its tables.
BundleMaker LongMaker() {
  BundleMaker maker = PagedMaker();
  for (const char letter : {'a', 'b', 'c'}) {
    auto problem = std::make_unique<fb::ProblemT>();
    problem->text = std::string(4000, letter);
    problem->operands.push_back(std::make_unique<fb::ProblemTensorT>());
    maker.index.ops[1]->problems.push_back(std::move(problem));
  }
  return maker;
}

Header HeaderOf(const std::string& bytes) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

// In the file: amid the tables of an op.
size_t PlaceIn(const std::string& bytes, uint32_t op) {
  const fb::Part& part = *fb::GetIndex(bytes.data() + sizeof(Header))->parts()->Get(op);
  return sizeof(Header) + part.tables() + part.tables_size() / 2;
}

std::shared_ptr<const Bundle> OpenByOp(const std::string& path) {
  auto bundle = Bundle::Open(path, Checks::kByOp);
  KB_CHECK(bundle.ok());
  return *bundle;
}

bool Works(const Bundle& bundle, const char* op) {
  const bool scale = std::string_view(op) == "demo.scale";
  const auto problem = bundle.MakeProblem(op, MakeSpec({scale ? "f32[4,8]" : "f32[4]"}));
  return problem.ok() && Select(bundle, *problem, *DeviceFromTargetName("sm_90a")).ok();
}

TEST(IndexPages, SayTheSameAtOnceAndOpByOp) {
  TempDir dir;
  BundleMaker maker = PagedMaker();
  WriteFile(dir / "paged.kb", maker.Bytes());
  ASSERT_NE(HeaderOf(maker.Bytes()).pages_size, 0u);
  maker.write_index = nullptr;
  const auto plain = maker.Open(dir / "plain.kb");
  const auto whole = Bundle::Open(dir / "paged.kb");
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  const auto by_op = OpenByOp(dir / "paged.kb");
  EXPECT_EQ((*whole)->digest(), by_op->digest());
  for (const char* op : {"demo.scale", "demo.sum"}) {
    EXPECT_EQ(Works(*by_op, op), Works(*plain, op));
    EXPECT_EQ(Works(**whole, op), Works(*plain, op));
    const auto described = DescribeJson(*plain, op, Detail::kInterface);
    ASSERT_TRUE(described.ok());
    const auto ops = [](const std::string& json) { return json.substr(json.find("\"ops\"")); };
    EXPECT_EQ(ops(*DescribeJson(*by_op, op, Detail::kInterface)), ops(*described));
  }
  EXPECT_TRUE(by_op->VerifyAll().ok());
  for (uint32_t i = 0; i < IndexOf(*plain).variants()->size(); ++i) {
    EXPECT_EQ(by_op->VariantId(i), plain->VariantId(i));
  }
}

TEST(IndexPages, ADamagedPageIsTheErrorOfItsOpAndOthersWork) {
  TempDir dir;
  std::string bytes = PagedMaker().Bytes();
  bytes[PlaceIn(bytes, 1)] ^= 1;
  WriteFile(dir / "x.kb", bytes);
  EXPECT_EQ(Bundle::Open(dir / "x.kb").status().code(), StatusCode::kDataLoss);
  const auto bundle = OpenByOp(dir / "x.kb");
  EXPECT_TRUE(Works(*bundle, "demo.scale"));
  for (int i = 0; i < 2; ++i) {
    const Status sum = bundle->FindOp("demo.sum").status();
    EXPECT_EQ(sum.code(), StatusCode::kDataLoss);
    EXPECT_NE(sum.message().find("op 'demo.sum': page"), std::string::npos) << sum.ToString();
    EXPECT_NE(sum.message().find("copy or build the file again"), std::string::npos);
  }
  EXPECT_TRUE(bundle->HasOp("demo.sum"));
  EXPECT_EQ(bundle->CheckIndex().code(), StatusCode::kDataLoss);
  EXPECT_EQ(bundle->VerifyAll().code(), StatusCode::kDataLoss);
}

// Pages come by twos, and one that only comes along is nobody's error.
TEST(IndexPages, ADamagedPageIsNoErrorOfWhoWantsItsNeighbour) {
  const std::string bytes = LongMaker().Bytes();
  const Header header = HeaderOf(bytes);
  const size_t begin = sizeof(Header) + header.index_size - header.pages_size;
  std::vector<bool> works;
  for (size_t at = begin; at < sizeof(Header) + header.index_size; at += kIndexPageBytes) {
    std::string changed = bytes;
    changed[at] ^= 1;
    const std::span file(reinterpret_cast<const uint8_t*>(changed.data()), changed.size());
    const auto by_op = Bundle::OpenMemory(file, Checks::kByOp);
    works.push_back(by_op.ok() && Works(**by_op, "demo.scale"));
    EXPECT_EQ(Bundle::OpenMemory(file).status().code(), StatusCode::kDataLoss) << at;
  }
  int one_of_two = 0, neither = 0;
  for (size_t page = 0; page + 1 < works.size(); page += 2) {
    one_of_two += works[page] != works[page + 1];
    neither += works[page] && works[page + 1];
  }
  EXPECT_GT(one_of_two, 0);
  EXPECT_GT(neither, 0);
}

TEST(IndexPages, AFileChangedWhileOpenIsSeenByWhoReadsIt) {
  TempDir dir;
  const std::string bytes = LongMaker().Bytes(), path = dir / "x.kb";
  const size_t place = PlaceIn(bytes, 1);
  WriteFile(path, bytes);
  const auto bundle = OpenByOp(path);
  EXPECT_TRUE(Works(*bundle, "demo.scale"));
  PatchFile(path, place, "changed");
  EXPECT_EQ(bundle->FindOp("demo.sum").status().code(), StatusCode::kDataLoss);
  WriteFile(path, bytes.substr(0, place));
  EXPECT_NE(bundle->FindOp("demo.sum").status().message().find("truncated while open"),
            std::string::npos);
  WriteFile(path, bytes);  // nothing of a refusal is kept
  EXPECT_TRUE(bundle->FindOp("demo.sum").ok());
  WriteFile(path, "");  // and nothing of what was read is needed again
  EXPECT_TRUE(bundle->FindOp("demo.sum").ok());
  EXPECT_TRUE(Works(*bundle, "demo.scale"));
}

TEST(IndexPages, EveryChangedByteOfAnIndexIsFound) {
  const std::string bytes = PagedMaker(40).Bytes();
  const Header header = HeaderOf(bytes);
  for (size_t at = sizeof(Header); at < sizeof(Header) + header.index_size; ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
    const std::span file(reinterpret_cast<const uint8_t*>(changed.data()), changed.size());
    ASSERT_EQ(Bundle::OpenMemory(file).status().code(), StatusCode::kDataLoss) << at;
    const auto by_op = Bundle::OpenMemory(file, Checks::kByOp);
    if (!by_op.ok()) continue;
    EXPECT_EQ((*by_op)->CheckIndex().code(), StatusCode::kDataLoss) << at;
    (void)Works(**by_op, "demo.sum");
  }
}

struct PartLie {
  const char* name;
  uint32_t op;
  fb::Part (*tell)(const fb::Part&);
};

fb::Part Changed(const fb::Part& p, int tables, int size, int templates, int entries,
                 int variants) {
  const auto add = [](uint32_t number, int by) { return number + static_cast<uint32_t>(by); };
  return {add(p.tables(), tables),   add(p.tables_size(), size),  add(p.templates(), templates),
          add(p.entries(), entries), add(p.variants(), variants), p.tuned()};
}

TEST(IndexPages, PartsThatLieAreRefused) {
  const std::vector<PartLie> lies = {
      {"behind the end", 0, [](const fb::Part& p) { return Changed(p, 1 << 20, 0, 0, 0, 0); }},
      {"in the outline", 0, [](const fb::Part& p) { return Changed(p, -(1 << 20), 0, 0, 0, 0); }},
      {"at any byte", 0, [](const fb::Part& p) { return Changed(p, 4, -4, 0, 0, 0); }},
      {"too short", 1, [](const fb::Part& p) { return Changed(p, 0, -8, 0, 0, 0); }},
      {"too late", 1, [](const fb::Part& p) { return Changed(p, 1024, -1024, 0, 0, 0); }},
      {"templates", 1, [](const fb::Part& p) { return Changed(p, 0, 0, -1, 0, 0); }},
      {"too many templates", 1, [](const fb::Part& p) { return Changed(p, 0, 0, 1 << 20, 0, 0); }},
      {"entries", 1, [](const fb::Part& p) { return Changed(p, 0, 0, 0, -1, 0); }},
      {"variants", 1, [](const fb::Part& p) { return Changed(p, 0, 0, 0, 0, 1); }},
      {"rows of nobody", 0, [](const fb::Part& p) { return Changed(p, 0, 0, 1, 0, 0); }},
  };
  for (const PartLie& lie : lies) {
    BundleMaker maker = PagedMaker();
    maker.change_index_bytes = [&lie](std::string& index) {
      const fb::Part& part = *fb::GetIndex(index.data())->parts()->Get(lie.op);
      const fb::Part told = lie.tell(part);
      std::memcpy(index.data() + (reinterpret_cast<const char*>(&part) - index.data()), &told,
                  sizeof told);
    };
    const std::string bytes = maker.Bytes();
    const std::span file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    EXPECT_EQ(Bundle::OpenMemory(file).status().code(), StatusCode::kDataLoss) << lie.name;
    const auto by_op = Bundle::OpenMemory(file, Checks::kByOp);
    if (!by_op.ok()) continue;
    const bool all = (*by_op)->FindOp("demo.scale").ok() && (*by_op)->FindOp("demo.sum").ok();
    EXPECT_FALSE(all) << lie.name;
    EXPECT_EQ((*by_op)->CheckIndex().code(), StatusCode::kDataLoss) << lie.name;
  }
}

TEST(IndexPages, AHeaderThatLiesAboutPagesIsRefused) {
  for (const uint64_t size : {uint64_t{1}, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{4096}}) {
    BundleMaker maker = PagedMaker();
    maker.change_header = [size](Header& header) { header.pages_size = size; };
    const std::string bytes = maker.Bytes();
    for (const Checks checks : {Checks::kAll, Checks::kByOp}) {
      const Status status =
          Bundle::OpenMemory({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, checks)
              .status();
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << size << " " << status.ToString();
    }
  }
  BundleMaker maker = PagedMaker();
  maker.change_header = [](Header& header) { header.required_features &= ~kFeaturePages; };
  const std::string bytes = maker.Bytes();
  EXPECT_NE(Bundle::OpenMemory({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()})
                .status()
                .message()
                .find("go together"),
            std::string::npos);
}

TEST(IndexPages, ChangedNumbersGiveAnAnswerFromOpenToPlan) {
  const std::vector<std::string> bundles = testing::FuzzSeeds(InPages);
  for (const std::string& bytes : bundles) ASSERT_NE(HeaderOf(bytes).pages_size, 0u);
  testing::ExpectAnswersToChangedNumbers(bundles);
}

TEST(IndexPages, FirstUsesOfManyThreadsAgree) {
  TempDir dir;
  std::string bytes = PagedMaker().Bytes();
  bytes[PlaceIn(bytes, 1)] ^= 1;
  WriteFile(dir / "x.kb", bytes);
  const auto bundle = OpenByOp(dir / "x.kb");
  std::atomic<int> good = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      good += Works(*bundle, "demo.scale");
      refused += bundle->FindOp("demo.sum").status().code() == StatusCode::kDataLoss;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
  EXPECT_EQ(refused, 8);
}

}  // namespace
}  // namespace kbundle::builder
