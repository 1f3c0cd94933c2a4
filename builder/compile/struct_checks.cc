// The checks stand behind the author's text under a `#line` of their own, so the line of an error
// is the number of a check and leads back to the manifest; the author's own lines keep theirs. The
// prelude is plain C++ without a header, because NVRTC has none.
#include "builder/compile/struct_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "builder/model/kernel_name.h"
#include "builder/support/diagnostic.h"

namespace kbundle::builder {
namespace {

// Under this name compilers see the checks.
constexpr std::string_view kChecksName = "kb_fields";

// NVRTC has neither <type_traits> nor __builtin_offsetof, but what other compilers of NVIDIA's
// front end spell offsetof with.
constexpr char kPrelude[] = R"cpp(
#line 1 "kb_fields.h"
#if defined(__CUDACC__)
#define KB_FIELD_OFFSET(field, ...) __INTADDR__(&static_cast<__VA_ARGS__*>(nullptr)->field)
#else
#define KB_FIELD_OFFSET(field, ...) __builtin_offsetof(__VA_ARGS__, field)
#endif
  namespace kbundle_fields {
  template <typename T>
  struct Kind {
    static constexpr int value = 0;
  };
  template <>
  struct Kind<bool> {
    static constexpr int value = 1;
  };
  template <>
  struct Kind<signed char> {
    static constexpr int value = 2;
  };
  template <>
  struct Kind<short> {
    static constexpr int value = 2;
  };
  template <>
  struct Kind<int> {
    static constexpr int value = 2;
  };
  template <>
  struct Kind<long> {
    static constexpr int value = 2;
  };
  template <>
  struct Kind<long long> {
    static constexpr int value = 2;
  };
  template <>
  struct Kind<unsigned char> {
    static constexpr int value = 3;
  };
  template <>
  struct Kind<unsigned short> {
    static constexpr int value = 3;
  };
  template <>
  struct Kind<unsigned> {
    static constexpr int value = 3;
  };
  template <>
  struct Kind<unsigned long> {
    static constexpr int value = 3;
  };
  template <>
  struct Kind<unsigned long long> {
    static constexpr int value = 3;
  };
  template <>
  struct Kind<float> {
    static constexpr int value = 4;
  };
  template <>
  struct Kind<double> {
    static constexpr int value = 4;
  };
  // 0: of void, and of what is but declared, as __half is by kernels that need no more of it
  template <typename T, int bytes = sizeof(T)>
  constexpr int SizeOf(int) {
    return bytes;
  }
  template <typename T>
  constexpr int SizeOf(...) {
    return 0;
  }
  template <typename T>
  struct Pointer {
    static constexpr bool is = false, constant = false;
    static constexpr int bytes = -1, kind = 0;
  };
  template <typename T>
  struct Pointer<T*> {
    static constexpr bool is = true, constant = false;
    static constexpr int bytes = SizeOf<T>(0), kind = Kind<T>::value;
  };
  template <typename T>
  struct Pointer<const T*> {
    static constexpr bool is = true, constant = true;
    static constexpr int bytes = SizeOf<T>(0), kind = Kind<T>::value;
  };
  template <typename T>
  constexpr bool PointsAt(int bytes, int kind) {
    using P = Pointer<T>;
    const bool same = P::kind == 0 || bytes == 1 || (P::kind == 4) == (kind == 4);
    return P::is && (P::bytes == 0 || (P::bytes == bytes && same));
  }
  template <typename T>
  constexpr bool Holds(int bytes, int kind) {
    const bool same = kind == 0 || Kind<T>::value == 0 || Kind<T>::value == kind;
    return !Pointer<T>::is && sizeof(T) == bytes && same;
  }
  }  // namespace kbundle_fields
)cpp";

// As Kind of the prelude; 5: what C++ has no type of its own for.
int KindOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return 1;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      return 2;
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      return 3;
    case DType::kF32:
    case DType::kF64:
      return 4;
    default:
      return 5;
  }
}

class Checks {
 public:
  Checks(const Op& op, const Template& variant, const Template::Point& point)
      : op_(op), variant_(variant), point_(point) {}

  std::vector<StructCheck> Of(const StructArg& arg, const SourceSpan& where) {
    type_ = FillIn(arg.type, TypeNames::kCpp, op_, variant_, point_);
    for (const StructArg::Field& field : arg.fields) {
      AddType(field);
      Add(fmt::format("KB_FIELD_OFFSET({}, {}) == {}", field.name, type_, field.offset),
          fmt::format("field '{}' is not at byte {} of {}, where the fields before it leave it: "
                      "list all fields, in the order of the struct",
                      field.name, field.offset, type_),
          field.arg.where);
    }
    Add(fmt::format("sizeof({}) == {}", type_, arg.bytes.size()),
        fmt::format("{} is not of {} bytes, which these fields are: list all of its fields", type_,
                    arg.bytes.size()),
        where);
    return std::move(made_);
  }

 private:
  void Add(const std::string& condition, const std::string& message, const SourceSpan& where) {
    made_.push_back({fmt::format("static_assert({}, \"{}\");", condition, message), where});
  }

  void AddType(const StructArg::Field& field) {
    const Arg& arg = field.arg;
    const std::string type =
        fmt::format("decltype(static_cast<{}*>(nullptr)->{})", type_, field.name);
    const auto no = [&](const std::string& wanted) {
      return fmt::format("field '{}' of {} cannot hold {}, which is {}", field.name, type_,
                         arg.text, wanted);
    };
    if (!IsPointer(arg)) {
      const int64_t bytes =
          SizeOf(arg.ctype) * std::max(1, arg.kind == ArgKind::kArray ? arg.count : 1);
      const int kind = arg.kind == ArgKind::kArray ? 0 : KindOf(arg.ctype);
      std::string fits = fmt::format("kbundle_fields::Holds<{}>({}, {})", type, bytes, kind);
      // What a manifest writes for a pointer that a kernel takes and a step has not.
      if (arg.text == "i64(0)") fits += fmt::format(" || kbundle_fields::Pointer<{}>::is", type);
      return Add(fits, no(std::string(Name(arg.ctype))), arg.where);
    }
    const DType dtype = DTypeOf(arg, op_, variant_, point_.types);
    // A region of bytes is memory for anything.
    const bool bytes = arg.kind == ArgKind::kRegion && dtype == DType::kU8;
    const std::string points = bytes ? fmt::format("kbundle_fields::Pointer<{}>::is", type)
                                     : fmt::format("kbundle_fields::PointsAt<{}>({}, {})", type,
                                                   SizeOf(dtype), KindOf(dtype));
    Add(points, no(fmt::format("a pointer to {}", Name(dtype))), arg.where);
    if (arg.kind != ArgKind::kOperand || IsInOut(op_, arg.index)) return;
    Add(fmt::format("kbundle_fields::Pointer<{}>::constant", type),
        fmt::format("through field '{}' of {} the kernel may write, but {} is an operand, and no "
                    "result aliases it: make it a pointer to const",
                    field.name, type_, arg.text),
        arg.where);
  }

  const Op& op_;
  const Template& variant_;
  const Template::Point& point_;
  std::string type_;
  std::vector<StructCheck> made_;
};

// "kb_fields(3): error: .." (NVRTC, nvcc), "./kb_fields:3:1: error: .." (g++, clang++): 3, and what
// follows "error: ".
struct Failure {
  size_t line = 0;
  std::string_view text;
};
Failure FailureAt(std::string_view line) {
  const size_t name = line.find(kChecksName), error = line.find("error: ");
  if (name == std::string_view::npos || error == std::string_view::npos || name > error) return {};
  const std::string_view rest = line.substr(name + kChecksName.size());
  if (rest.empty() || (rest[0] != '(' && rest[0] != ':')) return {};
  Failure failure;
  std::from_chars(rest.data() + 1, rest.data() + rest.size(), failure.line);
  failure.text = line.substr(error + 7);
  for (const std::string_view words :
       {"static assertion failed with ", "static assertion failed: "}) {
    if (failure.text.starts_with(words)) failure.text.remove_prefix(words.size());
  }
  if (failure.text.starts_with('"') && failure.text.ends_with('"')) {
    failure.text = failure.text.substr(1, failure.text.size() - 2);
  }
  return failure;
}

}  // namespace

std::vector<StructCheck> StructChecks(const Op& op, const Template& variant,
                                      const Template::Point& point, std::span<const Step> steps) {
  std::vector<StructCheck> all;
  for (const Step& step : steps) {
    for (const Arg& arg : step.args) {
      if (arg.kind != ArgKind::kStruct) continue;
      for (StructCheck& check : Checks(op, variant, point).Of(step.structs[arg.index], arg.where)) {
        if (std::find(all.begin(), all.end(), check) == all.end()) all.push_back(std::move(check));
      }
    }
  }
  return all;
}

SourceTree WithStructChecks(const SourceTree& tree, const std::vector<StructCheck>& checks) {
  SourceTree with = tree;
  std::string& text = with.files[0].text;
  text += kPrelude;
  text += fmt::format("#line 1 \"{}\"\n", kChecksName);
  for (const StructCheck& check : checks) text += check.line + "\n";
  return with;
}

std::string FailedStructChecks(std::string_view log, const std::vector<StructCheck>& checks,
                               const SourceFiles& manifest) {
  Diagnostics diagnostics = DiagnosticsOf(manifest);
  std::set<std::pair<int, int>> told;  // one failure a field: what follows from it is no news
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const Failure failure = FailureAt(log.substr(at, end - at));
    at = end + 1;
    if (failure.line == 0 || failure.line > checks.size()) continue;
    const SourceSpan& where = checks[failure.line - 1].where;
    if (!told.insert({where.line, where.column}).second) continue;
    diagnostics.Error(where, std::string(failure.text));
  }
  return diagnostics.ok() ? "" : std::string(diagnostics.ToStatus().message());
}

}  // namespace kbundle::builder
