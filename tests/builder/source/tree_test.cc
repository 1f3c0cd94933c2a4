// SourceReader: a source and its headers, without the places where they lie.
#include "builder/source/tree.h"

#include "builder/library.h"

namespace kbundle::builder {
namespace {

class SourceTreeTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const SourceTree>> Read(const std::string& source) {
    return SourceReader().Read(folder_ / "lib", source, {folder_ / "include"});
  }
  std::vector<std::string> Names(const SourceTree& tree) {
    std::vector<std::string> names;
    for (const SourceFile& file : tree.files) names.push_back(file.name);
    return names;
  }
  Folder folder_;
};

TEST_F(SourceTreeTest, FindsHeadersOfHeadersAndLeavesTheSystemsAlone) {
  WriteText(folder_ / "lib/a.cu", "#include \"b.h\"\n#include <cuda_bf16.h>\nint a;\n");
  WriteText(folder_ / "lib/b.h", "  #  include  <kbundle/c.h>  // comment\n");
  WriteText(folder_ / "include/kbundle/c.h", "int c;\n");
  const auto tree = Read("a.cu");
  ASSERT_TRUE(tree.ok()) << tree.status().ToString();
  EXPECT_EQ(Names(**tree), (std::vector<std::string>{"a.cu", "b.h", "kbundle/c.h"}));
  EXPECT_EQ((*tree)->external, std::vector<std::string>{"cuda_bf16.h"});
  EXPECT_EQ((*tree)->files[0].text, "#include <b.h>\n#include <cuda_bf16.h>\nint a;\n");
  EXPECT_EQ((*tree)->files[1].text, "  #  include  <kbundle/c.h>  // comment\n");
}

TEST_F(SourceTreeTest, GivesOneNameToAFileThatIsReachedInTwoWays) {
  WriteText(folder_ / "lib/a.cu", "#include \"sub/b.h\"\n#include \"sub/../sub/c.h\"");
  WriteText(folder_ / "lib/sub/b.h", "#include \"c.h\"\n#include \"../../common/d.h\"\n");
  WriteText(folder_ / "lib/sub/c.h", "#pragma once\n");
  WriteText(folder_ / "common/d.h", "");
  const auto tree = Read("a.cu");
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(Names(**tree),
            (std::vector<std::string>{"a.cu", "sub/b.h", "sub/c.h", "up/common/d.h"}));
  EXPECT_EQ((*tree)->files[1].text, "#include <sub/c.h>\n#include <up/common/d.h>\n");
}

TEST_F(SourceTreeTest, PrefersTheNearestFileForQuotesAndTheFoldersForBrackets) {
  WriteText(folder_ / "lib/a.cu", "#include \"x.h\"\n#include <x.h>\n");
  WriteText(folder_ / "lib/x.h", "near");
  WriteText(folder_ / "include/x.h", "far");
  const auto tree = Read("a.cu");
  ASSERT_TRUE(tree.ok());
  ASSERT_EQ((*tree)->files.size(), 3u);
  EXPECT_EQ((*tree)->files[1].text, "near");
  EXPECT_EQ((*tree)->files[2].text, "far");
  EXPECT_NE((*tree)->files[1].name, (*tree)->files[2].name);
}

TEST_F(SourceTreeTest, EndsOnHeadersThatIncludeEachOther) {
  WriteText(folder_ / "lib/a.cu", "#include \"b.h\"\n");
  WriteText(folder_ / "lib/b.h", "#pragma once\n#include \"a.cu\"\n#include \"b.h\"\n");
  const auto tree = Read("a.cu");
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ((*tree)->files.size(), 2u);
}

TEST_F(SourceTreeTest, CountsAHeaderThatIsOnlyAskedFor) {
  WriteText(folder_ / "lib/a.cu", "#if __has_include(\"b.h\")\n#endif\n");
  WriteText(folder_ / "lib/b.h", "");
  EXPECT_EQ((*Read("a.cu"))->files.size(), 2u);
}

TEST_F(SourceTreeTest, NamesASourceThatIsNotThere) {
  const auto tree = Read("none.cu");
  ASSERT_FALSE(tree.ok());
  EXPECT_EQ(tree.status().code(), StatusCode::kNotFound);
  EXPECT_NE(tree.status().message().find("source \"none.cu\""), std::string::npos);
  EXPECT_NE(tree.status().message().find(folder_ / "lib/none.cu"), std::string::npos);
}

}  // namespace
}  // namespace kbundle::builder
