// Promise: cuDNN is where the user says, or where the wheels and toolkits are, and its launches find it
// though no variable names its folder.
#include "builder/provider/cudnn/find.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "builder/provider/provider.h"
#include "builder/tools/gpu_libraries.h"

namespace kbundle::builder {
namespace {

TEST(FindCudnn, TheVariableNamesOneOrSeveralAndNothingElseIsLookedFor) {
  setenv("KBUNDLE_CUDNN", "/a/libcudnn.so.9::/b/libcudnn.so.9", 1);
  const std::vector<std::string> named = CudnnPaths(Toolchain());
  unsetenv("KBUNDLE_CUDNN");
  EXPECT_EQ(named, (std::vector<std::string>{"/a/libcudnn.so.9", "/b/libcudnn.so.9"}));
  const Status missing = NeedCudnn(Toolchain(), named[0]);
  EXPECT_NE(missing.message().find("is not at /a/libcudnn.so.9"), std::string::npos)
      << missing.message();
}

TEST(FindCudnn, ItLiesBesideAWheelOfCudaOrInAToolkit) {
  const std::string folder = ::testing::TempDir() + "kb_find_cudnn";
  const std::string make = "mkdir -p " + folder + "/nvidia/cudnn/lib " + folder +
                           "/nvidia/cu13/lib && touch " + folder +
                           "/nvidia/cudnn/lib/libcudnn.so.9";
  ASSERT_EQ(std::system(make.c_str()), 0);
  Toolchain tools;
  tools.roots = {folder + "/elsewhere", folder + "/nvidia/cu13"};
  const std::string found = CudnnPaths(tools).front();
  EXPECT_EQ(found, folder + "/nvidia/cu13/../cudnn/lib/libcudnn.so.9");
  EXPECT_TRUE(NeedCudnn(tools, found).ok());
  tools.searched = {"/somewhere"};
  const Status missing = NeedCudnn(tools, "");
  EXPECT_NE(missing.message().find("/somewhere, /usr"), std::string::npos) << missing.message();
}

TEST(FindCudnn, WhatLaunchesCallIsThereAfterwards) {
  const Toolchain tools = Toolchain::Find();
  ASSERT_TRUE(NeedCudnn(tools, CudnnPaths(tools).front()).ok());
  LoadGpuLibraries(tools);
  EXPECT_NE(dlopen(kCublasLtSoname, RTLD_NOW | RTLD_NOLOAD), nullptr);
  EXPECT_NE(dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace kbundle::builder
