// The op, variant and point that a unit was planned for.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_SUBJECT_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_SUBJECT_H_

#include "builder/compile/work.h"

namespace kbundle::builder {

struct CuteSubject {
  const Op* op = nullptr;
  const Template* variant = nullptr;
  Template::Point point;
};
CuteSubject SubjectOf(const Unit& unit);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_SUBJECT_H_
