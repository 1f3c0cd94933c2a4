// All tensors of a set lie in one arena with guards between, so that a stray write hits a guard and
// filling or copying a set is one operation. Sets are rotated, since data in the cache would make a
// kernel look faster than it is; operands that a launch changes are copied back from a pristine
// set.
#include "builder/tune/bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kbundle/bundle_generated.h"
#include "kbundle/file_descriptor.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

constexpr int64_t kGuardBytes = 4096;
constexpr uint8_t kGuard = 0xa5, kPoison = 0xff;
constexpr int kMaxSets = 128;

int64_t Padded(int64_t bytes) { return (bytes + 255) / 256 * 256; }
char* Bytes(void* address) { return static_cast<char*>(address); }

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path, int64_t bytes) {
  const FileDescriptor source(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!source.ok() || fstat(source.get(), &status) != 0) {
    return Internal(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  MappedFile file;
  file.bytes_ = static_cast<size_t>(bytes);
  if (status.st_size == bytes && bytes > 0) {
    file.data_ = mmap(nullptr, file.bytes_, PROT_READ, MAP_SHARED, source.get(), 0);
    if (file.data_ == MAP_FAILED) file.data_ = nullptr;
  }
  if (status.st_size != bytes) {
    return Internal(fmt::format("{}: {} bytes, {} expected", path, status.st_size, bytes));
  }
  if (bytes > 0 && file.data_ == nullptr) return ResourceExhausted(path + ": mapping it failed");
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<std::unique_ptr<TuneBench>> TuneBench::Load(
    TuneDevice* device, std::shared_ptr<const Bundle> bundle, const Problem& problem,
    const std::vector<std::string>& inputs, const std::vector<std::string>& expected, bool rotate) {
  std::unique_ptr<TuneBench> bench(new TuneBench(device, std::move(bundle), problem));
  KB_RETURN_IF_ERROR(bench->MapFiles(inputs, expected));
  KB_RETURN_IF_ERROR(bench->MakeSets(rotate));
  return bench;
}

TuneBench::~TuneBench() {
  for (auto& [name, candidate] : candidates_) {
    candidate.timed.reset();
    if (candidate.arena != nullptr) device_.Free(candidate.arena);
  }
  for (const Set& set : sets_) device_.Free(set.arena);
  if (flush_ != nullptr) device_.Free(flush_);
  if (pristine_.arena != nullptr) device_.Free(pristine_.arena);
}

Status TuneBench::MapFiles(const std::vector<std::string>& inputs,
                           const std::vector<std::string>& expected) {
  if (inputs.size() != problem_.operands.size() || expected.size() < problem_.results.size()) {
    return Internal(fmt::format("{} input and {} result files for {}", inputs.size(),
                                expected.size(), problem_.ToString()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs_.emplace_back();
    if (!problem_.operands[i].present) continue;
    KB_ASSIGN_OR_RETURN(inputs_.back(),
                        MappedFile::Open(inputs[i], problem_.operands[i].size_bytes()));
  }
  for (size_t i = 0; i < problem_.results.size(); ++i) {
    const TensorSpec& result = problem_.results[i];
    expected_.emplace_back();
    in_out_ |= AliasOf(i) >= 0;
    if (!result.present) continue;
    const int64_t size = IsFloat(result.dtype) ? 8 : SizeOf(result.dtype);
    KB_ASSIGN_OR_RETURN(expected_.back(), MappedFile::Open(expected[i], result.elements() * size));
  }
  return Status();
}

int TuneBench::AliasOf(size_t result) const {
  return OpOf(*bundle_, problem_.op).results()->Get(static_cast<uint32_t>(result))->alias();
}

int64_t TuneBench::SetBytes() const {
  int64_t bytes = kGuardBytes;
  for (const TensorSpec& operand : problem_.operands) {
    if (operand.present) bytes += Padded(operand.size_bytes()) + kGuardBytes;
  }
  for (size_t i = 0; i < problem_.results.size(); ++i) {
    const TensorSpec& result = problem_.results[i];
    if (result.present && AliasOf(i) < 0) bytes += Padded(result.size_bytes()) + kGuardBytes;
  }
  return bytes;
}

// Together twice the last-level cache, so that a launch finds nothing of the one before it that
// used the same set. Small problems get as many as one sample may have launches, and on a GPU the
// cache is flushed before each sample. (Not on a CPU: it takes longer than all the launches.)
Status TuneBench::MakeSets(bool rotate) {
  const int64_t bytes = SetBytes();
  const int64_t room = std::max<int64_t>(1, device_.free_bytes() / 2 / bytes);
  const int64_t past_cache = rotate ? (2 * device_.cache_bytes() + bytes - 1) / bytes : 1;
  const int64_t wanted = std::clamp<int64_t>(past_cache, 1, std::min<int64_t>(kMaxSets, room));
  for (int64_t i = 0; i < std::max<int64_t>(wanted, in_out_ ? 2 : 1); ++i) {
    KB_ASSIGN_OR_RETURN(Set set, MakeSet());
    sets_.push_back(std::move(set));
    KB_RETURN_IF_ERROR(i == 0 ? Upload(sets_[0])
                              : device_.Copy(sets_.back().arena, sets_[0].arena, bytes));
  }
  if (wanted < past_cache && device_.kind() == Device::Kind::kCuda) {
    KB_ASSIGN_OR_RETURN(flush_, device_.Allocate(2 * device_.cache_bytes()));
  }
  if (in_out_) {
    KB_ASSIGN_OR_RETURN(pristine_, MakeSet());
    KB_RETURN_IF_ERROR(device_.Copy(pristine_.arena, sets_[0].arena, bytes));
  }
  return device_.Finish();
}

Result<TuneBench::Set> TuneBench::MakeSet() {
  Set set;
  KB_ASSIGN_OR_RETURN(set.arena, device_.Allocate(SetBytes()));
  char* next = Bytes(set.arena) + kGuardBytes;
  const auto take = [&](const TensorSpec& tensor) -> void* {
    if (!tensor.present) return nullptr;
    return std::exchange(next, next + Padded(tensor.size_bytes()) + kGuardBytes);
  };
  for (const TensorSpec& operand : problem_.operands) set.operands.push_back(take(operand));
  for (size_t i = 0; i < problem_.results.size(); ++i) {
    const int alias = problem_.results[i].present ? AliasOf(i) : -1;
    set.results.push_back(alias >= 0 ? set.operands[static_cast<size_t>(alias)]
                                     : take(problem_.results[i]));
  }
  return set;
}

Status TuneBench::Upload(const Set& set) {
  KB_RETURN_IF_ERROR(device_.Fill(set.arena, kGuard, SetBytes()));
  KB_RETURN_IF_ERROR(device_.Finish());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (set.operands[i] == nullptr) continue;
    KB_RETURN_IF_ERROR(
        device_.Upload(set.operands[i], inputs_[i].data(), problem_.operands[i].size_bytes()));
  }
  return Status();
}

Status TuneBench::Restore(const Set& set) {
  for (size_t i = 0; i < problem_.results.size(); ++i) {
    const int alias = AliasOf(i);
    if (alias < 0 || set.results[i] == nullptr) continue;
    KB_RETURN_IF_ERROR(device_.Copy(set.results[i], pristine_.operands[static_cast<size_t>(alias)],
                                    problem_.results[i].size_bytes()));
  }
  return Status();
}

Status TuneBench::Poison(const Set& set) {
  for (size_t i = 0; i < problem_.results.size(); ++i) {
    if (set.results[i] == nullptr || AliasOf(i) >= 0) continue;
    KB_RETURN_IF_ERROR(device_.Fill(set.results[i], kPoison, problem_.results[i].size_bytes()));
  }
  return Restore(set);
}

Result<TuneBench::Candidate*> TuneBench::Prepare(const std::string& variant) {
  const auto found = candidates_.find(variant);
  if (found != candidates_.end()) return &found->second;
  Policy::Global().Clear();
  KB_RETURN_IF_ERROR(Policy::Global().Force(*bundle_, variant));
  Candidate candidate;
  KB_ASSIGN_OR_RETURN(candidate.plan,
                      Runtime::Global().MakePlan(bundle_, problem_, device_.kind()));
  const std::string made = bundle_->VariantId(candidate.plan->variants()[0]);
  if (made != variant) return FailedPrecondition("forced, yet " + made + " was planned");
  const int64_t bytes = Padded(candidate.plan->workspace_bytes());
  if (candidate.plan->workspace_bytes() > 0) {
    KB_ASSIGN_OR_RETURN(candidate.arena, device_.Allocate(bytes + 2 * kGuardBytes));
    candidate.workspace = Bytes(candidate.arena) + kGuardBytes;
    KB_RETURN_IF_ERROR(device_.Fill(candidate.arena, kGuard, bytes + 2 * kGuardBytes));
    KB_RETURN_IF_ERROR(
        device_.Fill(candidate.workspace, kPoison, candidate.plan->workspace_bytes()));
  }
  return &candidates_.emplace(variant, std::move(candidate)).first->second;
}

Status TuneBench::LaunchOnce(const Candidate& candidate, const Set& set) {
  return candidate.plan->Launch(device_.stream(), set.Args(candidate.workspace));
}

std::string TuneBench::Name(bool operand, size_t i) const {
  const fb::Op& op = OpOf(*bundle_, problem_.op);
  return (operand ? op.operands() : op.results())->Get(static_cast<uint32_t>(i))->name()->str();
}

Status TuneBench::CheckGuard(const void* begin, const std::string& what) {
  bool whole = true;
  KB_RETURN_IF_ERROR(
      device_.Read(begin, kGuardBytes, kGuardBytes, [&](const char* part, int64_t, int64_t bytes) {
        for (int64_t i = 0; i < bytes; ++i) whole &= static_cast<uint8_t>(part[i]) == kGuard;
      }));
  if (whole) return Status();
  return OutOfRange(fmt::format("wrote outside: {} is changed", what));
}

Status TuneBench::CheckGuards(const Set& set, const Candidate& candidate) {
  const auto around = [&](const void* tensor, int64_t bytes, const std::string& name) -> Status {
    const char* begin = static_cast<const char*>(tensor);
    KB_RETURN_IF_ERROR(CheckGuard(begin - kGuardBytes, "memory before " + name));
    return CheckGuard(begin + bytes, "memory after " + name);
  };
  for (size_t i = 0; i < problem_.operands.size(); ++i) {
    if (set.operands[i] == nullptr) continue;
    KB_RETURN_IF_ERROR(around(set.operands[i], problem_.operands[i].size_bytes(), Name(true, i)));
  }
  for (size_t i = 0; i < problem_.results.size(); ++i) {
    if (set.results[i] == nullptr || AliasOf(i) >= 0) continue;
    KB_RETURN_IF_ERROR(around(set.results[i], problem_.results[i].size_bytes(), Name(false, i)));
  }
  if (candidate.workspace == nullptr) return Status();
  return around(candidate.workspace, candidate.plan->workspace_bytes(), "the workspace");
}

Status TuneBench::CheckOperands(const Set& set) {
  for (size_t i = 0; i < problem_.operands.size(); ++i) {
    const bool written =
        std::find(set.results.begin(), set.results.end(), set.operands[i]) != set.results.end();
    if (set.operands[i] == nullptr || written) continue;
    bool same = true;
    KB_RETURN_IF_ERROR(device_.Read(set.operands[i], problem_.operands[i].size_bytes(), 1,
                                    [&](const char* part, int64_t at, int64_t bytes) {
                                      same &= std::memcmp(part, inputs_[i].data() + at,
                                                          static_cast<size_t>(bytes)) == 0;
                                    }));
    if (!same) {
      return OutOfRange(fmt::format("wrote outside: operand {} is changed", Name(true, i)));
    }
  }
  return Status();
}

Allowed TuneBench::AllowedOf(size_t result) const {
  const auto* tolerances = OpOf(*bundle_, problem_.op).tolerances();
  const auto dtype = static_cast<uint8_t>(problem_.results[result].dtype);
  for (uint32_t i = 0; tolerances && i < tolerances->size(); ++i) {
    const fb::Tolerance& tolerance = *tolerances->Get(i);
    if (tolerance.result() == result && (tolerance.dtype() == 0 || tolerance.dtype() == dtype)) {
      return {tolerance.ulps(), tolerance.relative()};
    }
  }
  return {1, 0};
}

Result<double> TuneBench::CheckResults(const Set& set) {
  double worst = 0;
  for (size_t i = 0; i < problem_.results.size(); ++i) {
    const TensorSpec& result = problem_.results[i];
    if (set.results[i] == nullptr || result.elements() == 0) continue;
    const int64_t item = SizeOf(result.dtype);
    const int64_t row = result.dims.empty() ? 1 : result.dims.back();
    const int64_t wanted_item = IsFloat(result.dtype) ? 8 : item;
    Judgement judgement;
    KB_RETURN_IF_ERROR(device_.Read(set.results[i], result.size_bytes(), row * item,
                                    [&](const char* part, int64_t at, int64_t bytes) {
                                      const int64_t first = at / item;
                                      const Judgement found = Judge(
                                          result.dtype, part,
                                          expected_[i].data() + first * wanted_item, bytes / item,
                                          row, AllowedOf(i), device_.threads(), first);
                                      if (found.worst > judgement.worst) judgement = found;
                                    }));
    if (!judgement.right()) {
      return InvalidArgument(fmt::format("{}: {}", Name(false, i), judgement.ToString()));
    }
    worst = std::max(worst, judgement.worst);
  }
  return worst;
}

namespace {
// A library may refuse a problem that the variant's conditions let through.
const char* KindOfRefusal(const Status& status) {
  return status.code() == StatusCode::kFailedPrecondition ? "refused" : "load";
}
}  // namespace

Failure TuneBench::FailureOf(const Status& status, const char* kind) const {
  const bool lost = device_.Lost(status);
  return {lost ? "fault" : kind, status.message(), lost};
}

Result<TuneBench::Checked> TuneBench::Check(const std::string& variant, Failure* failure) {
  const auto fail = [&](Status status, const char* kind) {
    *failure = FailureOf(status, kind);
    return status;
  };
  auto candidate = Prepare(variant);
  if (!candidate.ok()) return fail(candidate.status(), KindOfRefusal(candidate.status()));
  const Set& set = sets_[0];
  Status status = Poison(set);
  if (status.ok()) status = LaunchOnce(**candidate, set);
  if (status.ok()) status = device_.Finish();
  if (!status.ok()) return fail(std::move(status), "launch");
  status = CheckGuards(set, **candidate);
  if (status.ok()) status = CheckOperands(set);
  if (!status.ok()) {
    *failure = FailureOf(status, "outside");
    failure->lost = true;  // whatever else it wrote over is not known
    return status;
  }
  const auto worst = CheckResults(set);
  if (!worst.ok()) return fail(worst.status(), "wrong");
  const auto ns = Time(variant, 1, 2, failure);
  if (!ns.ok()) return ns.status();
  (*candidate)->timed.reset();
  return Checked{*worst, *std::min_element(ns->begin(), ns->end()),
                 (*candidate)->plan->workspace_bytes()};
}

int TuneBench::MaxLaunches() const {
  return in_out_ ? static_cast<int>(sets_.size()) - 1 : kMaxSets;
}

Result<std::vector<double>> TuneBench::Time(const std::string& variant, int launches, int samples,
                                            Failure* failure) {
  const auto fail = [&](Status status, const char* kind) {
    *failure = FailureOf(status, kind);
    return status;
  };
  auto prepared = Prepare(variant);
  if (!prepared.ok()) return fail(prepared.status(), KindOfRefusal(prepared.status()));
  Candidate& candidate = **prepared;
  launches = std::clamp(launches, 1, MaxLaunches());
  const bool fresh = candidate.timed == nullptr || candidate.launches != launches;
  if (fresh) {
    auto timed = device_.Prepare(launches, [this, &candidate](int i) {
      return LaunchOnce(candidate, sets_[static_cast<size_t>(i) % sets_.size()]);
    });
    if (!timed.ok()) return fail(timed.status(), "launch");
    candidate.timed = std::move(*timed);
    candidate.launches = launches;
  }
  std::vector<double> ns;
  for (int i = fresh ? -1 : 0; i < samples; ++i) {  // the first run of all is a warm-up
    for (size_t set = 0; in_out_ && set < sets_.size(); ++set) {
      Status status = Restore(sets_[set]);
      if (!status.ok()) return fail(std::move(status), "launch");
    }
    if (flush_ != nullptr) {
      Status status = device_.Fill(flush_, 0, 2 * device_.cache_bytes());
      if (!status.ok()) return fail(std::move(status), "launch");
    }
    const auto total = candidate.timed->Run();
    if (!total.ok()) return fail(total.status(), "launch");
    if (i >= 0) ns.push_back(*total / launches);
  }
  return ns;
}

}  // namespace kbundle::builder
