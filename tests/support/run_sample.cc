#include "support/run_sample.h"

#include <cstdio>
#include <cstdlib>

#include "support/files.h"

namespace kbundle::testing {
namespace {

constexpr char kRunTarget[] = "sm_90a";

fb::OpT& AddUnaryOp(BundleMaker& maker, const std::string& name, bool in_place = false) {
  fb::OpT& op = maker.AddOp(name);
  maker.AddOperand(op, "x", "f32", "rows.. K");
  maker.AddResult(op, "y", "f32", "rows.. K").alias = in_place ? 0 : -1;
  return op;
}

void AddFloat(BundleMaker& maker, fb::OpT& op, const std::string& name) {
  fb::AttributeT& attribute = maker.AddAttribute(op, name, AttributeType::kFloat);
  attribute.has_default = true;
  attribute.floats = {1.0};
}

std::unique_ptr<fb::ArgT> PointerTo(ArgKind kind) {
  auto arg = std::make_unique<fb::ArgT>();
  arg->kind = static_cast<uint8_t>(kind);
  return arg;
}

// One kernel (y, x, i64(rows), i32(K)) on a grid of rows.
fb::StepT& AddRowKernel(BundleMaker& maker, fb::TemplateT& row, const std::string& kernel) {
  const fb::OpT& op = *maker.index.ops.back();
  fb::StepT& step = maker.AddKernelStep(row, kernel);
  step.grid = {maker.Program(op, &row, "rows")};
  step.block = {maker.Program(op, &row, "256")};
  for (const char* arg : {"y", "x", "i64(rows)", "i32(K)"}) maker.AddArg(row, step, arg);
  return step;
}

uint32_t AddImage(BundleMaker& maker, const std::string& symbol, std::vector<uint32_t> sizes,
                  uint32_t base = kNoBlob) {
  return maker.AddBlob(FakeImage({{symbol, std::move(sizes)}}, 2000), fb::BlobFormat::Cubin, base);
}

void AddInPlace(BundleMaker& maker) {
  AddUnaryOp(maker, "run.inplace", true);
  fb::TemplateT& row = maker.AddTemplate("only", "cuda");
  AddRowKernel(maker, row, "inplace");
  maker.AddVariant(row, kRunTarget, {}, {}, {AddImage(maker, "inplace", {8, 8, 8, 4})},
                   {"inplace"});
}

// Addresses inside tensors: y from its element `rows`, x from K - 1, one region from its third.
void AddInside(BundleMaker& maker) {
  fb::OpT& op = AddUnaryOp(maker, "run.inside");
  fb::TemplateT& row = maker.AddTemplate("only", "cuda");
  auto region = std::make_unique<fb::RegionT>();
  region->name = "partial";
  region->type = std::make_unique<fb::TypeRef>(-1, static_cast<uint8_t>(DType::kF32));
  region->bytes = std::make_unique<fb::Span>(maker.Program(op, &row, "K 4 *"));
  row.regions.push_back(std::move(region));
  fb::StepT& step = maker.AddKernelStep(row, "inside");
  for (const char* arg : {"y at rows", "x at K 1 -", "ws:partial at 2", "x"}) {
    maker.AddArg(row, step, arg);
  }
  maker.AddVariant(row, kRunTarget, {}, {}, {AddImage(maker, "inside", {8, 8, 8, 8})}, {"inside"});
}

// A struct of 56 bytes with addresses, numbers and bytes between them, and a number behind it.
void AddStructs(BundleMaker& maker) {
  fb::OpT& op = AddUnaryOp(maker, "run.struct");
  fb::TemplateT& row = maker.AddTemplate("only", "cuda");
  auto region = std::make_unique<fb::RegionT>();
  region->name = "partial";
  region->type = std::make_unique<fb::TypeRef>(-1, static_cast<uint8_t>(DType::kF32));
  region->bytes = std::make_unique<fb::Span>(maker.Program(op, &row, "K 4 *"));
  row.regions.push_back(std::move(region));
  fb::StepT& step = maker.AddKernelStep(row, "take");
  maker.AddStruct(row, step, 56,
                  {{0, "y"},
                   {9, "x at K 1 -"},
                   {20, "i32(rows)"},
                   {24, "u8(rows 1 +)"},
                   {32, "ws:partial at 2"},
                   {48, "u32(1025 ceil_log2)"}});
  maker.AddArg(row, step, "i64(rows)");
  maker.AddVariant(row, kRunTarget, {}, {}, {AddImage(maker, "take", {56, 8})}, {"take"});
}

// For unaligned addresses "odd" is legal first, but enqueues other kinds of work than "vec".
void AddMixed(BundleMaker& maker) {
  fb::OpT& op = AddUnaryOp(maker, "run.mixed");
  for (const std::string name : {"vec", "odd", "any"}) {
    fb::TemplateT& row = maker.AddTemplate(name, "cuda");
    if (name == "vec") {
      row.when.push_back(maker.Rule(op, &row, "x.align 16 % 0 ==", "align(x) % 16 == 0"));
    }
    const uint32_t blob = AddImage(maker, "mixed_" + name, {8, 8, 8, 4});
    if (name == "odd") {
      auto memset = std::make_unique<fb::StepT>();
      memset->kind = static_cast<uint8_t>(StepKind::kMemset);
      memset->target = PointerTo(ArgKind::kResult);
      memset->bytes = std::make_unique<fb::Span>(maker.Program(op, &row, "rows K * 4 *"));
      row.steps.push_back(std::move(memset));
    }
    AddRowKernel(maker, row, name);
    if (name == "odd") {
      maker.AddVariant(row, kRunTarget, {}, {}, {kNoBlob, blob}, {"", "mixed_odd"});
    } else {
      maker.AddVariant(row, kRunTarget, {}, {}, {blob}, {"mixed_" + name});
    }
  }
}

void AddScale(BundleMaker& maker) {
  fb::OpT& op = AddUnaryOp(maker, "run.scale");
  AddFloat(maker, op, "scale");
  uint32_t base = kNoBlob;
  for (const std::string name : {"vec", "any"}) {
    fb::TemplateT& row = maker.AddTemplate(name, "cuda");
    if (name == "vec") {
      row.when.push_back(
          maker.Rule(op, &row, "x.align y.align min 16 % 0 ==", "align(x, y) % 16 == 0"));
    }
    fb::StepT& step = maker.AddKernelStep(row, name);
    step.grid = {maker.Program(op, &row, "rows")};
    step.block = {maker.Program(op, &row, "256")};
    for (const char* arg : {"y", "x", "f32(scale)", "i64(rows)", "i32(K)"}) {
      maker.AddArg(row, step, arg);
    }
    const uint32_t blob = AddImage(maker, name, {8, 8, 4, 8, 4}, base);
    if (base == kNoBlob) base = blob;
    maker.AddVariant(row, kRunTarget, {}, {}, {blob}, {name});
  }
}

void AddSteps(BundleMaker& maker) {
  fb::OpT& op = AddUnaryOp(maker, "run.steps");
  for (const std::string name : {"roomy", "thrifty"}) {
    fb::TemplateT& row = maker.AddTemplate(name, "cuda");
    auto region = std::make_unique<fb::RegionT>();
    region->name = "partial";
    region->type = std::make_unique<fb::TypeRef>(int8_t{-1}, static_cast<uint8_t>(DType::kF32));
    const std::string bytes = name == "roomy" ? "K 4096 *" : "K 4 *";
    region->bytes = std::make_unique<fb::Span>(maker.Program(op, &row, bytes));
    region->text = "partial";
    row.regions.push_back(std::move(region));

    auto memset = std::make_unique<fb::StepT>();
    memset->kind = static_cast<uint8_t>(StepKind::kMemset);
    memset->target = PointerTo(ArgKind::kRegion);
    memset->bytes = std::make_unique<fb::Span>(maker.Program(op, &row, bytes));
    row.steps.push_back(std::move(memset));
    fb::StepT& step = maker.AddKernelStep(row, name);
    for (const char* arg : {"ws:partial", "x", "i64(rows)"}) maker.AddArg(row, step, arg);
    auto copy = std::make_unique<fb::StepT>();
    copy->kind = static_cast<uint8_t>(StepKind::kCopy);
    copy->target = PointerTo(ArgKind::kResult);
    copy->source = PointerTo(ArgKind::kOperand);
    copy->bytes = std::make_unique<fb::Span>(maker.Program(op, &row, "rows K * 4 *"));
    row.steps.push_back(std::move(copy));
    const uint32_t blob = AddImage(maker, name, {8, 8, 8});
    maker.AddVariant(row, kRunTarget, {}, {}, {kNoBlob, blob, kNoBlob}, {"", name, ""});
  }
}

void AddTiles(BundleMaker& maker) {
  fb::OpT& op = AddUnaryOp(maker, "run.tiles");
  fb::TemplateT& row = maker.AddTemplate("tma", "cuda");
  fb::StepT& step = maker.AddKernelStep(row, "tma");
  step.grid = {maker.Program(op, &row, "rows 16 *")};
  step.cluster = {maker.Program(op, &row, "16")};
  step.shared = std::make_unique<fb::Span>(maker.Program(op, &row, "100000 K +"));
  step.programmatic = true;
  auto map = std::make_unique<fb::TensorMapT>();
  map->type = std::make_unique<fb::TypeRef>(int8_t{-1}, static_cast<uint8_t>(DType::kF32));
  map->dims = {maker.Program(op, &row, "K"), maker.Program(op, &row, "rows")};
  map->strides = {maker.Program(op, &row, "K 4 *")};
  map->box = {maker.Program(op, &row, "32"), maker.Program(op, &row, "1")};
  map->swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  step.tensor_maps.push_back(std::move(map));
  step.args.push_back(PointerTo(ArgKind::kTensorMap));
  maker.AddArg(row, step, "y");
  maker.AddVariant(row, kRunTarget, {}, {}, {AddImage(maker, "tma", {128, 8})}, {"tma"});
}

// Of PTX for every GPU, which cannot wait for kernels in front of it.
void AddPortable(BundleMaker& maker) {
  AddUnaryOp(maker, "run.portable");
  fb::TemplateT& row = maker.AddTemplate("ptx", "cuda");
  AddRowKernel(maker, row, "ptx").programmatic = true;
  const uint32_t blob =
      maker.AddBlob(FakeImage({{"ptx", {8, 8, 8, 4}}}, 2000), fb::BlobFormat::Fatbin);
  maker.AddVariant(row, "portable", {}, {}, {blob}, {"ptx"});
}

void AddWide(BundleMaker& maker) {
  fb::OpT& op = AddUnaryOp(maker, "run.wide");
  fb::TemplateT& tall = maker.AddTemplate("tall", "cuda");
  AddRowKernel(maker, tall, "tall").grid = {maker.Program(op, &tall, "1"),
                                            maker.Program(op, &tall, "rows")};
  maker.AddVariant(tall, kRunTarget, {}, {}, {AddImage(maker, "tall", {8, 8, 8, 4})}, {"tall"});
  fb::TemplateT& flat = maker.AddTemplate("flat", "cuda");
  AddRowKernel(maker, flat, "flat");
  maker.AddVariant(flat, kRunTarget, {}, {}, {AddImage(maker, "flat", {8, 8, 8, 4})}, {"flat"});
}

constexpr char kHostSource[] = R"(
#include "kbundle/host_kernel.h"
static void Scale(int64_t begin, int64_t end, float* y, const float* x, float scale, int32_t K) {
  for (int64_t i = begin * K; i < end * K; ++i) y[i] = scale * x[i];
}
KB_HOST_KERNEL(scale_f32, Scale);
)";

// As the builder packs it: no programs for block and shared memory, two null scratch pointers last.
void AddTriton(BundleMaker& maker) {
  AddUnaryOp(maker, "run.triton");
  fb::TemplateT& row = maker.AddTemplate("only", "triton");
  const fb::OpT& op = *maker.index.ops.back();
  fb::StepT& step = maker.AddKernelStep(row, "triton");
  step.grid = {maker.Program(op, &row, "rows")};
  for (const char* arg : {"y", "x", "i32(K)", "u64(0)", "u64(0)"}) maker.AddArg(row, step, arg);
  maker.AddVariant(row, kRunTarget, {}, {}, {AddImage(maker, "triton", {8, 8, 4, 8, 8})},
                   {"triton"});
}

}  // namespace

BundleMaker RunMaker() {
  BundleMaker maker;
  maker.index.name = "run";
  AddInPlace(maker);
  AddInside(maker);
  AddMixed(maker);
  AddPortable(maker);
  AddScale(maker);
  AddSteps(maker);
  AddStructs(maker);
  AddTiles(maker);
  AddTriton(maker);
  AddWide(maker);
  return maker;
}

BundleMaker HostMaker(std::vector<uint8_t> code) {
  BundleMaker maker;
  maker.index.name = "host";
  const uint32_t blob = maker.AddBlob(std::move(code), fb::BlobFormat::HostObject);

  fb::OpT& fill = maker.AddOp("host.fill");
  maker.AddOperand(fill, "like", "u8", "K");
  maker.AddResult(fill, "y", "u8", "K");
  fb::TemplateT& filler = maker.AddTemplate("memset", "host");
  auto memset = std::make_unique<fb::StepT>();
  memset->kind = static_cast<uint8_t>(StepKind::kMemset);
  memset->target = PointerTo(ArgKind::kResult);
  memset->bytes = std::make_unique<fb::Span>(maker.Program(fill, &filler, "K"));
  memset->value = 1;
  filler.steps.push_back(std::move(memset));
  maker.AddVariant(filler, "x86-64-v2", {}, {}, {kNoBlob}, {""});

  fb::OpT& scale = AddUnaryOp(maker, "host.scale");
  AddFloat(maker, scale, "scale");
  fb::TemplateT& row = maker.AddTemplate("simd", "host");
  fb::StepT& step = maker.AddKernelStep(row, "scale_f32");
  *step.range = maker.Program(scale, &row, "rows");
  step.grain = std::make_unique<fb::Span>(maker.Program(scale, &row, "2"));
  for (const char* arg : {"y", "x", "f32(scale)", "i32(K)"}) maker.AddArg(row, step, arg);
  maker.AddVariant(row, "x86-64-v2", {}, {}, {blob}, {"scale_f32"});
  return maker;
}

std::vector<uint8_t> CompileHostSample(const std::string& folder, const std::string& source_dir) {
  WriteFile(folder + "/sample.cc", kHostSource);
  const std::string command =
      "c++ -O2 -std=c++17 -DKB_ISA_LEVEL=2 -ffreestanding -fvisibility=hidden -fPIC -shared "
      "-nostdlib -Wl,-z,defs -Wl,-s -I " +
      source_dir + "/kernels/include -o " + folder + "/sample.so " + folder + "/sample.cc";
  KB_CHECK(std::system(command.c_str()) == 0);
  const std::string bytes = ReadFile(folder + "/sample.so");
  return std::vector<uint8_t>(bytes.begin(), bytes.end());
}

Problem ProblemOf(const Bundle& bundle, const std::string& op,
                  const std::vector<std::string>& operands,
                  const std::vector<std::pair<std::string, std::string>>& attributes) {
  auto problem = bundle.MakeProblem(op, MakeSpec(operands, attributes));
  if (!problem.ok()) std::fprintf(stderr, "%s\n", problem.status().ToString().c_str());
  KB_CHECK(problem.ok());
  return *problem;
}

FakeAddresses::FakeAddresses(const Problem& problem, uintptr_t offset)
    : workspace(reinterpret_cast<void*>(0x30000)) {
  for (size_t i = 0; i < problem.operands.size(); ++i) {
    operands.push_back(reinterpret_cast<void*>(0x10000 + 0x1000 * i + offset));
  }
  for (size_t i = 0; i < problem.results.size(); ++i) {
    results.push_back(reinterpret_cast<void*>(0x20000 + 0x1000 * i + offset));
  }
}

LaunchArgs FakeAddresses::args() const { return {operands.data(), results.data(), workspace}; }

}  // namespace kbundle::testing
