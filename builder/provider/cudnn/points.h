// The points of variants that are made for single problems (provider cudnn): one for each listed
// problem that the variant takes, and for each version of the library.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUDNN_POINTS_H_
#define KBUNDLE_BUILDER_PROVIDER_CUDNN_POINTS_H_

#include "builder/model/family.h"

namespace kbundle::builder {

// Makes them anew from the op's problems.
void SetPlanPoints(const Op& op, Template* variant);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUDNN_POINTS_H_
