// Which part answers. Parts are asked in the order of the best target that each has for the device;
// a problem that the best has nothing for goes on to the next, as it would from target to target
// within one bundle.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "kbundle/parts.h"
#include "loader/open/index.h"
#include "loader/select/candidates.h"
#include "loader/support/absent.h"

namespace kbundle {
namespace {

Device::Kind KindOf(TargetKind target) {
  return target == TargetKind::kHost ? Device::Kind::kHost : Device::Kind::kCuda;
}

// Whether another part may do better than this answer.
bool GoesOn(const Status& answer, Modes modes) {
  switch (answer.code()) {
    case StatusCode::kNotFound:
      return true;
    case StatusCode::kInvalidArgument:  // the request is the same everywhere
    case StatusCode::kDataLoss:         // others would only hide it
    case StatusCode::kInternal:
      return false;
    default:
      return !modes.batch_invariant;
  }
}

// Whether a wish means one of its variants of this problem.
bool HasForced(const Bundle& bundle, const Problem& problem, const Device& device,
               const SelectOptions& options) {
  return !CandidateCheck(bundle, problem, device, options).forced().empty();
}

// "x86-64-v2, sm_90a (leafy.kb)".
std::string TargetsInWords(const Bundle& bundle) {
  std::string names;
  const auto* targets = IndexOf(bundle).targets();
  for (uint32_t i = 0; i < Count(targets); ++i) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", View(targets->Get(i)->name()));
  }
  return fmt::format("{} ({})", names, bundle.path());
}

}  // namespace

std::vector<size_t> Parts::Order(const Problem& problem, const Device& device,
                                 const SelectOptions& options) const {
  std::vector<std::tuple<int, int, size_t>> ranked;  // smallest first
  for (size_t part = 0; part < bundles_.size(); ++part) {
    const std::vector<RankedTarget> targets = RankTargets(IndexOf(*bundles_[part]), device);
    if (targets.empty()) continue;
    ranked.emplace_back(-targets.front().fit, -targets.front().capability, part);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<size_t> order;
  for (const auto& [fit, capability, part] : ranked) order.push_back(part);
  if (options.policy.wishes.empty()) return order;
  // Where one is forced nothing else will do, and what cannot run it says so.
  std::vector<size_t> forced;
  for (size_t part = 0; part < bundles_.size(); ++part) {
    const Result<Problem> of_part = ProblemIn(part, problem);
    if (of_part.ok() && HasForced(*bundles_[part], *of_part, device, options))
      forced.push_back(part);
  }
  const auto rank = [&](size_t part) {
    return std::find(order.begin(), order.end(), part) - order.begin();
  };
  std::stable_sort(forced.begin(), forced.end(),
                   [&](size_t a, size_t b) { return rank(a) < rank(b); });
  return forced.empty() ? order : forced;
}

std::vector<AbsentPart> Parts::Missed(const Device& device) const {
  // Fit, capability; where nothing here runs, any that does.
  std::pair<int, int> best = {0, std::numeric_limits<int>::max()};
  for (const BundlePtr& bundle : bundles_) {
    const std::vector<RankedTarget> targets = RankTargets(IndexOf(*bundle), device);
    if (!targets.empty())
      best = std::max(best, std::pair(targets.front().fit, targets.front().capability));
  }
  std::vector<AbsentPart> missed;
  for (const AbsentPart& part : absent_) {
    const int capability = part.target.major * 256 + part.target.minor;
    if (std::pair(part.target.Fit(device), capability) > best) missed.push_back(part);
  }
  return missed;
}

std::string Parts::WhatThereIs(Device::Kind kind, const Device* device) const {
  std::string here, how;
  for (const BundlePtr& bundle : bundles_) {
    here += (here.empty() ? "" : ", ") + TargetsInWords(*bundle);
  }
  for (const AbsentPart& part : absent_) {
    const bool would_do =
        device != nullptr ? part.target.Fit(*device) > 0 : KindOf(part.target.kind) == kind;
    if (!would_do || how.find(part.how) != std::string::npos) continue;
    how += (how.empty() ? "" : ", or ") + part.how;
  }
  const char* build = "build it for this device too (kbundle build --target)";
  return fmt::format("; there is: {}; {}", here, how.empty() ? build : how);
}

Status Parts::Serve(const Problem& problem, const Device& device, const SelectOptions& options,
                    const Ask& ask) const {
  if (bundles_.size() == 1 && absent_.empty()) return ask(bundles_.front(), problem);
  const std::vector<size_t> order = Order(problem, device, options);
  if (order.empty()) {
    return NotFound(fmt::format("{}: no part of '{}' has code for this {}{}", problem.ToString(),
                                name(), device.ToString(), WhatThereIs(device.kind, &device)));
  }
  Status first;
  for (const size_t part : order) {
    Status answer;
    if (Result<Problem> made = ProblemIn(part, problem); made.ok())
      answer = ask(bundles_[part], *made);
    else
      answer = std::move(made).status();
    if (answer.ok() || !GoesOn(answer, options.modes)) return answer;
    if (first.ok())
      first = std::move(answer);
    else
      first = Status(first.code(), first.message() + "; then: " + answer.message());
  }
  return first;
}

Result<Served> SelectFirstLaunchable(const Parts& parts, const Problem& problem,
                                     const Device& device, const SelectOptions& options) {
  Served served;
  const auto select = [&](const Parts::BundlePtr& bundle, const Problem& of_part) -> Status {
    KB_ASSIGN_OR_RETURN(served.selected, SelectFirstLaunchable(*bundle, of_part, device, options));
    served.bundle = bundle;
    served.problem = of_part;
    return Status();
  };
  KB_RETURN_IF_ERROR(parts.Serve(problem, device, options, select));
  return served;
}

Result<int64_t> MaxWorkspaceBytes(const Parts& parts, const Problem& problem, Device::Kind kind) {
  if (parts.all().size() == 1 && parts.absent().empty())
    return MaxWorkspaceBytes(parts.first(), problem, kind);
  int64_t most = -1;
  for (size_t part = 0; part < parts.all().size(); ++part) {
    KB_ASSIGN_OR_RETURN(const Problem of_part, parts.ProblemIn(part, problem));
    const Result<int64_t> bytes = MaxWorkspaceBytes(*parts.all()[part], of_part, kind);
    if (!bytes.ok() && bytes.status().code() != StatusCode::kNotFound) return bytes;
    if (bytes.ok()) most = std::max(most, *bytes);
  }
  if (most >= 0) return most;
  return NotFound(
      fmt::format("sizing the workspace of {}: no part of '{}' has a legal variant of "
                  "it for any {} target{}",
                  problem.ToString(), parts.name(), kind == Device::Kind::kHost ? "host" : "CUDA",
                  parts.WhatThereIs(kind, nullptr)));
}

}  // namespace kbundle
