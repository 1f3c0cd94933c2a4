// A family's ops as rows of the index: programs, constants and symbols are interned, so that equal
// manifests give equal bytes and nothing is stored twice.
#ifndef KBUNDLE_BUILDER_PACK_INDEX_WRITER_H_
#define KBUNDLE_BUILDER_PACK_INDEX_WRITER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "builder/model/family.h"
#include "kbundle/bundle_generated.h"

namespace kbundle::builder {

// Appends to *index, which it borrows. Not thread-safe.
class IndexWriter {
 public:
  explicit IndexWriter(fb::IndexT* index) : index_(*index) {}

  // Ops must come sorted by name, each followed by its variants: what is new of an op then lies
  // beside each other, and readers read few pages. Adds its templates too, in manifest order.
  void AddOp(const Op& op);

  fb::Span Intern(const Program& program);
  std::vector<fb::Span> SpansOf(const std::vector<Program>& programs);
  std::unique_ptr<fb::ArgT> ArgOf(const Arg& arg);
  uint32_t InternConstants(const std::vector<int64_t>& values);  // place of the first
  uint32_t InternSymbol(const std::string& symbol);
  uint32_t InternKernels(const std::vector<fb::Kernel>& rows);
  bool has_offsets() const { return has_offsets_; }  // of a pointer, so far
  bool has_structs() const { return has_structs_; }  // that are arguments, so far

 private:
  std::unique_ptr<fb::Span> SpanOf(const Program& program);  // null when absent
  std::unique_ptr<fb::RuleT> RuleOf(const Program& program);
  std::unique_ptr<fb::TensorT> TensorOf(const Tensor& tensor);
  std::unique_ptr<fb::TensorMapT> TensorMapOf(const TensorMap& map);
  std::unique_ptr<fb::StructT> StructOf(const StructArg& arg);
  uint8_t ProviderNumber(const Provider& provider);
  std::unique_ptr<fb::StepT> StepOf(const Step& step, const Provider& provider);
  std::unique_ptr<fb::TemplateT> TemplateOf(const Template& variant, uint32_t op);
  void AddInterface(const Op& op, fb::OpT* row);
  void AddExpressions(const Op& op, fb::OpT* row);
  void AddProblems(const Op& op, fb::OpT* row);

  fb::IndexT& index_;
  std::map<std::vector<uint32_t>, fb::Span> programs_;
  std::map<int64_t, uint32_t> constants_;
  std::map<std::vector<int64_t>, uint32_t> constant_runs_;
  std::map<std::string, uint32_t> symbols_;
  std::map<std::vector<uint32_t>, uint32_t> kernel_runs_;
  bool has_offsets_ = false, has_structs_ = false;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PACK_INDEX_WRITER_H_
