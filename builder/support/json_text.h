// JSON whose texts may be an author's or a compiler's.
#ifndef KBUNDLE_BUILDER_SUPPORT_JSON_TEXT_H_
#define KBUNDLE_BUILDER_SUPPORT_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>

namespace kbundle::builder {

// In one line. Bytes that are no UTF-8 become U+FFFD, where dump() alone would throw.
inline std::string JsonText(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SUPPORT_JSON_TEXT_H_
