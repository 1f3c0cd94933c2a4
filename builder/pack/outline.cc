#include "builder/pack/outline.h"

#include <string>
#include <vector>

#include "builder/pack/pack.h"
#include "builder/support/files.h"
#include "kbundle/sha256.h"

namespace kbundle::builder {
namespace {

// An object that says which kernels a unit would hold, and holds none.
Object OutlineOf(const Unit& unit) {
  Object object;
  object.format = unit.format;
  // Equal bytes would be one blob, which has one format.
  object.code = "outline of format " + std::to_string(static_cast<int>(object.format));
  object.sha256 = Sha256Of(object.code.data(), object.code.size());
  for (const std::string& kernel : unit.kernels) {
    KernelInfo info;
    info.kernel = info.symbol = kernel;
    if (unit.block_by_compiler) info.threads = 32;  // the index wants some
    object.kernels.push_back(std::move(info));
  }
  return object;
}

}  // namespace

std::vector<Object> OutlineObjects(const Work& work) {
  std::vector<Object> objects;
  for (const Unit& unit : work.units) objects.push_back(OutlineOf(unit));
  return objects;
}

Result<std::shared_ptr<const Bundle>> OutlineBundle(const Work& work, const ObjectStore& store,
                                                    const std::string& name,
                                                    const std::string& path) {
  const std::vector<Object> objects = OutlineObjects(work);
  PackInput input;
  input.name = name;
  input.work = &work;
  input.objects = &objects;
  input.store = &store;
  KB_ASSIGN_OR_RETURN(const std::string bytes, Pack(input));
  KB_RETURN_IF_ERROR(PublishFile(path, bytes, Durability::kCrashOnly));
  return Bundle::Open(path);
}

}  // namespace kbundle::builder
