// Base64 (RFC 4648, padded, one line): bytes inside JSON.
#ifndef KBUNDLE_BUILDER_SUPPORT_BASE64_H_
#define KBUNDLE_BUILDER_SUPPORT_BASE64_H_

#include <optional>
#include <string>
#include <string_view>

namespace kbundle::builder {

std::string Base64(std::string_view bytes);
// Nothing when the text is not what Base64 writes.
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_BASE64_H_
