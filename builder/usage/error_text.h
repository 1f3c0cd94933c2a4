// What each error tag means, by which causes it is met, and what cures each: one table behind
// `kbundle explain-error` and the page on troubleshooting.
#ifndef KBUNDLE_BUILDER_USAGE_ERROR_TEXT_H_
#define KBUNDLE_BUILDER_USAGE_ERROR_TEXT_H_

#include <string>
#include <string_view>

#include "kbundle/status.h"

namespace kbundle::builder {

enum class ErrorTextForm { kPlain, kJson, kMarkdown };

// The tag in what somebody typed or pasted: "NOT_FOUND", "not-found", "5", or a message that holds
// "[kbundle:NOT_FOUND]". kNotFound names the nearest tag.
Result<StatusCode> ErrorTagOf(std::string_view text);

// Of one tag, or with kOk of all of them.
std::string ErrorText(StatusCode code, ErrorTextForm form);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_USAGE_ERROR_TEXT_H_
