// The usual table of edit distances, of which three rows are kept: a swap of neighbours looks two
// rows back. Lengths are bounded, since names come from files.
#include "kbundle/nearest.h"

#include <algorithm>
#include <vector>

namespace kbundle {
namespace {

constexpr size_t kMaxCompared = 256;

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Edits between a and b, counting a swap of neighbours as one.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = Lower(a[i - 1]) == Lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && Lower(a[i - 1]) == Lower(b[j - 2]) &&
          Lower(a[i - 2]) == Lower(b[j - 1]))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string NearestName(std::string_view wanted, std::span<const std::string> known) {
  if (wanted.empty() || wanted.size() > kMaxCompared) return "";
  std::string best;
  size_t best_distance = kMaxCompared;
  for (const std::string& name : known) {
    if (name.empty() || name.size() > kMaxCompared) continue;
    const size_t distance = Distance(wanted, name);
    const size_t allowed = std::max<size_t>(1, std::max(wanted.size(), name.size()) / 3);
    // One edit of a one-letter name is a different name.
    if (distance > allowed || distance >= std::max(wanted.size(), name.size())) continue;
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::string DidYouMean(std::string_view wanted, std::span<const std::string> known) {
  const std::string nearest = NearestName(wanted, known);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

}  // namespace kbundle
