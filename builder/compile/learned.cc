// Templates are shared by points, launches are learned by unit: so points are grouped by the texts
// of what was learned, the first of a group makes its template, and the others are pointed at it.
// The caller's work and ops stay as they were; those that change are copied and owned by the
// result.
#include "builder/compile/learned.h"

#include <fmt/format.h>

#include <algorithm>

#include "builder/provider/provider.h"

namespace kbundle::builder {
namespace {

bool Learns(const Template& variant) { return variant.provider->LearnsLaunches(); }

class Learner {
 public:
  Learner(const std::vector<Object>& objects, LearnedWork* learned)
      : objects_(objects), learned_(*learned) {}

  Status Run() {
    Work& work = learned_.work;
    for (uint32_t op = 0; op < work.ops.size(); ++op) {
      const std::vector<Template>& templates = work.ops[op].op->templates;
      if (std::any_of(templates.begin(), templates.end(), Learns)) KB_RETURN_IF_ERROR(Renew(op));
    }
    return Status();
  }

 private:
  // The op anew, each variant that learns split by what its points launch.
  Status Renew(uint32_t number) {
    const Op& before = *learned_.work.ops[number].op;
    auto op = std::make_unique<Op>(before);
    op->templates.clear();
    std::vector<std::vector<VariantUse*>> uses(before.templates.size());
    for (VariantUse& use : learned_.work.variants) {
      if (use.op == number) uses[use.template_index].push_back(&use);
    }
    for (size_t i = 0; i < before.templates.size(); ++i) {
      if (Learns(before.templates[i]) && !uses[i].empty()) {
        KB_RETURN_IF_ERROR(Split(before, before.templates[i], uses[i], op.get()));
        continue;
      }
      for (VariantUse* use : uses[i]) {
        use->template_index = static_cast<uint32_t>(op->templates.size());
      }
      op->templates.push_back(before.templates[i]);
    }
    learned_.work.ops[number].op = op.get();
    learned_.ops.push_back(std::move(op));
    return Status();
  }

  // What the points of one new template have in common.
  struct Group {
    std::vector<std::string> learned;  // by step of the variant
    std::vector<std::vector<Step>> steps;
    uint32_t index = 0;
  };

  Status Split(const Op& op, const Template& variant, const std::vector<VariantUse*>& uses,
               Op* renewed) {
    std::vector<Group> groups;
    for (VariantUse* use : uses) {
      const std::vector<std::string> learned = LearnedBy(variant, *use);
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const Group& one) { return one.learned == learned; });
      if (group == groups.end()) {
        groups.emplace_back();
        group = groups.end() - 1;
        group->learned = learned;
        KB_RETURN_IF_ERROR(AddTemplate(op, variant, &*group, renewed));
      }
      Place(*group, use);
    }
    return Status();
  }

  std::vector<std::string> LearnedBy(const Template& variant, const VariantUse& use) {
    std::vector<std::string> learned;
    for (const uint32_t unit : use.units) {
      learned.push_back(unit == kNoUnit ? "" : objects_[unit].learned);
      if (!learned.back().empty()) {
        variant.provider->AddLearnedProvenance(learned.back(), &learned_.provenance);
      }
    }
    return learned;
  }

  static Status AddTemplate(const Op& op, const Template& variant, Group* group, Op* renewed) {
    Template made = variant;
    made.steps.clear();
    for (size_t i = 0; i < variant.steps.size(); ++i) {
      const Step& step = variant.steps[i];
      std::vector<Step> steps = {step};
      if (!group->learned[i].empty()) {
        KB_ASSIGN_OR_RETURN(steps,
                            variant.provider->LearnedSteps(op, variant, step, group->learned[i]));
      }
      made.steps.insert(made.steps.end(), steps.begin(), steps.end());
      group->steps.push_back(std::move(steps));
    }
    if (made.steps.size() > kMaxSteps) {
      return InvalidArgument(fmt::format("{}/{} enqueues {} steps, allowed are {}", op.name,
                                         variant.name, made.steps.size(), kMaxSteps));
    }
    group->index = static_cast<uint32_t>(renewed->templates.size());
    renewed->templates.push_back(std::move(made));
    return Status();
  }

  static void Place(const Group& group, VariantUse* use) {
    std::vector<uint32_t> units;
    std::vector<std::string> kernels;
    for (size_t i = 0; i < group.steps.size(); ++i) {
      for (const Step& step : group.steps[i]) {
        units.push_back(use->units[i]);
        kernels.push_back(use->units[i] == kNoUnit ? "" : step.kernel);
      }
    }
    use->template_index = group.index;
    use->units = std::move(units);
    use->kernels = std::move(kernels);
  }

  const std::vector<Object>& objects_;
  LearnedWork& learned_;
};

}  // namespace

Result<LearnedWork> WithLearnedSteps(const Work& work, const std::vector<Object>& objects) {
  LearnedWork learned;
  learned.work = work;
  KB_RETURN_IF_ERROR(Learner(objects, &learned).Run());
  return learned;
}

}  // namespace kbundle::builder
