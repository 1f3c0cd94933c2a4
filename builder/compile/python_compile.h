// One unit by a Python child: its request, its answer, and where in the manifest it points at.
#ifndef KBUNDLE_BUILDER_COMPILE_PYTHON_COMPILE_H_
#define KBUNDLE_BUILDER_COMPILE_PYTHON_COMPILE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "builder/compile/python_worker.h"
#include "builder/compile/work.h"
#include "builder/store/object.h"

namespace kbundle::builder {

// What a provider knows of the answers of its child: {"ok": true, "log": .. and the provider's own}
// with the code, or {"ok": false, "error", "note", "at": {}, "log"} where the source or the
// manifest is wrong. Both may throw what the JSON library throws.
struct PythonAnswers {
  // Where in the manifest `at` is, which is not empty.
  std::function<SourceSpan(const nlohmann::json& at)> place;
  std::function<Result<Object>(const nlohmann::json& answer, std::string code)> object;
};

// The request is unit.extra_options. kInvalidArgument: the source or the manifest is wrong.
Result<Object> CompileWithPython(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                                 std::chrono::seconds limit, const PythonAnswers& answers,
                                 PythonWorkers* workers);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_PYTHON_COMPILE_H_
