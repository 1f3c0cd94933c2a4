// The bundles that most tests use.
#include <algorithm>

#include "kbundle/provider/cudnn.h"
#include "support/bundle_maker.h"
#include "support/fake_driver.h"

namespace kbundle::testing {
namespace {

const std::vector<std::string> kCudaTargets = {"sm_80", "sm_90a", "sm_100f"};
const std::vector<DType> kTypes = {DType::kF32, DType::kBF16};

void AddScaleInterface(BundleMaker& maker) {
  fb::OpT& op = maker.AddOp("demo.scale");
  op.summary = "y = scale * x, where the mask is not 0";
  maker.AddType(op, "T", kTypes);
  maker.AddOperand(op, "x", "T", "rows.. K").strided = false;
  maker.AddOperand(op, "mask", "u8", "rows..").optional = true;
  maker.AddResult(op, "y", "T", "rows.. K");
  fb::AttributeT& scale = maker.AddAttribute(op, "scale", AttributeType::kFloat);
  scale.has_default = true;
  scale.floats = {1.0};
  maker.AddEnum(op, "mode", {"plain", "causal"});
  fb::AttributeT& flag = maker.AddAttribute(op, "flag", AttributeType::kBool);
  flag.has_default = true;
  flag.integers = {0};
  op.require.push_back(maker.Rule(op, nullptr, "K 1 >=", "K >= 1"));
  op.coordinates = {0, 1};
}

void FillScaleStep(BundleMaker& maker, fb::TemplateT& row, const std::string& kernel) {
  const fb::OpT& op = *maker.index.ops[row.op];
  fb::StepT& step = maker.AddKernelStep(row, kernel);
  if (maker.index.providers[row.provider] == "cuda") {
    step.grid = {maker.Program(op, &row, "rows 1 max")};
  } else {
    *step.range = maker.Program(op, &row, "rows");
    step.grain = std::make_unique<fb::Span>(maker.Program(op, &row, "1 65536 K / max"));
  }
  for (const char* arg : {"y", "x", "mask", "f32(scale)", "i32(K)"}) maker.AddArg(row, step, arg);
}

void AddScaleVariants(BundleMaker& maker, size_t code_bytes) {
  fb::TemplateT& vec = maker.AddTemplate("vec", "cuda", {"VEC"});
  const fb::OpT& op = *maker.index.ops.back();
  vec.when.push_back(maker.Rule(op, &vec, "K VEC % 0 ==", "K % VEC == 0"));
  vec.when.push_back(maker.Rule(
      op, &vec, "x.align y.align min VEC T.size * % 0 ==", "align(x, y) % (VEC * sizeof(T)) == 0"));
  FillScaleStep(maker, vec, "scale_vec<{T}, {VEC}>");
  fb::TemplateT& any = maker.AddTemplate("any", "cuda");
  FillScaleStep(maker, any, "scale_any<{T}>");
  fb::TemplateT& simd = maker.AddTemplate("simd", "host");
  FillScaleStep(maker, simd, "scale_{T}");

  uint32_t seed = 1;
  for (const std::string& target : kCudaTargets) {
    uint32_t base = kNoBlob, variation = 0;
    for (DType type : kTypes) {
      for (int64_t width : {8, 4}) {
        const uint32_t blob =
            maker.AddBlob(FakeCode(code_bytes, seed, ++variation), fb::BlobFormat::Cubin, base);
        if (base == kNoBlob) base = blob;
        maker.AddVariant(vec, target, {type}, {width}, {blob}, {"scale_vec"});
      }
      const uint32_t blob =
          maker.AddBlob(FakeCode(code_bytes, seed, ++variation), fb::BlobFormat::Cubin, base);
      maker.AddVariant(any, target, {type}, {}, {blob}, {"scale_any"});
    }
    ++seed;
  }
  for (DType type : kTypes) {
    const uint32_t blob = maker.AddBlob(FakeCode(code_bytes, 77, static_cast<uint32_t>(type)),
                                        fb::BlobFormat::Fatbin);
    maker.AddVariant(any, "portable", {type}, {}, {blob}, {"scale_any"});
  }
  for (const char* target : {"x86-64-v2", "x86-64-v3"}) {
    const uint32_t blob =
        maker.AddBlob(FakeCode(code_bytes, seed++, 0), fb::BlobFormat::HostObject);
    for (DType type : kTypes) maker.AddVariant(simd, target, {type}, {}, {blob}, {"scale_simd"});
  }
}

void AddSum(BundleMaker& maker, size_t code_bytes) {
  fb::OpT& op = maker.AddOp("demo.sum");
  maker.AddOperand(op, "x", "f32", "K");
  maker.AddResult(op, "y", "f32", "");
  fb::AttributeT& weights = maker.AddAttribute(op, "weights", AttributeType::kIntArray);
  weights.max_len = 4;
  weights.has_default = true;
  fb::TemplateT& row = maker.AddTemplate("two_steps", "cuda");
  row.lets.push_back(maker.Rule(op, &row, "K 1024 min", "PARTS"));
  auto region = std::make_unique<fb::RegionT>();
  region->name = "partial";
  region->type = std::make_unique<fb::TypeRef>(int8_t{-1}, static_cast<uint8_t>(DType::kF32));
  region->bytes = std::make_unique<fb::Span>(maker.Program(op, &row, "let:PARTS 4 *"));
  region->text = "f32[PARTS]";
  row.regions.push_back(std::move(region));
  fb::StepT& parts = maker.AddKernelStep(row, "sum_parts");
  parts.grid = {maker.Program(op, &row, "let:PARTS sm_count min")};
  for (const char* arg : {"ws:partial", "x", "i64(K)", "i64[4](weights)"}) {
    maker.AddArg(row, parts, arg);
  }
  fb::StepT& total = maker.AddKernelStep(row, "sum_total");
  for (const char* arg : {"y", "ws:partial", "i32(let:PARTS)"}) maker.AddArg(row, total, arg);
  const uint32_t blob = maker.AddBlob(FakeCode(code_bytes, 99, 0), fb::BlobFormat::Cubin);
  maker.AddVariant(row, "sm_80", {}, {}, {blob, blob}, {"sum_parts", "sum_total"});
}

}  // namespace

std::vector<uint8_t> FakeCode(size_t size, uint32_t seed, uint32_t variation) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = seed * 2654435761u + 1;
  for (size_t i = 0; i < size; ++i) {
    if (i % 4 == 0) state = state * 1664525u + 1013904223u;
    // A few opcodes and registers, as machine code has: about a third compresses away.
    bytes[i] = static_cast<uint8_t>(i % 8 < 3 ? (state >> 28) * 7 : state >> (i % 4 * 8));
  }
  for (size_t i = variation % 61; variation != 0 && i < size; i += 509) {
    bytes[i] = static_cast<uint8_t>(bytes[i] + variation);
  }
  return bytes;
}

BundleMaker SampleMaker(size_t code_bytes) {
  BundleMaker maker;
  maker.index.name = "sample";
  auto key = std::make_unique<fb::KeyValueT>();
  key->key = "compiler";
  key->value = "none: made by a test";
  maker.index.provenance.push_back(std::move(key));
  AddScaleInterface(maker);
  AddScaleVariants(maker, code_bytes);
  AddSum(maker, code_bytes);
  maker.AddRanOn(0, "NVIDIA Test GPU");
  return maker;
}

BundleMaker PlansMaker() {
  BundleMaker maker;
  maker.index.name = "plans";
  fb::OpT& op = maker.AddOp("plans.one");
  maker.AddOperand(op, "x", "f32", "rows K");
  maker.AddResult(op, "y", "f32", "rows K");
  fb::AttributeT& scale = maker.AddAttribute(op, "scale", AttributeType::kFloat);
  scale.has_default = true;
  scale.floats = {1.0};
  op.coordinates = {0, 1};
  fb::TemplateT& planned = maker.AddTemplate("planned", "cudnn", {"ROWS", "COLS", "CUDNN"});
  planned.when.push_back(maker.Rule(op, &planned, "rows ROWS ==", "ROWS as planned"));
  planned.when.push_back(maker.Rule(op, &planned, "K COLS ==", "COLS as planned"));
  fb::StepT& plan = maker.AddOwnStep(planned);
  for (const char* arg : {"x", "y", "f32(scale)"}) maker.AddArg(planned, plan, arg);
  fb::TemplateT& own = maker.AddTemplate("own", "cuda");
  auto region = std::make_unique<fb::RegionT>();
  region->name = "scratch";
  region->type = std::make_unique<fb::TypeRef>(int8_t{-1}, static_cast<uint8_t>(DType::kU8));
  region->text = "u8[100000 * K]";
  region->bytes = std::make_unique<fb::Span>(maker.Program(op, &own, "100000 K *"));
  own.regions.push_back(std::move(region));
  fb::StepT& step = maker.AddKernelStep(own, "own");
  for (const char* arg : {"y", "x", "f32(scale)", "ws:scratch"}) maker.AddArg(own, step, arg);

  ExecutionPlanBlob blob;
  blob.cudnn_version = 90000;
  blob.workspace_bytes = kPlanWorkspace;
  blob.uids = {1, 2, 3};
  blob.plan = "{\"driverVer\":1}";
  const std::string bytes = Serialize(blob);
  const uint32_t code = maker.AddBlob(FakeImage({{"own", {8, 8, 4, 8}}}), fb::BlobFormat::Cubin);
  const uint32_t made = maker.AddBlob({bytes.begin(), bytes.end()}, fb::BlobFormat::Own);
  maker.AddVariant(planned, "sm_90a", {}, {4, 8, 90000}, {made}, {"engine 6"});
  maker.AddVariant(own, "sm_90a", {}, {}, {code}, {"own"});
  return maker;
}

BundleMaker LargeMaker(uint32_t variants) {
  constexpr uint32_t kPerEntry = 16, kOps = 32;
  const std::vector<std::string> targets = {"sm_80", "sm_90a", "sm_100f"};
  const std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16};
  BundleMaker maker;
  maker.index.name = "large";
  const uint32_t rounds = std::max(1u, variants / (kOps * kPerEntry * 9));
  for (uint32_t o = 0, made = 0; o < kOps && made < variants; ++o) {
    fb::OpT& op = maker.AddOp("family" + std::to_string(o / 10) + ".op" + std::to_string(o % 10));
    maker.AddType(op, "T", types);
    maker.AddType(op, "U",
                  {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kU8,
                   DType::kI8, DType::kI32});
    maker.AddOperand(op, "x", "T", "rows.. K");
    maker.AddOperand(op, "z", "U", "K").optional = true;
    maker.AddResult(op, "y", "T", "rows.. K");
    fb::TemplateT& row = maker.AddTemplate("vec", "cuda", {"VEC", "THREADS"});
    row.when.push_back(maker.Rule(op, &row, "K VEC % 0 ==", "K % VEC == 0"));
    row.when.push_back(maker.Rule(op, &row, "x.align y.align min VEC T.size * % 0 ==",
                                  "align(x, y) % (VEC * sizeof(T)) == 0"));
    row.when.push_back(maker.Rule(op, &row, "K VEC THREADS * 8 * <=", "K <= VEC * THREADS * 8"));
    fb::StepT& step = maker.AddKernelStep(row, "kernel<{T}, {VEC}, {THREADS}>");
    step.grid = {maker.Program(op, &row, "rows 1 max")};
    for (const char* arg : {"y", "x", "z", "i64(rows)", "i32(K)"}) maker.AddArg(row, step, arg);
    const uint32_t last = o + 1 == kOps ? variants : made + variants / kOps;
    for (uint32_t t = 0; t < 9 * rounds + 9 && made < last; ++t) {
      const std::vector<DType> point = {
          types[t % 3],
          std::vector<DType>{DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2,
                             DType::kU8, DType::kI8, DType::kI32}[t / 9 % 8]};
      for (uint32_t i = 0; i < kPerEntry && made < last; ++i, ++made) {
        const uint32_t base = made % 8 == 0 ? kNoBlob : made - made % 8;
        const uint32_t blob =
            maker.AddBlob(FakeCode(64, made / 8, made + 1), fb::BlobFormat::Cubin, base);
        maker.AddVariant(row, targets[t / 3 % 3], point, {16 >> i % 4, 128 << i / 4}, {blob},
                         {"kernel" + std::to_string(made % 64)});
      }
    }
  }
  return maker;
}

ProblemSpec MakeSpec(const std::vector<std::string>& operands,
                     const std::vector<std::pair<std::string, std::string>>& attributes) {
  ProblemSpec spec;
  for (const std::string& text : operands) {
    const Result<TensorSpec> tensor = ParseTensorSpec(text);
    KB_CHECK(tensor.ok());
    spec.operands.push_back(*tensor);
  }
  for (const auto& [name, text] : attributes) {
    spec.attributes.emplace_back(name, ParseAttributeValue(text));
  }
  return spec;
}

}  // namespace kbundle::testing
