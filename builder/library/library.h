// What a command that reads a bundle is pointed at: a file, with it the parts of its library that
// are installed, or the folder that it is in.
#ifndef KBUNDLE_BUILDER_LIBRARY_LIBRARY_H_
#define KBUNDLE_BUILDER_LIBRARY_LIBRARY_H_

#include <memory>
#include <string>
#include <vector>

#include "kbundle/parts.h"

namespace kbundle::builder {

// path: a bundle, opened by Parts::Open, or a folder in which, or in folders of which, one bundle
// lies, parts of one aside; kNotFound: none, kInvalidArgument: several, and which.
Result<std::shared_ptr<const Parts>> OpenLibrary(const std::string& path);

// Whether it is one of several files, here or not.
bool IsDivided(const Parts& parts);

// "sm_90a, sm_100f: pip install ..": a line for each way to get what is not here.
std::vector<std::string> AbsentLines(const std::vector<AbsentPart>& absent);

}  // namespace kbundle::builder

#endif  // KBUNDLE_BUILDER_LIBRARY_LIBRARY_H_
