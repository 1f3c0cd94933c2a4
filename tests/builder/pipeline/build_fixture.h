// A build of the test library in a folder of its own, and what its tests look at afterwards.
#ifndef KBUNDLE_TESTS_BUILDER_PIPELINE_BUILD_FIXTURE_H_
#define KBUNDLE_TESTS_BUILDER_PIPELINE_BUILD_FIXTURE_H_

#include <atomic>
#include <filesystem>
#include <string>

#include "builder/library.h"
#include "builder/pipeline/build.h"

namespace kbundle::builder {

class BuildTest : public ::testing::Test {
 protected:
  BuildTest() {
    WriteLibrary(folder_ / "lib");
    options_.paths = {folder_ / "lib"};
    options_.output = folder_ / "out.kb";
    options_.cache_dir = folder_ / "cache";
    options_.targets = {"sm_90a", "x86-64-v3"};
  }
  Result<BuildReport> Run() {
    reporter_ = RecordingReporter();
    return Build(options_, reporter_, cancel_);
  }
  BuildReport MustRun() {
    Result<BuildReport> report = Run();
    EXPECT_TRUE(report.ok()) << report.status().ToString()
                             << (reporter_.failures.empty() ? "" : reporter_.failures[0]);
    return report.ok() ? *report : BuildReport();
  }
  void Edit(const std::string& name, const std::string& from, const std::string& to) {
    const std::string path = folder_ / ("lib/" + name);
    WriteText(path, Replaced(ReadText(path), from, to));
  }
  bool OutputExists() const { return std::filesystem::exists(options_.output); }
  // No draft of an output may stay behind.
  int FilesBesideOutput() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      count += entry.is_regular_file();
    }
    return count;
  }

  Folder folder_;
  BuildOptions options_;
  RecordingReporter reporter_;
  std::atomic<bool> cancel_{false};
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_TESTS_BUILDER_PIPELINE_BUILD_FIXTURE_H_
