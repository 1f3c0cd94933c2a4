// Promise: cuBLASLt is taken from what the process has loaded; what is missing is an error that says
// what to install.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loader/provider/cublaslt/cublaslt_symbols.h"

namespace kbundle {
namespace {

// Which names are asked for, and the one that is there.
struct Linker {
  std::string has;
  bool loaded = false;
  std::vector<std::string> asked;

  LibraryOpener Opener() {
    return [this](const char* soname, bool loaded_only) -> void* {
      asked.push_back(std::string(soname) + (loaded_only ? " loaded" : ""));
      return soname == has && (loaded || !loaded_only) ? this : nullptr;
    };
  }
};

const char* NoReason() { return "cannot open shared object file"; }

TEST(CublasLtApi, TakesWhatTheProcessHasLoadedBeforeOpeningAnything) {
  Linker twelve{"libcublasLt.so.12", true, {}};
  EXPECT_EQ(*OpenCublasLt(twelve.Opener(), NoReason), &twelve);
  EXPECT_EQ(twelve.asked,
            (std::vector<std::string>{"libcublasLt.so.13 loaded", "libcublasLt.so.12 loaded"}));
  Linker fresh{"libcublasLt.so.13", false, {}};
  EXPECT_EQ(*OpenCublasLt(fresh.Opener(), NoReason), &fresh);
  EXPECT_EQ(fresh.asked.back(), "libcublasLt.so.13");
}

TEST(CublasLtApi, SaysWhatToInstallWhereThereIsNone) {
  Linker none{"", false, {}};
  const auto opened = OpenCublasLt(none.Opener(), NoReason);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(opened.status().message().find("install nvidia-cublas"), std::string::npos);
  EXPECT_NE(opened.status().message().find("cannot open shared object"), std::string::npos);
}

TEST(CublasLtApi, NamesTheFunctionThatAnOldLibraryLacks) {
  int something = 0;
  std::vector<std::string> names;
  CublasLtApi api;
  const auto all = [&](const char* name) -> void* {
    names.push_back(name);
    return &something;
  };
  ASSERT_TRUE(FillCublasLtApi(all, api).ok());
  for (const std::string& missing : std::vector<std::string>(names)) {
    const Status filled = FillCublasLtApi(
        [&](const char* name) -> void* { return name == missing ? nullptr : &something; }, api);
    EXPECT_EQ(filled.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(filled.message().find(missing), std::string::npos);
  }
}

TEST(CublasLtApi, SpellsVersionsAsPeopleDo) {
  EXPECT_EQ(CublasVersionText(130100), "13.1.0");
  EXPECT_EQ(CublasVersionText(120905), "12.9.5");
}

}  // namespace
}  // namespace kbundle
