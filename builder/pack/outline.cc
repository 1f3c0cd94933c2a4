// Selection needs variants, not code, so each unit gets an object that holds a few words instead of
// code, and the usual packer and loader do the rest: what an outline says of a problem is what the
// bundle will say.
#include "builder/pack/outline.h"

#include <string>
#include <vector>

#include "builder/pack/pack.h"
#include "builder/support/files.h"
#include "kbundle/sha256.h"

namespace kbundle::builder {
namespace {

Object OutlineOf(ObjectFormat format) {
  Object object;
  object.format = format;
  // Equal bytes would be one blob, which has one format.
  object.code = "outline of format " + std::to_string(static_cast<int>(object.format));
  object.sha256 = Sha256Of(object.code.data(), object.code.size());
  return object;
}

// An object that says which kernels a unit would hold, and holds none.
Object OutlineOf(const Unit& unit) {
  Object object = OutlineOf(unit.format);
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

std::vector<Object> OutlineObjects(const std::vector<Object>& compiled) {
  std::vector<Object> objects;
  for (const Object& object : compiled) {
    objects.push_back(OutlineOf(object.format));
    objects.back().kernels = object.kernels;
  }
  return objects;
}

Result<std::shared_ptr<const Bundle>> OutlineBundle(const Work& work, const ObjectStore& store,
                                                    const std::string& name,
                                                    const std::string& path) {
  return OutlineBundle(work, OutlineObjects(work), store, name, path);
}

Result<std::shared_ptr<const Bundle>> OutlineBundle(const Work& work,
                                                    const std::vector<Object>& outlines,
                                                    const ObjectStore& store,
                                                    const std::string& name,
                                                    const std::string& path) {
  PackInput input;
  input.name = name;
  input.work = &work;
  input.objects = &outlines;
  input.store = &store;
  KB_ASSIGN_OR_RETURN(const std::string bytes, Pack(input));
  KB_RETURN_IF_ERROR(PublishFile(path, bytes, Durability::kCrashOnly));
  return Bundle::Open(path);
}

}  // namespace kbundle::builder
