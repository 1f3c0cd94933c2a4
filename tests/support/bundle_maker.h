// Writes bundles for tests, in memory, from plain values: sound ones, and ones that lie. An own
// writer beside the builder's, so that reader and builder are checked against a third opinion.
#ifndef KBUNDLE_TESTS_SUPPORT_BUNDLE_MAKER_H_
#define KBUNDLE_TESTS_SUPPORT_BUNDLE_MAKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kbundle/bundle.h"
#include "kbundle/bundle_generated.h"
#include "kbundle/format.h"

namespace kbundle::testing {

using kbundle::kNoBlob;
// What the kernel rows of Triton variants say.
inline constexpr uint32_t kTritonThreads = 256, kTritonShared = 60000;
// And those of execution plans; rounded up to 256 it is 5120.
inline constexpr uint32_t kPlanWorkspace = 5000;

// One op under construction; names resolve against what it has so far.
class BundleMaker {
 public:
  BundleMaker();

  // FlatBuffers' object form: change anything directly, before Bytes().
  fb::IndexT index;

  // Postfix text: "K VEC % 0 ==", "x.dim0", "T.size", "x.align", "mask.present", "let:PARTS",
  // "sm_count", "&& || ! neg abs min max ceil_div next_pow2 ceil_log2 ?:". Names: symbols, attributes, type
  // parameters (their dtype), tunables, lets of `op` and, when given, `row`. Interns constants.
  fb::Span Program(const fb::OpT& op, const fb::TemplateT* row, std::string_view postfix);
  std::unique_ptr<fb::RuleT> Rule(const fb::OpT& op, const fb::TemplateT* row,
                                  std::string_view postfix, std::string_view text = "");
  uint32_t Constant(int64_t value);  // its place in Index.constants
  uint32_t Symbol(const std::string& name);

  // The op is to be filled before the next is added. Stable address.
  fb::OpT& AddOp(const std::string& name);
  void AddType(fb::OpT& op, const std::string& name, std::vector<DType> dtypes, int attribute = -1);
  // type: a type parameter or a dtype. shape: "rows.. K", each a symbol, "name..", or a postfix
  // program in parentheses: "(K 2 /)".
  fb::TensorT& AddOperand(fb::OpT& op, const std::string& name, const std::string& type,
                          const std::string& shape);
  fb::TensorT& AddResult(fb::OpT& op, const std::string& name, const std::string& type,
                         const std::string& shape);
  fb::AttributeT& AddAttribute(fb::OpT& op, const std::string& name, AttributeType type);
  // The first choice is its default.
  fb::AttributeT& AddEnum(fb::OpT& op, const std::string& name, std::vector<std::string> choices);

  // A template of the op added last.
  fb::TemplateT& AddTemplate(const std::string& name, const std::string& provider,
                             std::vector<std::string> tunables = {});
  // A kernel step; on GPUs with a grid of 1 and a block of 128 unless set later. Triton kernels have
  // kTritonThreads and kTritonShared in their rows.
  fb::StepT& AddKernelStep(fb::TemplateT& row, const std::string& kernel);
  // A step that only the template's provider knows. The rows of provider cudnn's have kPlanWorkspace.
  fb::StepT& AddOwnStep(fb::TemplateT& row);
  // "x" operand, "y" result, "ws:partial" region, "i64(rows)", "i32(K 2 *)" (postfix),
  // "f32(scale)", "x at K 2 *": that element of x.
  void AddArg(fb::TemplateT& row, fb::StepT& step, const std::string& text);

  // A struct by value: `bytes` of 0xab, fields at their offsets, texts as of AddArg and of all
  // integers ("u8(3)").
  void AddStruct(fb::TemplateT& row, fb::StepT& step, size_t bytes,
                 const std::vector<std::pair<uint16_t, std::string>>& fields);

  uint16_t AddTarget(const std::string& name);
  uint32_t AddBlob(std::vector<uint8_t> bytes, fb::BlobFormat format, uint32_t base = kNoBlob);
  // One grid point: `blobs` and `symbols`, one a step (kNoBlob for memset and copy, and with a
  // symbol for an own step that asks a heuristic).
  void AddVariant(const fb::TemplateT& row, const std::string& target, std::vector<DType> types,
                  std::vector<int64_t> tunables, std::vector<uint32_t> blobs,
                  std::vector<std::string> symbols);
  void AddRanOn(uint32_t blob, const std::string& device);

  // Sorts what must be sorted (variants, entries, ran_on), packs, hashes. Ops must have been added
  // in name order. After this the maker may be changed and asked again.
  std::string Bytes();
  // Bytes() into a file and opened. Aborts the test when the bundle is refused.
  std::shared_ptr<const Bundle> Open(const std::string& path);

  // Hooks for bundles that lie: called after the sound bytes exist, before hashing.
  std::function<void(Header&)> change_header;
  std::function<void(fb::IndexT&)> change_index;  // last word on the index
  std::function<void(std::string& stored, uint32_t blob)> change_frame;
  std::function<void(std::string& index)> change_index_bytes;
  // Another writer of the index, which may put part of it into pages: their size.
  std::function<std::string(const fb::IndexT& index, uint64_t* pages_size)> write_index;

 private:
  struct MadeBlob {
    std::vector<uint8_t> bytes;
    fb::BlobFormat format;
    uint32_t base;
  };
  uint8_t ProviderNumber(const std::string& name);
  uint32_t Word(const fb::OpT& op, const fb::TemplateT* row, std::string_view token);
  fb::TensorT& AddTensor(fb::OpT& op, bool operand, const std::string& name,
                         const std::string& type, const std::string& shape);
  void SortRows(fb::IndexT& out) const;

  std::vector<MadeBlob> blobs_;
  bool has_offsets_ = false, has_structs_ = false, asking_ = false;
};

// Ends the test: what it asks of a maker cannot be.
[[noreturn]] void RefuseToMake(const std::string& what);

// Recomputes hashes of pages, index and header of bundle bytes, so that a change gets past them.
void Rehash(std::string* bytes);

// A small bundle with everything in it, named "sample": op "demo.scale" (y = scale * x; T in f32,
// bf16; x T[rows.., K], optional mask u8[rows]; attributes scale = 1.0, mode enum, flag bool, out
// dtypes no), cuda variants "vec" (VEC 8, 4; legal when K % VEC == 0 and aligned) and "any" on
// sm_80, sm_90a, sm_100f and portable, host variant "simd" on x86-64-v2 and v3; op "demo.sum"
// (f32 K -> scalar, two steps, workspace, int[] attribute). Base and delta frames; code bytes are
// `code_bytes` of compressible noise.
BundleMaker SampleMaker(size_t code_bytes = 3000);

// "plans", for sm_90a: op "plans.one" (y f32[rows, K] from x, scale = 1.0) with the variants "planned"
// (provider cudnn, one plan for rows 4 and K 8, of a cuDNN that is nowhere) and "own" (cuda, 100,000 K
// bytes of workspace).
BundleMaker PlansMaker();

// One op, `variants` in all, spread over entries as real bundles are: 16 variants an entry.
BundleMaker LargeMaker(uint32_t variants);

// Deterministic bytes that look like code: compressible, and the same for the same seed except a
// few places that `variation` changes.
std::vector<uint8_t> FakeCode(size_t size, uint32_t seed, uint32_t variation);

// ProblemSpec for demo.scale and others: {"bf16[4,64]", "absent"}, {{"scale", "0.5"}}.
ProblemSpec MakeSpec(const std::vector<std::string>& operands,
                     const std::vector<std::pair<std::string, std::string>>& attributes = {});

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_SUPPORT_BUNDLE_MAKER_H_
