// Promise: what the C ABI says in JSON it says in plain structs too: they own themselves, hold what
// the bundle holds, give requests that can be asked, and come only from calls that succeeded.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ffi/said.h"
#include "kbundle/kbundle_describe.h"
#include "support/allocations.h"
#include "support/files.h"
#include "support/run_sample.h"
#include "support/tuned_rows.h"

namespace kbundle::testing {
namespace {

class CAbiDescribe : public ::testing::Test {
 protected:
  kb_bundle* Open(BundleMaker maker, const char* name) {
    const std::string bytes = maker.Bytes();
    kb_bundle* bundle = nullptr;
    EXPECT_EQ(Said(kb_bundle_open_memory(bytes.data(), bytes.size(), name, &bundle), 0), "");
    return bundle;
  }

  kb_bundle* sample_ = Open(SampleMaker(64), "c structs");
  int64_t dims_[2] = {4, 8};
  kb_tensor x_{1, 12 /* f32 */, 2, dims_, nullptr};
  kb_problem_spec spec_{&x_, 1, nullptr, 0};
  ~CAbiDescribe() override {
    if (sample_ == nullptr) return;
    EXPECT_EQ(Said(kb_bundle_close(sample_), 0), "");
    kb_bundle_release(sample_);
  }
};

TEST_F(CAbiDescribe, ABundlesOpsAreThereWithAllThatACallNeeds) {
  const kb_bundle_info* info = nullptr;
  ASSERT_EQ(Said(kb_bundle_info_make(sample_, nullptr, KB_DETAIL_WHOLE, &info), 0), "");
  EXPECT_EQ(info->size, sizeof(kb_bundle_info));
  EXPECT_STREQ(info->name, "sample");
  EXPECT_EQ(std::strlen(info->content_id), 64u);
  ASSERT_EQ(info->provenance_count, 1u);
  EXPECT_STREQ(info->provenance_keys[0], "compiler");
  EXPECT_STREQ(info->provenance_values[0], "none: made by a test");
  ASSERT_EQ(info->op_count, 2u);
  const kb_op_info& scale = *info->ops[0];
  EXPECT_EQ(scale.size, sizeof(kb_op_info));
  EXPECT_STREQ(scale.name, "demo.scale");
  ASSERT_EQ(scale.operand_count, 2u);
  EXPECT_STREQ(scale.operands[0]->name, "x");
  EXPECT_EQ(scale.operands[0]->alias, -1);
  ASSERT_EQ(scale.type_count, 1u);
  EXPECT_EQ(scale.types[0]->dtype_count, 2u);
  EXPECT_EQ(scale.types[0]->attribute, nullptr);
  const kb_op_info& sum = *info->ops[1];
  ASSERT_EQ(sum.attribute_count, 1u);
  const kb_attribute_info& weights = *sum.attributes[0];
  EXPECT_EQ(weights.type, KB_TYPE_INT_ARRAY);
  EXPECT_EQ(weights.most_elements, 4u);
  ASSERT_NE(weights.value, nullptr) << "it has a default";
  EXPECT_EQ(weights.value->kind, KB_INT_ARRAY);
  EXPECT_EQ(weights.value->count, 0u);
  ASSERT_EQ(sum.variant_count, 1u);
  const kb_variant_info& parts = *sum.variants[0];
  EXPECT_STREQ(parts.id, "demo.sum/two_steps@sm_80");
  EXPECT_STREQ(parts.name, "two_steps");
  ASSERT_EQ(parts.kernel_count, 2u);
  EXPECT_STREQ(parts.kernels[1]->symbol, "sum_total");
  ASSERT_LT(static_cast<size_t>(parts.kernels[1]->blob), info->blob_count);
  EXPECT_STREQ(info->blobs[parts.kernels[1]->blob]->format, "cubin");
  EXPECT_EQ(parts.deterministic, nullptr);
  EXPECT_TRUE(KB_HAS(kb_variant_info, info->ops[1]->variants[0], tunable_count));
  const auto older = offsetof(kb_variant_info, deterministic);  // as if the library were older
  kb_variant_info cut = parts;
  cut.size = older;
  EXPECT_FALSE(KB_HAS(kb_variant_info, &cut, deterministic));
  EXPECT_TRUE(KB_HAS(kb_variant_info, &cut, type_count));
  kb_bundle_info_free(info);
}

TEST_F(CAbiDescribe, AnOpAloneAndNamesAloneSayLess) {
  const kb_bundle_info *names = nullptr, *one = nullptr;
  ASSERT_EQ(Said(kb_bundle_info_make(sample_, nullptr, KB_DETAIL_NAMES, &names), 0), "");
  ASSERT_EQ(names->op_count, 2u);
  EXPECT_STREQ(names->ops[1]->name, "demo.sum");
  EXPECT_STREQ(names->ops[1]->summary, "");
  EXPECT_EQ(names->ops[1]->operands, nullptr);
  ASSERT_EQ(Said(kb_bundle_info_make(sample_, "demo.sum", KB_DETAIL_INTERFACE, &one), 0), "");
  ASSERT_EQ(one->op_count, 1u);
  EXPECT_EQ(one->ops[0]->operand_count, 1u);
  EXPECT_EQ(one->ops[0]->variant_count + one->ops[0]->problem_count + one->blob_count, 0u);
  kb_bundle_info_free(names);
  kb_bundle_info_free(one);
}

TEST_F(CAbiDescribe, AnExplanationOwnsItselfAndIsReadByManyThreads) {
  const kb_explanation* why = nullptr;
  ASSERT_EQ(
      Said(kb_explanation_make(sample_, "demo.scale", &spec_, KB_DEVICE_CUDA, "sm_90a", 0, &why),
           0),
      "");
  char* selected = nullptr;
  ASSERT_EQ(
      Said(kb_select(sample_, "demo.scale", &spec_, KB_DEVICE_CUDA, "sm_90a", 0, &selected), 0),
      "");
  ASSERT_EQ(Said(kb_bundle_close(sample_), 0), "");
  kb_bundle_release(sample_);
  sample_ = nullptr;
  const auto read = [&] {
    EXPECT_STREQ(why->chosen, selected);
    EXPECT_EQ(why->error, nullptr);
    EXPECT_EQ(why->choice, KB_CHOICE_MANIFEST_ORDER);
    EXPECT_EQ(why->workspace_bytes, 0);
    EXPECT_EQ(why->tuned, nullptr);
    EXPECT_GT(why->candidate_count, 3u);
    for (size_t i = 0; i < why->candidate_count; ++i) {
      EXPECT_EQ(why->candidates[i]->size, sizeof(kb_candidate));
      EXPECT_NE(why->candidates[i]->reason, nullptr);
      if (std::strcmp(why->candidates[i]->id, selected) != 0) continue;
      EXPECT_EQ(why->candidates[i]->legal, 1);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(read);
  for (std::thread& thread : threads) thread.join();
  kb_string_free(selected);
  kb_explanation_free(why);
}

TEST_F(CAbiDescribe, NoVariantIsAnAnswerThatSaysWhy) {
  const kb_explanation* why = nullptr;
  x_.rank = 1;
  ASSERT_EQ(
      Said(kb_explanation_make(sample_, "demo.sum", &spec_, KB_DEVICE_CUDA, "sm_90a", 0, &why), 0),
      "");
  EXPECT_EQ(why->chosen, nullptr);
  ASSERT_NE(why->error, nullptr);
  EXPECT_NE(std::string(why->error).find("demo.sum"), std::string::npos) << why->error;
  EXPECT_EQ(why->choice, KB_CHOICE_NONE);
  EXPECT_EQ(why->workspace_bytes, -1);
  ASSERT_EQ(why->candidate_count, 1u);
  EXPECT_EQ(why->candidates[0]->legal, 0);
  kb_explanation_free(why);
}

TEST_F(CAbiDescribe, ATunedProblemThatDecidedComesWithIt) {
  const TempDir folder;
  BundleMaker maker = RunMaker();
  const auto plain = maker.Open(folder / "plain.kb");
  const Problem problem = ProblemOf(*plain, "run.steps", {"f32[4,64]"});
  const auto thrifty = plain->FindVariants("run.steps/thrifty");
  ASSERT_TRUE(thrifty.ok());
  const auto roomy = plain->FindVariants("run.steps/roomy");
  ASSERT_TRUE(roomy.ok());
  maker.change_index = [&](fb::IndexT& index) {
    AddTunedRows(*plain, {{problem, thrifty->front(), roomy->front(), "GPU A"}}, &index);
  };
  kb_bundle* bundle = Open(std::move(maker), "c structs, tuned");
  dims_[1] = 64;
  const kb_explanation* why = nullptr;
  ASSERT_EQ(
      Said(kb_explanation_make(bundle, "run.steps", &spec_, KB_DEVICE_CUDA, "sm_90a", 0, &why), 0),
      "");
  EXPECT_EQ(why->choice, KB_CHOICE_EXACT);
  ASSERT_NE(why->tuned, nullptr);
  EXPECT_EQ(why->tuned->size, sizeof(kb_tuned));
  EXPECT_STREQ(why->tuned->device, "GPU A");
  EXPECT_STREQ(why->tuned->winner, why->chosen);
  EXPECT_STREQ(why->tuned->base, "run.steps/roomy@sm_90a");
  kb_explanation_free(why);
  EXPECT_EQ(Said(kb_bundle_close(bundle), 0), "");
  kb_bundle_release(bundle);
}

TEST_F(CAbiDescribe, AnInferenceIsWhatItsPartsAre) {
  const kb_inference* got = nullptr;
  ASSERT_EQ(Said(kb_inference_make(sample_, "demo.scale", &spec_, KB_DEVICE_CUDA, &got), 0), "");
  kb_result result;
  size_t count = 0;
  int64_t bytes = 0;
  ASSERT_EQ(Said(kb_results(sample_, "demo.scale", &spec_, &result, 1, &count), 0), "");
  ASSERT_EQ(Said(kb_workspace_bytes(sample_, "demo.scale", &spec_, KB_DEVICE_CUDA, &bytes), 0), "");
  ASSERT_EQ(got->result_count, count);
  EXPECT_EQ(std::memcmp(got->results, &result, sizeof result), 0);
  EXPECT_EQ(got->workspace_bytes, bytes);
  EXPECT_EQ(got->empty, 0);
  for (size_t i = 0; i < got->cut_count; ++i) {
    EXPECT_EQ(got->cuts[i]->size, sizeof(kb_cut));
    EXPECT_EQ(got->cuts[i]->operand_count, 1u);
  }
  kb_inference_free(got);
}

TEST_F(CAbiDescribe, StatisticsGrowWithPlans) {
  const TempDir folder;
  kb_bundle* host =
      Open(HostMaker(CompileHostSample(folder.path(), SourceDir())), "c structs, host");
  const kb_statistics *before = nullptr, *after = nullptr;
  ASSERT_EQ(Said(kb_statistics_make(&before), 0), "");
  kb_plan* plan = nullptr;
  ASSERT_EQ(Said(kb_plan_make(host, "host.scale", &spec_, KB_DEVICE_HOST, -1, &plan), 0), "");
  ASSERT_EQ(Said(kb_statistics_make(&after), 0), "");
  EXPECT_EQ(after->plans_made, before->plans_made + 1);
  ASSERT_GT(after->chosen_count, 0u);
  const kb_chosen& last = *after->chosen[after->chosen_count - 1];
  EXPECT_STREQ(last.op, "host.scale");
  EXPECT_STREQ(last.variant, "host.scale/simd@x86-64-v2");
  EXPECT_STREQ(last.choice, "manifest order");
  EXPECT_EQ(last.count, 1u);
  kb_statistics_free(before);
  kb_statistics_free(after);
  kb_plan_release(plan);
  EXPECT_EQ(Said(kb_bundle_close(host), 0), "");
  kb_bundle_release(host);
}

TEST_F(CAbiDescribe, RefusesWhatMakesNoSenseAndSetsNothing) {
  const kb_bundle_info* info = nullptr;
  const kb_explanation* why = nullptr;
  const kb_inference* got = nullptr;
  const char* op = "demo.scale";
  EXPECT_NE(Said(kb_bundle_info_make(nullptr, op, 0, &info), 3), "");
  EXPECT_NE(Said(kb_bundle_info_make(sample_, op, 0, nullptr), 3), "");
  for (int32_t detail : {-2, 2, INT32_MAX, INT32_MIN}) {
    EXPECT_NE(Said(kb_bundle_info_make(sample_, op, detail, &info), 3).find("kb_detail"),
              std::string::npos);
  }
  EXPECT_NE(Said(kb_bundle_info_make(sample_, "demo.scael", 0, &info), 5).find("demo.scale"),
            std::string::npos);
  EXPECT_NE(Said(kb_bundle_info_make(sample_, "\xff\xfe", 0, &info), 5), "");
  EXPECT_NE(Said(kb_explanation_make(nullptr, op, &spec_, 0, nullptr, 0, &why), 3), "");
  EXPECT_NE(Said(kb_explanation_make(sample_, nullptr, &spec_, 0, nullptr, 0, &why), 3), "");
  EXPECT_NE(Said(kb_explanation_make(sample_, op, nullptr, 0, nullptr, 0, &why), 3), "");
  EXPECT_NE(Said(kb_explanation_make(sample_, op, &spec_, 0, "sm_90a", 0, nullptr), 3), "");
  EXPECT_NE(Said(kb_explanation_make(sample_, op, &spec_, 7, "sm_90a", 0, &why), 3), "");
  EXPECT_NE(Said(kb_explanation_make(sample_, op, &spec_, 1, "sm_90a", 0, &why), 3), "");
  EXPECT_NE(Said(kb_explanation_make(sample_, op, &spec_, 0, "sm_90a", 4, &why), 3), "");
  EXPECT_NE(Said(kb_inference_make(sample_, op, &spec_, 0, nullptr), 3), "");
  EXPECT_NE(Said(kb_inference_make(sample_, op, &spec_, 2, &got), 3), "");
  EXPECT_NE(Said(kb_statistics_make(nullptr), 3), "");
  EXPECT_EQ(info, nullptr);
  EXPECT_EQ(why, nullptr);
  EXPECT_EQ(got, nullptr);
  kb_bundle_info_free(nullptr);
  kb_explanation_free(nullptr);
  kb_inference_free(nullptr);
  kb_statistics_free(nullptr);
}

TEST_F(CAbiDescribe, ADamagedOpIsCode15AndOthersAreDescribed) {
  BundleMaker maker = SampleMaker(64);
  maker.change_index = [](fb::IndexT& index) { index.templates.back()->op = 0; };
  kb_bundle* damaged = Open(std::move(maker), "c structs, damaged");
  const kb_bundle_info *info = nullptr, *sound = nullptr;
  EXPECT_NE(Said(kb_bundle_info_make(damaged, "demo.sum", 0, &info), 15).find("demo.sum"),
            std::string::npos);
  EXPECT_NE(Said(kb_bundle_info_make(damaged, nullptr, 0, &info), 15), "");
  EXPECT_NE(Said(kb_bundle_info_make(damaged, nullptr, 1, &info), 15), "");
  EXPECT_EQ(info, nullptr);
  ASSERT_EQ(Said(kb_bundle_info_make(damaged, "demo.scale", 0, &sound), 0), "");
  kb_bundle_info_free(sound);
  EXPECT_EQ(Said(kb_bundle_close(damaged), 0), "");
  kb_bundle_release(damaged);
}

TEST_F(CAbiDescribe, RunningOutOfMemoryIsCode8AtEveryAllocation) {
  if (!kCountsAllocations) GTEST_SKIP() << "the address sanitizer has the allocator";
  const auto each = [](const char* what, const std::function<kb_error*()>& call) {
    for (int allowed = 0;; ++allowed) {
      ASSERT_LT(allowed, 20000) << what << " never succeeds";
      FailAllocationsFrom(allowed + 1);
      kb_error* error = call();
      FailAllocationsFrom(0);
      if (error == nullptr) return;
      ASSERT_NE(Said(error, 8), "") << what << ' ' << allowed;
    }
  };
  const kb_bundle_info* info = nullptr;
  each("bundle", [&] { return kb_bundle_info_make(sample_, nullptr, 1, &info); });
  kb_bundle_info_free(info);
  const kb_explanation* why = nullptr;
  each("explanation", [&] {
    return kb_explanation_make(sample_, "demo.scale", &spec_, KB_DEVICE_CUDA, "sm_90a", 0, &why);
  });
  kb_explanation_free(why);
  const kb_inference* got = nullptr;
  each("inference",
       [&] { return kb_inference_make(sample_, "demo.scale", &spec_, KB_DEVICE_CUDA, &got); });
  kb_inference_free(got);
  const kb_statistics* statistics = nullptr;
  each("statistics", [&] { return kb_statistics_make(&statistics); });
  kb_statistics_free(statistics);
}

}  // namespace
}  // namespace kbundle::testing
