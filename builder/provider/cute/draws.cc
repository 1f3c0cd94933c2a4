// Each of several drawers has a lock of its own, so that threads that want the same problems divide
// the drawers among themselves; which problems these give does not depend on who ran them.
#include "builder/provider/cute/draws.h"

#include <fmt/format.h>

#include <utility>

#include "kbundle/dtype.h"
#include "kbundle/key.h"

namespace kbundle::builder {
namespace {

// Steps of a point follow one another; a build with more jobs draws some problems twice.
constexpr size_t kKept = 16;

// All that decides which problems are legal, besides the op's interface.
std::string ConditionsOf(const CuteSubject& subject, const Step& step) {
  std::string text = step.when ? step.when->text : "";
  for (const auto* rules : {&subject.op->require, &subject.variant.when}) {
    for (const Program& rule : *rules) text += '\n' + rule.text;
  }
  for (const NamedProgram& let : subject.variant.lets) {
    if (!let.name.empty()) text += fmt::format("\n{} = {}", let.name, let.program.text);
  }
  for (const DType type : subject.point.types) text += fmt::format("\n{}", Name(type));
  for (const int64_t tunable : subject.point.tunables) text += fmt::format("\n{}", tunable);
  return text;
}

// A step that is not taken launches nothing.
Template TakenOf(const Template& variant, const Step& step) {
  Template taken = variant;
  if (step.when) taken.when.push_back(*step.when);
  return taken;
}

}  // namespace

class CuteDraws::Shared {
 public:
  Shared(const CuteSubject& subject, const Step& step, std::string conditions)
      : op_(subject.op),
        point_(subject.point),
        taken_(TakenOf(subject.variant, step)),
        conditions_(std::move(conditions)) {
    const uint64_t seed = Xxh3(conditions_.data(), conditions_.size());
    for (uint64_t i = 0; i < kDrawers; ++i) parts_.emplace_back(*op_, taken_, point_, seed + i);
  }

  bool IsFor(const CuteSubject& subject, const std::string& conditions) const {
    return op_ == subject.op && conditions_ == conditions;
  }

  Result<std::vector<DrawnProblem>> First(int count) {
    const size_t each = (static_cast<size_t>(count) + kDrawers - 1) / kDrawers;
    for (Part& part : parts_) {  // those that nobody works at, then the others
      const std::unique_lock lock(part.mutex, std::try_to_lock);
      if (lock.owns_lock()) KB_RETURN_IF_ERROR(part.Draw(each));
    }
    std::vector<DrawnProblem> drawn(each * kDrawers);
    for (size_t i = 0; i < kDrawers; ++i) {
      const std::lock_guard lock(parts_[i].mutex);
      KB_RETURN_IF_ERROR(parts_[i].Draw(each));
      for (size_t j = 0; j < each; ++j) drawn[j * kDrawers + i] = parts_[i].drawn[j];
    }
    drawn.resize(static_cast<size_t>(count));
    return drawn;
  }

 private:
  struct Part {
    Part(const Op& op, const Template& variant, const Template::Point& point, uint64_t seed)
        : drawer(op, variant, point, seed) {}
    Status Draw(size_t count) {
      while (drawn.size() < count) {
        KB_ASSIGN_OR_RETURN(DrawnProblem one, drawer.Next());
        drawn.push_back(std::move(one));
      }
      return Status();
    }

    std::mutex mutex;
    ProblemDrawer drawer;
    std::vector<DrawnProblem> drawn;
  };

  const Op* const op_;
  const Template::Point point_;
  const Template taken_;
  const std::string conditions_;
  std::deque<Part> parts_;  // which stay where they are
};

std::shared_ptr<CuteDraws::Shared> CuteDraws::SharedFor(const CuteSubject& subject,
                                                        const Step& step) {
  std::string conditions = ConditionsOf(subject, step);
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Shared>& one : lately_) {
    if (one->IsFor(subject, conditions)) return one;
  }
  lately_.push_back(std::make_shared<Shared>(subject, step, std::move(conditions)));
  if (lately_.size() > kKept) lately_.pop_front();
  return lately_.back();
}

Result<std::vector<DrawnProblem>> CuteDraws::First(const CuteSubject& subject, const Step& step,
                                                   int count) {
  return SharedFor(subject, step)->First(count);
}

}  // namespace kbundle::builder
