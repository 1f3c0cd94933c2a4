// Status and Result<T>: errors as values, one pointer wide.
//
// A message has four parts: what was being done, to which element, what was found against what is
// allowed, and what to try. Context is added while unwinding, once a layer: status.Annotate("...").
// Codes are the canonical sixteen and equal XLA's and Abseil's numbers, so ffi/ maps by
// static_cast.
#ifndef KBUNDLE_STATUS_H_
#define KBUNDLE_STATUS_H_

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace kbundle {

enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,   // a bad problem, manifest or flag: the caller must ask differently
  kDeadlineExceeded = 4,  // a child process ran past its limit
  kNotFound = 5,          // no such file, op, variant: see what exists
  kAlreadyExists = 6,
  kPermissionDenied = 7,    // policy: strict mode or a denied variant
  kResourceExhausted = 8,   // over a limit of format.h, disk full, workspace too small
  kFailedPrecondition = 9,  // right bundle, wrong device or version: build for this target
  kAborted = 10,
  kOutOfRange = 11,     // an expression overflowed or divided by zero
  kUnimplemented = 12,  // newer format or feature: upgrade kbundle
  kInternal = 13,       // our own fault
  kUnavailable = 14,    // no driver, no device, no compiler on this machine
  kDataLoss = 15,       // damaged bytes: rebuild or copy the file again
  kUnauthenticated = 16,
};

// "INVALID_ARGUMENT" and so on; never null.
const char* StatusCodeName(StatusCode code);

// Movable and copyable value; null pointer means OK. Thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  const std::string& message() const;
  // "DATA_LOSS: message", or "OK".
  std::string ToString() const;
  // The same code with "context: " before the message; OK stays OK.
  Status Annotate(std::string_view context) &&;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status AlreadyExists(std::string message);
Status PermissionDenied(std::string message);
Status ResourceExhausted(std::string message);
Status FailedPrecondition(std::string message);
Status OutOfRange(std::string message);
Status Unimplemented(std::string message);
Status Internal(std::string message);
Status Unavailable(std::string message);
Status DataLoss(std::string message);
Status DeadlineExceeded(std::string message);
Status Cancelled(std::string message);

// Either a value or a Status that is not OK.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  Status status() const& { return ok() ? Status() : std::get<1>(state_); }
  Status status() && { return ok() ? Status() : std::get<1>(std::move(state_)); }
  // Require ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

namespace status_internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace status_internal

}  // namespace kbundle

// For our own invariants only, always on; bytes, files, drivers and users get a Status.
#define KB_CHECK(condition)                                                                    \
  do {                                                                                         \
    if (!(condition)) ::kbundle::status_internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (0)

#define KB_RETURN_IF_ERROR(expression)           \
  do {                                           \
    ::kbundle::Status kb_status_ = (expression); \
    if (!kb_status_.ok()) return kb_status_;     \
  } while (0)

#define KB_CONCAT_INNER_(a, b) a##b
#define KB_CONCAT_(a, b) KB_CONCAT_INNER_(a, b)
// KB_ASSIGN_OR_RETURN(auto x, F());
#define KB_ASSIGN_OR_RETURN(lhs, expression) \
  KB_ASSIGN_OR_RETURN_IMPL_(KB_CONCAT_(kb_result_, __LINE__), lhs, expression)
#define KB_ASSIGN_OR_RETURN_IMPL_(result, lhs, expression) \
  auto result = (expression);                              \
  if (!result.ok()) return std::move(result).status();     \
  lhs = std::move(result).value()

#endif  // KBUNDLE_STATUS_H_
