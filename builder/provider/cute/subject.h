// The op, variant and point that a unit is planned for, as its step sees them.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_SUBJECT_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_SUBJECT_H_

#include <string>
#include <utility>
#include <vector>

#include "builder/compile/work.h"

namespace kbundle::builder {

// Of a step that shares (share.h) the variant has `when` as far as it relies on it, lets that it
// takes are numbers, lets and regions that it does not need have no name, and the point has 0 for
// tunables that it does not take.
struct CuteSubject {
  const Op* op = nullptr;
  Template variant;  // without points
  Template::Point point;
  std::vector<std::pair<std::string, int64_t>> taken;  // what the function gets by name
};
CuteSubject SubjectAt(const Op& op, const Template& variant, const Template::Point& point,
                      const Step& step);
CuteSubject SubjectOf(const Unit& unit);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_SUBJECT_H_
