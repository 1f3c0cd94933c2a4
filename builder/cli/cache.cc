// Others may build from the folder, or prune it, while we look: a list is a moment's, a file that
// is gone when we come to remove it was taken by another, and what is damaged is left for the next
// build, which takes it for a miss.
#include "builder/cli/cache.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "builder/store/inventory.h"
#include "builder/store/object_store.h"
#include "builder/support/files.h"
#include "builder/support/json_text.h"

namespace kbundle::builder {
namespace {

using Json = nlohmann::json;
using Files = std::vector<StoredFile>;

// A number and one of the units' letters; nullopt for anything else.
std::optional<int64_t> Measure(const std::string& text, const std::map<char, int64_t>& units) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || end + 1 != text.data() + text.size()) return {};
  const auto unit = units.find(*end);
  int64_t product = 0;
  if (unit == units.end() || __builtin_mul_overflow(number, unit->second, &product)) return {};
  return product;
}

uint64_t BytesOf(const Files& files) {
  uint64_t bytes = 0;
  for (const StoredFile& file : files) bytes += file.bytes;
  return bytes;
}

std::string Day(int64_t seconds) {
  const time_t time = seconds;
  struct tm parts {};
  gmtime_r(&time, &parts);
  char text[16];
  return {text, strftime(text, sizeof text, "%Y-%m-%d", &parts)};
}

void PrintStatus(const Terminal& terminal, const std::string& folder, const Files& files) {
  std::map<std::string, Files> kinds;
  for (const StoredFile& file : files) kinds[file.kind].push_back(file);
  terminal.Line(terminal.Paint(Terminal::Style::kBold, folder) + ": " +
                Counted(files.size(), "entry") + ", " + Grouped(BytesOf(files)) + " bytes");
  if (files.empty()) return;
  Table table({"KIND", "ENTRIES", "BYTES", "USED FROM", "TO"});
  table.Right(1);
  table.Right(2);
  for (const auto& [kind, of] : kinds) {
    table.Row({kind, Grouped(of.size()), Grouped(BytesOf(of)), Day(of.front().last_use),
               Day(of.back().last_use)});
  }
  table.Print(terminal);
}

Json StatusJson(const std::string& folder, const Files& files) {
  Json kinds = Json::object();
  for (const StoredFile& file : files) {
    Json& kind = *kinds.emplace(file.kind, Json{{"entries", 0}, {"bytes", 0}}).first;
    kind["entries"] = kind["entries"].get<uint64_t>() + 1;
    kind["bytes"] = kind["bytes"].get<uint64_t>() + file.bytes;
  }
  return {{"folder", folder},
          {"entries", files.size()},
          {"bytes", BytesOf(files)},
          {"kinds", std::move(kinds)}};
}

int Verify(const Terminal& terminal, const Files& files) {
  Json damaged = Json::array(), unreadable = Json::array();
  for (const StoredFile& file : files) {
    const Status status = CheckWhole(file);
    if (status.ok()) continue;
    const bool read = status.code() == StatusCode::kDataLoss;
    (read ? damaged : unreadable).push_back(file.path);
    if (terminal.json()) continue;
    terminal.Line(status.message() +
                  (read ? "; a build takes it for a miss, and makes it again" : ""));
  }
  if (terminal.json()) {
    terminal.Line(
        JsonText({{"checked", files.size()}, {"damaged", damaged}, {"unreadable", unreadable}}));
  } else {
    terminal.Line(Counted(files.size(), "entry") + " checked, " + Grouped(damaged.size()) +
                  " damaged" +
                  (unreadable.empty() ? "" : ", " + Grouped(unreadable.size()) + " not readable"));
  }
  return damaged.empty() && unreadable.empty() ? kExitOk : kExitNo;
}

int Prune(const Terminal& terminal, const Files& files, const PruneLimits& limits) {
  Files gone;
  Status refused;  // the first time
  uint64_t stay = 0;
  for (const StoredFile& file : ToPrune(files, limits, time(nullptr))) {
    if (unlink(file.path.c_str()) == 0) {
      gone.push_back(file);
    } else if (errno != ENOENT) {  // which another's prune took
      if (stay++ == 0) refused = SystemError("removing", file.path, errno);
    }
  }
  const uint64_t left = BytesOf(files) - BytesOf(gone);
  if (terminal.json()) {
    terminal.Line(JsonText({{"removed", gone.size()},
                            {"removed_bytes", BytesOf(gone)},
                            {"refused", stay},
                            {"entries", files.size() - gone.size()},
                            {"bytes", left}}));
  } else {
    terminal.Line("removed " + Counted(gone.size(), "entry") + ", " + Grouped(BytesOf(gone)) +
                  " bytes; " + Grouped(left) + " bytes are left");
  }
  if (stay == 0) return kExitOk;
  terminal.Warn(Counted(stay, "entry") + " of those to remove stay: " + refused.message());
  return kExitNo;
}

}  // namespace

int CacheCommand::Run(const Terminal& terminal) const {
  PruneLimits limits;
  if (!unused.empty()) {
    limits.unused_seconds = Measure(unused, {{'h', 3600}, {'d', 24 * 3600}, {'w', 7 * 24 * 3600}});
    if (!limits.unused_seconds)
      return terminal.Usage("cache", "--unused \"" + unused + "\": a time like 12h, 30d or 8w");
  }
  if (!max_size.empty()) {
    const auto size = Measure(max_size, {{'K', 1 << 10}, {'M', 1 << 20}, {'G', 1 << 30}});
    if (!size)
      return terminal.Usage("cache", "--max-size \"" + max_size + "\": a size like 500M or 5G");
    limits.bytes = static_cast<uint64_t>(*size);
  }
  const bool prunes = action == "prune", limited = limits.unused_seconds || limits.bytes;
  if (prunes != limited) {
    return terminal.Usage("cache", prunes
                                       ? "prune wants --unused 30d, --max-size 5G, or both"
                                       : "--unused and --max-size are for `kbundle cache prune`");
  }
  const Result<std::string> place = ObjectStore::FolderOf(folder);
  if (!place.ok()) return terminal.Fail(place.status());
  // Where no build has kept anything yet there is nothing; a name that was typed is of something.
  if (!folder.empty() && !std::filesystem::exists(folder)) {
    return terminal.Fail(NotFound("looking at the cache " + folder + ": no such folder"));
  }
  const Result<Files> files = ListStore(*place);
  if (!files.ok()) return terminal.Fail(files.status());
  if (prunes) return Prune(terminal, *files, limits);
  if (action == "verify") return Verify(terminal, *files);
  if (terminal.json()) {
    terminal.Line(JsonText(StatusJson(*place, *files)));
  } else {
    PrintStatus(terminal, *place, *files);
  }
  return kExitOk;
}

}  // namespace kbundle::builder
