// A unit names its step: whose it is has to be found. The point is in its request.
#include "builder/provider/cute/subject.h"

#include <nlohmann/json.hpp>

#include "builder/expression/compile.h"
#include "builder/provider/cute/kernel.h"
#include "builder/provider/cute/share.h"

namespace kbundle::builder {
namespace {

using Taken = std::vector<std::pair<std::string, int64_t>>;

// Their places stay, since code refers to them by number.
void LeaveOut(const CuteNeeds& needs, Template* variant) {
  for (size_t i = 0; i < needs.lets.size(); ++i) {
    if (!needs.lets[i]) variant->lets[i] = {"", {"0", {}, ConstantCode(0)}};
  }
  for (size_t i = 0; i < needs.regions.size(); ++i) {
    if (!needs.regions[i]) variant->regions[i].name.clear();
  }
}

CuteSubject Subject(const Op& op, const Template& variant, const Step& step,
                    std::vector<DType> types, Taken taken) {
  const CuteKernel& kernel = CuteKernelOf(step);
  CuteSubject subject{&op, variant, {}, std::move(taken)};
  Template& seen = subject.variant;
  seen.points.clear();
  subject.point.types = std::move(types);
  subject.point.tunables.assign(variant.tunables.size(), 0);
  for (size_t i = 0; i < variant.tunables.size(); ++i) {
    for (const auto& [name, value] : subject.taken) {
      if (name == variant.tunables[i]) subject.point.tunables[i] = value;
    }
  }
  if (!kernel.shares) return subject;
  seen.when = kernel.relies_on;
  LeaveOut(NeedsOf(variant, step, kernel), &seen);
  for (NamedProgram& let : seen.lets) {
    for (const auto& [name, value] : subject.taken) {
      if (name == let.name) let.program = {std::to_string(value), {}, ConstantCode(value)};
    }
  }
  return subject;
}

}  // namespace

CuteSubject SubjectAt(const Op& op, const Template& variant, const Template::Point& point,
                      const Step& step) {
  const std::vector<int64_t> lets = FixedLets(variant, point);
  Taken taken;
  for (const std::string& name : CuteKernelOf(step).takes) {
    for (size_t i = 0; i < variant.tunables.size(); ++i) {
      if (name == variant.tunables[i]) taken.emplace_back(name, point.tunables[i]);
    }
    for (size_t i = 0; i < variant.lets.size(); ++i) {
      if (name == variant.lets[i].name) taken.emplace_back(name, lets[i]);
    }
  }
  return Subject(op, variant, step, point.types, std::move(taken));
}

CuteSubject SubjectOf(const Unit& unit) {
  const Op* op = nullptr;
  const Template* variant = nullptr;
  for (const Op& one : unit.family->ops) {
    for (const Template& each : one.templates) {
      for (const Step& step : each.steps) {
        if (&step == unit.step) op = &one, variant = &each;
      }
    }
  }
  KB_CHECK(op != nullptr);
  const nlohmann::json request = nlohmann::json::parse(unit.extra_options);
  std::vector<DType> types;
  for (const nlohmann::json& type : request["types"]) {
    types.push_back(static_cast<DType>(type.get<int>()));
  }
  const auto values = request["values"].get<std::vector<int64_t>>();
  const std::vector<std::string>& takes = CuteKernelOf(*unit.step).takes;
  KB_CHECK(values.size() == takes.size());
  Taken taken;
  for (size_t i = 0; i < takes.size(); ++i) taken.emplace_back(takes[i], values[i]);
  return Subject(*op, *variant, *unit.step, std::move(types), std::move(taken));
}

}  // namespace kbundle::builder
