// The bundles that compiled programs of this process refer to by name.
#include <fmt/format.h>

#include <map>
#include <mutex>

#include "kbundle/runtime.h"

namespace kbundle {
namespace {

// Kept for the life of the process: a compiled program may ask at any time.
struct OpenBundles {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Bundle>, std::less<>> by_name;

  static OpenBundles& Global() {
    static OpenBundles& bundles = *new OpenBundles();
    return bundles;
  }
};

}  // namespace

Result<std::shared_ptr<const Bundle>> OpenShared(const std::string& path, const std::string& name) {
  KB_ASSIGN_OR_RETURN(std::shared_ptr<const Bundle> bundle, Bundle::Open(path));
  const std::string key = name.empty() ? std::string(bundle->name()) : name;
  OpenBundles& open = OpenBundles::Global();
  std::lock_guard lock(open.mutex);
  const auto& held = open.by_name.try_emplace(key, bundle).first->second;
  if (held->content_id() == bundle->content_id()) return held;
  return AlreadyExists(fmt::format(
      "opening {} as '{}': the name is taken by other content, {} ({} against {}): open it under "
      "another name",
      path, key, held->path(), held->content_id(), bundle->content_id()));
}

Result<std::shared_ptr<const Bundle>> FindOpen(std::string_view name) {
  OpenBundles& open = OpenBundles::Global();
  std::lock_guard lock(open.mutex);
  auto found = open.by_name.find(name);
  if (found != open.by_name.end()) return found->second;
  std::string names;
  for (const auto& [known, bundle] : open.by_name) names += (names.empty() ? "" : ", ") + known;
  return NotFound(fmt::format(
      "looking for bundle '{}': no bundle of that name is open in this process; open are: {}; open "
      "the file before the program runs",
      name, names.empty() ? "none" : names));
}

}  // namespace kbundle
