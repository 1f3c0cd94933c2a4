// An XLA runtime of a few lines: builds call frames, keeps the state of a call site, has a pool of
// one's own making. What it is given and what it counts is public on purpose.
#ifndef KBUNDLE_TESTS_FFI_CALL_FRAME_H_
#define KBUNDLE_TESTS_FFI_CALL_FRAME_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "xla/ffi/api/c_api.h"

namespace kbundle::testing {

// What an XLA handler said.
struct Answer {
  int code = 0;  // 0: no error
  std::string message;
};

// One call site of one program. Its execution context is a Site of its own, so the functions of the
// API find their way back.
class Site {
 public:
  enum class Pool { kNone, kInline, kThreads, kNeverRuns };

  explicit Site(int api_minor = XLA_FFI_API_MINOR);
  ~Site();  // runs the state's deleter, as XLA does with the executable
  Site(const Site&) = delete;

  using Attribute =
      std::variant<std::string, int64_t, double, bool, std::vector<int64_t>, std::vector<double>>;
  std::map<std::string, Attribute> attributes;
  std::vector<std::pair<void*, std::vector<int64_t>>> operands, results;  // of `dtype`
  XLA_FFI_DataType dtype = XLA_FFI_DataType_F32;
  std::pair<void*, int64_t> workspace{};  // u8[second], behind the results; none when 0
  int32_t device = 0;
  void* stream = nullptr;
  Pool pool = Pool::kInline;
  int64_t pool_threads = 4;
  int scheduled = 0;
  void* state = nullptr;

  // buffers: whether the stage sees operands and results.
  Answer Call(XLA_FFI_Handler* handler, XLA_FFI_ExecutionStage stage, bool buffers = true);
  // For measuring: a frame to call a handler with again and again, valid while nothing changes.
  XLA_FFI_CallFrame* Frame(XLA_FFI_ExecutionStage stage, bool buffers);
  // Registers, as XLA does: the metadata that the handler answers.
  Answer Query(XLA_FFI_Handler* handler, XLA_FFI_Metadata* metadata);

  static int types_registered;
  static int states_deleted;

 private:
  friend struct SiteApi;
  void AddAttribute(const std::string& name, const Attribute& value);
  void AddBuffers(const std::vector<std::pair<void*, std::vector<int64_t>>>& from,
                  std::vector<void*>* to);

  XLA_FFI_Api api_{};
  XLA_FFI_CallFrame frame_{};
  std::deque<XLA_FFI_Buffer> buffers_;
  std::deque<int64_t> workspace_dims_;
  std::deque<XLA_FFI_ByteSpan> spans_;
  std::deque<XLA_FFI_Scalar> scalars_;
  std::deque<XLA_FFI_Array> arrays_;
  std::deque<uint8_t> bools_;
  std::vector<void*> operand_pointers_, result_pointers_, attribute_pointers_;
  std::vector<XLA_FFI_ByteSpan*> names_;
  std::vector<XLA_FFI_ArgType> operand_types_;
  std::vector<XLA_FFI_RetType> result_types_;
  std::vector<XLA_FFI_AttrType> attribute_types_;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::vector<std::pair<XLA_FFI_Task*, void*>> late_;  // kNeverRuns: until the site is gone
};

}  // namespace kbundle::testing

#endif  // KBUNDLE_TESTS_FFI_CALL_FRAME_H_
