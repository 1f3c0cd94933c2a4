// The known name that somebody who wrote `wanted` most likely meant.
#ifndef KBUNDLE_NEAREST_H_
#define KBUNDLE_NEAREST_H_

#include <span>
#include <string>
#include <string_view>

namespace kbundle {

// By edit distance (insert, delete, replace, swap of neighbours), case ignored, at most a third of
// the longer name's length; the earlier one of equals. Empty when none is close. Names longer than
// 256 bytes are never close. Pure.
std::string NearestName(std::string_view wanted, std::span<const std::string> known);

// "; did you mean 'x'?" or, when none is close, "".
std::string DidYouMean(std::string_view wanted, std::span<const std::string> known);

}  // namespace kbundle

#endif  // KBUNDLE_NEAREST_H_
