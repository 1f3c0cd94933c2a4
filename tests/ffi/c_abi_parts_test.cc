// Promise: several paths are one kb_bundle, of which every function answers by the part that
// serves; options of before there were parts are taken; what makes no sense is refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "ffi/said.h"
#include "kbundle/kbundle_describe.h"
#include "support/files.h"
#include "support/part_maker.h"

namespace kbundle::testing {
namespace {

class CAbiParts : public ::testing::Test {
 protected:
  CAbiParts() {
    // Levels that every x86-64 has.
    WriteFile(v1_, PartMaker("x86-64-v1", 1).Bytes());
    WriteFile(v2_, PartMaker("x86-64-v2", 2, "K 8 % 0 ==", 512).Bytes());
    WriteFile(gpu_, PartMaker("sm_90a", 0).Bytes());
    options_.size = sizeof options_;
    options_.path = v1_.c_str();
    options_.name = "c parts";
    options_.parts = others_;
    options_.part_count = 2;
    options_.absent = &absent_;
    options_.absent_count = 1;
  }
  ~CAbiParts() override {
    if (bundle_ == nullptr) return;
    EXPECT_EQ(Said(kb_bundle_close(bundle_), 0), "");
    kb_bundle_release(bundle_);
  }
  void Open() { ASSERT_EQ(Said(kb_bundle_open_with(&options_, &bundle_), 0), ""); }
  kb_problem_spec Spec(int64_t size) {
    dims_[0] = size;
    return {&x_, 1, nullptr, 0};
  }
  // Frees the text.
  static std::string Take(char* text) {
    std::string copy = text;
    kb_string_free(text);
    return copy;
  }

  TempDir folder_;
  const std::string v1_ = folder_ / "v1.kb", v2_ = folder_ / "v2.kb", gpu_ = folder_ / "gpu.kb";
  const char* others_[2] = {v2_.c_str(), gpu_.c_str()};
  kb_absent_part absent_{"sm_80", "pip install \"library[sm80]\""};
  kb_open_options options_{};
  int64_t dims_[1] = {16};
  kb_tensor x_{1, static_cast<int32_t>(DType::kU8), 1, dims_, nullptr};
  kb_bundle* bundle_ = nullptr;
};

TEST_F(CAbiParts, ARequestGoesToThePartThatServes) {
  Open();
  for (const auto& [size, value] : {std::pair{16, 2}, std::pair{17, 1}}) {
    const std::string id = "library.fill/fill@x86-64-v" + std::to_string(value);
    const kb_problem_spec spec = Spec(size);
    char* text = nullptr;
    ASSERT_EQ(Said(kb_select(bundle_, "library.fill", &spec, KB_DEVICE_HOST, nullptr, 0, &text), 0),
              "");
    EXPECT_EQ(Take(text), id);
    const kb_explanation* why = nullptr;
    ASSERT_EQ(
        Said(kb_explanation_make(bundle_, "library.fill", &spec, KB_DEVICE_HOST, nullptr, 0, &why),
             0),
        "");
    EXPECT_STREQ(why->part, (value == 2 ? v2_ : v1_).c_str());
    EXPECT_EQ(why->candidate_count, 2u);
    kb_explanation_free(why);
    ASSERT_EQ(Said(kb_explain(bundle_, "library.fill", &spec, KB_DEVICE_HOST, nullptr, &text), 0),
              "");
    const std::string json = Take(text);
    EXPECT_NE(json.find("\"chosen\":\"" + id + "\""), std::string::npos) << json;
    EXPECT_NE(json.find("\"kind\":\"memset\""), std::string::npos) << json;
    kb_plan* plan = nullptr;
    ASSERT_EQ(Said(kb_plan_make(bundle_, "library.fill", &spec, KB_DEVICE_HOST, -1, &plan), 0), "");
    ASSERT_EQ(Said(kb_plan_variant(plan, &text), 0), "");
    EXPECT_EQ(Take(text), id);
    std::vector<uint8_t> x(size), y(size);
    alignas(256) uint8_t workspace[512];
    void *operands[] = {x.data()}, *results[] = {y.data()};
    EXPECT_EQ(Said(kb_plan_launch_host(plan, nullptr, operands, results, workspace), 0), "");
    EXPECT_EQ(std::count(y.begin(), y.end(), value), size);
    kb_plan_release(plan);
  }
}

TEST_F(CAbiParts, WhatAProblemNeedsServesEveryPart) {
  Open();
  const kb_problem_spec spec = Spec(16);
  int64_t bytes = 0;
  ASSERT_EQ(Said(kb_workspace_bytes(bundle_, "library.fill", &spec, KB_DEVICE_HOST, &bytes), 0),
            "");
  EXPECT_EQ(bytes, 512);
  const kb_inference* inference = nullptr;
  ASSERT_EQ(Said(kb_inference_make(bundle_, "library.fill", &spec, KB_DEVICE_HOST, &inference), 0),
            "");
  EXPECT_EQ(inference->workspace_bytes, 512);
  EXPECT_EQ(inference->result_count, 1u);
  kb_inference_free(inference);
  char* id = nullptr;
  const std::string said =
      Said(kb_select(bundle_, "library.fill", &spec, KB_DEVICE_CUDA, "sm_80", 0, &id), 5);
  EXPECT_NE(said.find("code for this sm_80"), std::string::npos) << said;
  EXPECT_NE(said.find("pip install \"library[sm80]\""), std::string::npos) << said;
}

TEST_F(CAbiParts, IsDescribedVerifiedAndWishedForAsOne) {
  Open();
  const kb_bundle_info* info = nullptr;
  ASSERT_EQ(Said(kb_bundle_info_make(bundle_, nullptr, KB_DETAIL_WHOLE, &info), 0), "");
  ASSERT_EQ(info->part_count, 3u);
  EXPECT_STREQ(info->parts[1]->path, v2_.c_str());
  EXPECT_STREQ(info->parts[2]->targets[0], "sm_90a");
  EXPECT_EQ(info->target_count, 3u);
  ASSERT_EQ(info->blob_count, 1u);
  EXPECT_EQ(info->blobs[0]->part, 2u);
  EXPECT_EQ(info->ops[0]->variant_count, 3u);
  kb_bundle_info_free(info);
  EXPECT_EQ(Said(kb_bundle_verify(bundle_), 0), "");
  EXPECT_EQ(Said(kb_policy_deny(bundle_, "library.fill/fill@x86-64-v2"), 0), "");
  const kb_problem_spec spec = Spec(16);
  char* id = nullptr;
  ASSERT_EQ(Said(kb_select(bundle_, "library.fill", &spec, KB_DEVICE_HOST, nullptr, 0, &id), 0),
            "");
  EXPECT_EQ(Take(id), "library.fill/fill@x86-64-v1");
  kb_policy_clear();
  EXPECT_NE(Said(kb_policy_force(bundle_, "library.fill/fil"), 5), "");
}

TEST_F(CAbiParts, OptionsOfBeforeThereWerePartsOpenTheOneFile) {
  options_.size = KB_OPEN_OPTIONS_0_SIZE;  // what is behind is not looked at
  Open();
  const kb_bundle_info* info = nullptr;
  ASSERT_EQ(Said(kb_bundle_info_make(bundle_, nullptr, KB_DETAIL_NAMES, &info), 0), "");
  EXPECT_EQ(info->part_count, 1u);
  kb_bundle_info_free(info);
}

// As wheels install it: base and one family in one folder, another family in a second.
TEST_F(CAbiParts, ABaseIsOpenedWithThePartsThatAreInstalled) {
  const std::string site = folder_ / "site", more = folder_ / "more";
  const auto put = [](const std::string& folder, const std::string& from,
                      const std::string& lines) {
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(from, folder + "/x.kb");
    WriteFile(folder + "/x.kb.parts",
              "kbundle parts 1\npackage leafy\nversion 0.1.0\n" + lines + "\n");
  };
  put(site + "/leafy", v1_, "depth 1\nfamily v2 x86-64-v2\nfamily gpu sm_90a\nfamily old sm_80");
  put(site + "/leafy_v2", v2_, "part v2");
  put(more + "/leafy_gpu", gpu_, "part gpu");
  const std::string base = site + "/leafy/x.kb";
  const char* folders[] = {more.c_str()};
  // Of the bundle that is open, which is then closed.
  const auto expect = [&](size_t parts, size_t absent) {
    const kb_bundle_info* info = nullptr;
    ASSERT_EQ(Said(kb_bundle_info_make(bundle_, nullptr, KB_DETAIL_NAMES, &info), 0), "");
    EXPECT_EQ(info->part_count, parts);
    ASSERT_EQ(info->absent_count, absent);
    if (absent > 0) {
      EXPECT_STREQ(info->absent[absent - 1]->target, "sm_80");
      EXPECT_STREQ(info->absent[absent - 1]->how, "pip install \"leafy[old]==0.1.0\"");
    }
    kb_bundle_info_free(info);
    EXPECT_EQ(Said(kb_bundle_close(bundle_), 0), "");
    kb_bundle_release(bundle_);
    bundle_ = nullptr;
  };
  ASSERT_EQ(Said(kb_bundle_open(base.c_str(), "c parts", &bundle_), 0), "");
  expect(2, 2);
  ASSERT_EQ(Said(kb_bundle_reload(base.c_str(), "c parts", &bundle_), 0), "");
  expect(2, 2);
  options_ = {};
  options_.size = sizeof options_;
  options_.path = base.c_str();
  options_.name = "c parts";
  options_.folders = folders;
  options_.folder_count = 1;
  Open();
  expect(3, 1);
  options_.parts = others_;  // said by hand: nothing is looked for
  options_.part_count = 1;
  Open();
  expect(2, 0);
  options_.size = KB_OPEN_OPTIONS_0_SIZE;
  Open();
  expect(2, 2);
  const std::string bytes = ReadFile(base);
  ASSERT_EQ(Said(kb_bundle_open_memory(bytes.data(), bytes.size(), "c parts", &bundle_), 0), "");
  expect(1, 0);
}

TEST_F(CAbiParts, RefusesWhatMakesNoSense) {
  const auto said = [this](int code) {
    kb_bundle* none = nullptr;
    const std::string message = Said(kb_bundle_open_with(&options_, &none), code);
    EXPECT_EQ(none, nullptr);
    return message;
  };
  options_.part_count = 257;
  EXPECT_NE(said(3).find("at most 256"), std::string::npos);
  options_.part_count = 2;
  options_.size = offsetof(kb_open_options, part_count);
  EXPECT_NE(said(3).find("size"), std::string::npos);
  options_.size = sizeof options_;
  others_[1] = nullptr;
  EXPECT_NE(said(3).find("'path' is NULL"), std::string::npos);
  others_[1] = v1_.c_str();
  EXPECT_NE(said(3).find("both have code for x86-64-v1"), std::string::npos);
  others_[1] = gpu_.c_str();
  absent_.target = "sm_nine";
  EXPECT_NE(said(3).find("'sm_nine' is no target"), std::string::npos);
  absent_.target = "sm_80";
  options_.absent = nullptr;
  EXPECT_NE(said(3).find("'absent' is NULL"), std::string::npos);
  options_.absent = &absent_;
  const std::string bytes = ReadFile(v1_);
  options_.part_count = options_.absent_count = 0;
  options_.folder_count = 1;
  EXPECT_NE(said(3).find("'folders' is NULL"), std::string::npos);
  options_.folder_count = 0;
  options_.part_count = 2;
  options_.source = KB_SOURCE_MEMORY;
  options_.bytes = bytes.data();
  options_.byte_count = bytes.size();
  EXPECT_NE(said(3).find("KB_SOURCE_PATH"), std::string::npos);
}

}  // namespace
}  // namespace kbundle::testing
