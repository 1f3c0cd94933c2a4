// The child is several modules and a C source, put together as one program: they are made by name
// before the last of them runs.
#include "builder/provider/cute/python.h"

#include <cute_child.h>
#include <cute_elf.h>
#include <cute_infer.h>
#include <cute_record.h>
#include <cute_recorder.h>
#include <cute_rewrites.h>
#include <cute_template.h>

#include <nlohmann/json.hpp>

namespace kbundle::builder {
namespace {

constexpr char kMakeModules[] = R"(
import sys, types
for name, text, known in MODULES:
    module = types.ModuleType(name)
    module.__dict__.update(known)
    sys.modules[name] = module
    exec(compile(text, name + ".py", "exec"), module.__dict__)
)";

// A text of JSON in ASCII is one of Python.
const std::string& Script() {
  using Json = nlohmann::json;
  static const std::string script = [] {
    const Json none = Json::object();
    const Json modules = {{"elf", kCuteElfScript, none},
                          {"recorder", kCuteRecorderScript, {{"RECORD_C", kCuteRecordSource}}},
                          {"infer", kCuteInferScript, none},
                          {"rewrites", kCuteRewritesScript, none},
                          {"template", kCuteTemplateScript, none}};
    return "MODULES = " + modules.dump(-1, ' ', /*ensure_ascii=*/true) + kMakeModules +
           kCuteChildScript;
  }();
  return script;
}

}  // namespace

PythonPackage CutePackage() { return {"cute", "nvidia-cutlass-dsl", "4.8.1", Script()}; }

PythonProgram CuteProgram(const std::string& python, const std::string& target) {
  return {"CuTe DSL",
          python,
          Script(),
          {"CUTE_DSL_ARCH=" + target, "CUTE_DSL_NO_CACHE=1", "CUTE_DSL_DUMP_DIR={home}",
           "CUDA_VISIBLE_DEVICES=", "PYTHONHASHSEED=0"}};
}

}  // namespace kbundle::builder
