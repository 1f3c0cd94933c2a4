// SourceReader: a source and its headers, without the places where they lie.
#include "builder/source/tree.h"

#include "builder/library.h"
#include "support/ordinary_user.h"

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

// A package is taken whole: what cannot be read of it is an error that names it, not what the key of
// a compilation silently lacks.
TEST_F(SourceTreeTest, NamesTheFolderOfAPackageThatCannotBeRead) {
  namespace fs = std::filesystem;
  WriteText(folder_ / "k.py", "from pkg import consts\n");
  WriteText(folder_ / "pkg/consts.py", "N = 1\n");
  WriteText(folder_ / "pkg/sub/deeper/more.py", "M = 1\n");
  const auto whole = SourceReader().ReadPython(folder_.path(), "k.py");
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  EXPECT_EQ(Names(**whole),
            (std::vector<std::string>{"k.py", "pkg/consts.py", "pkg/sub/deeper/more.py"}));
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::permissions(folder_ / "pkg/sub", fs::perms::none);
  {
    const ::kbundle::testing::OrdinaryUser user;
    const Status status = SourceReader().ReadPython(folder_.path(), "k.py").status();
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << status.ToString();
    EXPECT_NE(status.message().find(folder_ / "pkg/sub"), std::string::npos);
  }
  fs::permissions(folder_ / "pkg/sub", fs::perms::owner_all);
}

}  // namespace
}  // namespace kbundle::builder
