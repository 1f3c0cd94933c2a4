// What turns units of one kind into objects: a compiler, a planner, or a decoder. A provider adds
// its own to a build (Provider::AddCompilers), which asks only those that its units name.
#ifndef KBUNDLE_BUILDER_COMPILE_COMPILER_H_
#define KBUNDLE_BUILDER_COMPILE_COMPILER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "builder/compile/parameter_types.h"
#include "builder/compile/work.h"
#include "builder/source/tree.h"
#include "builder/store/object.h"
#include "builder/tools/toolchain.h"

namespace kbundle::builder {

struct CompileContext;

// Of one build. Find is called once, before everything else; then every method is safe from any
// thread.
class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual std::string_view name() const = 0;  // Unit::compiler
  virtual uint8_t number() const = 0;         // in keys of the store; no two have one

  // What its sources are decides how their includes are followed.
  enum class Sources { kCuda, kHostCpp, kPython };
  virtual Sources sources() const = 0;

  // Looks for everything that these units need. kUnavailable names what is missing and how to get
  // it. python: --python.
  virtual Status Find(const std::vector<const Unit*>& units, const std::string& python,
                      Toolchain* tools) = 0;
  // What decides the object besides its sources: options without paths, and the identity of all
  // that runs.
  virtual std::vector<std::string> Options(const Unit& unit) const = 0;
  virtual Result<Sha256Digest> Identity(const Unit& unit, const Toolchain& tools,
                                        ToolDigests* digests) const = 0;
  // The files of an imported module outside the source's folder that Identity does not cover.
  virtual std::vector<std::string> ModuleFiles(const std::string& /*module*/) const { return {}; }

  // kInvalidArgument: the source is wrong; the message is the compiler's log. kDeadlineExceeded,
  // kUnavailable, kInternal: it hung, vanished, crashed. key: of the unit.
  virtual Result<Object> Compile(const Unit& unit, const std::shared_ptr<const SourceTree>& tree,
                                 const std::string& key, const CompileContext& context) const = 0;
  // The C types of its kernels' parameters, where the object's symbols do not hold them.
  virtual bool TellsTypes() const { return false; }
  virtual Result<ParameterTypes> ReadTypes(const Unit& /*unit*/, const SourceTree& /*tree*/,
                                           const CompileContext& /*context*/) const {
    return ParameterTypes();
  }
  // Words of a shell command that shows the same error; empty where only kbundle itself can.
  virtual std::vector<std::string> Command(const Unit& /*unit*/, const Toolchain& /*tools*/) const {
    return {};
  }
  // Environment variables by which it is found or works: "KBUNDLE_CXX".
  virtual std::vector<std::string> Variables() const { return {}; }
  // Its version and digest for the bundle's provenance, "nvcc" and "13.0 sha256:..".
  virtual Result<std::optional<std::pair<std::string, std::string>>> Provenance(
      const Toolchain& /*tools*/, ToolDigests* /*digests*/) const {
    return std::optional<std::pair<std::string, std::string>>();
  }
};

// "13.0 sha256:0123456789abcdef"
Result<std::string> VersionAndDigest(const std::string& version,
                                     const std::vector<std::string>& files, ToolDigests* digests);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_COMPILE_COMPILER_H_
