#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "builder/manifest/flags.h"
#include "builder/manifest/reader.h"
#include "builder/manifest/unused.h"
#include "builder/provider/cublaslt/points.h"
#include "builder/provider/cudnn/profile.h"
#include "builder/provider/triton/request.h"
#include "builder/support/files.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "kbundle/nearest.h"
#include "kbundle/target.h"

namespace kbundle::builder {
namespace {

using Kind = Node::Kind;

class VariantReader {
 public:
  VariantReader(const Node& node, const Op& op, const Names& names, const std::string& directory,
                int64_t probe_workspace, Diagnostics& diagnostics)
      : op_(op),
        names_(names),
        directory_(directory),
        probe_workspace_(probe_workspace),
        diagnostics_(diagnostics),
        node_(node),
        fields_(node, "a variant", diagnostics),
        context_{diagnostics, op, names_, &variant_} {
    variant_.where = node.where;
  }

  // In the order in which names come into being: tunables, lets, regions, then what uses them.
  Template Read() {
    // What a misspelled key would have named is not unknown as well.
    for (const Field& field : node_.fields) names_.incomplete |= IsMisspelled(field.key);
    ReadIdentity();
    if (variant_.provider == Provider::kCublasLt) {
      ReadAlgorithmGrid(fields_, op_, names_, variant_, diagnostics_);
    } else if (variant_.provider != Provider::kCudnn) {
      ReadGrid(fields_, op_, names_, variant_, diagnostics_);
    }
    if (const Node* lets = fields_.Take("let", Kind::kTable)) {
      ReadLets(*lets, op_, names_, variant_, diagnostics_);
    }
    for (const Node* node : fields_.TakeTexts("when")) {
      if (auto program = ReadCondition(context_, *node, WhenPlace())) {
        variant_.when.push_back(std::move(*program));
      }
    }
    ReadWorkspace();
    if (const Node* steps = fields_.Require("steps", Kind::kArray)) {
      ReadSteps(*steps, context_, variant_);
    }
    if (variant_.provider == Provider::kCudnn) TieToProblems(op_, variant_);
    fields_.Finish();
    if (variant_.provider == Provider::kCublasLt) AddPoints();
    const bool macros = variant_.compiler == "nvcc";
    const Result<std::string> source =
        macros ? ReadFile(directory_ + "/" + variant_.source) : Result<std::string>(std::string());
    if (source.ok()) RefuseUnusedTunables(node_, *source, diagnostics_);
    return std::move(variant_);
  }

 private:
  static bool IsMisspelled(const std::string& key) {
    static const std::vector<std::string> kNaming = {"tunables", "let", "workspace", "types"};
    const std::string meant = NearestName(key, kNaming);
    return !meant.empty() && meant != key;
  }

  void ReadIdentity() {
    if (const Node* name = fields_.Require("name", Kind::kString)) {
      variant_.name = name->text;
      if (!IsIdentifier(name->text)) {
        diagnostics_.Error(name->where,
                           fmt::format("'{}' is not a name: letters, digits and _, not "
                                       "beginning with a digit",
                                       name->text));
      }
    }
    fields_.Require("provider", Kind::kString);
    constexpr Provider kProviders[] = {Provider::kCuda, Provider::kHost, Provider::kTriton,
                                       Provider::kCudnn, Provider::kCublasLt};
    const size_t provider =
        fields_.TakeWord("provider", {"cuda", "host", "triton", "cudnn", "cublaslt"});
    variant_.provider = kProviders[provider];
    if (variant_.provider == Provider::kCudnn) return ReadCudnn();
    if (variant_.provider == Provider::kCublasLt) return ReadAlgorithmsKey();
    if (const Node* source = fields_.Require("source", Kind::kString)) CheckSource(*source);
    if (variant_.provider == Provider::kTriton) {
      variant_.compiler = "triton";
      fields_.Refuse("compiler", "only cuda variants choose a compiler", "this one has Triton");
      fields_.Refuse("portable", "only a cuda variant can be portable",
                     "Triton makes code for one exact GPU");
      fields_.Refuse("flags", "a Triton variant has no compiler flags",
                     "what Triton can be told is in the steps: num_warps, num_stages, maxnreg");
      variant_.max_spill = fields_.TakeInteger("max_spill", 0, 0, 1 << 20);
    } else if (variant_.provider == Provider::kHost) {
      variant_.compiler = "c++";
      fields_.Refuse("compiler", "only cuda variants choose a compiler",
                     "a host variant is compiled by the system's C++ compiler");
      fields_.Refuse("portable", "only a cuda variant can be portable");
      fields_.Refuse("max_spill", "only cuda kernels spill registers");
    } else {
      variant_.compiler = fields_.TakeWord("compiler", {"nvrtc", "nvcc"}) == 1 ? "nvcc" : "nvrtc";
      variant_.portable = fields_.TakeBool("portable");
      variant_.max_spill = fields_.TakeInteger("max_spill", 0, 0, 1 << 20);
    }
    for (const Node* flag : fields_.TakeTexts("flags")) {
      CheckFlag(*flag, variant_.flags.empty() ? "" : variant_.flags.back(), variant_.compiler,
                diagnostics_);
      variant_.flags.push_back(flag->text);
    }
    for (const Node* target : fields_.TakeTexts("targets")) ReadTarget(*target);
  }

  // A source holds kernels that run beside the products; else there is nothing to compile.
  void ReadAlgorithmsKey() {
    if (const Node* source = fields_.Take("source", Kind::kString)) CheckSource(*source);
    for (const char* key : {"compiler", "flags", "portable", "max_spill"}) {
      fields_.Refuse(key, fmt::format("a variant of provider cublaslt has no `{}`", key),
                     "its code is cuBLASLt's own");
    }
    for (const char* key : {"tunables", "keep"}) {
      fields_.Refuse(key, fmt::format("a variant of provider cublaslt has no `{}`", key),
                     "its points are the algorithms listed in its folder");
    }
    if (const Node* folder = fields_.Require("algorithms", Kind::kString)) {
      variant_.algorithms = folder->text;
      if (std::filesystem::path(folder->text).is_absolute()) {
        diagnostics_.Error(folder->where, "the folder is named relative to its manifest");
      }
    }
    for (const Node* target : fields_.TakeTexts("targets")) ReadTarget(*target);
  }

  void AddPoints() {
    if (probe_workspace_ > 0) return AddProbePoints(probe_workspace_, &variant_);
    const auto folder = std::filesystem::path(directory_) / variant_.algorithms;
    const auto listed = ReadAlgorithms(folder.lexically_normal().string());
    Status status = listed.ok() ? AddAlgorithmPoints(op_, *listed, &variant_) : listed.status();
    if (!status.ok()) diagnostics_.Error(variant_.where, status.message());
  }

  // The graph is in the steps; what it is planned with and for stands here. A source holds kernels
  // that run beside it.
  void ReadCudnn() {
    variant_.compiler = "cudnn";
    if (const Node* source = fields_.Take("source", Kind::kString)) CheckSource(*source);
    for (const char* key : {"compiler", "portable", "flags", "max_spill"}) {
      fields_.Refuse(key, fmt::format("a variant of cudnn has no `{}`", key),
                     "cuDNN makes the code; its graph is in the steps");
    }
    for (const char* key : {"tunables", "keep"}) {
      fields_.Refuse(key, fmt::format("a variant of cudnn has no `{}`", key),
                     "it has a point for each listed problem");
    }
    fields_.Require("targets", Kind::kArray);
    for (const Node* target : fields_.TakeTexts("targets")) ReadTarget(*target);
    if (const Node* profile = fields_.Require("profile", Kind::kString)) {
      Result<std::string> text = DeviceProfile(profile->text, directory_);
      if (text.ok()) {
        variant_.profile = std::move(text).value();
        CheckProfile(*profile);
      } else {
        diagnostics_.Error(profile->where, text.status().message());
      }
    }
    variant_.plans = fields_.TakeInteger("plans", 1, 1, kMaxPlans);
    variant_.max_workspace =
        fields_.TakeInteger("max_workspace", kMaxPlanWorkspace, 0, kMaxPlanWorkspace);
    fields_.Require("cudnn", Kind::kArray);
    for (const Node* version : fields_.TakeTexts("cudnn")) ReadCudnnVersion(*version);
  }

  // Plans for one GPU do not run on another; cuDNN would plan them all the same.
  void CheckProfile(const Node& node) {
    const int version = nlohmann::json::parse(variant_.profile).value("deviceVer", 0);
    for (const std::string& name : variant_.targets) {
      const Result<Target> target = Target::Parse(name);
      if (!target.ok() || target->kind != TargetKind::kCuda) continue;  // told before
      const int least = target->major * 100 + target->minor * 10;
      const bool fits = target->feature == 'a' ? version == least
                                               : version >= least && version / 100 == target->major;
      if (fits) continue;
      diagnostics_.Error(
          node.where,
          fmt::format("profile '{}' is of a GPU of compute capability {}.{}, on which {} does not "
                      "run",
                      node.text, version / 100, version / 10 % 10, name),
          "`kbundle profile` writes one on a GPU of the target");
    }
  }

  void ReadCudnnVersion(const Node& node) {
    int major = 0, minor = 0, patch = 0, end = 0;
    const bool three =
        std::sscanf(node.text.c_str(), "%2d.%2d.%2d%n", &major, &minor, &patch, &end) == 3;
    if (three && static_cast<size_t>(end) == node.text.size() && major == 9) {
      const int version = major * 10000 + minor * 100 + patch;
      const auto& before = variant_.cudnn;
      if (std::find(before.begin(), before.end(), version) != before.end()) {
        diagnostics_.Error(node.where, fmt::format("cuDNN {} stands here twice", node.text));
      }
      variant_.cudnn.push_back(version);
      return;
    }
    diagnostics_.Error(node.where, fmt::format("'{}' is no version of cuDNN 9", node.text),
                       "three numbers, as in \"9.19.0\": a plan runs on that version alone");
  }

  void CheckSource(const Node& source) {
    variant_.source = source.text;
    std::filesystem::path path(source.text);
    if (path.is_absolute()) {
      return diagnostics_.Error(source.where, "a source is named relative to its manifest",
                                "so that the same tree builds the same bundle anywhere");
    }
    std::filesystem::path full = std::filesystem::path(directory_) / path;
    std::error_code error;
    if (std::filesystem::is_regular_file(full, error)) return;
    diagnostics_.Error(source.At(0, static_cast<int>(source.text.size())),
                       fmt::format("source '{}' is not there", source.text),
                       fmt::format("looked for {}; paths are relative to the manifest",
                                   full.lexically_normal().string()));
  }

  void ReadTarget(const Node& node) {
    variant_.targets.push_back(node.text);
    Result<Target> target = Target::Parse(node.text);
    bool host = variant_.provider == Provider::kHost;
    bool triton = variant_.provider == Provider::kTriton;
    const bool cudnn = variant_.provider == Provider::kCudnn;
    const bool cublaslt = variant_.provider == Provider::kCublasLt;
    if (target.ok() && (triton              ? TritonMakes(*target)
                        : cudnn || cublaslt ? target->kind == TargetKind::kCuda
                                            : (target->kind == TargetKind::kHost) == host)) {
      return;
    }
    diagnostics_.Error(
        node.where,
        fmt::format("'{}' is no target of the provider {}", node.text,
                    triton     ? "triton"
                    : host     ? "host"
                    : cudnn    ? "cudnn"
                    : cublaslt ? "cublaslt"
                               : "cuda"),
        cublaslt ? "algorithms are of one GPU, as in \"sm_90a\""
        : cudnn  ? "an execution plan is for one GPU, as in \"sm_90a\""
        : triton ? "Triton makes code for sm_80, sm_86, sm_89, sm_90a, sm_100a and their like"
        : host   ? "host targets: x86-64-v2, x86-64-v3, x86-64-v4"
                 : "cuda targets: sm_80, sm_90a, sm_100f and their like");
  }

  void ReadWorkspace() {
    const Node* table = fields_.Take("workspace", Kind::kTable);
    if (table == nullptr) return;
    if (table->fields.size() > kMaxRegions) {
      names_.incomplete = true;
      return diagnostics_.Error(
          table->fields[kMaxRegions].where,
          fmt::format("{} workspace regions, allowed are {}", table->fields.size(), kMaxRegions));
    }
    for (const Field& field : table->fields) {
      Entity entity{Entity::Kind::kRegion, static_cast<int>(variant_.regions.size()), {}, {}};
      std::string clash = names_.Declare(field.key, entity);
      if (!clash.empty()) diagnostics_.Error(field.where, clash);
      Region& region = variant_.regions.emplace_back();
      region.name = field.key;
      if (WantKind(field.value, Kind::kString, "a workspace region", diagnostics_)) {
        ReadRegion(field.value, region);
      }
    }
  }

  void ReadRegion(const Node& node, Region& region) {
    region.text = node.text;
    ExpressionError error;
    std::optional<Shape> shape = ParseShape(node.text, &error);
    if (!shape) return Report(context_, node, error);
    std::optional<TypeRef> type = ResolveType(context_, node, shape->type, shape->type_begin);
    if (!type) return;
    region.type = *type;
    region.bytes.text = fmt::format("bytes of {}", region.name);
    region.bytes.where = node.where;
    region.bytes.code = type->param >= 0
                            ? std::vector<Instruction>{{Opcode::kSizeOfType, type->param}}
                            : ConstantCode(SizeOf(type->dtype));
    for (const ShapeTerm& term : shape->terms) {
      const Expression& e = term.expression;
      if (term.ellipsis) {
        return diagnostics_.Error(node.At(e.begin, e.end - e.begin),
                                  "a workspace region has no '..'",
                                  fmt::format("write the product of these dims: {}", e.name));
      }
      std::optional<Compiled> dim = CompilePart(context_, node, e, StepPlace("workspace"));
      if (!dim) return;
      if (dim->type.kind != ValueType::Kind::kInt) {
        return diagnostics_.Error(dim->program.where,
                                  fmt::format("a dim must be int, '{}' is {}", dim->program.text,
                                              Describe(dim->type, op_)));
      }
      region.bytes.code =
          CombineCode(Opcode::kMul, std::move(region.bytes.code), dim->program.code);
    }
    if (region.bytes.code.size() > kMaxProgramLength) {
      diagnostics_.Error(node.where,
                         fmt::format("the size has {} instructions, allowed are {}",
                                     region.bytes.code.size(), kMaxProgramLength),
                         "name a part of it with `let`");
    }
  }

  const Op& op_;
  Names names_;
  const std::string& directory_;
  const int64_t probe_workspace_;
  Diagnostics& diagnostics_;
  const Node& node_;
  Fields fields_;
  Template variant_;
  Context context_;
};

}  // namespace

std::optional<Template> ReadVariant(const Node& node, const Op& op, const Names& names,
                                    const std::string& directory, int64_t probe_workspace,
                                    Diagnostics& diagnostics) {
  if (!WantKind(node, Kind::kTable, "a variant", diagnostics)) return std::nullopt;
  return VariantReader(node, op, names, directory, probe_workspace, diagnostics).Read();
}

}  // namespace kbundle::builder
