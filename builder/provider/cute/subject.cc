// A unit names its step: whose it is has to be found. The point is in its request.
#include "builder/provider/cute/subject.h"

#include <nlohmann/json.hpp>

namespace kbundle::builder {

CuteSubject SubjectOf(const Unit& unit) {
  CuteSubject subject;
  for (const Op& op : unit.family->ops) {
    for (const Template& variant : op.templates) {
      for (const Step& step : variant.steps) {
        if (&step == unit.step) subject = {&op, &variant, {}};
      }
    }
  }
  KB_CHECK(subject.op != nullptr);
  const nlohmann::json request = nlohmann::json::parse(unit.extra_options);
  for (const nlohmann::json& type : request["types"]) {
    subject.point.types.push_back(static_cast<DType>(type.get<int>()));
  }
  subject.point.tunables = request["values"].get<std::vector<int64_t>>();
  return subject;
}

}  // namespace kbundle::builder
