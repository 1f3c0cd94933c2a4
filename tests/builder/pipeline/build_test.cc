// Build: one call from manifests to a bundle that the loader accepts; the same inputs give the same
// bytes anywhere; what did not change is not compiled.
#include "builder/pipeline/build.h"

#include "builder/pipeline/build_fixture.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

TEST_F(BuildTest, MakesABundleThatTheLoaderAccepts) {
  options_.targets = {};
  const BuildReport report = MustRun();
  // Two types, two grid points on three GPUs; one portable point a type; one host type, three
  // levels.
  EXPECT_EQ(report.variants, 12 + 2 + 3);
  EXPECT_EQ(report.objects, 12 + 1 + 3);
  EXPECT_EQ(report.compiled, report.objects);
  auto bundle = Bundle::Open(options_.output);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  EXPECT_EQ((*bundle)->name(), "out");
  EXPECT_EQ((*bundle)->file_size(), report.bundle_bytes);
  EXPECT_TRUE((*bundle)->VerifyAll().ok());
  for (const char* id :
       {"tiny.scale/grid[T=bf16,UNROLL=2]@sm_90a", "tiny.scale/loop[T=f32]@x86-64-v2",
        "tiny.scale/grid[T=f32,UNROLL=1]@portable"}) {
    EXPECT_TRUE((*bundle)->FindVariants(id).ok()) << id;
  }
}

TEST_F(BuildTest, StoresRegistersOfEveryCudaKernel) {
  MustRun();
  auto bundle = Bundle::Open(options_.output);
  ASSERT_TRUE(bundle.ok());
  const auto rows = (*bundle)->FindVariants("tiny.scale/grid[T=f32,UNROLL=1]@sm_90a");
  ASSERT_TRUE(rows.ok());
  const fb::Index& index = IndexOf(**bundle);
  const auto* kernel = index.kernels()->Get(index.variants()->Get((*rows)[0])->kernels());
  EXPECT_GT(kernel->registers(), 0u);
  EXPECT_EQ(kernel->spill_bytes(), 0u);
}

TEST_F(BuildTest, GivesTheSameBytesInAnyPlaceOrderAndEnvironment) {
  WriteText(folder_ / "other/second.toml",
            Replaced(ReadText(folder_ / "lib/tiny.toml"), "\"tiny\"", "\"second\""));
  for (const char* name : {"tiny.cu", "tiny.cuh", "tiny_host.cc", "part.h", "reference.py"}) {
    std::filesystem::copy(folder_ / ("lib/" + std::string(name)), folder_ / "other");
  }
  options_.paths = {folder_ / "lib", folder_ / "other"};
  options_.targets = {"portable", "sm_90a", "x86-64-v3"};
  options_.jobs = 1;
  MustRun();
  const std::string first = ReadText(options_.output);

  std::filesystem::create_directories(folder_ / "a/deeper place");
  std::filesystem::rename(folder_ / "lib", folder_ / "a/deeper place/z");
  std::filesystem::rename(folder_ / "other", folder_ / "a/b");
  const Variable home("HOME", folder_ / "home"), locale("LC_ALL", "tr_TR.UTF-8"),
      zone("TZ", "Pacific/Chatham"), temporary("TMPDIR", folder_ / "a");
  options_.paths = {folder_ / "a/b", folder_ / "a/deeper place"};
  options_.targets = {"x86-64-v3", "sm_90a", "portable"};
  options_.output = folder_ / "a/out.kb";
  options_.cache_dir = folder_ / "empty cache";
  options_.jobs = 3;
  const BuildReport report = MustRun();
  EXPECT_EQ(report.reused, 0);
  EXPECT_TRUE(ReadText(options_.output) == first);
}

constexpr char kNvccVariant[] = R"toml(
[[op.scale.variant]]
name = "fixed"
provider = "cuda"
compiler = "nvcc"
source = "fixed.cu"
tunables = { UNROLL = [4] }
steps = [{ kernel = "scale_{T}", grid = ["ceil_div(N, 256)"], block = ["256"],
           args = ["y", "x", "f32(factor)", "i64(N)"] }]
)toml";
constexpr char kNvccSource[] = R"(#include <cuda_bf16.h>
namespace { __device__ float touched[KB_UNROLL]; }
static __device__ float Times(float x, float factor) { touched[0] = x; return x * factor; }
extern "C" __global__ void
#ifdef KB_IS_F32
scale_f32
#else
scale_bf16
#endif
(KB_T* y, const KB_T* x, float factor, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = KB_T(Times(float(x[i]), factor));
}
)";

TEST_F(BuildTest, CompilesWithNvccToTheSameBytesInAnyPlace) {
  options_.targets = {"sm_90a"};
  for (const char* type : {"f32", "bf16"}) {
    const std::string is_f32 = std::string(type) == "f32" ? "\nflags = [\"-DKB_IS_F32=1\"]" : "";
    std::string variant =
        Replaced(kNvccVariant, "\"fixed\"", std::string("\"fixed_") + type + "\"");
    variant =
        Replaced(variant, "tunables", std::string("types = { T = [\"") + type + "\"] }\ntunables");
    variant = Replaced(variant, "\nsteps", is_f32 + "\nsteps");
    WriteText(folder_ / "lib/tiny.toml", ReadText(folder_ / "lib/tiny.toml") + variant);
  }
  WriteText(folder_ / "lib/fixed.cu", kNvccSource);
  EXPECT_EQ(MustRun().objects, 4 + 2);
  const std::string first = ReadText(options_.output);
  EXPECT_EQ(MustRun().compiled, 0);

  std::filesystem::create_directories(folder_ / "elsewhere");
  std::filesystem::rename(folder_ / "lib", folder_ / "elsewhere/library");
  options_.paths = {folder_ / "elsewhere/library"};
  options_.cache_dir = folder_ / "second cache";
  const Variable temporary("TMPDIR", folder_ / "elsewhere");
  EXPECT_EQ(MustRun().reused, 0);
  EXPECT_TRUE(ReadText(options_.output) == first);
}

TEST_F(BuildTest, HoldsNoPathOfThisMachine) {
  options_.targets = {"sm_90a", "portable", "x86-64-v2"};
  Edit("tiny.cuh", "return T(", "if (factor < 0) printf(\"%s\", __FILE__); return T(");
  Edit("tiny.cuh", "#pragma once",
       "#pragma once\nextern \"C\" __device__ int printf(const char*, ...);");
  MustRun();
  const auto bundle = Bundle::Open(options_.output);
  ASSERT_TRUE(bundle.ok());
  bool seen = false;
  for (uint32_t i = 0; i < IndexOf(**bundle).blobs()->size(); ++i) {
    const auto bytes = (*bundle)->ReadBlob(i);
    ASSERT_TRUE(bytes.ok());
    const std::string text(bytes->begin(), bytes->end());
    seen |= text.find("tiny.cuh") != std::string::npos;
    EXPECT_EQ(text.find(folder_.path()), std::string::npos) << i;
    EXPECT_EQ(text.find("kbundle-"), std::string::npos) << i;
  }
  EXPECT_TRUE(seen);
}

TEST_F(BuildTest, CompilesNothingTheSecondTimeAndLeavesTheFileAlone) {
  const BuildReport first = MustRun();
  struct stat before, after;
  ASSERT_EQ(stat(options_.output.c_str(), &before), 0);
  const BuildReport second = MustRun();
  ASSERT_EQ(stat(options_.output.c_str(), &after), 0);
  EXPECT_EQ(second.compiled, 0);
  EXPECT_EQ(second.reused, first.objects);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_LT(second.seconds, 1.0);
}

TEST_F(BuildTest, RebuildsOnlyWhatIncludesAChangedHeaderAndSaysWhy) {
  MustRun();
  Edit("part.h", "x * factor", "factor * x");
  options_.explain = true;
  const BuildReport report = MustRun();
  EXPECT_EQ(report.compiled, 1);
  ASSERT_EQ(reporter_.notes.size(), 1u);
  EXPECT_EQ(reporter_.notes[0], "compile tiny/tiny_host.cc@x86-64-v3: part.h changed");
}

TEST_F(BuildTest, ExplainsFirstBuildsFlagsAndDamagedObjects) {
  options_.targets = {"x86-64-v3"};
  options_.explain = true;
  MustRun();
  EXPECT_NE(reporter_.notes.at(0).find("first build"), std::string::npos);
  Edit("tiny.toml", "source = \"tiny_host.cc\"",
       "source = \"tiny_host.cc\"\nflags = [\"-DSOME=1\"]");
  MustRun();
  EXPECT_NE(reporter_.notes.at(0).find("flags changed"), std::string::npos) << reporter_.notes[0];
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder_ / "cache/v1/objects")) {
    if (entry.is_regular_file()) std::filesystem::resize_file(entry.path(), 40);
  }
  EXPECT_EQ(MustRun().compiled, 1);
  EXPECT_NE(reporter_.notes.at(0).find("not in the store"), std::string::npos);
  EXPECT_EQ(MustRun().compiled, 0);
}

TEST_F(BuildTest, NoticesAChangedHeaderThatOnlyTheCompilerSaw) {
  // Outside the scan: reached through a macro and a -I folder, so only -MD knows of it.
  WriteText(folder_ / "outside/limit.h", "#define LIMIT 1.0f\n");
  Edit("tiny.toml", "source = \"tiny_host.cc\"",
       "source = \"tiny_host.cc\"\nflags = [\"-I../outside\"]");
  Edit("part.h", "#pragma once", "#pragma once\n#define WHICH <limit.h>\n#include WHICH");
  Edit("part.h", "x * factor", "x * factor * LIMIT");
  options_.targets = {"x86-64-v3"};
  MustRun();
  EXPECT_EQ(MustRun().compiled, 0);
  WriteText(folder_ / "outside/limit.h", "#define LIMIT 3.0f\n");
  options_.explain = true;
  EXPECT_EQ(MustRun().compiled, 1);
  EXPECT_NE(reporter_.notes.at(0).find("limit.h changed"), std::string::npos) << reporter_.notes[0];
}

TEST_F(BuildTest, DryRunCompilesAndWritesNothing) {
  options_.dry_run = true;
  const BuildReport report = MustRun();
  EXPECT_EQ(report.compiled, 0);
  EXPECT_EQ(static_cast<int>(reporter_.notes.size()), report.objects);
  EXPECT_FALSE(OutputExists());
}

TEST_F(BuildTest, RefusesTwoFamiliesWithTheSameOp) {
  WriteLibrary(folder_ / "twin");
  options_.paths.push_back(folder_ / "twin");
  const auto report = Run();
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(report.status().message().find("'tiny.scale'"), std::string::npos);
  EXPECT_NE(report.status().message().find("twin/tiny.toml"), std::string::npos);
}

TEST_F(BuildTest, EmbedsWhereConformanceRanTheSameCode) {
  MustRun();
  std::string digest;
  {
    const auto bundle = Bundle::Open(options_.output);
    ASSERT_TRUE(bundle.ok());
    for (uint8_t byte : *IndexOf(**bundle).blobs()->Get(0)->sha256().bytes()) {
      char text[3];
      snprintf(text, sizeof text, "%02x", byte);
      digest += text;
    }
  }
  WriteText(folder_ / "lib/ran_on.jsonl", "{\"device\": \"NVIDIA H200\", \"sha256\": \"" + digest +
                                              "\"}\n"
                                              "{\"device\": \"Old GPU\", \"sha256\": \"" +
                                              std::string(64, '0') + "\"}\n");
  MustRun();
  const auto bundle = Bundle::Open(options_.output);
  ASSERT_TRUE(bundle.ok());
  ASSERT_EQ(IndexOf(**bundle).devices()->size(), 1u);
  EXPECT_EQ(IndexOf(**bundle).devices()->Get(0)->string_view(), "NVIDIA H200");
  EXPECT_EQ(IndexOf(**bundle).ran_on()->Get(0)->blob(), 0u);

  WriteText(folder_ / "lib/ran_on.jsonl", "{\"device\": 7}\n");
  const auto report = Run();
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message().find("ran_on.jsonl:1"), std::string::npos);
}

}  // namespace
}  // namespace kbundle::builder
