// What compiled code says about its kernels, and how it is compared with a manifest's steps.
#include "builder/store/kernel_info.h"

#include "builder/library.h"
#include "builder/provider/cuda/nvrtc.h"
#include "builder/tools/toolchain.h"

namespace kbundle::builder {
namespace {

constexpr char kKernels[] = R"(
struct Eight { int values[8]; };
struct alignas(64) Map { unsigned long long opaque[16]; };
extern "C" __global__ void all(float* y, float s, bool b, Eight e,
                               const __grid_constant__ Map m, long long n) {
  __shared__ float part[100];
  part[threadIdx.x % 100] = s;
  __syncthreads();
  y[n] = part[n % 100] + e.values[n & 7] + m.opaque[n & 15] + b;
}
extern "C" __global__ void none() {}
)";
const std::vector<uint32_t> kAllSizes = {8, 4, 1, 32, 128, 8};

NvrtcOutput CompiledBy(bool ptx) {
  const Toolchain tools = Toolchain::Find();
  auto nvrtc = Nvrtc::Open(tools.nvrtc);
  EXPECT_TRUE(nvrtc.ok());
  NvrtcInput input;
  input.source = kKernels;
  input.ptx = ptx;
  input.options = {"--std=c++20"};
  if (ptx)
    input.options.push_back("-arch=compute_80");
  else
    input.options.insert(input.options.end(), {"-arch=sm_90a", "--ptxas-options=-v"});
  auto output = (*nvrtc)->Compile(input);
  EXPECT_TRUE(output.ok() && output->ok);
  return *output;
}

TEST(CubinParams, ReadsEverySize) {
  const NvrtcOutput output = CompiledBy(false);
  EXPECT_EQ(*CubinParams(output.code, "all"), kAllSizes);
  EXPECT_TRUE(CubinParams(output.code, "none")->empty());
  const auto missing = CubinParams(output.code, "other");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("all"), std::string::npos);
}

TEST(CubinParams, RefusesEveryCutOfACubin) {
  const std::string code = CompiledBy(false).code;
  for (size_t size = 0; size < code.size(); size += 7) {
    const auto cut = CubinParams(std::string_view(code).substr(0, size), "all");
    EXPECT_FALSE(cut.ok()) << size;
  }
}

TEST(CubinParams, SurvivesEveryFlippedBitOfTheHeadersWithoutHarm) {
  const testing::ByteSurgeon surgeon(CompiledBy(false).code);
  for (size_t bit = 0; bit < surgeon.bits(); bit += 5) {
    const auto flipped = CubinParams(surgeon.Flip(bit), "all");
    if (flipped.ok()) {
      EXPECT_LE(flipped->size(), 65536u);
    }
  }
}

TEST(PtxParams, ReadsEverySize) {
  const NvrtcOutput output = CompiledBy(true);
  EXPECT_EQ(*PtxParams(output.code, "all"), kAllSizes);
  EXPECT_TRUE(PtxParams(output.code, "none")->empty());
  EXPECT_FALSE(PtxParams(output.code, "al").ok());
}

TEST(PtxasLog, GivesRegistersSpillsAndSharedMemory) {
  const NvrtcOutput output = CompiledBy(false);
  KernelInfo all{"all", "all", {}, 0, 7, 0};
  ASSERT_TRUE(ReadPtxasLog(output.log, &all).ok());
  EXPECT_GT(all.registers, 4u);
  EXPECT_EQ(all.spill_bytes, 0u);
  EXPECT_EQ(all.static_shared, 400u);
  EXPECT_EQ(WithoutPtxasInfo(output.log), "");
  KernelInfo other{"other", "other", {}, 0, 0, 0};
  EXPECT_FALSE(ReadPtxasLog(output.log, &other).ok());
}

TEST(PtxasLog, TakesTheLargerOfStoresAndLoadsAndKeepsWarnings) {
  const std::string log =
      "kb.cu(3): warning #177-D: unused\n"
      "ptxas info    : Function properties for k\n"
      "    64 bytes stack frame, 48 bytes spill stores, 52 bytes spill loads\n"
      "ptxas info    : Used 255 registers, 64 bytes cumulative stack size, 16 bytes smem\n";
  KernelInfo kernel{"k", "k", {}, 0, 0, 0};
  ASSERT_TRUE(ReadPtxasLog(log, &kernel).ok());
  EXPECT_EQ(kernel.registers, 255u);
  EXPECT_EQ(kernel.spill_bytes, 52u);
  EXPECT_EQ(kernel.static_shared, 16u);
  EXPECT_EQ(WithoutPtxasInfo(log), "kb.cu(3): warning #177-D: unused\n");
}

TEST(CheckParams, NamesTheParameterAndBothSizes) {
  Step step;
  for (ArgKind kind : {ArgKind::kResult, ArgKind::kOperand, ArgKind::kInteger, ArgKind::kArray,
                       ArgKind::kTensorMap}) {
    Arg arg;
    arg.kind = kind;
    arg.ctype = DType::kI32;
    arg.count = 8;
    arg.text = "arg" + std::to_string(step.args.size() + 1);
    step.args.push_back(arg);
  }
  KernelInfo kernel{"k<float>", "_Z1k", {8, 8, 4, 32, 128}, 0, 0, 0};
  EXPECT_TRUE(CheckParams(kernel, step).ok());
  kernel.param_bytes[2] = 8;
  const Status other = CheckParams(kernel, step);
  EXPECT_NE(other.message().find("'k<float>': parameter 3 has 8 bytes"), std::string::npos);
  EXPECT_NE(other.message().find("\"arg3\" has 4"), std::string::npos);
  kernel.param_bytes = {8, 8};
  EXPECT_NE(
      CheckParams(kernel, step).message().find("takes 2 parameters, but the manifest passes 5"),
      std::string::npos);
}

}  // namespace
}  // namespace kbundle::builder
