// Promise: the code that runs is the code that was given, whoever opens and closes descriptors in
// this process, and nothing of it stays open or mapped when the last user is gone.
#include "loader/host/host_object.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "loader/host/mapped_image.h"
#include "support/files.h"
#include "support/run_sample.h"

namespace kbundle {
namespace {

using testing::OpenDescriptors;

using Image = std::vector<uint8_t>;

const Image& Sample() {
  static const Image& code = *[] {
    testing::TempDir dir;
    return new Image(testing::CompileHostSample(dir.path(), testing::SourceDir()));
  }();
  return code;
}

// A library with one function int number(void).
const Image& Neighbour() {
  static const Image& code = *[] {
    testing::TempDir dir;
    testing::WriteFile(dir / "n.c", "int number(void) { return 42; }");
    KB_CHECK(
        std::system(("cc -shared -fPIC -nostdlib -o " + (dir / "n.so ") + (dir / "n.c")).c_str()) ==
        0);
    const std::string bytes = testing::ReadFile(dir / "n.so");
    return new Image(bytes.begin(), bytes.end());
  }();
  return code;
}

ResolvedStep ScaleStep() {
  ResolvedStep step;
  step.symbol = "scale_f32";
  for (uint32_t size : {8, 8, 4, 4})
    step.args.push_back({ResolvedArg::Kind::kConstant, size, {}, 0});
  return step;
}

void ExpectScales(const HostObject& object) {
  const auto kernel = object.Find(ScaleStep());
  ASSERT_TRUE(kernel.ok()) << kernel.status().ToString();
  float x = 2, y = 0, scale = 4;
  const float* px = &x;
  float* py = &y;
  const int32_t k = 1;
  const void* args[] = {&py, &px, &scale, &k};
  (*kernel)(0, 1, args);
  EXPECT_EQ(y, 8);
}

// What a plug-in of somebody else does; its library stays mapped, its descriptor does not.
int NeighbourOpensAndCloses(void** library) {
  const int fd = memfd_create("neighbour", MFD_CLOEXEC);
  KB_CHECK(write(fd, Neighbour().data(), Neighbour().size()) ==
           static_cast<ssize_t>(Neighbour().size()));
  *library = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  close(fd);
  return fd;
}

TEST(HostObject, MemoryAndTemporaryFileGiveTheSameKernel) {
  for (HostObjectPlace place : {HostObjectPlace::kMemory, HostObjectPlace::kTemporaryFile}) {
    auto object = HostObject::Load(Sample(), "sample", place);
    ASSERT_TRUE(object.ok()) << object.status().ToString();
    ExpectScales(**object);
  }
}

TEST(HostObject, LeavesNoDescriptorOpen) {
  const size_t before = OpenDescriptors();
  std::vector<std::shared_ptr<HostObject>> held;
  for (int i = 0; i < 20; ++i) held.push_back(*HostObject::Load(Sample(), "sample"));
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(HostObject, ADescriptorNumberThatANeighbourUsedBeforeIsNoTrap) {
  void* library = nullptr;
  const int used = NeighbourOpensAndCloses(&library);
  ASSERT_NE(library, nullptr);
  const int next = memfd_create("next", MFD_CLOEXEC);
  close(next);
  ASSERT_EQ(next, used) << "the number comes again";
  const auto object = HostObject::Load(Sample(), "sample", HostObjectPlace::kMemory);
  ASSERT_TRUE(object.ok()) << object.status().ToString();
  ExpectScales(**object);
  dlclose(library);
}

TEST(HostObject, ANeighbourThatGetsOurNumberGetsItsOwnLibrary) {
  const auto object = HostObject::Load(Sample(), "sample", HostObjectPlace::kMemory);
  ASSERT_TRUE(object.ok()) << object.status().ToString();
  for (int fd = 3; fd < 64; ++fd) {  // what a daemon does: every memory file that it finds
    char target[64] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (readlink(link.c_str(), target, sizeof target - 1) > 0 &&
        std::string(target).find("memfd:kbundle") != std::string::npos) {
      close(fd);
    }
  }
  void* library = nullptr;
  NeighbourOpensAndCloses(&library);
  ASSERT_NE(library, nullptr);
  auto* number = reinterpret_cast<int (*)()>(dlsym(library, "number"));
  ASSERT_NE(number, nullptr) << "it was given kbundle's library";
  EXPECT_EQ(number(), 42);
  ExpectScales(**object);
  dlclose(library);
}

TEST(HostObject, IsUnmappedWithItsLastUser) {
  auto object = *HostObject::Load(Sample(), "sample");
  const HostFunction kernel = *object->Find(ScaleStep());
  Dl_info info;
  EXPECT_NE(dladdr(reinterpret_cast<void*>(kernel), &info), 0);
  object.reset();
  EXPECT_EQ(dladdr(reinterpret_cast<void*>(kernel), &info), 0);
}

TEST(MapsImage, TellsAnotherLibraryAndOtherBytesApart) {
  void* library = nullptr;
  NeighbourOpensAndCloses(&library);
  ASSERT_NE(library, nullptr);
  EXPECT_TRUE(MapsImage(library, Neighbour()));
  EXPECT_FALSE(MapsImage(library, Sample()));
  Image patched = Neighbour();
  const uint8_t answer[] = {0xb8, 42, 0, 0, 0};  // mov eax, 42
  const auto at = std::search(patched.begin(), patched.end(), std::begin(answer), std::end(answer));
  ASSERT_NE(at, patched.end());
  at[1] = 43;
  EXPECT_FALSE(MapsImage(library, patched));
  for (size_t size : {0, 10, 63, 64, 100, 500}) {
    EXPECT_FALSE(MapsImage(library, std::span(Neighbour()).first(size))) << size;
  }
  dlclose(library);
}

TEST(HostObject, AKernelWithOtherParametersIsRefusedByName) {
  auto object = HostObject::Load(Sample(), "sample");
  ASSERT_TRUE(object.ok());
  ResolvedStep step;
  step.symbol = "scale_f32";
  EXPECT_NE((*object)->Find(step).status().message().find("takes 4 parameters"), std::string::npos);
  step = ScaleStep();
  step.args[2].size = 8;
  EXPECT_NE((*object)->Find(step).status().message().find("parameter 3"), std::string::npos);
  step.symbol = "absent";
  EXPECT_EQ((*object)->Find(step).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace kbundle
