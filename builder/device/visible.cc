// Numbers are of what the process sees already: under a scheduler that has given a job GPUs 4 to 7,
// number 1 is GPU 5, whatever the entries of its CUDA_VISIBLE_DEVICES look like (UUIDs, perhaps).
#include "builder/device/visible.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include "builder/device/gpus.h"

namespace kbundle::builder {
namespace {

constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES";

std::vector<std::string> Entries(std::string_view text) {
  std::vector<std::string> entries;
  while (true) {
    const size_t comma = text.find(',');
    entries.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return entries;
    text.remove_prefix(comma + 1);
  }
}

// Nothing where `text` is no list of different numbers.
std::vector<int> NumbersOf(const std::string& text) {
  std::vector<int> numbers;
  std::set<int> seen;
  for (const std::string& word : Entries(text)) {
    int number = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool whole = error == std::errc() && end == word.data() + word.size();
    if (!whole || number < 0 || !seen.insert(number).second) return {};
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

std::string MisspelledGpus(const std::string& asked) {
  if (asked == "all" || !NumbersOf(asked).empty()) return "";
  return fmt::format("\"{}\": a GPU's number, different ones like 0,2, or all", asked);
}

std::string OneVisibleGpu(int number) {
  const char* shown = getenv(kVariable);
  if (shown == nullptr) return std::to_string(number);
  const std::vector<std::string> entries = Entries(shown);
  const size_t at = static_cast<size_t>(number);
  return at < entries.size() ? entries[at] : "";
}

Result<int> ShowGpus(const std::string& asked) {
  KB_ASSIGN_OR_RETURN(const int count, CountGpus());
  if (asked == "all" && count > 0) return count;
  const std::vector<int> numbers = NumbersOf(asked);
  std::vector<std::string> entries;
  for (const int number : numbers) {
    KB_RETURN_IF_ERROR(FindGpu(number, "choosing").status());
    entries.push_back(OneVisibleGpu(number));
  }
  if (entries.empty()) return Unavailable("choosing GPUs: this process sees none");
  setenv(kVariable, fmt::format("{}", fmt::join(entries, ",")).c_str(), /*overwrite=*/1);
  return static_cast<int>(numbers.size());
}

}  // namespace kbundle::builder
