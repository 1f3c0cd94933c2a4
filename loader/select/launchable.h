// Which of Select's variants can be launched for a problem: `when` may hold, and yet an argument
// not fit its type, or an address lie outside its tensor.
#ifndef KBUNDLE_LOADER_LAUNCHABLE_H_
#define KBUNDLE_LOADER_LAUNCHABLE_H_

#include <string>
#include <vector>

#include "kbundle/select.h"

namespace kbundle {

struct NotLaunchable {
  Selected selected;
  std::string reason;
};

// Select's list in two: what resolves, in order, and what does not. What a library of the process
// would say of a variant is not known here.
struct Launchable {
  std::vector<Selected> order;
  std::vector<NotLaunchable> passed_over;
};

Result<Launchable> SelectLaunchable(const Bundle& bundle, const Problem& problem,
                                    const Device& device, const SelectOptions& options);

}  // namespace kbundle

#endif  // KBUNDLE_LOADER_LAUNCHABLE_H_
