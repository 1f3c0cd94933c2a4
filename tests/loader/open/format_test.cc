// Promise: FORMAT.md says what the code does: its constants are format.h's, its example is a bundle
// that opens, byte for byte.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "kbundle/limits.h"
#include "kbundle/provider/cudnn.h"
#include "support/bundle_maker.h"
#include "support/files.h"

namespace kbundle {
namespace {

using testing::BundleMaker;
using testing::ReadFile;

std::string Format() { return ReadFile(testing::SourceDir() + "/schemas/FORMAT.md"); }

const std::map<std::string, uint64_t> kConstants = {
    {"kMaxIndexBytes", kMaxIndexBytes},
    {"kMaxIndexDepth", kMaxIndexDepth},
    {"kMaxBlobBytes", kMaxBlobBytes},
    {"kMaxVariants", kMaxVariants},
    {"kMaxOps", kMaxOps},
    {"kMaxNameBytes", kMaxNameBytes},
    {"kMaxRank", kMaxRank},
    {"kMaxOperands", kMaxOperands},
    {"kMaxAttributes", kMaxAttributes},
    {"kMaxAttributeElements", kMaxAttributeElements},
    {"kMaxTypeParams", kMaxTypeParams},
    {"kMaxSymbols", kMaxSymbols},
    {"kMaxRules", kMaxRules},
    {"kMaxTunables", kMaxTunables},
    {"kMaxStepWorkspace", kMaxStepWorkspace},
    {"kMaxTuned", kMaxTuned},
    {"kMaxLets", kMaxLets},
    {"kMaxRegions", kMaxRegions},
    {"kMaxSteps", kMaxSteps},
    {"kMaxArgs", kMaxArgs},
    {"kMaxArgBytes", kMaxArgBytes},
    {"kMaxProgramLength", kMaxProgramLength},
    {"kMaxStackDepth", kMaxStackDepth},
    {"kMaxTargets", kMaxTargets},
    {"kMaxProviders", kMaxProviders},
    {"kMaxTemplates", kMaxTemplates},
    {"kMaxDevices", kMaxDevices},
    {"kMaxProvenance", kMaxProvenance},
    {"kMaxCheckSteps", kMaxCheckSteps},
    {"kMaxCheckStepsPerByte", kMaxCheckStepsPerByte},
};

// Every kMax.. name in the text that `before` precedes, and the number that follows `between`.
std::map<std::string, uint64_t> Limits(const std::string& text, const std::string& before,
                                       const std::string& between) {
  std::map<std::string, uint64_t> found;
  const std::string begin = before + "kMax";
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    const size_t name = at + before.size();
    size_t end = name;
    while (std::isalpha(static_cast<unsigned char>(text[end]))) ++end;
    if (text.compare(end, between.size(), between) != 0) continue;
    found[text.substr(name, end - name)] = std::strtoull(&text[end + between.size()], nullptr, 10);
  }
  return found;
}

TEST(FormatText, QuotesEveryLimitWithItsValue) {
  const std::string text = Format();
  const std::map<std::string, uint64_t> quoted = Limits(text, "| `", "` | ");
  EXPECT_EQ(quoted, kConstants);
  EXPECT_NE(text.find("`kZstdWindowLogMax` = " + std::to_string(kZstdWindowLogMax)),
            std::string::npos);
  EXPECT_NE(text.find("`kBlobAlignment` = " + std::to_string(kBlobAlignment)), std::string::npos);
  EXPECT_NE(text.find("`kWorkspaceAlignment` = " + std::to_string(kWorkspaceAlignment)),
            std::string::npos);
  EXPECT_NE(text.find("`kMaxPlanUids` = " + std::to_string(kMaxPlanUids)), std::string::npos);
}

TEST(FormatText, KnowsEveryLimitOfTheHeaders) {
  const std::string folder = testing::SourceDir() + "/schemas/include/kbundle/";
  const std::string header = ReadFile(folder + "format.h") + ReadFile(folder + "limits.h");
  std::set<std::string> declared, known;
  for (const auto& [constant, value] : Limits(header, " ", " = ")) declared.insert(constant);
  for (const auto& [constant, value] : kConstants) known.insert(constant);
  EXPECT_EQ(declared, known);
}

TEST(FormatText, SaysWhereEachHeaderFieldIs) {
  const std::string text = Format();
  const std::map<std::string, std::pair<size_t, size_t>> fields = {
      {"magic", {offsetof(Header, magic), sizeof(Header::magic)}},
      {"format_major", {offsetof(Header, format_major), sizeof(Header::format_major)}},
      {"format_minor", {offsetof(Header, format_minor), sizeof(Header::format_minor)}},
      {"header_size", {offsetof(Header, header_size), sizeof(Header::header_size)}},
      {"required_features",
       {offsetof(Header, required_features), sizeof(Header::required_features)}},
      {"file_size", {offsetof(Header, file_size), sizeof(Header::file_size)}},
      {"index_offset", {offsetof(Header, index_offset), sizeof(Header::index_offset)}},
      {"index_size", {offsetof(Header, index_size), sizeof(Header::index_size)}},
      {"index_xxh3", {offsetof(Header, index_xxh3), sizeof(Header::index_xxh3)}},
      {"header_xxh3", {offsetof(Header, header_xxh3), sizeof(Header::header_xxh3)}},
      {"index_sha256", {offsetof(Header, index_sha256), sizeof(Header::index_sha256)}},
      {"pages_size", {offsetof(Header, pages_size), sizeof(Header::pages_size)}},
      {"reserved", {offsetof(Header, reserved), sizeof(Header::reserved)}},
  };
  for (const auto& [field, place] : fields) {
    const std::string row = "| " + std::to_string(place.first) + " | " +
                            std::to_string(place.second) + " | " + field + " |";
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
}

BundleMaker ExampleMaker() {
  BundleMaker maker;
  maker.index.name = "mini";
  fb::OpT& op = maker.AddOp("mini.fill");
  maker.AddResult(op, "y", "f32", "(4)");
  fb::TemplateT& row = maker.AddTemplate("plain", "host");
  maker.AddArg(row, maker.AddKernelStep(row, "fill"), "y");
  std::vector<uint8_t> code(32);
  for (size_t i = 0; i < code.size(); ++i) code[i] = static_cast<uint8_t>(i);
  const uint32_t blob = maker.AddBlob(code, fb::BlobFormat::HostObject);
  maker.AddVariant(row, "x86-64-v2", {}, {}, {blob}, {"fill"});
  return maker;
}

// Rows of 16 bytes, as `xxd -g1` would show them without the text; runs of zero rows are "*".
std::string Dump(const std::string& bytes) {
  std::string text;
  bool starred = false;
  for (size_t at = 0; at < bytes.size(); at += 16) {
    const std::string_view row = std::string_view(bytes).substr(at, 16);
    const bool zero = row.size() == 16 && row.find_first_not_of('\0') == std::string_view::npos;
    if (zero && starred) continue;
    starred = zero;
    char word[32];
    std::snprintf(word, sizeof(word), "%04zx", at);
    text += word;
    if (zero) text += " *";
    for (size_t i = 0; !zero && i < row.size(); ++i) {
      std::snprintf(word, sizeof(word), " %02x", static_cast<uint8_t>(row[i]));
      text += word;
    }
    text += '\n';
  }
  return text;
}

TEST(FormatExample, IsTheBundleThatItSaysItIs) {
  testing::TempDir dir;
  BundleMaker maker = ExampleMaker();
  const auto bundle = maker.Open(dir / "mini.kb");
  EXPECT_TRUE(bundle->VerifyAll().ok());
  const auto problem = bundle->MakeProblem("mini.fill", {});
  ASSERT_TRUE(problem.ok()) << problem.status().ToString();
  EXPECT_EQ(problem->results[0].ToString(), "f32[4]");
  const std::string text = Format();
  const std::string begin = "<!-- example: begin -->\n```\n", end = "```\n<!-- example: end -->";
  const size_t from = text.find(begin) + begin.size();
  EXPECT_EQ(text.substr(from, text.find(end) - from), Dump(maker.Bytes()))
      << "put this dump into FORMAT.md, section 11";
}

}  // namespace
}  // namespace kbundle
