#include "support/product_sample.h"

#include <dlfcn.h>

#include <cstring>

#include "kbundle/provider/cublaslt.h"

namespace kbundle::testing {
namespace {

constexpr char kProductTarget[] = "sm_90a";
using Tensor = ProductTensor;
using Number = ProductNumber;
using Condition = ProductCondition;

template <typename Function>
void Find(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(dlsym(library, name));
  KB_CHECK(*out != nullptr);
}

// A step under construction.
class ProductStep {
 public:
  ProductStep(BundleMaker& maker, fb::TemplateT& row)
      : maker_(maker), row_(row), step_(std::make_unique<fb::StepT>()) {
    step_->kind = static_cast<uint8_t>(StepKind::kOwn);
    for (uint32_t i = 0; i < kProductArgs; ++i) {
      step_->args.push_back(std::make_unique<fb::ArgT>());
    }
    step_->programs.resize(kProductPrograms);
  }
  ~ProductStep() { row_.steps.push_back(std::move(step_)); }

  void Set(Tensor tensor, const std::string& text) {
    fb::StepT scratch;
    maker_.AddArg(row_, scratch, text);
    step_->args[static_cast<size_t>(tensor)] = std::move(scratch.args[0]);
  }
  void Set(Number number, const std::string& postfix) {
    step_->programs[static_cast<size_t>(number)] = Program(postfix);
  }
  void Set(Condition condition, const std::string& postfix) {
    step_->programs[kProductNumbers + static_cast<size_t>(condition)] = Program(postfix);
  }
  void Scale(const std::string& alpha, const std::string& beta) {
    fb::StepT scratch;
    maker_.AddArg(row_, scratch, alpha);
    maker_.AddArg(row_, scratch, beta);
    step_->args[kProductAlpha] = std::move(scratch.args[0]);
    step_->args[kProductBeta] = std::move(scratch.args[1]);
  }

 private:
  fb::Span Program(const std::string& postfix) {
    return maker_.Program(*maker_.index.ops[row_.op], &row_, postfix);
  }

  BundleMaker& maker_;
  fb::TemplateT& row_;
  std::unique_ptr<fb::StepT> step_;
};

void AddRegion(BundleMaker& maker, fb::TemplateT& row) {
  auto region = std::make_unique<fb::RegionT>();
  region->name = "scratch";
  region->type = std::make_unique<fb::TypeRef>(int8_t{-1}, static_cast<uint8_t>(DType::kU8));
  region->bytes = std::make_unique<fb::Span>(maker.Program(*maker.index.ops[row.op], &row, "4096"));
  region->text = "u8[4096]";
  row.regions.push_back(std::move(region));
}

void AddBool(BundleMaker& maker, fb::OpT& op, const std::string& name) {
  fb::AttributeT& attribute = maker.AddAttribute(op, name, AttributeType::kBool);
  attribute.has_default = true;
  attribute.integers = {0};
}

void AddFloatOf(BundleMaker& maker, fb::OpT& op, const std::string& name, double value) {
  fb::AttributeT& attribute = maker.AddAttribute(op, name, AttributeType::kFloat);
  attribute.has_default = true;
  attribute.floats = {value};
}

fb::OpT& AddMultiply(BundleMaker& maker) {
  fb::OpT& op = maker.AddOp("product.multiply");
  maker.AddType(op, "T", {DType::kBF16, DType::kF32, DType::kF64});
  for (const char* name : {"ta", "tb", "aux", "dbias", "tf32"}) AddBool(maker, op, name);
  maker.AddEnum(op, "act", {"none", "relu", "gelu", "drelu", "dgelu", "grada", "gradb"});
  AddFloatOf(maker, op, "alpha", 1);
  AddFloatOf(maker, op, "beta", 0);
  maker.AddOperand(op, "a", "T", "B A0 A1");
  maker.AddOperand(op, "b", "T", "B B0 B1");
  const std::string m = "(ta A1 A0 ?:)", n = "(tb B0 B1 ?:)";
  maker.AddOperand(op, "c", "T", "B " + m + " " + n).optional = true;
  maker.AddOperand(op, "bias", "T", n).optional = true;
  maker.AddOperand(op, "aux_in", "T", "B " + m + " " + n).optional = true;
  maker.AddResult(op, "d", "T", "B " + m + " " + n);
  maker.AddResult(op, "aux_out", "T", "B " + m + " " + n).when = maker.Rule(op, nullptr, "aux");
  maker.AddResult(op, "bias_gradient", "T", "(act 5 == ta A1 A0 ?: tb B0 B1 ?: ?:)").when =
      maker.Rule(op, nullptr, "dbias");
  return op;
}

void FillMultiply(BundleMaker& maker, fb::TemplateT& row) {
  ProductStep step(maker, row);
  step.Set(Tensor::kA, "a");
  step.Set(Tensor::kB, "b");
  step.Set(Tensor::kC, "c");
  step.Set(Tensor::kD, "d");
  step.Set(Tensor::kBias, "bias");
  step.Set(Tensor::kBiasGradient, "bias_gradient");
  step.Set(Tensor::kWorkspace, "ws:scratch");
  step.Set(Number::kM, "ta A1 A0 ?:");
  step.Set(Number::kN, "tb B0 B1 ?:");
  step.Set(Number::kK, "ta A0 A1 ?:");
  step.Set(Number::kBatch, "B");
  step.Set(Condition::kTransposeA, "ta");
  step.Set(Condition::kTransposeB, "tb");
  step.Set(Condition::kRelu, "act 1 ==");
  step.Set(Condition::kGelu, "act 2 ==");
  step.Set(Condition::kReluGradient, "act 3 ==");
  step.Set(Condition::kGeluGradient, "act 4 ==");
  step.Set(Condition::kBiasGradientOfA, "act 5 ==");
  step.Set(Condition::kBiasGradientOfB, "act 6 ==");
  step.Set(Condition::kTf32, "tf32");
  step.Scale("f32(alpha)", "f32(beta)");
}

// aux is read or written: two steps that differ in nothing else.
void FillWithAux(BundleMaker& maker, fb::TemplateT& row) {
  for (const char* aux : {"aux_in", "aux_out"}) {
    FillMultiply(maker, row);
    fb::StepT& step = *row.steps.back();
    const bool read = std::strcmp(aux, "aux_in") == 0;
    const fb::OpT& op = *maker.index.ops[row.op];
    step.when = maker.Rule(op, &row, read ? "aux_in.present" : "aux_in.present !");
    fb::StepT scratch;
    maker.AddArg(row, scratch, aux);
    step.args[static_cast<size_t>(Tensor::kAux)] = std::move(scratch.args[0]);
  }
}

void AddScaled(BundleMaker& maker, const SampleAlgorithm& algorithm) {
  fb::OpT& op = maker.AddOp("product.scaled");
  maker.AddOperand(op, "a", "e4m3", "M K");
  maker.AddOperand(op, "b", "e4m3", "N K");
  maker.AddOperand(op, "a_scale", "f32", "(1)");
  maker.AddOperand(op, "b_scale", "f32", "(1)");
  maker.AddResult(op, "d", "bf16", "M N");
  fb::TemplateT& row = maker.AddTemplate("fp8", "cublaslt");
  {
    ProductStep step(maker, row);
    step.Set(Tensor::kA, "a");
    step.Set(Tensor::kB, "b");
    step.Set(Tensor::kD, "d");
    step.Set(Tensor::kAScale, "a_scale");
    step.Set(Tensor::kBScale, "b_scale");
    step.Set(Number::kM, "M");
    step.Set(Number::kN, "N");
    step.Set(Number::kK, "K");
    step.Set(Condition::kTransposeB, "1");
    step.Set(Condition::kFastAccumulation, "1");
  }
  const uint32_t blob = maker.AddBlob(algorithm.Blob(), fb::BlobFormat::Own);
  maker.AddVariant(row, kProductTarget, {}, {}, {blob}, {"algorithm"});
}

// A product, and a kernel of ours that works on its result.
void AddThenKernel(BundleMaker& maker, const SampleAlgorithm& algorithm) {
  fb::OpT& op = maker.AddOp("product.then_kernel");
  maker.AddOperand(op, "a", "bf16", "M K");
  maker.AddOperand(op, "b", "bf16", "K N");
  maker.AddResult(op, "d", "bf16", "M N");
  fb::TemplateT& row = maker.AddTemplate("then_kernel", "cublaslt");
  {
    ProductStep step(maker, row);
    step.Set(Tensor::kA, "a");
    step.Set(Tensor::kB, "b");
    step.Set(Tensor::kD, "d");
    step.Set(Number::kM, "M");
    step.Set(Number::kN, "N");
    step.Set(Number::kK, "K");
  }
  maker.AddArg(row, maker.AddKernelStep(row, "behind"), "d");
  const uint32_t blob = maker.AddBlob(algorithm.Blob(), fb::BlobFormat::Own);
  const uint32_t code = maker.AddBlob(FakeImage({{"behind", {8}}}), fb::BlobFormat::Cubin);
  maker.AddVariant(row, kProductTarget, {}, {}, {blob, code}, {"algorithm", "behind"});
}

void AddSmall(BundleMaker& maker) {
  fb::TemplateT& row = maker.AddTemplate("small", "cuda");
  row.when.push_back(maker.Rule(*maker.index.ops[row.op], &row, "A0 8 <="));
  maker.AddArg(row, maker.AddKernelStep(row, "small"), "d");
  const uint32_t code = maker.AddBlob(FakeImage({{"small", {8}}}), fb::BlobFormat::Cubin);
  maker.AddVariant(row, kProductTarget, {DType::kBF16}, {}, {code}, {"small"});
}

}  // namespace

StandinCublasLt::StandinCublasLt(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  KB_CHECK(library != nullptr);
  Find(library, "cublasLtGetStatusName", &api_.StatusName);
  Find(library, "cublasLtGetStatusString", &api_.StatusString);
  Find(library, "cublasLtGetVersion", &api_.Version);
  Find(library, "cublasLtCreate", &api_.Create);
  Find(library, "cublasLtMatrixLayoutInit_internal", &api_.LayoutInit);
  Find(library, "cublasLtMatrixLayoutSetAttribute", &api_.LayoutSet);
  Find(library, "cublasLtMatmulDescInit_internal", &api_.DescInit);
  Find(library, "cublasLtMatmulDescSetAttribute", &api_.DescSet);
  Find(library, "cublasLtMatmulAlgoCheck", &api_.AlgorithmCheck);
  Find(library, "cublasLtMatmulPreferenceInit_internal", &api_.PreferenceInit);
  Find(library, "cublasLtMatmulPreferenceSetAttribute", &api_.PreferenceSet);
  Find(library, "cublasLtMatmulAlgoGetHeuristic", &api_.AlgorithmHeuristic);
  Find(library, "cublasLtMatmulAlgoConfigGetAttribute", &api_.AlgorithmConfig);
  Find(library, "cublasLtMatmulAlgoCapGetAttribute", &api_.AlgorithmCapability);
  Find(library, "cublasLtMatmul", &api_.Multiply);
  Standin* (*state)() = nullptr;
  Find(library, "standin_cublaslt", &state);
  state_ = state();
  *state_ = Standin{};
  state_->version = 130100;
  CublasLtApi::Replace(&api_);
}

StandinCublasLt::~StandinCublasLt() { CublasLtApi::Replace(nullptr); }

std::vector<uint8_t> SampleAlgorithm::Blob() const {
  StandinAlgorithm algorithm{};
  algorithm.config[kLtConfigId] = id;
  algorithm.config[kLtConfigCluster] = 3;
  algorithm.refuse = refuse;
  algorithm.workspace = workspace;
  algorithm.alignment = alignment;
  StoredAlgorithm stored{};
  stored.cublas_version = version;
  static_assert(sizeof algorithm == sizeof stored.algorithm);
  std::memcpy(stored.algorithm, &algorithm, sizeof algorithm);
  std::memcpy(stored.config, algorithm.config, sizeof stored.config);
  if (claimed_id >= 0) stored.config[kLtConfigId] = claimed_id;
  std::vector<uint8_t> bytes(sizeof stored);
  std::memcpy(bytes.data(), &stored, sizeof stored);
  return bytes;
}

BundleMaker ProductMaker(const std::vector<SampleAlgorithm>& algorithms, bool small) {
  BundleMaker maker;
  maker.index.name = "product";
  AddMultiply(maker);
  if (small) AddSmall(maker);
  fb::TemplateT& row = maker.AddTemplate("lt", "cublaslt", {"ID"});
  AddRegion(maker, row);
  FillWithAux(maker, row);
  std::vector<uint32_t> blobs;
  for (const SampleAlgorithm& algorithm : algorithms) {
    blobs.push_back(algorithm.asked ? kNoBlob
                                    : maker.AddBlob(algorithm.Blob(), fb::BlobFormat::Own));
  }
  for (const DType type : {DType::kBF16, DType::kF32, DType::kF64}) {
    for (size_t i = 0; i < blobs.size(); ++i) {
      maker.AddVariant(row, kProductTarget, {type}, {algorithms[i].id}, {blobs[i], blobs[i]},
                       {"algorithm", "algorithm"});
    }
  }
  AddScaled(maker, algorithms.back());
  AddThenKernel(maker, algorithms.back());
  return maker;
}

Problem ProductProblem::On(const Bundle& bundle) const {
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return type + "[" + std::to_string(batch) + "," + std::to_string(rows) + "," +
           std::to_string(columns) + "]";
  };
  const std::string absent = "absent";
  const auto text = [](bool value) { return std::string(value ? "true" : "false"); };
  return ProblemOf(bundle, "product.multiply",
                   {ta ? matrix(k, m) : matrix(m, k), tb ? matrix(n, k) : matrix(k, n),
                    c ? matrix(m, n) : absent, bias ? type + "[" + std::to_string(n) + "]" : absent,
                    aux_in ? matrix(m, n) : absent},
                   {{"ta", text(ta)},
                    {"tb", text(tb)},
                    {"aux", text(aux)},
                    {"dbias", text(dbias)},
                    {"tf32", text(tf32)},
                    {"act", act},
                    {"alpha", alpha},
                    {"beta", beta}});
}

}  // namespace kbundle::testing
