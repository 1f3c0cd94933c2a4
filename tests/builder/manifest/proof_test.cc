// The language carries the hard ops: manifests of six families parse and type-check, down to the
// facts that made them hard. No kernels are behind them.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "builder/manifest/manifest.h"
#include "builder/model/family.h"
#include "support/files.h"

namespace kbundle::builder {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = testing::SourceDir();

Family Read(const fs::path& path) {
  Result<Family> family = ReadManifest(path.string());
  EXPECT_TRUE(family.ok()) << family.status().ToString();
  return family.ok() ? std::move(*family) : Family();
}

Family ReadProof(const std::string& name) {
  return Read(kRoot / "tests" / "builder" / "manifests" / (name + ".toml"));
}

const Op& FindOp(const Family& family, const std::string& name) {
  for (const Op& op : family.ops) {
    if (op.name == name) return op;
  }
  ADD_FAILURE() << "no op " << name;
  static const Op none;
  return none;
}

const Tensor& Find(const std::vector<Tensor>& tensors, const std::string& name) {
  for (const Tensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  static const Tensor none;
  return none;
}

bool Uses(const Program& program, Opcode opcode) {
  for (const Instruction& instruction : program.code) {
    if (instruction.opcode == opcode) return true;
  }
  return false;
}

TEST(ProofManifests, NormHasFp8OutputByAttributeAndAmaxInPlace) {
  Family family = ReadProof("norm");
  const Op& op = FindOp(family, "norm.layernorm_forward_fp8");
  ASSERT_EQ(op.types.size(), 3u);
  EXPECT_EQ(op.attributes[op.types[2].attribute].name, "out_dtype");
  EXPECT_EQ(op.types[2].dtypes, (std::vector<DType>{DType::kE4M3, DType::kE5M2}));
  const Tensor& amax = Find(op.results, "amax_out");
  ASSERT_GE(amax.alias, 0);
  EXPECT_EQ(op.operands[amax.alias].name, "amax");
  EXPECT_TRUE(Find(op.operands, "beta").optional);
  EXPECT_TRUE(Find(op.results, "out_t").when.has_value());
  ASSERT_EQ(op.problems.size(), 2u);
  EXPECT_EQ(op.problems[0].operands[1].dims, (std::vector<int64_t>{8192}));
  EXPECT_FALSE(op.problems[0].operands[2].present);
  EXPECT_TRUE(op.problems[1].operands[2].present);
}

TEST(ProofManifests, OnlyGridsUseTheSmCount) {
  Family family = ReadProof("norm");
  const Op& op = FindOp(family, "norm.rmsnorm_backward");
  ASSERT_EQ(op.templates.size(), 1u);
  const Template& variant = op.templates[0];
  EXPECT_TRUE(Uses(variant.steps[0].grid[0], Opcode::kSmCount));
  EXPECT_FALSE(Uses(variant.regions[0].bytes, Opcode::kSmCount));
  EXPECT_TRUE(Uses(variant.regions[0].bytes, Opcode::kLet));
}

TEST(ProofManifests, GroupedQuantizeBoundsWhatOnlyTheDeviceKnows) {
  Family family = ReadProof("quantize");
  const Op& op = FindOp(family, "quantize.grouped_quantize");
  const Tensor& sizes = Find(op.operands, "group_sizes");
  ASSERT_TRUE(sizes.bound.has_value());
  EXPECT_EQ(sizes.bound->text, "M");
  const Template& variant = op.templates[0];
  ASSERT_EQ(variant.steps.size(), 3u);
  EXPECT_EQ(variant.steps[1].kind, StepKind::kMemset);
  EXPECT_EQ(variant.steps[1].target.kind, ArgKind::kResult);
  EXPECT_FALSE(variant.steps[1].bytes.empty());
  const Step& mapped = FindOp(family, "quantize.grouped_quantize_mxfp8").templates[0].steps[2];
  ASSERT_EQ(mapped.tensor_maps.size(), 1u);
  EXPECT_EQ(mapped.tensor_maps[0].swizzle, 3);
  EXPECT_EQ(mapped.tensor_maps[0].l2, 3);
  EXPECT_TRUE(mapped.programmatic);
}

TEST(ProofManifests, RouterShapesDependOnAttributes) {
  Family family = ReadProof("router");
  const Op& op = FindOp(family, "router.topk_forward");
  EXPECT_TRUE(Uses(Find(op.results, "routing_map").dims[1].program, Opcode::kAttribute));
  const Op& topk = FindOp(family, "router.topk");
  EXPECT_EQ(topk.attributes[0].name, "k");
  EXPECT_TRUE(Uses(topk.results[0].dims[1].program, Opcode::kAttribute));
  EXPECT_EQ(FindOp(family, "router.aux_loss_forward").results[0].dims.size(), 0u);
}

TEST(ProofManifests, AttentionBackwardHasMasksBiasAndDropoutAsData) {
  Family family = ReadProof("attention");
  const Op& op = FindOp(family, "attention.sdpa_backward");
  EXPECT_TRUE(Find(op.operands, "bias").optional);
  EXPECT_TRUE(Find(op.operands, "q").strided);
  EXPECT_TRUE(Find(op.operands, "rng_state").optional);
  EXPECT_TRUE(Find(op.results, "dbias").when.has_value());
  ASSERT_EQ(op.problems.size(), 4u);
  // The shapes of o, do and stats follow from those of q, k and v.
  EXPECT_EQ(op.problems[1].operands[5].dims, (std::vector<int64_t>{2, 8, 512}));
  const Step& main = op.templates[0].steps[3];
  EXPECT_EQ(main.tensor_maps.size(), 4u);
  EXPECT_EQ(main.cluster.size(), 1u);
  EXPECT_EQ(op.templates[0].regions.size(), 4u);
  EXPECT_EQ(op.templates[0].targets, (std::vector<std::string>{"sm_90a"}));
}

TEST(ProofManifests, MatmulHasAnAuxiliaryOutputAndAPrunedGrid) {
  Family family = ReadProof("matmul");
  const Op& op = FindOp(family, "matmul.matmul");
  EXPECT_TRUE(Find(op.results, "aux").when.has_value());
  const Template& fast = op.templates[0];
  EXPECT_EQ(fast.points.size(), 480u);
  for (const Template::Point& point : fast.points) {
    EXPECT_EQ(SizeOf(point.types[0]), SizeOf(point.types[1]));
    EXPECT_LE((point.tunables[0] + point.tunables[1]) * 128 * point.tunables[2], 228 * 1024 - 1024);
  }
  EXPECT_EQ(op.templates[1].compiler, "nvcc");
  const Op& accumulate = FindOp(family, "matmul.matmul_accumulate");
  EXPECT_EQ(accumulate.results[0].alias, 2);
}

TEST(ProofManifests, PermutationHasThreePassesOverItsResult) {
  Family family = ReadProof("permutation");
  const Op& map = FindOp(family, "permutation.row_id_map");
  EXPECT_EQ(map.templates[0].steps.size(), 3u);
  EXPECT_EQ(map.types.size(), 0u);
  const Op& permute = FindOp(family, "permutation.permute");
  EXPECT_TRUE(Find(permute.operands, "row_id_map").bound.has_value());
  EXPECT_EQ(permute.templates[0].steps[2].when->text, "present(scale)");
  const Op& sort = FindOp(family, "permutation.sort_chunks");
  EXPECT_EQ(sort.templates[0].steps[1].kind, StepKind::kCopy);
}

// Whoever adds a proof gets it checked.
TEST(ProofManifests, AllParse) {
  Result<std::vector<std::string>> found =
      FindManifests({(kRoot / "tests" / "builder" / "manifests").string()});
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_GE(found->size(), 6u);
  std::set<uint64_t> hashes;
  size_t ops = 0;
  for (const std::string& path : *found) {
    for (const Op& op : Read(path).ops) {
      ++ops;
      hashes.insert(op.interface_hash);
      EXPECT_FALSE(op.problems.empty()) << op.name;
      for (const Template& variant : op.templates) EXPECT_FALSE(variant.points.empty()) << op.name;
    }
  }
  EXPECT_EQ(hashes.size(), ops);
}

TEST(ShippedManifests, AllParse) {
  Result<std::vector<std::string>> found = FindManifests({(kRoot / "kernels").string()});
  if (!found.ok()) GTEST_SKIP() << "no op family in this tree";
  for (const std::string& path : *found) EXPECT_FALSE(Read(path).ops.empty()) << path;
}

}  // namespace
}  // namespace kbundle::builder
