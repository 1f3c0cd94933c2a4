// The bundles that the tests of plans and launches use.
#ifndef KBUNDLE_TESTS_SUPPORT_RUN_SAMPLE_H_
#define KBUNDLE_TESTS_SUPPORT_RUN_SAMPLE_H_

#include <memory>
#include <string>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/runtime.h"
#include "support/bundle_maker.h"
#include "support/fake_driver.h"

namespace kbundle::testing {

// "run", for sm_90a and one op for `portable`, code objects made by FakeImage:
//   run.inplace  y over x: one kernel
//   run.inside   one kernel (y at rows, x at K - 1, third of K floats of workspace, x)
//   run.mixed    "vec" (16-byte aligned), "odd" (with a memset), "any"
//   run.scale    y = scale * x: "vec" (16-byte aligned), "any"; kernels (y, x, scale, rows, K)
//   run.steps    memset, kernel, copy: "roomy" (4096 K bytes of workspace), "thrifty" (4 K bytes)
//   run.struct   a kernel that takes a struct (y, x at K - 1, rows, rows + 1, third of K floats)
//   run.portable one kernel, programmatic
//   run.tiles    a tensor map over x, a cluster of 16 blocks, 100,000 + K bytes of shared memory,
//                programmatic
//   run.triton   one kernel of provider triton: threads and shared memory out of its row
//   run.wide     "tall" (rows in grid.y), "flat" (rows in grid.x)
BundleMaker RunMaker();

// "host", for x86-64-v2, from the shared object `code`:
//   host.fill    memset: y = bytes of 1
//   host.scale   y = scale * x: kernel scale_f32 over rows
BundleMaker HostMaker(std::vector<uint8_t> code);

// The code for HostMaker, compiled in `folder` with the system compiler against the kernel headers
// of `source_dir`. Aborts without a compiler.
std::vector<uint8_t> CompileHostSample(const std::string& folder, const std::string& source_dir);

// Aborts the test when the problem is not legal.
Problem ProblemOf(const Bundle& bundle, const std::string& op,
                  const std::vector<std::string>& operands,
                  const std::vector<std::pair<std::string, std::string>>& attributes = {});

// Addresses that are never looked behind: operands from 0x10000, results from 0x20000, workspace at
// 0x30000; `offset` is added to every tensor's.
struct FakeAddresses {
  explicit FakeAddresses(const Problem& problem, uintptr_t offset = 0);
  LaunchArgs args() const;
  std::vector<void*> operands, results;
  void* workspace;
};

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_RUN_SAMPLE_H_
