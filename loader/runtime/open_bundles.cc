// A compiled program holds a name and an op, and may ask for them at any time, in any thread: so
// names are of the process, and a name stays taken until it is closed.
#include "kbundle/open_bundles.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kbundle/bundle_generated.h"
#include "kbundle/runtime.h"
#include "loader/open/index.h"
#include "loader/support/rows_of_op.h"

namespace kbundle {
namespace {

using PartsPtr = std::shared_ptr<const Parts>;

// Names stay taken until they are closed: a compiled program may ask at any time. Libraries of one
// name share no op, so a name and an op are one library, whatever was opened first.
struct OpenBundles {
  std::mutex mutex;
  std::map<std::string, std::vector<PartsPtr>, std::less<>> by_name;

  static OpenBundles& Global() {
    static OpenBundles& bundles = *new OpenBundles();
    return bundles;
  }
};

std::string NameOr(const std::string& name, const Parts& bundle) {
  return name.empty() ? std::string(bundle.name()) : name;
}

// The first op that both have; "": none.
std::string_view SharedOp(const Parts& a, const Parts& b) {
  const fb::Index& index = IndexOf(a.first());
  for (uint32_t op = 0; op < Count(index.ops()); ++op) {
    if (b.HasOp(OpName(index, op))) return OpName(index, op);
  }
  return "";
}

// The bundle of this content under the name; null: none.
PartsPtr FindContent(const std::vector<PartsPtr>& bundles, const Parts& like) {
  for (const PartsPtr& bundle : bundles) {
    if (bundle->digest() == like.digest()) return bundle;
  }
  return nullptr;
}

Status NoSuchName(const char* doing, std::string_view name, const OpenBundles& open) {
  std::string names;
  for (const auto& [known, bundles] : open.by_name) names += (names.empty() ? "" : ", ") + known;
  return NotFound(fmt::format(
      "{} bundle '{}': no bundle of that name is open in this process; open are: {}; open the file "
      "before the program runs",
      doing, name, names.empty() ? "none" : names));
}

std::string PathsOf(const std::vector<PartsPtr>& bundles) {
  std::string paths;
  for (const PartsPtr& bundle : bundles) paths += (paths.empty() ? "" : ", ") + bundle->path();
  return paths;
}

Status NoSuchOp(std::string_view name, std::string_view op, const std::vector<PartsPtr>& bundles) {
  // One bundle says itself what it has, and what is near.
  if (bundles.size() == 1) return bundles[0]->first().FindOp(op).status();
  return NotFound(
      fmt::format("looking for op '{}': none of the bundles open as '{}' has it: {}; "
                  "open the one that does under this name",
                  op, name, PathsOf(bundles)));
}

}  // namespace

Result<PartsPtr> OpenShared(const std::string& path, const std::string& name) {
  KB_ASSIGN_OR_RETURN(auto bundle, Parts::Open(path, Checks::kByOp));
  return Share(std::move(bundle), name);
}

Result<PartsPtr> Share(PartsPtr bundle, const std::string& name) {
  const std::string key = NameOr(name, *bundle);
  OpenBundles& open = OpenBundles::Global();
  std::lock_guard lock(open.mutex);
  std::vector<PartsPtr>& bundles = open.by_name[key];
  if (PartsPtr held = FindContent(bundles, *bundle)) return held;
  for (const PartsPtr& held : bundles) {
    const std::string_view shared = SharedOp(*bundle, *held);
    if (shared.empty()) continue;
    return AlreadyExists(fmt::format(
        "opening {} as '{}': op '{}' under that name is taken by other content, {} ({} against "
        "{}): open it under another name, or reload the name",
        bundle->path(), key, shared, held->path(), held->content_id(), bundle->content_id()));
  }
  bundles.push_back(bundle);
  return bundle;
}

Result<PartsPtr> ReloadShared(const std::string& path, const std::string& name) {
  KB_ASSIGN_OR_RETURN(auto bundle, Parts::Open(path, Checks::kByOp));
  return Replace(std::move(bundle), name);
}

Result<PartsPtr> Replace(PartsPtr bundle, const std::string& name) {
  std::vector<PartsPtr> old;  // die after the lock
  OpenBundles& open = OpenBundles::Global();
  {
    std::lock_guard lock(open.mutex);
    std::vector<PartsPtr>& bundles = open.by_name[NameOr(name, *bundle)];
    if (PartsPtr held = FindContent(bundles, *bundle)) return held;
    const auto stays = [&](const PartsPtr& held) { return SharedOp(*bundle, *held).empty(); };
    const auto gone = std::stable_partition(bundles.begin(), bundles.end(), stays);
    old.assign(gone, bundles.end());
    bundles.erase(gone, bundles.end());
    bundles.push_back(bundle);
  }
  old.clear();
  Runtime::Global().Trim();
  return bundle;
}

Status CloseShared(std::string_view name, const PartsPtr& bundle) {
  OpenBundles& open = OpenBundles::Global();
  PartsPtr closed;  // dies after the lock
  {
    std::lock_guard lock(open.mutex);
    const auto found = open.by_name.find(name);
    if (found == open.by_name.end()) return NoSuchName("closing", name, open);
    std::vector<PartsPtr>& bundles = found->second;
    const auto place = std::find(bundles.begin(), bundles.end(), bundle);
    if (place == bundles.end()) {
      return NotFound(fmt::format(
          "closing {} as '{}': other bundles have that name: it was closed before, or reloaded",
          bundle->path(), name));
    }
    closed = std::move(*place);
    bundles.erase(place);
    if (bundles.empty()) open.by_name.erase(found);
  }
  closed.reset();
  Runtime::Global().Trim();
  return Status();
}

Result<PartsPtr> FindOpen(std::string_view name, std::string_view op) {
  OpenBundles& open = OpenBundles::Global();
  std::lock_guard lock(open.mutex);
  const auto found = open.by_name.find(name);
  if (found == open.by_name.end() || found->second.empty()) {
    return NoSuchName("looking for", name, open);
  }
  const std::vector<PartsPtr>& bundles = found->second;
  if (op.empty() && bundles.size() == 1) return bundles[0];
  if (op.empty()) {
    return InvalidArgument(
        fmt::format("looking for bundle '{}': several files are open under this name ({}); say "
                    "which op",
                    name, PathsOf(bundles)));
  }
  for (const PartsPtr& bundle : bundles) {
    if (bundle->HasOp(op)) return bundle;
  }
  return NoSuchOp(name, op, bundles);
}

}  // namespace kbundle
