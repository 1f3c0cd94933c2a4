// Score modifiers, cut into tokens.
#ifndef KBUNDLE_BUILDER_SCORE_TOKEN_H_
#define KBUNDLE_BUILDER_SCORE_TOKEN_H_

#include <string_view>

#include "builder/support/token.h"

namespace kbundle::builder {

// The first token at `at` or behind it, blanks passed over; kEnd where there is none. A character
// that begins no token comes back alone as kText, of which modifiers have none.
Token NextScoreToken(std::string_view text, size_t at);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_SCORE_TOKEN_H_
