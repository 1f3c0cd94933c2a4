// A library as one HTML file that needs no network and no other file.
#ifndef KBUNDLE_BUILDER_REPORT_PAGE_H_
#define KBUNDLE_BUILDER_REPORT_PAGE_H_

#include <string>
#include <string_view>

#include "kbundle/parts.h"

namespace kbundle::builder {

// The same bytes for the same files. Whatever stands in them is text there, never markup or
// a program. An error means that it lists what its own interface refuses.
Result<std::string> BundlePage(const Parts& library);

// How such a page begins.
inline constexpr std::string_view kBundlePageBegins =
    "<!doctype html>\n<!-- kbundle inspect --html -->";

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_REPORT_PAGE_H_
