// The problems that a point of a variant takes, drawn once for all of its steps.
//
// Drawing takes as long as compiling a short kernel, and what is legal differs from step to step
// only where one has a `when` of its own.
#ifndef KBUNDLE_BUILDER_PROVIDER_CUTE_DRAWS_H_
#define KBUNDLE_BUILDER_PROVIDER_CUTE_DRAWS_H_

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "builder/problem/draw.h"
#include "builder/provider/cute/subject.h"

namespace kbundle::builder {

// Safe from any thread: who asks for what others are drawing helps them.
class CuteDraws {
 public:
  // Drawn by so many, by turns: what one comes to is alike, and a corner that it misses is missed
  // by what is inferred and by what is proved.
  static constexpr int kDrawers = 8;

  // The first `count` problems for which `step` is taken: of the same conditions the same,
  // anywhere. kInvalidArgument: there is none. Ops and variants must outlive this.
  Result<std::vector<DrawnProblem>> First(const CuteSubject& subject, const Step& step, int count);

 private:
  class Shared;
  std::shared_ptr<Shared> SharedFor(const CuteSubject& subject, const Step& step);

  std::mutex mutex_;
  std::deque<std::shared_ptr<Shared>> lately_;
};

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_PROVIDER_CUTE_DRAWS_H_
