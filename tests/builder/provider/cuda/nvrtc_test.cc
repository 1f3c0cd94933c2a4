// Promise: NVRTC works wherever it is installed: all that it loads is loaded by its full path.
#include "builder/provider/cuda/nvrtc.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "builder/tools/toolchain.h"

namespace kbundle::builder {
namespace {

TEST(Nvrtc, HasItsBuiltInHeadersBeforeItAsksForThemByName) {
  const Toolchain tools = Toolchain::Find();
  ASSERT_TRUE(tools.NeedNvrtc().ok()) << tools.NeedNvrtc().ToString();
  const auto nvrtc = Nvrtc::Open(tools.nvrtc);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().ToString();
  const std::string name = std::filesystem::path(tools.nvrtc_builtins).filename().string();
  EXPECT_NE(dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr) << name;
}

}  // namespace
}  // namespace kbundle::builder
