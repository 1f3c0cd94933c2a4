// One child compiles after the other in a process that has imported the compiler: child.py forks.
#include "builder/provider/cute/compile.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "builder/provider/cute/launch.h"
#include "builder/provider/cute/learn.h"
#include "builder/support/files.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;

Result<Object> ObjectOf(const Unit& unit, const Json& answer, std::string code) {
  Object object;
  object.format = ObjectFormat::kCubin;
  const Json& kernels = answer.at("kernels");
  for (size_t i = 0; i < kernels.size(); ++i) {
    KernelInfo kernel;
    kernel.kernel = CuteKernelName(unit.step->kernel, i, kernels.size());
    kernel.symbol = kernels[i].at("symbol").get<std::string>();
    kernel.registers = kernels[i].at("registers").get<uint32_t>();
    kernel.static_shared = kernels[i].at("static_shared").get<uint32_t>();
    KB_ASSIGN_OR_RETURN(kernel.param_bytes, CubinParams(code, kernel.symbol));
    object.kernels.push_back(std::move(kernel));
  }
  object.learned =
      Json{{"launches", WithoutStack(answer.at("launches"))}, {"packages", answer.at("packages")}}
          .dump();
  object.code = std::move(code);
  return object;
}

// Of the source and all that it imports from its folder.
std::string IdentityOf(const SourceTree& tree) {
  std::string identity;
  for (const SourceFile& file : tree.files) identity += file.name + " " + ToHex(file.digest) + "\n";
  return identity;
}

}  // namespace

Result<Object> CompileWithCute(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                               const CompileContext& context, PythonWorkers* workers,
                               CuteDraws* draws, const std::string& kept) {
  CuteLearner learner(unit, context, draws, {kept, IdentityOf(*tree)});
  KB_RETURN_IF_ERROR(learner.Draw());
  KB_ASSIGN_OR_RETURN(std::unique_ptr<PythonWorker> worker, workers->Take(tree));
  try {
    KB_ASSIGN_OR_RETURN(const Json answer, learner.Search(worker.get()));
    KB_ASSIGN_OR_RETURN(std::string code, ReadFile(worker->output_path()));
    workers->GiveBack(std::move(worker));
    return ObjectOf(unit, answer, std::move(code));
  } catch (const Json::exception& error) {
    return Internal(
        fmt::format("the Python child's answer lacks what it should have: {}", error.what()));
  }
}

}  // namespace kbundle::builder
