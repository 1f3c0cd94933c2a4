// Provider cublaslt: a unit per algorithm, which is decoded and not compiled, none where the loader
// asks for it, and one per kernel beside it.
#include "builder/provider/provider.h"

#include <filesystem>

#include "builder/compile/compile.h"
#include "builder/compile/fingerprint_text.h"
#include "builder/pack/index_writer.h"
#include "builder/provider/cublaslt/manifest.h"
#include "builder/provider/cublaslt/points.h"
#include "builder/provider/cublaslt/product.h"
#include "builder/provider/cuda/kernels.h"
#include "builder/tools/gpu_libraries.h"
#include "builder/tools/toolchain.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

constexpr char kAlgorithmKernel[] = "algorithm";

// The bytes are the result, so nothing else decides it.
class AlgorithmDecoder : public Compiler {
 public:
  std::string_view name() const override { return "algorithm"; }
  uint8_t number() const override { return 5; }
  Sources sources() const override { return Sources::kCuda; }

  Status Find(const std::vector<const Unit*>& /*units*/, const std::string& /*python*/,
              Toolchain* /*tools*/) override {
    return Status();
  }
  std::vector<std::string> Options(const Unit& unit) const override { return {unit.extra_options}; }
  Result<Sha256Digest> Identity(const Unit& /*unit*/, const Toolchain& /*tools*/,
                                ToolDigests* /*digests*/) const override {
    return Sha256Digest{};
  }

  Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& /*tree*/,
                         const std::string& /*key*/,
                         const CompileContext& /*context*/) const override {
    Object object;
    object.format = ObjectFormat::kAlgorithm;
    object.code = unit.extra_options;
    KernelInfo info;
    info.kernel = info.symbol = kAlgorithmKernel;
    object.kernels.push_back(std::move(info));
    return object;
  }
};

class CublasLt : public Provider {
 public:
  std::string_view name() const override { return "cublaslt"; }
  bool MakesCodeFor(const Target& target) const override {
    return target.kind == TargetKind::kCuda;
  }
  std::string TargetsInWords() const override {
    return "algorithms are of one GPU, as in \"sm_90a\"";
  }

  // A source holds kernels that run beside the products; else there is nothing to compile.
  void ReadVariantKeys(VariantTable& table) const override {
    ReadSource(table, /*required=*/false);
    RefuseKeys(table, {"compiler", "flags", "portable", "max_spill"}, "its code is cuBLASLt's own");
    RefuseKeys(table, {"tunables"}, "its points are the algorithms listed in its folder");
    auto keys = std::make_shared<AlgorithmKeys>();
    if (const Node* folder = table.fields.Require("algorithms", Kind::kString)) {
      keys->folder = folder->text;
      if (std::filesystem::path(folder->text).is_absolute()) {
        table.diagnostics.Error(folder->where, "the folder is named relative to its manifest");
      }
    }
    keys->heuristic = table.fields.TakeBool("heuristic");
    table.variant.own = std::move(keys);
    ReadTargets(table);
  }
  void ReadPoints(VariantTable& table) const override {
    ReadTypePoints(table);  // first: `keep` is of types alone
    for (const std::string& name : AlgorithmTunables()) DeclareTunable(table, name, "algorithms");
  }
  void ReadKernelStep(StepTable& table) const override { ReadGpuLaunch(table); }
  bool TakesStructs() const override { return true; }
  std::string_view OwnStepKey() const override { return "product"; }
  std::string_view ListingVerb() const override { return "algorithms"; }
  void ReadOwnStep(StepTable& table) const override { ReadProduct(table); }

  void FinishVariant(VariantTable& table) const override {
    if (table.probe_workspace > 0) return AddProbePoints(table.probe_workspace, &table.variant);
    const AlgorithmKeys& keys = AlgorithmKeysOf(table.variant);
    const auto folder = std::filesystem::path(table.directory) / keys.folder;
    const auto listed = ReadAlgorithms(folder.lexically_normal().string());
    const int64_t asks = keys.heuristic ? kAlgorithmWorkspace : 0;
    const Status status =
        listed.ok() ? AddAlgorithmPoints(table.op, *listed, asks, &table.variant) : listed.status();
    if (!status.ok()) table.diagnostics.Error(table.variant.where, status.message());
  }

  std::string KernelName(const Op& op, const Template& variant, const Template::Point& point,
                         const Step& step) const override {
    if (step.kind == StepKind::kOwn) return kAlgorithmKernel;
    return CudaKernelName(op, variant, point, step.kernel);
  }

  Status AddUnits(UnitSet* units, VariantUse* use) const override {
    return AddUnitsWithKernels(units, use, [&](size_t step) -> Result<uint32_t> {
      if (units->point(*use).asks) return kNoUnit;
      Unit unit = units->New(*use);
      unit.compiler = "algorithm";
      unit.format = ObjectFormat::kAlgorithm;
      unit.extra_options = units->point(*use).code;
      return units->Add(std::move(unit), {use->kernels[step]});
    });
  }

  void LoadLibraries(const Toolchain& tools) const override { LoadCublasLt(tools.nvrtc, ""); }
  void AddCompilers(std::vector<std::unique_ptr<Compiler>>* compilers) const override {
    compilers->push_back(std::make_unique<AlgorithmDecoder>());
  }

  void WriteStep(const Step& step, IndexWriter* writer, fb::StepT* row) const override {
    if (step.kind != StepKind::kOwn) return;
    const Product& product = ProductOf(step);
    // Places as in kbundle/provider/cublaslt.h.
    const auto add = [&](const std::optional<Arg>& arg) {
      row->args.push_back(arg ? writer->ArgOf(*arg) : std::make_unique<fb::ArgT>());
    };
    for (const std::optional<Arg>& tensor : product.tensors) add(tensor);
    add(product.alpha);
    add(product.beta);
    row->programs = writer->SpansOf(product.numbers);
    for (const Program& condition : product.conditions) {
      row->programs.push_back(writer->Intern(condition));
    }
  }

  int own_step_number() const override { return 5; }
  void AddToFingerprint(const Step& step, FingerprintText* text) const override {
    if (step.kind != StepKind::kOwn) return;
    const Product& product = ProductOf(step);
    for (const std::optional<Arg>& tensor : product.tensors) text->Add(tensor.value_or(Arg()));
    text->Add(product.numbers);
    text->Add(product.conditions);
    text->Add(product.alpha.value_or(Arg()));
    text->Add(product.beta.value_or(Arg()));
  }
};

}  // namespace

const Provider* CublasLtProvider() {
  static const CublasLt cublaslt;
  return &cublaslt;
}

}  // namespace kbundle::builder
