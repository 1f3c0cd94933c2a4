// Promise: what launches call is found where the compilers are, though no variable names its folder.
#include "builder/tools/gpu_libraries.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "builder/tools/toolchain.h"

namespace kbundle::builder {
namespace {

TEST(GpuLibraries, ALibraryThatTheLinkerDoesNotFindIsLoadedByItsPath) {
  const std::string folder = ::testing::TempDir() + "kb_gpu_libraries";
  const std::string path = folder + "/libkb_nowhere.so.1";
  const std::string compile =
      "mkdir -p " + folder + " && echo 'int here;' | " + Toolchain::Find().host_compiler +
      " -xc++ -shared -fPIC -Wl,-soname,libkb_nowhere.so.1 -o " + path + " -";
  ASSERT_EQ(std::system(compile.c_str()), 0);
  EXPECT_FALSE(HasLibrary("libkb_nowhere.so.1", {}));
  EXPECT_FALSE(HasLibrary("libkb_nowhere.so.1", {folder + "/absent"}));
  EXPECT_TRUE(HasLibrary("libkb_nowhere.so.1", {folder + "/absent", path}));
  EXPECT_NE(dlopen("libkb_nowhere.so.1", RTLD_NOW | RTLD_NOLOAD), nullptr);
  EXPECT_TRUE(HasLibrary("libkb_nowhere.so.1", {}));
}

}  // namespace
}  // namespace kbundle::builder
