// Promise: a cubin carries no data that nothing refers to, and dropping it changes nothing else.
#include "builder/provider/cuda/assemble.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "builder/provider/cuda/nvrtc.h"
#include "builder/support/elf.h"

namespace kbundle::builder {
namespace {

constexpr char kSource[] = R"(
constexpr float kUnused = 1.5f;
template <int N> struct Shape { static constexpr int kWidth = N; static constexpr bool kWide = N > 4; };
constexpr int kTable[5] = {3, 1, 4, 1, 5};
extern "C" __global__ void plain(float* y, float s, int n) {
  const int i = blockIdx.x * Shape<8>::kWidth + threadIdx.x;
  if (Shape<8>::kWide && i < n) y[i] = s / (y[i] * s + kUnused);
}
extern "C" __global__ void looks_up(int* y) { y[threadIdx.x] = kTable[threadIdx.x % 5]; }
)";

struct Cubins {
  std::string nvrtc, assembled;
  std::string log;
};

// By NVRTC alone, and by way of PTX.
Cubins Compile(const std::vector<std::string>& flags) {
  CompileContext context;
  context.tools = Toolchain::Find();
  EXPECT_FALSE(context.tools.ptxas.empty()) << "beside " << context.tools.nvrtc;
  Unit unit;
  unit.target = *Target::Parse("sm_90a");
  unit.compiler = "nvrtc";
  unit.flags = flags;
  EXPECT_TRUE(Assembles(unit, context.tools));
  auto nvrtc = Nvrtc::Open(context.tools.nvrtc);
  EXPECT_TRUE(nvrtc.ok());
  const auto compile = [&](const char* arch, bool ptx) {
    NvrtcInput input{kSource, {}, {"--std=c++20", arch}, {}, ptx};
    input.options.insert(input.options.end(), flags.begin(), flags.end());
    auto output = (*nvrtc)->Compile(input);
    EXPECT_TRUE(output.ok() && output->ok) << output->log;
    return output->code;
  };
  Cubins cubins;
  cubins.nvrtc = compile("-arch=sm_90a", false);
  auto assembled = Assemble(unit, compile("-arch=compute_90a", true), context, &cubins.log);
  EXPECT_TRUE(assembled.ok()) << assembled.status().ToString();
  cubins.assembled = assembled.ok() ? *assembled : "";
  return cubins;
}

std::string_view Section(const std::string& cubin, std::string_view name) {
  auto elf = Elf::Parse(cubin);
  EXPECT_TRUE(elf.ok());
  const Elf::Section* section = elf->Find(name);
  return section == nullptr ? std::string_view() : section->bytes;
}

bool HasSymbol(const std::string& cubin, std::string_view part) {
  const auto elf = Elf::Parse(cubin);
  const auto symbols = elf->Symbols(".symtab");
  return std::any_of(symbols->begin(), symbols->end(), [&](const Elf::Symbol& symbol) {
    return symbol.name.find(part) != std::string_view::npos;
  });
}

TEST(Assemble, GivesNvrtcsInstructionsWithoutTheUnusedData) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{},
                                                {"-DX=1"},
                                                {"--fmad=false", "-maxrregcount=24"},
                                                {"-ftz=true", "--prec-div=false"}}) {
    const Cubins cubins = Compile(flags);
    const std::string_view plain = Section(cubins.nvrtc, ".text.plain");
    EXPECT_FALSE(plain.empty());
    EXPECT_TRUE(plain == Section(cubins.assembled, ".text.plain"));
    EXPECT_EQ(Section(cubins.nvrtc, ".text.looks_up").size(),
              Section(cubins.assembled, ".text.looks_up").size())
        << "the table may lie elsewhere";
    for (const char* name : {"kUnused", "kWidth", "kWide"}) {
      EXPECT_TRUE(HasSymbol(cubins.nvrtc, name)) << "else this is needed no more: " << name;
      EXPECT_FALSE(HasSymbol(cubins.assembled, name)) << name;
    }
    EXPECT_TRUE(HasSymbol(cubins.assembled, "kTable")) << "a kernel reads it";
    EXPECT_NE(cubins.log.find("Used "), std::string::npos) << "registers are read from the log";
  }
}

TEST(Assemble, LeavesFlagsItDoesNotKnowToNvrtc) {
  EXPECT_EQ(PtxasFlags({"-DA", "--ftz=true"}), std::vector<std::string>{});
  EXPECT_EQ(PtxasFlags({"-maxrregcount=32", "--fmad=true"}),
            (std::vector<std::string>{"--maxrregcount=32", "--fmad=true"}));
  for (const char* flag : {"-G", "-lineinfo", "--ptxas-options=-O1", "-rdc=true", "-dlto"}) {
    EXPECT_EQ(PtxasFlags({flag}), std::nullopt) << flag;
  }
}

TEST(WithoutUnusedData, KeepsWhateverIsReferredTo) {
  const std::string code =
      ".visible .entry k(\n\t.param .u64 p\n)\n{\n\tld.global.u32 %r1, [used];\n}\n";
  const auto kept = [&](const std::string& data) {
    return WithoutUnusedData(".version 9.0\n" + data + "\n" + code + '\0') !=
           ".version 9.0\n" + code;
  };
  EXPECT_TRUE(kept(".global .align 4 .u32 used = 3;"));
  EXPECT_FALSE(kept(".global .align 4 .u32 use = 3;")) << "part of a name is not the name";
  EXPECT_FALSE(kept(".global .align 4 .u32 used2 = 3;"));
  EXPECT_FALSE(kept(".global .align 1 .b8 _ZN1a1bE[3] = {1, 2, 3};"));
  EXPECT_FALSE(kept(".global .align 8 .f64 nothing;"));
  EXPECT_TRUE(kept(".visible .global .align 4 .u32 seen_from_outside = 3;"));
  EXPECT_TRUE(kept(".global .texref texture;"));
  EXPECT_TRUE(kept(".global .align 4 .u32 several[2] = {1,"));
  EXPECT_TRUE(kept(".const .align 4 .u32 constant = 3;"));
}

TEST(WithoutUnusedData, FollowsReferencesBetweenData) {
  const std::string chain =
      ".global .align 4 .u32 last = 3;\n"
      ".global .align 8 .u64 first = generic(last);\n";
  EXPECT_EQ(WithoutUnusedData(chain), "");
  EXPECT_EQ(WithoutUnusedData(chain + "mov.u64 %rd1, first;"), chain + "mov.u64 %rd1, first;\n");
}

}  // namespace
}  // namespace kbundle::builder
