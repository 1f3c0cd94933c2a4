// Reading against the bundle gives each problem its key, by which the same problem in other words
// is seen to be the same; sorted by it, they are listed in an order that is not the file's.
#include "builder/problem/add.h"

#include <map>
#include <set>
#include <utility>

#include "builder/problem/file.h"
#include "builder/problem/listed.h"
#include "kbundle/bundle_generated.h"
#include "loader/open/index.h"

namespace kbundle::builder {
namespace {

ProblemAttribute ValueOf(AttributeType type, int number, const Problem::Attribute& value) {
  ProblemAttribute stored;
  stored.attribute = number;
  switch (type) {
    case AttributeType::kFloat:
      stored.floats = {value.number};
      break;
    case AttributeType::kFloatArray:
      stored.floats = value.numbers;
      break;
    case AttributeType::kIntArray:
      stored.integers = value.integers;
      break;
    default:
      stored.integers = {value.integer};
  }
  return stored;
}

OpProblem Listed(const Problem& problem, const fb::Op& op) {
  OpProblem listed;
  listed.text = problem.ToString();
  for (const TensorSpec& operand : problem.operands) {
    if (operand.present) {
      listed.operands.push_back({true, operand.dtype, operand.dims});
    } else {
      listed.operands.emplace_back();
    }
  }
  for (size_t i = 0; i < problem.attributes.size(); ++i) {
    const auto type =
        static_cast<AttributeType>(op.attributes()->Get(static_cast<uint32_t>(i))->type());
    listed.attributes.push_back(ValueOf(type, static_cast<int>(i), problem.attributes[i]));
  }
  return listed;
}

}  // namespace

Result<int> AddProblems(const std::string& path, const Bundle& bundle,
                        std::vector<Family>* families) {
  int passed_over = 0;
  KB_ASSIGN_OR_RETURN(const std::vector<Problem> problems,
                      ReadProblemFile(path, bundle, &passed_over));
  std::map<std::pair<std::string, std::string>, const Problem*> sorted;
  for (const Problem& problem : problems) sorted[{problem.op_name, problem.key}] = &problem;
  for (Family& family : *families) {
    for (Op& op : family.ops) {
      const Result<uint32_t> number = bundle.FindOp(op.name);
      if (!number.ok()) continue;  // no variant of it is built
      std::set<std::string> known;
      KB_ASSIGN_OR_RETURN(const std::vector<Problem> listed, ListedProblems(bundle, *number));
      for (const Problem& problem : listed) known.insert(problem.key);
      for (const auto& [key, problem] : sorted) {
        if (key.first != op.name || !known.insert(key.second).second) continue;
        op.problems.push_back(Listed(*problem, OpOf(bundle, *number)));
      }
    }
  }
  return passed_over;
}

}  // namespace kbundle::builder
