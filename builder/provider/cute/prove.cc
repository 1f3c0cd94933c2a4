// An expression that fits the problems it was found on may be wrong on the next, and a launch with
// a wrong byte is no error that anybody sees. So every size and every byte of every parameter is
// computed as the loader would, for problems of their own; those with one that differs refute it.
#include "builder/provider/cute/prove.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "builder/provider/cute/launch.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

template <typename T>
bool Put(int64_t value, char* out) {
  const T stored = static_cast<T>(value);
  std::memcpy(out, &stored, sizeof stored);
  return static_cast<int64_t>(stored) == value && (std::is_signed_v<T> || value >= 0);
}

// As the loader does it; false: it does not fit, which the loader refuses.
bool PutInteger(DType ctype, int64_t value, char* out) {
  switch (ctype) {
    case DType::kI8:
      return Put<int8_t>(value, out);
    case DType::kU8:
      return Put<uint8_t>(value, out);
    case DType::kI16:
      return Put<int16_t>(value, out);
    case DType::kU16:
      return Put<uint16_t>(value, out);
    case DType::kI32:
      return Put<int32_t>(value, out);
    case DType::kU32:
      return Put<uint32_t>(value, out);
    case DType::kI64:
      return Put<int64_t>(value, out);
    case DType::kU64:
      return Put<uint64_t>(value, out);
    default:
      return false;
  }
}

// One problem's launches, computed as a plan would.
class Computed {
 public:
  Computed(const CuteSubject& subject, const Step& step, const CuteProblem& problem)
      : problem_(problem), tensors_(CuteTensors(subject, step)), bindings_(problem.drawn.bindings) {
    bindings_.sm_count = problem.sm_count;
  }

  Result<std::vector<int64_t>> Sizes(const std::vector<Program>& programs) const {
    std::vector<int64_t> sizes;
    for (const Program& program : programs) {
      KB_ASSIGN_OR_RETURN(const int64_t size, Evaluate(program, bindings_));
      sizes.push_back(size);
    }
    return sizes;
  }

  Result<std::string> Bytes(const Step& launch, const Arg& arg) const {
    if (arg.kind != ArgKind::kStruct) return Value(arg);
    const StructArg& whole = launch.structs[static_cast<size_t>(arg.index)];
    std::string bytes = whole.bytes;
    for (const StructArg::Field& field : whole.fields) {
      KB_ASSIGN_OR_RETURN(const std::string value, Value(field.arg));
      bytes.replace(field.offset, value.size(), value);
    }
    return bytes;
  }

 private:
  Result<std::string> Value(const Arg& arg) const {
    if (IsPointer(arg)) return Address(arg);
    std::string bytes(static_cast<size_t>(SizeOf(arg.ctype)), '\0');
    if (arg.kind == ArgKind::kInteger) {
      KB_ASSIGN_OR_RETURN(const int64_t value, Evaluate(arg.program, bindings_));
      if (!PutInteger(arg.ctype, value, bytes.data())) {
        return OutOfRange(fmt::format("{} does not fit {}", value, arg.text));
      }
      return bytes;
    }
    const auto number = static_cast<float>(CuteFloat(arg, problem_.drawn));
    const double factor =
        arg.program.empty() ? 1 : std::bit_cast<double>(arg.program.code[0].operand);
    const auto scaled = static_cast<float>(static_cast<double>(number) * factor);
    std::memcpy(bytes.data(), &scaled, sizeof scaled);
    return bytes;
  }

  Result<std::string> Address(const Arg& arg) const {
    size_t number = 0;
    while (tensors_[number].kind != arg.kind || tensors_[number].index != arg.index) ++number;
    int64_t at = 0;
    if (!arg.program.empty()) {
      KB_ASSIGN_OR_RETURN(at, Evaluate(arg.program, bindings_));
    }
    const uint64_t address =
        problem_.addresses[number] + static_cast<uint64_t>(at * tensors_[number].element_bytes);
    std::string bytes(sizeof address, '\0');
    std::memcpy(bytes.data(), &address, sizeof address);
    return bytes;
  }

  const CuteProblem& problem_;
  const std::vector<CuteTensor> tensors_;
  Bindings bindings_;
};

std::string Hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Status Differs(const Step& launch, const std::string& what, const std::string& recorded,
               const std::string& computed, const CuteProblem& problem) {
  return InvalidArgument(fmt::format(
      "kernel '{}': {} is {} by what its host function does and {} by what was found, for the "
      "problem {}\nnote: name what it is by a `let` of the variant, which the search for "
      "expressions takes as it takes sizes, or keep the variant off such problems by a `when`",
      launch.kernel, what, recorded, computed, problem.drawn.text));
}

Status ProveSizes(const Step& launch, const Json& recorded, const Computed& computed,
                  const CuteProblem& problem) {
  const std::pair<const char*, const std::vector<Program>*> all[] = {
      {"grid", &launch.grid}, {"block", &launch.block}, {"cluster", &launch.cluster}};
  for (const auto& [name, programs] : all) {
    if (programs->empty()) continue;
    KB_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, computed.Sizes(*programs));
    const auto wanted = recorded.at(name).get<std::vector<int64_t>>();
    if (sizes == wanted) continue;
    return Differs(launch, fmt::format("the {}", name), fmt::format("{}", fmt::join(wanted, " x ")),
                   fmt::format("{}", fmt::join(sizes, " x ")), problem);
  }
  KB_ASSIGN_OR_RETURN(const std::vector<int64_t> shared, computed.Sizes({launch.shared}));
  const auto wanted = recorded.at("shared").get<int64_t>();
  if (shared[0] == wanted) return Status();
  return Differs(launch, "its shared memory", std::to_string(wanted), std::to_string(shared[0]),
                 problem);
}

Status ProveParameters(const Step& launch, const Json& recorded, const Computed& computed,
                       const CuteProblem& problem) {
  const std::string wanted = recorded.at("params");
  size_t at = 0;
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const Result<std::string> bytes = computed.Bytes(launch, launch.args[i]);
    if (!bytes.ok()) {
      return Differs(launch, fmt::format("parameter {}", i), "something", bytes.status().message(),
                     problem);
    }
    const Arg& arg = launch.args[i];
    const bool map =
        arg.kind == ArgKind::kStruct && IsTensorMap(launch.structs[static_cast<size_t>(arg.index)]);
    for (size_t offset = 0; offset < bytes->size(); ++offset, ++at) {
      if (map && offset >= kTensorMapWritten) continue;
      const std::string here = Hex(std::string_view(*bytes).substr(offset, 1));
      if (wanted.compare(2 * at, 2, here) == 0) continue;
      constexpr size_t kWord = 4;
      const size_t first = offset / kWord * kWord;
      const size_t place = at - (offset - first);
      return Differs(launch, fmt::format("parameter {} at offset {}", i, first),
                     wanted.substr(2 * place, 2 * kWord),
                     Hex(std::string_view(*bytes).substr(first, kWord)), problem);
    }
  }
  if (2 * at == wanted.size()) return Status();
  return Differs(launch, "the size of its parameters", std::to_string(wanted.size() / 2),
                 std::to_string(at), problem);
}

Status ProveProblem(const std::vector<Step>& steps, const Computed& computed,
                    const CuteProblem& problem, const Json& recorded) {
  if (recorded.size() != steps.size()) {
    return InvalidArgument(
        fmt::format("{} kernels are launched, {} were before, for the problem {}", recorded.size(),
                    steps.size(), problem.drawn.text));
  }
  for (size_t launch = 0; launch < steps.size(); ++launch) {
    const Json& seen = recorded[launch];
    if (seen.at("programmatic").get<bool>() != steps[launch].programmatic) {
      return InvalidArgument(
          fmt::format("kernel '{}': whether it overlaps the one before depends on the problem; for "
                      "{} it is not as it was before",
                      steps[launch].kernel, problem.drawn.text));
    }
    KB_RETURN_IF_ERROR(ProveSizes(steps[launch], seen, computed, problem));
    KB_RETURN_IF_ERROR(ProveParameters(steps[launch], seen, computed, problem));
  }
  return Status();
}

}  // namespace

Result<Refuted> ProveLaunches(const std::vector<Step>& steps, const CuteSubject& subject,
                              const Step& step, std::span<const CuteProblem> problems,
                              std::span<const int> numbers, const Json& recorded) {
  if (recorded.size() != numbers.size()) return Internal("problems that were not recorded");
  Refuted refuted;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const CuteProblem& problem = problems[static_cast<size_t>(numbers[i])];
    Status proved = ProveProblem(steps, Computed(subject, step, problem), problem, recorded[i]);
    if (proved.ok()) continue;
    if (refuted.by.empty()) refuted.first = std::move(proved);
    refuted.by.push_back(numbers[i]);
  }
  return refuted;
}

}  // namespace kbundle::builder
